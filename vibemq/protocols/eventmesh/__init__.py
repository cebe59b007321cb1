"""Apache EventMesh's protocols: TCP in its three dialects, and HTTP. Source: docs/spec/eventmesh.md."""

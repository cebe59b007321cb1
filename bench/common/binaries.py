"""Where servers are that their users build themselves."""

import os
import shutil
from pathlib import Path


def go_built(name: str) -> str:
    """What `go install` has built, else what is on the PATH; empty when there is neither."""
    paths = [*os.environ.get("GOPATH", "").split(os.pathsep), str(Path.home() / "go")]
    folders = [os.environ.get("GOBIN", ""), *(f"{path}/bin" for path in paths if path)]
    built = (shutil.which(name, path=folder) for folder in folders if folder)
    return next((found for found in built if found), None) or shutil.which(name) or ""

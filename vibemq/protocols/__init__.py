"""Wire protocols: bytes to commands and effects to bytes, without sockets or clocks. One folder each."""

"""The LMDB file: how it is opened, checked before it is mapped, and used as a key-value store."""

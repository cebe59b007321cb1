"""Bytes of the native protocol to values and back. The client uses this room as well."""

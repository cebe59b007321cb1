"""Requests: messages whose publisher waits for a reply."""

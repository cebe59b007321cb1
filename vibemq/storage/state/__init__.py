"""The state of a store without its messages, and what each record does to it. Pure."""

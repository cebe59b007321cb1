"""EventMesh over TCP.

frames -> package -> session -> publishing, subscriptions, pushes -> model commands
"""

"""Who may do what on a running broker, and who is there: users, access tokens, connections.

rules        the text form of permissions
passwords    secrets from a prompt or from standard input, never from an argument
"""

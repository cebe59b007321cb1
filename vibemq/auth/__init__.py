"""Authentication and authorization.

matrix.py      command or operation -> the permissions that it needs: the only table, read by every door
policy.py      users and their rules -> is this permission held?
users.py       credentials -> principal
passwords.py   password hashes
"""

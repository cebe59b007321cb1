"""The command line: `vibemq` for those who publish and consume, `vibemq-admin` for those who operate.

One file per subcommand; `main.py` and `admin/main.py` only list them. Shared by all: `flags` (options that mean the
same everywhere), `values` (text to numbers), `output` and `progress` (one place decides text, JSON, terminal or
pipe), `online` (one connection for one command), `exits` (what an exit code means).
"""

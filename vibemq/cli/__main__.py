"""`python -m vibemq.cli` is `vibemq`."""

from vibemq.cli.main import run

if __name__ == "__main__":
    run()

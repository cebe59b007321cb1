"""`python -m vibemq.cli` is `vibemq`."""

from vibemq.cli import run

if __name__ == "__main__":
    run()

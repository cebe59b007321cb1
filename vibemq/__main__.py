"""`python -m vibemq` is `vibemq`, whichever scripts are on the PATH."""

from vibemq.cli import run

if __name__ == "__main__":
    run()

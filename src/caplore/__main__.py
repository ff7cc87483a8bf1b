"""`python -m caplore` is `caplore`."""

from caplore.cli.main import run

if __name__ == "__main__":
    run()

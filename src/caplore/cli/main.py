"""`caplore COMMAND ...`: find the command, import only that one, turn errors into messages."""

import errno
import importlib
import os
import signal
import sys
from typing import NamedTuple

from caplore import __version__
from caplore.errors import CaploreError


class Command(NamedTuple):
    module: str
    help: str


COMMANDS = {
    "demo": Command("caplore.cli.demo", "the whole path on a made world, in a few minutes"),
    "data": Command("caplore.cli.data", "make or import a data set (scenes, import, check)"),
    "features": Command("caplore.cli.features", "encode the pictures or clips of a data set"),
    "train": Command("caplore.cli.train", "train a recipe: cross-entropy, then sequence-level"),
    "evaluate": Command("caplore.cli.evaluate", "decode a split with a run and score it"),
    "report": Command("caplore.cli.report", "one HTML page about runs"),
    "score": Command("caplore.cli.score", "score any captions against references"),
    "compare": Command("caplore.cli.compare", "two results: difference, interval, significance"),
    "caption": Command("caplore.cli.caption", "caption your own pictures and clips with a run"),
    "table": Command("caplore.cli.table", "train and evaluate a grid of runs, as the paper's tables"),
    "setup": Command("caplore.cli.setup", "fetch what METEOR and SPICE need"),
    "doctor": Command("caplore.cli.doctor", "what is installed, what works, what is missing"),
}


def usage() -> str:
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:<{width}}  {command.help}" for name, command in COMMANDS.items())
    return (
        "usage: caplore COMMAND [options]      caplore COMMAND --help\n\n"
        "Captioners that can say more than one right thing, and the numbers that show it.\n\n"
        f"{rows}\n\n"
        "options: --version, --help, --debug (show the traceback of an error)"
    )


def main(argv: list[str] | None = None) -> int:
    """Run one command; 0 is success, 2 a mistake the message explains, 130 an interruption."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    arguments = [a for a in arguments if a != "--debug"]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if arguments else 2
    if arguments[0] in ("--version", "-V"):
        print(f"caplore {__version__}")
        return 0
    try:
        return _command(arguments[0])(arguments[1:])
    except CaploreError as error:
        if debug:
            raise
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ninterrupted: what was already written is whole and stays", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:  # the reader of our output has gone, as in `caplore ... | head`
        _drop_output()
        return 128 + signal.SIGPIPE
    except OSError as error:
        if debug or error.errno != errno.ENOSPC:
            raise
        _drop_output()
        print("error: the disk that the output goes to is full", file=sys.stderr)
        return 2


def _drop_output() -> None:
    """What is still to be printed goes nowhere, without an error at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _command(name: str):  # type: ignore[no-untyped-def]
    if name not in COMMANDS:
        import difflib

        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean `caplore {near[0]}`?" if near else f"one of {', '.join(COMMANDS)}"
        raise CaploreError(f"there is no command {name!r}", fix=hint)
    return importlib.import_module(COMMANDS[name].module).main


def run() -> None:
    """The console script."""
    sys.exit(main())


if __name__ == "__main__":
    run()

"""`caplore demo`: the whole path on the made world, as a person would type it, in one command."""

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from caplore.cli.parsing import parse
from caplore.cli.table import PAPER, make_table

ENCODER = "tiny"


@dataclass(frozen=True, kw_only=True)
class Options:
    """The demo goes on where it was interrupted; what is done is not done again."""

    to: Path = Path("demo")
    """Folder for the data set, the runs and the report."""
    seeds: int = 1
    """Seeds of each objective; docs/scenes.md shows what five give."""
    jobs: int = 0
    """Runs at a time; 0 is one per core, two at most."""


def main(argv: list[str]) -> int:
    options = parse(
        Options, argv, prog="caplore demo", description="Made world, four objectives, tables and a report."
    )
    began = time.monotonic()
    data = options.to / "data"
    if not (data / "dataset.json").is_file():
        _run("data", ["scenes", "--to", str(data)])
    if not (data / "features" / ENCODER / "index.json").is_file():
        _run("features", [str(data), "--encoder", ENCODER])
    from caplore.data.dataset import open_dataset

    make_table(
        "scenes",
        options.to / "runs",
        open_dataset(data),
        models=["fc"],
        objectives=PAPER,
        seeds=range(options.seeds),
        split="test",
        jobs=options.jobs or min(2, os.cpu_count() or 1),
        knobs=[],
    )
    print(f"demo: {time.monotonic() - began:.0f} s")
    return 0


def _run(command: str, arguments: list[str]) -> None:
    """One caplore command in this process; its errors are this command's errors."""
    import importlib

    from caplore.cli.main import COMMANDS

    print(f"caplore {command} {' '.join(arguments)}", file=sys.stderr, flush=True)
    code = importlib.import_module(COMMANDS[command].module).main(arguments)
    if code:
        raise SystemExit(code)

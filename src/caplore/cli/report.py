"""`caplore report RUNS...`: read runs, write one HTML page."""

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from caplore.cli.parsing import parse
from caplore.errors import ConfigError, InputError
from caplore.files import write_text


@dataclass(frozen=True, kw_only=True)
class Options:
    """What `caplore report` can be told."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders that were evaluated; a folder of runs stands for all the runs in it."""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html")
    """The page to write."""
    split: str = "test"
    """Which results to show."""
    data: Path | None = None
    """Folder of the data set, for its pictures; by default where the runs say it is."""
    examples: int = 8
    """How many inputs to show with what was said about them."""


def main(argv: list[str]) -> int:
    options = parse(
        Options, argv, prog="caplore report", description="Write one self-contained HTML page about runs."
    )
    if options.examples < 0:
        raise ConfigError(f"--examples is {options.examples}, but it needs to be 0 or more")
    if options.out.is_dir():
        raise InputError(f"{options.out} is a folder", fix=f"name a file: -o {options.out / 'report.html'}")
    if options.data is not None and not options.data.is_dir():
        raise InputError(
            f"--data {options.data} is not a folder", fix="name the folder that holds dataset.json"
        )
    from caplore.report.page import render
    from caplore.report.runs import load

    runs = load(options.runs, options.split)
    command = shlex.join(["caplore", "report", *argv])
    write_text(options.out, render(runs, media=options.data, examples=options.examples, command=command))
    size = options.out.stat().st_size
    print(
        f"{options.out}: {len(runs)} run{'' if len(runs) == 1 else 's'}, {size / 1000:,.0f} kB;"
        " open it in a browser"
    )
    if not any(run.log.phases for run in runs):
        print("no training curves: none of these runs has a log.jsonl", file=sys.stderr)
    return 0

"""caplore score CANDIDATES --refs REFS: every metric of the field on captions from anywhere."""

import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Optional

import tyro

from caplore.cli.parsing import Paths, parse
from caplore.cli.terminal import WIDEST, page_width
from caplore.errors import ConfigError
from caplore.evaluation.scoring import METRICS, Progress, Result, SpiceSettings, score

if TYPE_CHECKING:
    from caplore.metrics.signature import Score

NAME = 20
INTERVAL = 22
ABOUT = f"""Score captions against references: BLEU, ROUGE-L, CIDEr-D, METEOR, SPICE and, for
several captions per input, diversity and coverage. Nothing of it needs Java but SPICE.

  caplore score results.json --refs captions_val2014.json
  caplore score a.txt --refs ref0.txt ref1.txt ref2.txt      (line by line)
  caplore score samples.jsonl --refs DIR:test --bootstrap 1000 --json out.json

Files: COCO results or annotations, Karpathy's dataset.json (FILE:split), JSON or JSONL
records, CSV or TSV with a header, id<tab>caption, plain text, a caplore data set (DIR:split).
Metrics: {", ".join(METRICS[:8])},
{", ".join(METRICS[8:])}. See docs/score.md."""

UNSCALED = {"length", "vocabulary", "vendi"}  # not shares: times 100 they mean nothing
READING = {
    "cider_d": "its scale is 0 to 10, not 0 to 1; papers print it times 100",
    "cider": "the plain one, scale 0 to 10; what coco-caption calls CIDEr is cider_d",
    "recall_cider_d": "on CIDEr-D's scale of 0 to 10",
    "meteor": "METEOR 1.5; NLTK's, without paraphrases, is another number",
    "spice": "around .2 is usual with five references",
    "mbleu_4": "lower is more varied",
    "bad_endings": "the share that ends like 'on a': cut off",
}


# Optional[X], not X | None: of that tyro asks typeguard, whose import takes half as long as numpy's.
# ruff: noqa: UP045
@dataclass(frozen=True)
class Options:
    candidates: Annotated[Paths, tyro.conf.Positional, tyro.conf.arg(metavar="CANDIDATES ...")]
    """The captions to score; text files given together stand side by side."""
    refs: Annotated[Paths, tyro.conf.arg(metavar="REFS ...")]
    """The references, in any of the formats."""
    metrics: Optional[str] = None
    """Names with commas between them. Default: all that need no set-up, and METEOR if it is set up."""
    df: Optional[Path] = None
    """Captions whose document frequencies CIDEr takes (a training set). Default: those of the references."""
    training: Optional[Path] = None
    """Training captions, for the share of novel captions."""
    covered: Literal["cider_d", "bleu_4", "rouge_l"] = "cider_d"
    """The similarity behind recall, precision and F1 of the references."""
    meteor: Literal["python", "java"] = "python"
    """caplore's METEOR, or the original jar."""
    bootstrap: int = 0
    """Draws for 95 % intervals; 1000 is usual, 0 none."""
    json: Optional[Path] = None
    """Write everything here, and what `caplore compare` needs beside it."""
    spice_minutes: Optional[float] = None
    """Time limit of SPICE; the next run goes on from there."""
    spice_threads: Optional[int] = None
    """Threads of SPICE. Default: all cores."""
    spice_memory: Optional[float] = None
    """GiB that SPICE may use. Default: 4, or six tenths of the machine's."""

    def __post_init__(self) -> None:
        if not self.candidates:
            raise ConfigError("no file of captions was named", fix="caplore score CANDIDATES --refs REFS")
        if self.bootstrap < 0:
            raise ConfigError(f"--bootstrap is {self.bootstrap}, a number of draws is 0 or more")
        if self.spice_threads is not None and self.spice_threads < 1:
            raise ConfigError(f"--spice-threads is {self.spice_threads}, a program has at least 1")


def main(argv: list[str]) -> int:
    options = parse(Options, argv, prog="caplore score", description=ABOUT)
    with _progress() as progress:
        result = score(
            options.candidates,
            options.refs,
            metrics=None if options.metrics is None else options.metrics.split(","),
            df=options.df,
            training=options.training,
            covered=options.covered,
            meteor=options.meteor,
            bootstrap=options.bootstrap,
            spice=SpiceSettings(
                minutes=options.spice_minutes,
                threads=options.spice_threads,
                memory_gib=options.spice_memory,
            ),
            progress=progress,
        )
    print("\n".join(page(result, page_width())), flush=True)
    if options.json is not None:  # last: a disk that is full does not take the table with it
        result.save(options.json)
    return 0


def page(result: Result, width: int = WIDEST) -> list[str]:
    """The scores as a table: sources, oddities, a row a score, the signatures."""
    lines = []
    for role, side in result.made_of.items():
        head = f"{role}: {side['captions']:,} captions of {side['inputs']:,} inputs, "
        lines += textwrap.wrap(head + side["source"], width, subsequent_indent="  ")
    for note in result.notes:
        lines += textwrap.wrap(f"note: {note}", width, subsequent_indent="  ")
    head = f"{'':{NAME}}{'value':>10}{'x 100':>9}"
    beside = len(head) + INTERVAL <= width
    lines += ["", head + ("     95 % interval" if result.intervals and beside else "")]
    for name, found in result.scores.corpus.items():
        lines += _row(name, found, result.intervals.get(name), width, beside=beside)
    return [*lines, "", *_signatures(result, width)]


def _row(name: str, found: "Score", interval: list[float] | None, width: int, *, beside: bool) -> list[str]:
    """A score, with its interval beside it or, where the page is narrow, below."""
    if found.value is None:
        return _note(f"{name:<{NAME}}  not computed: {found.note}", width, "")
    times = "" if name in UNSCALED else f"{100 * found.value:.1f}"
    row = f"{name:<{NAME}}{found.value:>10.4f}{times:>9}"
    between = "" if interval is None else f"{interval[0]:.4f} .. {interval[1]:.4f}"
    lines = [f"{row}   {between}".rstrip() if beside else row.rstrip()]
    if between and not beside:
        lines += _note(f"95 % interval {between}", width)
    for note in (READING.get(name), found.note if not name.startswith(("mean_", "oracle_")) else None):
        if note:
            lines += _note(note, width)
    return lines


def _note(text: str, width: int, indent: str = "    ") -> list[str]:
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent + "    ")


def _signatures(result: Result, width: int) -> list[str]:
    """Each signature once: scores that differ only in their name share a line."""
    of: dict[str, list[str]] = {}
    for name, found in result.scores.corpus.items():
        of.setdefault(_settings(found.signature), []).append(name)
    lines = ["signatures"]
    for settings, names in of.items():
        lines += textwrap.wrap(f"{', '.join(names)}: ", width, initial_indent="  ", subsequent_indent="  ")
        lines += textwrap.wrap(
            settings.replace("|", " | "), width, initial_indent="    ", subsequent_indent="    "
        )
    return lines


def _settings(signature: str) -> str:
    """What tells a signature from the others on the page. Those in the JSON are whole."""
    label, _, settings = signature.partition("|")
    if label.startswith(("mean-of-", "best-of-")):
        return f"{label}|of each input, signed as the score itself"
    return settings if label.startswith(("BLEU", "mBLEU", "Div", "SPICE")) else signature


@contextmanager
def _progress() -> Iterator[Progress | None]:
    """A bar for SPICE, on a terminal, with the time that is left."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    bar = Progress(TextColumn("SPICE"), *columns, console=Console(stderr=True), transient=True)
    task = bar.add_task("SPICE", total=None, start=False)

    def show(done: int, total: int) -> None:
        bar.start()
        bar.start_task(task)
        bar.update(task, completed=done, total=total)

    try:
        yield show
    finally:
        bar.stop()

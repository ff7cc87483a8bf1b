"""`caplore evaluate RUN`: decode a split, score it, write results/<split>.json, print the table."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from caplore.cli.parsing import parse


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to evaluate and how."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Run folders."""
    split: str = "test"
    """Split of the data set."""
    data: Path | None = None
    """Another data set folder than the one the run was trained on (same features)."""
    exact: int = 200
    """Made worlds: inputs whose complete truth is walked for the exact figures; 0 leaves them out."""
    limit: int = 0
    """Only the first inputs of the split; 0 is all."""
    spice: bool = False
    """SPICE of the single captions as well (once: caplore setup spice); METEOR is there once it is set up."""
    seed: int = 0
    """Seed of the drawn captions."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""


def main(argv: list[str]) -> int:
    options = parse(
        Options, argv, prog="caplore evaluate", description="Decode a split with runs and score it."
    )
    from caplore.errors import ConfigError
    from caplore.evaluation.evaluate import Plan, evaluate
    from caplore.training import distributed

    if not options.runs:
        raise ConfigError("no run was named", fix="caplore evaluate RUN [RUN ...]")
    plan = Plan(
        split=options.split,
        exact=options.exact,
        limit=options.limit,
        spice=options.spice,
        seed=options.seed,
        device=options.device,
    )
    for run in options.runs:
        path = evaluate(run, plan, data=options.data)
        if distributed.speaks():
            print(f"wrote {path}", file=sys.stderr)
    distributed.leave()
    if not distributed.speaks():
        return 0
    from caplore.cli.terminal import page_width
    from caplore.report.runs import load
    from caplore.report.tables import terminal

    found = [load([run], options.split)[0].result for run in options.runs]
    for dataset in dict.fromkeys(result.dataset for result in found):
        print(terminal([result for result in found if result.dataset == dataset], width=page_width()))
    return 0

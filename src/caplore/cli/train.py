"""`caplore train RECIPE [--knob value ...]` and `caplore train --resume RUN`."""

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from caplore.errors import ConfigError, TrainingStopped
from caplore.training.recipes import RECIPES

if TYPE_CHECKING:
    from caplore.training.run import Run

UNMOVED = "no epoch of the sequence phase was better than the model it began with, which is the one kept"
USAGE = """usage: caplore train RECIPE [--knob value ...]     caplore train RECIPE --help lists the knobs
       caplore train --resume RUN [--quiet]         go on where an interrupted run stopped

recipes:"""


def main(argv: list[str]) -> int:
    quiet = "--quiet" in argv
    argv = [a for a in argv if a != "--quiet"]
    if not argv or argv[0] in ("-h", "--help"):
        print(USAGE)
        width = max(map(len, RECIPES))
        for name, (what, _) in RECIPES.items():
            print(f"  {name:<{width}}  {what}")
        return 0 if argv else 2
    if argv[0] == "--resume":
        if len(argv) != 2:
            raise ConfigError(
                "--resume takes one run folder and nothing else", fix="caplore train --resume RUN"
            )
        from caplore.training.loop import resume

        return _finish(lambda: resume(Path(argv[1]), quiet=quiet), quiet)
    recipe = tyro.extras.overridable_config_cli(
        {name: (what, value) for name, (what, value) in RECIPES.items()},
        prog="caplore train",
        args=argv,
        config=(tyro.conf.AvoidSubcommands,),
    )
    from caplore.training.loop import train

    return _finish(lambda: train(recipe, argv[0], quiet=quiet), quiet)


def _finish(work: "Callable[[], Run]", quiet: bool) -> int:
    """Train and say how it ended, once: what all processes of a run come to alike, the first one says."""
    from caplore.training import distributed
    from caplore.training.loop import Interrupted

    speaks = distributed.speaks()
    try:
        run = work()
    except Interrupted as stop:
        if speaks:
            print(
                f"\n{signal.Signals(stop.number).name}: saved after step {stop.step}\n"
                f"  go on: caplore train --resume {stop.run}",
                file=sys.stderr,
            )
        return 128 + stop.number
    except (ConfigError, TrainingStopped):
        if speaks:
            raise
        return 2
    distributed.leave()
    if speaks and not quiet:
        if run.is_unmoved():
            print(f"note: {UNMOVED}; another --sequence.lr or --sequence.epochs may help", file=sys.stderr)
        print(f"trained: {run.path}\nnext:    caplore evaluate {run.path}", file=sys.stderr)
    return 0

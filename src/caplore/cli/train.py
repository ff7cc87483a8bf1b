"""`caplore train RECIPE [--knob value ...]` and `caplore train --resume RUN`."""

import sys
from pathlib import Path

import tyro

from caplore.errors import ConfigError
from caplore.training.recipes import RECIPES

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

        run = resume(Path(argv[1]), quiet=quiet)
    else:
        recipe = tyro.extras.overridable_config_cli(
            {name: (what, value) for name, (what, value) in RECIPES.items()},
            prog="caplore train",
            args=argv,
            config=(tyro.conf.AvoidSubcommands,),
        )
        from caplore.training.loop import train

        run = train(recipe, argv[0], quiet=quiet)
    if not quiet:
        print(f"trained: {run.path}\nnext:    caplore evaluate {run.path}", file=sys.stderr)
    return 0

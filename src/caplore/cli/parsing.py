"""Options as a frozen dataclass: the docstring under each field is its help; a wrong option exits 2."""

from pathlib import Path
from typing import Annotated, TypeVar

import tyro
from tyro.constructors import PrimitiveConstructorSpec

Options = TypeVar("Options")


class _Paths(tuple[Path, ...]):
    """A class of its own: for `tuple[Path, ...]` tyro imports typeguard, with it unittest, asyncio and ssl, and that
    takes half as long as numpy."""


Paths = Annotated[
    _Paths,
    PrimitiveConstructorSpec(
        nargs="*",
        metavar="PATH ...",
        instance_from_str=lambda names: _Paths(map(Path, names)),
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda paths: [str(path) for path in paths],
    ),
]
"""Several paths, as the type of an option."""


def parse(options: type[Options], argv: list[str], *, prog: str, description: str) -> Options:
    """argv as a value of this dataclass; tyro prints usage and exits 2 on a mistake, naming the nearest option."""
    return tyro.cli(
        options, args=argv, prog=prog, description=description, config=(tyro.conf.OmitArgPrefixes,)
    )

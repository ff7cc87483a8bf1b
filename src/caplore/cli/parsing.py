"""Options as a frozen dataclass: the docstring under each field is its help; a wrong option exits 2."""

from typing import TypeVar

import tyro

Options = TypeVar("Options")


def parse(options: type[Options], argv: list[str], *, prog: str, description: str) -> Options:
    """argv as a value of this dataclass; tyro prints usage and exits 2 on a mistake, naming the nearest option."""
    return tyro.cli(
        options, args=argv, prog=prog, description=description, config=(tyro.conf.OmitArgPrefixes,)
    )

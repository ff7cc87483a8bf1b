"""The compiled twin of words.py, align.py, stem.py and normalize.py: the same counts from align.cpp.

It learns words anew in each call and each thread, straight from the mapped tables, and keeps nothing but an index of
their words, which takes some ten milliseconds to make.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from caplore.machine import cores
from caplore.metrics.meteor.normalize import normalize
from caplore.metrics.meteor.tables import Tables
from caplore.native import native

FEWEST = 250
"""Captions below which another thread, with all words to learn, costs more than it gains."""


class Twin:
    """The counts of pairs by compiled code."""

    def __init__(self, tables: Tables, module: ModuleType) -> None:
        self._tables, self._module = tables, module

    def counts(
        self,
        candidates: Sequence[str],
        references: Sequence[Sequence[str]],
        threads: int | None = None,
        go_on: Callable[[], object] | None = None,
    ) -> NDArray[np.int32]:
        """A row for each caption with each of its references, in order. Other Python threads run meanwhile.

        `go_on` is called some times a second; what it raises ends the work.
        """
        threads = max(1, min(threads or cores(), len(candidates) // FEWEST))
        made = self._module.counts(self._index, candidates, references, self._normal, threads, go_on)
        return np.frombuffer(made, dtype=np.int32)

    @cached_property
    def _index(self) -> object:
        return self._module.tables(self._tables.arrays)

    def _normal(self, line: str) -> bytes:
        return " ".join(normalize(line, self._tables.prefixes)).encode("utf-8", "surrogatepass")


def twin_of(tables: Tables) -> Twin | None:
    """None where it was not built, or is switched off."""
    module = native("caplore.metrics.meteor._align")
    return None if module is None else Twin(tables, module)

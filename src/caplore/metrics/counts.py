"""What the scores of many captions are made of, counted at once: by compiled code, or by the torch engine.

One interface with two implementations that give the same numbers: `Compiled` is counts.cpp, which needs no torch,
`Padded` (caplore.metrics.padded) the engine of the reward on rows of ids, where the twin was not built. A pair is a
caption and a reference of its input, or two captions of its set; pairs are in the order of the captions, those of a
caption in the order of what it is paired with.

    bleu         [captions, statistics]  BLEU's numbers against all references of the input
    bleu_each    [pairs, statistics]     against each reference alone
    bleu_others  [captions, statistics]  against the other captions of the set; 0 where there are none
    ngrams       [inputs, orders]        different n-grams in the set
    captions     [inputs]                different captions in the set
    cider_d      [pairs]                 CIDEr-D of caption and reference, from 0 to 1
    cider        [pairs]                 CIDEr
    cider_others [pairs of the set]      CIDEr of two captions
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from types import ModuleType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from caplore.machine import cores
from caplore.metrics.corpus import Lexicon, Ragged, content_digest
from caplore.metrics.formulas import ORDERS, SIGMA, STATISTICS
from caplore.native import native

NAMES = ("bleu", "bleu_each", "bleu_others", "ngrams", "captions", "cider_d", "cider", "cider_others")
WEIGHED = frozenset({"cider_d", "cider", "cider_others"})  # by document frequencies
Counts = dict[str, NDArray[Any]]
Table = Any
"""Document frequencies, as the engine that made them keeps them."""

_WORDS_A_THREAD = 500_000  # below that a thread costs more than it gains


class Engine(Protocol):
    """What counts. `said` and `refs` are of the same inputs, each of which has some of both."""

    def frequencies(self, references: Ragged) -> Table:
        """In the references of how many inputs each n-gram stands."""

    def count(self, said: Ragged, refs: Ragged, names: Collection[str], table: Table | None) -> Counts:
        """Arrays by these names, as described above."""

    def common(self, said: Ragged, refs: Ragged) -> NDArray[np.int32]:
        """The longest common subsequence of each pair; two empty captions have one (empty) word in common."""


def engine() -> Engine:
    """The compiled one where it was built."""
    twin = native("caplore.metrics._counts")
    if twin is not None:
        return Compiled(twin)
    from caplore.metrics.padded import Padded

    return Padded()


@dataclass(frozen=True)
class Pairs:
    """Each caption with each row of its input in `others`: the references, or the captions of its set."""

    said: Ragged
    others: Ragged

    @cached_property
    def of_caption(self) -> NDArray[np.int64]:
        """How many pairs each caption is in."""
        return self.others.sizes[self.said.owner]

    @cached_property
    def begins(self) -> NDArray[np.int64]:
        """Where the pairs of each caption begin."""
        return self.of_caption.cumsum() - self.of_caption

    @cached_property
    def of_input(self) -> NDArray[np.int64]:
        """How many pairs each input has."""
        return self.said.sizes * self.others.sizes

    def __len__(self) -> int:
        return int(self.of_input.sum())

    @cached_property
    def caption(self) -> NDArray[np.int64]:
        """Of each pair, which caption."""
        return np.repeat(np.arange(len(self.of_caption)), self.of_caption)

    @cached_property
    def other(self) -> NDArray[np.int64]:
        """Of each pair, which row of the others."""
        first = self.others.inputs[self.said.owner] - self.begins
        return np.arange(len(self.caption)) + np.repeat(first, self.of_caption)


def shape(name: str, said: Ragged, refs: Ragged) -> tuple[int, ...]:
    """Of the array of this name."""
    match name:
        case "bleu" | "bleu_others":
            return len(said.lengths), STATISTICS
        case "bleu_each":
            return len(Pairs(said, refs)), STATISTICS
        case "ngrams":
            return len(said.sizes), ORDERS
        case "captions":
            return (len(said.sizes),)
        case "cider_others":
            return (len(Pairs(said, said)),)
        case _:
            return (len(Pairs(said, refs)),)


def empty_counts(said: Ragged, refs: Ragged, names: Collection[str]) -> Counts:
    """Zeros to be filled."""
    return {
        name: np.zeros(shape(name, said, refs), dtype=np.float64 if name in WEIGHED else np.int32)
        for name in names
    }


@dataclass(frozen=True)
class Compiled:
    """Counting in C++ without the interpreter's lock: much work is split over the machine's cores."""

    twin: ModuleType

    def frequencies(self, references: Ragged) -> Table:
        return self.twin.frequencies(_arrays(references))

    def count(self, said: Ragged, refs: Ragged, names: Collection[str], table: Table | None) -> Counts:
        made = empty_counts(said, refs, names)
        sides, outputs = (_arrays(said), _arrays(refs)), tuple(made.get(name) for name in NAMES)

        def some(begin: int, end: int) -> None:
            self.twin.count(*sides, (begin, end), table, SIGMA, outputs)

        _in_threads(some, said, refs)
        return made

    def common(self, said: Ragged, refs: Ragged) -> NDArray[np.int32]:
        made = np.zeros(len(Pairs(said, refs)), dtype=np.int32)
        sides = _arrays(said), _arrays(refs)
        _in_threads(lambda begin, end: self.twin.common(*sides, (begin, end), made), said, refs)
        return made


def _arrays(captions: Ragged) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
    return captions.words, captions.captions, captions.inputs


def _in_threads(work: Callable[[int, int], None], said: Ragged, refs: Ragged) -> None:
    """`work(begin, end)` for all inputs, in as many threads as there are cores where there is much of it."""
    inputs = len(said.sizes)
    threads = min(cores(), 1 + (len(said.words) + len(refs.words)) // _WORDS_A_THREAD, inputs)
    if threads == 1:
        work(0, inputs)
        return
    from concurrent.futures import ThreadPoolExecutor

    cuts = [inputs * i // threads for i in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work, begin, end) for begin, end in pairwise(cuts)]:
            done.result()


@dataclass(frozen=True, eq=False)
class CorpusFrequencies:
    """Document frequencies of a corpus of words: for scoring other captions with those of a training set."""

    lexicon: Lexicon
    table: Table
    engine: Engine
    images: int
    name: str
    digest: str

    @classmethod
    def of(cls, references: Ragged, lexicon: Lexicon, name: str) -> "CorpusFrequencies":
        """`lexicon` has all words of the references."""
        chosen = engine()
        digest = content_digest(references, lexicon)
        return cls(lexicon, chosen.frequencies(references), chosen, len(references.sizes), name, digest)

    @property
    def signature(self) -> str:
        return f"{self.name}({self.images} images, {self.digest})"

"""METEOR 1.5 (Denkowski and Lavie, 2014) for English without Java: the program's numbers, as coco-caption calls it.

A caption is aligned with each of its references: words match when they are the same, have one stem or share a WordNet
synonym set, phrases when one is a known paraphrase of the other (weights 1, .6, .8, .6). With function words counting
a quarter and all others three quarters (delta = .75), P and R are the matched shares of the caption and the reference,

    F = P R / (alpha P + (1 - alpha) R),   score = F (1 - gamma (chunks / matches)^beta),

alpha = .85, beta = .2, gamma = .6, and a caption that is its reference word for word pays no penalty. The reference
that scores highest counts. Of a caption the counts are kept (COLUMNS); the corpus score is that of their sums.

The Python of this folder defines what is counted; its compiled twin (twin.py, align.cpp) counts where it was built.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from caplore.machine import collector_paused
from caplore.metrics.meteor.align import Match, align_each
from caplore.metrics.meteor.normalize import normalize
from caplore.metrics.meteor.tables import Tables, install_meteor, is_set_up, tables_file
from caplore.metrics.meteor.twin import twin_of
from caplore.metrics.meteor.words import Lexicon, Sentence
from caplore.metrics.signature import signature
from caplore.text.ptb import SIGNATURE as PTB

__all__ = ["COLUMNS", "SIGNATURE", "Meteor", "install_meteor", "is_set_up", "score"]

ALPHA, BETA, GAMMA, DELTA = 0.85, 0.2, 0.6, 0.75
MODULES = ("exact", "stem", "synonym", "paraphrase")
WEIGHTS = np.array([1.0, 0.6, 0.8, 0.6])
_KINDS = ("content", "reference_content", "function", "reference_function")
COLUMNS = (
    *("words", "reference_words", "function_words", "reference_function_words"),
    *(f"{module}_{kind}" for module in MODULES for kind in _KINDS),  # words that each module matched
    "chunks",  # 0 where the caption is its reference word for word
)
SIGNATURE = signature(
    "METEOR",
    tok=PTB,
    version="1.5",
    lang="en",
    norm=True,
    modules="+".join(MODULES),
    alpha=ALPHA,
    beta=BETA,
    gamma=GAMMA,
    delta=DELTA,
    scale=1,
)

_SENTENCES_KEPT = 1000  # those of an image come again for its next caption
_WORDS_KEPT = 200_000
_AT_ONCE = 50_000  # captions: more would only take memory

Tokens = Sequence[str]


class Meteor:
    """The metric with its tables. Words and sentences it has seen make the next ones faster."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self._lexicon = Lexicon(tables)
        self._sentences: dict[str, Sentence] = {}
        self._twin = twin_of(tables)

    @classmethod
    def load(cls, cache: Path | None = None) -> "Meteor":
        """With the tables that `caplore setup meteor` left in the cache; MissingError where there are none."""
        return cls(Tables.load(tables_file(cache)))

    def statistics(self, candidate: Tokens, references: Sequence[Tokens]) -> NDArray[np.int32]:
        """The counts of one caption (COLUMNS) against the reference that scores it highest."""
        return self.statistics_many([candidate], [references])[0]

    def statistics_many(
        self, candidates: Sequence[Tokens], references: Iterable[Sequence[Tokens]]
    ) -> NDArray[np.int32]:
        """The counts of each caption against its own references: [captions, COLUMNS]."""
        return self.statistics_lines(
            [" ".join(tokens) for tokens in candidates],
            [[" ".join(tokens) for tokens in some] for some in references],
        )

    def statistics_lines(
        self,
        candidates: Sequence[str],
        references: Sequence[Sequence[str]],
        threads: int | None = None,
        go_on: Callable[[], object] | None = None,
    ) -> NDArray[np.int32]:
        """The same for captions whose words are joined by spaces.

        The compiled twin takes as many threads as there are cores, or `threads`, and calls `go_on` some times a
        second: what it raises ends the work.
        """
        if len(candidates) != len(references):
            raise ValueError(f"{len(candidates)} captions, but references of {len(references)}")
        if not all(map(len, references)):
            raise ValueError("METEOR compares a caption with one reference at least")
        rows = [np.empty((0, len(COLUMNS)), dtype=np.int32)]
        for begin in range(0, len(candidates), _AT_ONCE):
            some = slice(begin, begin + _AT_ONCE)
            rows.append(self._best(candidates[some], references[some], threads, go_on))
        return np.concatenate(rows)

    def _best(
        self,
        candidates: Sequence[str],
        references: Sequence[Sequence[str]],
        threads: int | None,
        go_on: Callable[[], object] | None,
    ) -> NDArray[np.int32]:
        if self._twin is not None:
            pairs = self._twin.counts(candidates, references, threads, go_on)
        else:
            pairs = self._counts(candidates, references)
        pairs = pairs.reshape(-1, len(COLUMNS))
        ends = np.cumsum([0, *map(len, references)])
        return pairs[_first_best(score(pairs), ends[:-1])]

    def _counts(self, candidates: Sequence[str], references: Sequence[Sequence[str]]) -> NDArray[np.int32]:
        """A row for each caption with each of its references, in order: what the twin gives, in Python."""
        flat = array("i")
        with collector_paused():
            for candidate, its_references in zip(candidates, references, strict=True):
                for counts in self._against_each(candidate, its_references):
                    flat.extend(counts)
        return np.frombuffer(flat, dtype=np.int32)

    def _against_each(self, candidate: str, references: Sequence[str]) -> Iterator[list[int]]:
        if len(self._lexicon.matches) > _WORDS_KEPT:
            self._sentences.clear()
            self._lexicon = Lexicon(self.tables)
        if len(self._sentences) > _SENTENCES_KEPT:
            self._sentences.clear()
        caption, others = self._sentence(candidate), [self._sentence(line) for line in references]
        for reference, matches in zip(others, align_each(caption, others, self._lexicon), strict=True):
            yield _counts(caption, reference, matches)

    def _sentence(self, line: str) -> Sentence:
        if line not in self._sentences:
            self._sentences[line] = self._lexicon.sentence(normalize(line, self.tables.prefixes))
        return self._sentences[line]


def _counts(caption: Sentence, reference: Sentence, matches: Sequence[Match]) -> list[int]:
    counts = [0] * len(COLUMNS)
    counts[:4] = (
        len(caption.words),
        len(reference.words),
        sum(caption.is_function),
        sum(reference.is_function),
    )
    end = own_end = -1
    for start, length, own, own_length, module in matches:
        column = 4 + 4 * module
        for is_function in caption.is_function[own : own + own_length]:
            counts[column + 2 * is_function] += 1
        for is_function in reference.is_function[start : start + length]:
            counts[column + 1 + 2 * is_function] += 1
        counts[-1] += start != end or own != own_end
        end, own_end = start + length, own + own_length
    if counts[-1] == 1 and counts[0] == sum(counts[4:20:2]) and counts[1] == sum(counts[5:20:2]):
        counts[-1] = 0
    return counts


def score(statistics: NDArray[np.generic]) -> NDArray[np.float64]:
    """The score of counts, or of sums of counts: of [..., COLUMNS], [...], from 0 to 1."""
    counts = np.asarray(statistics, dtype=np.float64)
    words, functions = counts[..., 0:2], counts[..., 2:4]  # of the caption, of the reference
    matched = counts[..., 4:20].reshape(
        *counts.shape[:-1], 4, 2, 2
    )  # module, content or function, caption or reference
    by_kind = (matched * WEIGHTS[:, None, None]).sum(-3)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = (DELTA * by_kind[..., 0, :] + (1 - DELTA) * by_kind[..., 1, :]) / (
            DELTA * (words - functions) + (1 - DELTA) * functions
        )
        f = 1 / ((1 - ALPHA) / shares[..., 0] + ALPHA / shares[..., 1])
        penalty = GAMMA * (counts[..., 20] / (matched.sum((-3, -2, -1)) / 2)) ** BETA
    return np.nan_to_num(f * (1 - penalty), nan=0.0)


def _first_best(values: NDArray[np.float64], begins: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where in each part of the values the highest one first stands."""
    if len(begins) == 0:
        return begins
    best = np.maximum.reduceat(values, begins)
    parts = np.diff(begins, append=len(values))
    places = np.flatnonzero(values == np.repeat(best, parts))
    return places[np.searchsorted(places, begins)]

"""METEOR 1.5 (Denkowski and Lavie, 2014) without Java: the scores of the program, as coco-caption calls it."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from caplore.metrics.meteor.align import Match, align
from caplore.metrics.meteor.normalize import normalize
from caplore.metrics.meteor.tables import Tables, tables_file
from caplore.metrics.meteor.words import Lexicon, Sentence

ALPHA, BETA, GAMMA, DELTA = 0.85, 0.2, 0.6, 0.75
WEIGHTS = (1.0, 0.6, 0.8, 0.6)
COLUMNS = 21


class Meteor:
    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.lexicon = Lexicon(tables)

    @classmethod
    def load(cls, cache: Path | None = None) -> "Meteor":
        return cls(Tables.load(tables_file(cache)))

    def sentence(self, tokens: Sequence[str]) -> Sentence:
        return self.lexicon.sentence(normalize(" ".join(tokens), self.tables.prefixes))

    def statistics(self, candidate: Sequence[str], references: Iterable[Sequence[str]]) -> list[int]:
        caption = self.sentence(candidate)
        best: list[int] = []
        best_score = -1.0
        for tokens in references:
            reference = self.sentence(tokens)
            found = _counts(caption, reference, align(caption, reference, self.lexicon))
            value = score(found)
            if value > best_score:
                best, best_score = found, value
        return best


def _counts(caption: Sentence, reference: Sentence, matches: list[Match]) -> list[int]:
    counts = [0] * COLUMNS
    counts[0] = len(caption.words)
    counts[1] = len(reference.words)
    counts[2] = sum(caption.is_function)
    counts[3] = sum(reference.is_function)
    chunks = 0
    end = own_end = -1
    for start, length, own, own_length, module in matches:
        base = 4 + 4 * module
        for f in caption.is_function[own : own + own_length]:
            counts[base + 2 * f] += 1
        for f in reference.is_function[start : start + length]:
            counts[base + 1 + 2 * f] += 1
        if start != end or own != own_end:
            chunks += 1
        end, own_end = start + length, own + own_length
    whole = counts[0] == sum(counts[4:20:2]) and counts[1] == sum(counts[5:20:2]) and chunks == 1
    counts[20] = 0 if whole else chunks
    return counts


def score(counts: Sequence[float]) -> float:
    n, m, nf, mf = counts[:4]
    length, other = DELTA * (n - nf) + (1 - DELTA) * nf, DELTA * (m - mf) + (1 - DELTA) * mf
    hit = sum(counts[4 + 4 * i] * w * DELTA for i, w in enumerate(WEIGHTS)) + sum(counts[6 + 4 * i] * w * (1 - DELTA) for i, w in enumerate(WEIGHTS))
    back = sum(counts[5 + 4 * i] * w * DELTA for i, w in enumerate(WEIGHTS)) + sum(counts[7 + 4 * i] * w * (1 - DELTA) for i, w in enumerate(WEIGHTS))
    if not hit or not back:
        return 0.0
    p, r = hit / length, back / other
    f = 1 / ((1 - ALPHA) / p + ALPHA / r)
    frag = counts[20] / (sum(counts[4:20]) / 2)
    return f * (1 - GAMMA * frag**BETA)

"""Sets of captions as a reader should see them: what each adds to the set, and whether it is right."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from caplore.report.results import Caption

Verdict = Literal["right", "wrong", "unknown"]


@dataclass(frozen=True)
class Span:
    """Neighbouring words that an earlier caption of the set has said already, or that none has."""

    text: str
    repeated: bool


@dataclass(frozen=True)
class ShownCaption:
    spans: tuple[Span, ...]
    verdict: Verdict
    cider: str


@dataclass(frozen=True)
class ShownSet:
    captions: tuple[ShownCaption, ...]
    summary: str


def shown_set(captions: Sequence[Caption]) -> ShownSet:
    """Mark the words that earlier captions of this set have said; count the right and the different."""
    return ShownSet(tuple(_shown(captions)), _summary(captions))


def _shown(captions: Iterable[Caption]) -> Iterable[ShownCaption]:
    said: set[str] = set()
    for caption in captions:
        words = caption.text.split()
        yield ShownCaption(
            tuple(
                Span(" ".join(part), repeated)
                for repeated, part in groupby(words, lambda w: w.lower() in said)
            ),
            {True: "right", False: "wrong", None: "unknown"}[caption.correct],  # type: ignore[arg-type]
            "" if caption.cider_d is None else f"{caption.cider_d * 100 + 0.0:.0f}",
        )
        said.update(word.lower() for word in words)


def _summary(captions: Sequence[Caption]) -> str:
    different = len({c.text.lower() for c in captions})
    known = [c.correct for c in captions if c.correct is not None]
    right = [f"{sum(known)} of {len(known)} correct"] if known else []
    return ", ".join([*right, f"{different} different"])

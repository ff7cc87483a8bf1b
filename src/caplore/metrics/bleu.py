"""BLEU on ids with coco-caption's constants: of captions against references, and between captions of a set.

For m_k of g_k k-grams matched (clipped by the reference that has most of them) and lengths c and r,

    BLEU_n = ( prod_{k<=n} (m_k + 1e-15) / (g_k + 1e-9) )^(1/n) * min(1, exp(1 - r / c))

where r is the length of the reference closest to c, the shorter of two. A sentence score takes the numbers of one
caption, a corpus score their sums: `statistics` gives the numbers, `bleu` the score.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Integer
from torch import Tensor

from caplore.metrics import formulas
from caplore.metrics.formulas import ORDERS
from caplore.metrics.ngrams import Ngrams, RowCounts, ngrams
from caplore.metrics.signature import signature

_FAR = 2**31  # further apart than any two captions


class References(NamedTuple):
    counts: RowCounts
    lengths: Int[Tensor, "images refs"]
    there: Bool[Tensor, "images refs"]


@dataclass(frozen=True)
class Bleu:
    """Sentence BLEU as a score of captions on a device."""

    order: int = 4
    count_eos: bool = True

    def prepare(
        self, refs: Int[Tensor, "images refs time"], there: Bool[Tensor, "images refs"]
    ) -> References:
        return prepare(refs, there, count_eos=self.count_eos)

    def score(
        self, captions: Int[Tensor, "images samples time"], references: References
    ) -> Float[Tensor, "images samples"]:
        return bleu(statistics(ngrams(captions, count_eos=self.count_eos), references))[..., self.order - 1]

    def similarity(
        self, captions: Int[Tensor, "images samples time"], references: References
    ) -> Float[Tensor, "images samples refs"]:
        """The score against each single reference; 0 for one that is not there."""
        scores = bleu(single_statistics(ngrams(captions, count_eos=self.count_eos), references))
        return scores[..., self.order - 1] * references.there.unsqueeze(1)

    @property
    def signature(self) -> str:
        return signature(f"BLEU-{self.order}", level="sentence", smooth="coco", eos=self.count_eos, scale=1)


def prepare(
    refs: Int[Tensor, "images refs time"], there: Bool[Tensor, "images refs"], *, count_eos: bool
) -> References:
    grams = ngrams(refs, count_eos=count_eos, there=there)
    return References(RowCounts.of(grams.keys), grams.lengths, there)


def statistics(captions: Ngrams, references: References) -> Float[Tensor, "images samples statistics"]:
    """matches 1..4, totals 1..4, length, closest reference length: whole numbers that add up over a corpus."""
    matches = clipped_matches(captions.counts, references.counts.at(captions.keys).amax(-1))
    closest = closest_length(captions.lengths, references.lengths.unsqueeze(1), references.there.unsqueeze(1))
    return join_statistics(matches, captions.lengths, closest)


def single_statistics(
    captions: Ngrams, references: References
) -> Float[Tensor, "images samples refs statistics"]:
    """The same against each reference alone."""
    met = (
        references.counts.at(captions.keys).movedim(-1, 2).contiguous()
    )  # [images, samples, refs, orders, time]
    matches = clipped_matches(captions.counts.unsqueeze(2), met)
    both = torch.broadcast_tensors(captions.lengths.unsqueeze(2), references.lengths.unsqueeze(1))
    return join_statistics(matches, *both)


def join_statistics(
    matches: Float[Tensor, "*rows orders"], lengths: Int[Tensor, "*rows"], closest: Int[Tensor, "*rows"]
) -> Float[Tensor, "*rows statistics"]:
    shorter = torch.arange(ORDERS, device=matches.device)
    totals = (lengths.unsqueeze(-1) - shorter).clamp(min=0)
    ends = torch.stack([lengths, closest], -1)
    return torch.cat([matches, totals.to(matches.dtype), ends.to(matches.dtype)], -1)


def bleu(statistics: Float[Tensor, "*any statistics"]) -> Float[Tensor, "*any orders"]:
    """BLEU-1 .. BLEU-4 of one caption's numbers, or of their sums over a corpus."""
    return formulas.bleu(statistics, log=torch.log, exp=torch.exp)


def pairwise_bleu(
    captions: Int[Tensor, "images samples time"], orders: Sequence[int] = (3, 4), count_eos: bool = False
) -> Float[Tensor, "images samples samples"]:
    """[i, j, k]: the mean over `orders` of the sentence BLEU of caption j against caption k alone."""
    grams = ngrams(captions, count_eos=count_eos)
    there = torch.ones_like(grams.lengths, dtype=torch.bool)
    scores = bleu(single_statistics(grams, References(RowCounts.of(grams.keys), grams.lengths, there)))
    return torch.stack([scores[..., n - 1] for n in orders], -1).mean(-1)


def bleu_distance(
    captions: Int[Tensor, "images samples time"], orders: Sequence[int] = (3, 4), symmetric: bool = True
) -> Float[Tensor, "images samples samples"]:
    """1 - BLEU; symmetric: both directions averaged, d(y, y') = 1 - (BLEU(y, y') + BLEU(y', y)) / 2."""
    similarity = pairwise_bleu(captions, orders)
    if symmetric:
        similarity = (similarity + similarity.transpose(1, 2)) / 2
    return 1 - similarity


def clipped_matches(
    counts: Int[Tensor, "*#rows orders time"], most: Integer[Tensor, "*#rows orders time"]
) -> Float[Tensor, "*rows orders"]:
    """The sum over a caption's distinct n-grams of min(its count, `most`): each of tf places counts 1 / tf."""
    return (torch.minimum(most, counts) / counts.clamp(min=1)).sum(-1).round()


def closest_length(
    lengths: Int[Tensor, "images samples"],
    refs: Int[Tensor, "images one_or_samples refs"],
    there: Bool[Tensor, "images samples_or_one refs"],
) -> Int[Tensor, "images samples"]:
    """The length of the reference nearest in length, the shorter of two that are equally near; 0 of none."""
    apart = (lengths.unsqueeze(-1) - refs).abs() * _FAR + refs  # ordered by distance, then by length
    nearest = torch.where(there, apart, 2**62).amin(-1)
    return torch.where(nearest == 2**62, 0, nearest % _FAR)

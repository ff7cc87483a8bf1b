"""ROUGE-L on ids, as coco-caption computes it: the longest common subsequence, beta = 1.2.

    P = max over references of lcs / length of the caption,  R = max of lcs / length of the reference
    ROUGE-L = (1 + beta^2) P R / (R + beta^2 P)

Beware: the two maxima may come from different references. An empty caption counts as one empty word there, so it
scores 0 against anything but another empty caption; so it does here.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from caplore.metrics import formulas
from caplore.metrics.formulas import BETA
from caplore.metrics.ngrams import caption_lengths
from caplore.metrics.signature import signature

_BLOCK = 62  # bits of a word of the table; two more for the carry and the sign
_ELEMENTS = 2**24


class References(NamedTuple):
    tokens: Int[Tensor, "images refs time"]
    lengths: Int[Tensor, "images refs"]
    there: Bool[Tensor, "images refs"]


@dataclass(frozen=True)
class RougeL:
    """ROUGE-L as a score of captions on a device."""

    count_eos: bool = True
    dtype: torch.dtype = torch.float32

    def prepare(
        self, refs: Int[Tensor, "images refs time"], there: Bool[Tensor, "images refs"]
    ) -> References:
        return References(refs, caption_lengths(refs, self.count_eos).clamp(min=1), there)

    def score(
        self, captions: Int[Tensor, "images samples time"], references: References
    ) -> Float[Tensor, "images samples"]:
        """0 where there are no references."""
        precision, recall = self._precision_and_recall(captions, references)
        return formulas.rouge_l(precision.amax(-1), recall.amax(-1))

    def similarity(
        self, captions: Int[Tensor, "images samples time"], references: References
    ) -> Float[Tensor, "images samples refs"]:
        """The score against each single reference; 0 for one that is not there."""
        return formulas.rouge_l(*self._precision_and_recall(captions, references))

    def _precision_and_recall(self, captions: Tensor, references: References) -> tuple[Tensor, Tensor]:
        lengths = caption_lengths(captions, self.count_eos).clamp(min=1)
        common = longest_common_subsequence(captions, lengths, references.tokens, references.lengths)
        common = (common * references.there.unsqueeze(1)).to(self.dtype)
        return common / lengths.unsqueeze(2), common / references.lengths.unsqueeze(1)

    @property
    def signature(self) -> str:
        return signature("ROUGE-L", beta=BETA, eos=self.count_eos, scale=1)


def longest_common_subsequence(
    captions: Int[Tensor, "images samples time"],
    lengths: Int[Tensor, "images samples"],
    refs: Int[Tensor, "images refs ref_time"],
    ref_lengths: Int[Tensor, "images refs"],
) -> Int[Tensor, "images samples refs"]:
    """Its length, for each caption and reference of an image.

    The columns of the usual table are bits of one integer, a row of it is four operations (Hyyro, 2004): a bit is 0
    where the table grows. For each word of the caption with matches M: U = V & M; V = (V + U) | (V & ~U).
    """
    images, samples, time = captions.shape
    size = max(1, _ELEMENTS // max(1, samples * refs.shape[1] * time * min(refs.shape[2], _BLOCK)))
    parts = [
        _common(captions[i : i + size], lengths[i : i + size], refs[i : i + size], ref_lengths[i : i + size])
        for i in range(0, max(1, images), size)
    ]
    return torch.cat(parts)


def _common(captions: Tensor, lengths: Tensor, refs: Tensor, ref_lengths: Tensor) -> Tensor:
    images, samples, time = captions.shape
    own = torch.arange(time, device=captions.device) < lengths.unsqueeze(-1)
    ref_own = torch.arange(refs.shape[2], device=refs.device) < ref_lengths.unsqueeze(-1)
    carries = torch.zeros(time, images, samples, refs.shape[1], dtype=torch.long, device=captions.device)
    total = torch.zeros_like(carries[0])
    for begin in range(0, refs.shape[2], _BLOCK):
        some = slice(begin, begin + _BLOCK)
        matches = _match_bits(captions, own, refs[..., some], ref_own[..., some])
        width = min(_BLOCK, refs.shape[2] - begin)
        rows = torch.full_like(total, 2**width - 1)
        for step in range(time):
            both = rows & matches[step]
            sums = rows + both + carries[step]
            carries[step] = sums >> width  # into the next block, at the same word of the caption
            rows = (sums & (2**width - 1)) | (rows & ~both)
        total += width - _ones(rows, width)
    return total


def _match_bits(
    captions: Tensor, own: Tensor, refs: Tensor, ref_own: Tensor
) -> Int[Tensor, "time images s r"]:
    """Bit j of [t, i, s, r]: word t of caption s is word j of reference r."""
    words = torch.where(own, captions, -1).movedim(2, 0)[:, :, :, None, None]
    others = torch.where(ref_own, refs, -2)[None, :, None]
    places = torch.arange(refs.shape[2], device=refs.device)
    return ((words == others) * (torch.ones_like(places) << places)).sum(-1)


def _ones(values: Tensor, width: int) -> Tensor:
    """How many bits are set, pairs first, then pairs of pairs ... of at most 62 bits."""
    masks = (0x5555555555555555, 0x3333333333333333, 0x0F0F0F0F0F0F0F0F)
    for shift, mask in zip((1, 2, 4), masks, strict=True):
        values = (values & mask) + ((values >> shift) & mask)
    return ((values * 0x0101010101010101) >> 56) & 0xFF

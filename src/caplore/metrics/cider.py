"""CIDEr-D on ids, as coco-caption computes it (Vedantam, Zitnick and Parikh, CVPR 2015).

For caption c and reference r, with tf an n-gram's raw count and idf = log(images) - log(max(1, df)),

    sim_n(c, r) = exp(-(l_c - l_r)^2 / 2 sigma^2)  sum_g min(tf_c, tf_r) tf_r idf^2 / (|c|_n |r|_n)
    CIDEr-D(c)  = 10 * mean over references r, mean over n = 1..4, of sim_n(c, r)

where |c|_n is the length of the vector tf * idf and l counts bigrams, as the reference code does.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from caplore.metrics.ngrams import DocumentFrequencies, Ngrams, RowCounts, ngrams

_ELEMENTS = 2**24  # at most about this many numbers in one intermediate tensor


class References(NamedTuple):
    """Everything about references that does not depend on the captions they are compared with."""

    counts: RowCounts
    inverse_norms: Float[Tensor, "images refs orders"]  # 0 where the norm is 0, and for a reference not there
    bigrams: Float[Tensor, "images refs"]
    share: Float[Tensor, "images refs"]  # 1 / references of the image, 0 for a reference not there


@dataclass(frozen=True)
class CiderD:
    """CIDEr-D with these document frequencies; whether the end counts as a word is theirs to say."""

    df: DocumentFrequencies
    sigma: float = 6.0
    dtype: torch.dtype = torch.float32

    def prepare(
        self, refs: Int[Tensor, "images refs time"], there: Bool[Tensor, "images refs"]
    ) -> References:
        grams = ngrams(refs, count_eos=self.df.count_eos, there=there)
        norms = self._norms(grams, self._squared_idf(grams.keys))
        return References(
            counts=RowCounts.of(grams.keys),
            inverse_norms=_inverse(norms),
            bigrams=_bigrams(grams, self.dtype),
            share=there.to(self.dtype) / there.sum(-1, keepdim=True).clamp(min=1),
        )

    def score(
        self, captions: Int[Tensor, "images samples time"], references: References
    ) -> Float[Tensor, "images samples"]:
        """The score of each caption against its image's references, 0 .. 10; 0 where there are none."""
        images, samples, time = captions.shape
        refs = references.share.shape[1]
        chunk = max(1, _ELEMENTS // max(1, samples * 4 * time * refs))
        if images <= chunk:
            return self._score(captions, references)
        parts = [
            self._score(captions[i : i + chunk], _cut(references, slice(i, i + chunk)))
            for i in range(0, images, chunk)
        ]
        return torch.cat(parts)

    def _score(self, captions: Tensor, references: References) -> Tensor:
        images, samples, _ = captions.shape
        grams = ngrams(captions, count_eos=self.df.count_eos)
        squared_idf = self._squared_idf(grams.keys)
        inverse_norms = _inverse(self._norms(grams, squared_idf))  # [images, samples, orders]
        tf = grams.counts.to(self.dtype)
        in_refs = references.counts.at(grams.keys.flatten(1)).view(*grams.keys.shape, -1).to(self.dtype)
        # An n-gram that stands tf times is met tf times, so each meeting counts 1 / tf.
        weight = squared_idf / tf.clamp(min=1)
        met = torch.minimum(in_refs, tf.unsqueeze(-1)) * in_refs
        dots = (met * weight.unsqueeze(-1)).sum(3)  # [images, samples, orders, refs]
        cosines = dots * inverse_norms.unsqueeze(-1) * references.inverse_norms.transpose(1, 2).unsqueeze(1)
        apart = _bigrams(grams, self.dtype).unsqueeze(2) - references.bigrams.unsqueeze(1)
        close = torch.exp(apart.square() * (-0.5 / self.sigma**2)) * references.share.unsqueeze(1)
        return 10 * (cosines.mean(2) * close).sum(-1).view(images, samples)

    def _squared_idf(self, keys: Int[Tensor, "*rows orders time"]) -> Float[Tensor, "*rows orders time"]:
        frequency = self.df.lookup(keys).clamp(min=1).to(self.dtype)
        return (math.log(max(1, self.df.images)) - frequency.log()).square() * (keys != 0)

    def _norms(self, grams: Ngrams, squared_idf: Tensor) -> Tensor:
        """sum over distinct n-grams of (tf idf)^2 = sum over positions of tf idf^2."""
        return (grams.counts * squared_idf).sum(-1).sqrt()

    @property
    def signature(self) -> str:
        end = "yes" if self.df.count_eos else "no"
        return (
            f"CIDEr-D|n:4|sigma:{self.sigma:g}|df:{self.df.digest}|images:{self.df.images}|eos:{end}|scale:10"
        )


def _inverse(norms: Tensor) -> Tensor:
    return torch.where(norms > 0, 1 / norms.clamp(min=1e-30), 0)


def _bigrams(grams: Ngrams, dtype: torch.dtype) -> Tensor:
    return (grams.lengths - 1).clamp(min=0).to(dtype)


def _cut(references: References, some: slice) -> References:
    counts, *rest = references
    return References(RowCounts(*(t[some] for t in counts)), *(t[some] for t in rest))

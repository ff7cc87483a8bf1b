"""CIDEr and CIDEr-D on ids (Vedantam, Zitnick and Parikh, CVPR 2015), as coco-caption computes them.

For caption c and reference r, with tf an n-gram's raw count and idf = log(images) - log(max(1, df)),

    CIDEr:    sim_n(c, r) = sum_g tf_c tf_r idf^2 / (|c|_n |r|_n)
    CIDEr-D:  sim_n(c, r) = sum_g min(tf_c, tf_r) tf_r idf^2 / (|c|_n |r|_n) * exp(-(l_c - l_r)^2 / 2 sigma^2)

where |c|_n is the length of the vector tf * idf and l counts bigrams, as the reference code does. The score is
10 times the mean over n = 1..4 and over the references. coco-caption's "CIDEr" is CIDEr-D.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from caplore.metrics.formulas import ORDERS, SCALE, SIGMA
from caplore.metrics.ngrams import DocumentFrequencies, Ngrams, RowCounts, ngrams
from caplore.metrics.signature import signature

_ELEMENTS = 2**24  # at most about this many numbers in one intermediate tensor


class Terms(NamedTuple):
    """Captions as tf-idf vectors."""

    grams: Ngrams
    squared_idf: Float[Tensor, "*rows orders time"]  # 0 where there is no n-gram


class References(NamedTuple):
    """Everything about references that does not depend on the captions they are compared with."""

    counts: RowCounts
    inverse_norms: Float[Tensor, "images refs orders"]  # 0 where the norm is 0
    bigrams: Float[Tensor, "images refs"]
    share: Float[Tensor, "images refs"]  # 1 / references of the image, 0 for a reference that is not there


@dataclass(frozen=True)
class CiderD:
    """CIDEr-D with these document frequencies; whether the end counts as a word is theirs to say."""

    df: DocumentFrequencies
    sigma: float = SIGMA
    dtype: torch.dtype = torch.float32

    def prepare(
        self, refs: Int[Tensor, "images refs time"], there: Bool[Tensor, "images refs"]
    ) -> References:
        return _prepare(self.df, refs, there, self.dtype)

    def score(
        self, captions: Int[Tensor, "images samples time"], references: References
    ) -> Float[Tensor, "images samples"]:
        """The score of each caption against its image's references, 0 .. 10; 0 where there are none."""
        return _mean_over_references(self.similarity(captions, references), references)

    def similarity(
        self, captions: Int[Tensor, "images samples time"], references: References
    ) -> Float[Tensor, "images samples refs"]:
        """The score of each caption against each single reference; 0 for one that is not there."""
        return _in_chunks(self.df, captions, references, self.sigma, self.dtype)

    @property
    def signature(self) -> str:
        return signature("CIDEr-D", n=ORDERS, sigma=self.sigma, **_settings(self.df))


@dataclass(frozen=True)
class Cider:
    """CIDEr as first defined: a plain cosine, neither clipped nor punished for length."""

    df: DocumentFrequencies
    dtype: torch.dtype = torch.float32

    def prepare(
        self, refs: Int[Tensor, "images refs time"], there: Bool[Tensor, "images refs"]
    ) -> References:
        return _prepare(self.df, refs, there, self.dtype)

    def score(
        self, captions: Int[Tensor, "images samples time"], references: References
    ) -> Float[Tensor, "images samples"]:
        """The score of each caption against its image's references, 0 .. 10; 0 where there are none."""
        return _mean_over_references(self.similarity(captions, references), references)

    def similarity(
        self, captions: Int[Tensor, "images samples time"], references: References
    ) -> Float[Tensor, "images samples refs"]:
        """The score of each caption against each single reference; 0 for one that is not there."""
        return _in_chunks(self.df, captions, references, None, self.dtype)

    @property
    def signature(self) -> str:
        return signature("CIDEr", n=ORDERS, **_settings(self.df))


def _settings(df: DocumentFrequencies) -> dict[str, object]:
    return {"df": df.digest, "images": df.images, "eos": df.count_eos, "scale": SCALE}


def terms(
    grams: Ngrams, frequencies: Int[Tensor, "*rows orders time"], images: int, dtype: torch.dtype
) -> Terms:
    """Weigh n-grams by how rare they are among `images` images."""
    idf = math.log(max(1, images)) - frequencies.clamp(min=1).to(dtype).log()
    return Terms(grams, idf.square() * (grams.keys != 0))


def prepare_terms(
    captions: Terms, there: Bool[Tensor, "images refs"], counts: RowCounts | None = None
) -> References:
    """References, from their vectors; `counts` where they are at hand."""
    dtype = captions.squared_idf.dtype
    return References(
        counts=RowCounts.of(captions.grams.keys) if counts is None else counts,
        inverse_norms=_inverse_norms(captions),
        bigrams=_bigrams(captions),
        share=there.to(dtype) / there.sum(-1, keepdim=True).clamp(min=1),
    )


def compare(
    captions: Terms, references: References, sigma: float | None
) -> Float[Tensor, "images samples refs"]:
    """Each caption with each reference of its image: CIDEr-D with this sigma, CIDEr without one. 0 .. 10."""
    squared_idf, tf = captions.squared_idf, captions.grams.counts.to(captions.squared_idf.dtype)
    met = references.counts.at(captions.grams.keys).transpose(3, 4)  # [images, samples, orders, refs, time]
    met = met.contiguous().to(squared_idf.dtype)
    if sigma is None:
        weighed = met.mul_(squared_idf.unsqueeze(3))
    else:  # an n-gram that stands tf times is met tf times, so each meeting counts 1 / tf
        weighed = (
            torch.minimum(met, tf.unsqueeze(3)).mul_(met).mul_((squared_idf / tf.clamp(min=1)).unsqueeze(3))
        )
    dots = weighed.sum(-1).mul_(_inverse_norms(captions).unsqueeze(-1))
    cosines = dots.mul_(
        references.inverse_norms.transpose(1, 2).unsqueeze(1)
    )  # [images, samples, orders, refs]
    likeness = cosines.mean(2).mul_(SCALE * (references.share > 0).unsqueeze(1))
    if sigma is None:
        return likeness
    apart = _bigrams(captions).unsqueeze(2) - references.bigrams.unsqueeze(1)
    return likeness * torch.exp(apart.square() * (-0.5 / sigma**2))


def _prepare(df: DocumentFrequencies, refs: Tensor, there: Tensor, dtype: torch.dtype) -> References:
    def part(some: slice) -> References:
        grams = ngrams(refs[some], count_eos=df.count_eos, there=there[some])
        return prepare_terms(terms(grams, df.lookup(grams.keys), df.images, dtype), there[some])

    images, rows, time = refs.shape
    first, *others = _slices(images, rows * ORDERS * time * max(rows, time))
    if not others:
        return part(first)
    return _join([_compact(part(some)) for some in (first, *others)])


def _in_chunks(
    df: DocumentFrequencies, captions: Tensor, references: References, sigma: float | None, dtype: torch.dtype
) -> Tensor:
    def part(some: slice) -> Tensor:
        grams = ngrams(captions[some], count_eos=df.count_eos)
        weighed = terms(grams, df.lookup(grams.keys), df.images, dtype)
        return compare(weighed, cut_references(references, some), sigma)

    images, samples, time = captions.shape
    refs = references.share.shape[1]
    return torch.cat([part(some) for some in _slices(images, samples * ORDERS * time * max(refs, time))])


def _slices(images: int, elements: int) -> list[slice]:
    """Cut the images so that a part of that many elements an image stays below the limit; at least one part."""
    size = max(1, _ELEMENTS // max(1, elements))
    return [slice(i, i + size) for i in range(0, max(1, images), size)]


def _mean_over_references(similarity: Tensor, references: References) -> Tensor:
    return (similarity * references.share.unsqueeze(1)).sum(-1)


def _inverse_norms(captions: Terms) -> Float[Tensor, "*rows orders"]:
    """1 / |c|_n, 0 for the empty vector: the sum over n-grams of (tf idf)^2 is that over positions of tf idf^2."""
    norms = (captions.grams.counts * captions.squared_idf).sum(-1).sqrt()
    return torch.where(norms > 0, 1 / norms, 0)


def _bigrams(captions: Terms) -> Float[Tensor, "*rows"]:
    return (captions.grams.lengths - 1).clamp(min=0).to(captions.squared_idf.dtype)


def cut_references(references: References, some: slice) -> References:
    counts, *rest = references
    return References(RowCounts(*(t[some] for t in counts)), *(t[some] for t in rest))


def _compact(references: References) -> References:
    return references._replace(counts=references.counts.compact())


def _join(parts: list[References]) -> References:
    counts = RowCounts.join([part.counts for part in parts])
    return References(
        counts, *(torch.cat(tensors) for tensors in zip(*(part[1:] for part in parts), strict=True))
    )

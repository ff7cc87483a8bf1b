"""BLEU on ids with coco-caption's constants: sentence scores between the captions of a set, and distances.

For matches m_k of g_k k-grams (clipped) and lengths c (caption) and r (reference)

    BLEU_n = ( prod_{k<=n} (m_k + 1e-15) / (g_k + 1e-9) )^(1/n) * min(1, exp(1 - r / c))
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from caplore.metrics.ngrams import Ngrams, RowCounts, ngrams

TINY, SMALL = 1e-15, 1e-9  # coco-caption's smoothing: of matches, of totals


def sentence_bleu(
    matches: Float[Tensor, "*any orders"],
    totals: Float[Tensor, "*any orders"],
    length: Float[Tensor, "*any"],
    reference: Float[Tensor, "*any"],
) -> Float[Tensor, "*any orders"]:
    """BLEU-1 .. BLEU-4 of each."""
    logs = ((matches + TINY) / (totals + SMALL)).log().cumsum(-1)
    orders = torch.arange(1, matches.shape[-1] + 1, device=matches.device, dtype=logs.dtype)
    ratio = (length + TINY) / (reference + SMALL)
    brevity = (1 - 1 / ratio).clamp(max=0)
    return (logs / orders + brevity.unsqueeze(-1)).exp()


def pairwise_bleu(
    captions: Int[Tensor, "images samples time"], orders: Sequence[int] = (3, 4), count_eos: bool = False
) -> Float[Tensor, "images samples samples"]:
    """[i, j, k]: the mean over `orders` of the sentence BLEU of caption j against caption k alone."""
    grams = ngrams(captions, count_eos=count_eos)
    samples = captions.shape[1]
    others = RowCounts.of(grams.keys).at(grams.keys.flatten(1)).view(*grams.keys.shape, samples)
    tf = grams.counts.unsqueeze(-1)
    matches = (torch.minimum(others, tf) / tf.clamp(min=1)).sum(3).transpose(2, 3)  # [images, j, k, orders]
    totals = ngram_totals(grams).unsqueeze(2).expand_as(matches).to(matches.dtype)
    length = grams.lengths.to(matches.dtype)
    length, reference = torch.broadcast_tensors(length.unsqueeze(2), length.unsqueeze(1))
    scores = sentence_bleu(matches, totals, length, reference)
    return scores[..., [n - 1 for n in orders]].mean(-1)


def bleu_distance(
    captions: Int[Tensor, "images samples time"], orders: Sequence[int] = (3, 4), symmetric: bool = True
) -> Float[Tensor, "images samples samples"]:
    """1 - BLEU; symmetric: both directions averaged, d(y, y') = 1 - (BLEU(y, y') + BLEU(y', y)) / 2."""
    similarity = pairwise_bleu(captions, orders)
    if symmetric:
        similarity = (similarity + similarity.transpose(1, 2)) / 2
    return 1 - similarity


def ngram_totals(grams: Ngrams) -> Int[Tensor, "*rows orders"]:
    """How many n-grams of each order a caption has: max(0, length - n + 1)."""
    shorter = torch.arange(grams.keys.shape[-2], device=grams.keys.device)
    return (grams.lengths.unsqueeze(-1) - shorter).clamp(min=0)

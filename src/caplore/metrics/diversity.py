"""How varied a set of captions is. Axes: images, samples (the captions of a set), orders.

Functions of ids (distinct_ngrams, div_n, mbleu_statistics, distinct_captions) and functions of a similarity
matrix K between the captions of a set (self_cider, vendi_score, log_det), which any similarity may fill and which
serve as set rewards too. `there` marks the captions of sets of different sizes; without it all are there.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from caplore.metrics import formulas
from caplore.metrics.bleu import clipped_matches, closest_length, join_statistics
from caplore.metrics.ngrams import Ngrams, RowCounts, is_first, ngrams


def distinct_ngrams(grams: Ngrams) -> Int[Tensor, "images orders"]:
    """How many different n-grams of each order the captions of a set have together."""
    keys = grams.keys.transpose(1, 2).flatten(2).sort(-1).values
    return (is_first(keys) & (keys != 0)).sum(-1)


def div_n(
    captions: Int[Tensor, "images samples time"], there: Bool[Tensor, "images samples"] | None = None
) -> Float[Tensor, "images orders"]:
    """Div-1 .. Div-4: distinct n-grams in the set / *words* in the set, for bigrams too; 0 of a set without words."""
    grams = ngrams(captions, count_eos=False, there=there)
    return distinct_ngrams(grams) / grams.lengths.sum(-1, keepdim=True).clamp(min=1)


def mbleu_statistics(
    captions: Int[Tensor, "images samples time"], there: Bool[Tensor, "images samples"] | None = None
) -> Float[Tensor, "images samples statistics"]:
    """BLEU's numbers of each caption against the other captions of its set; all 0 where there is no other.

    Summed over images and scored slot by slot, then averaged over slots, they are the field's mBLEU (`formulas.mbleu`).
    """
    if there is None:
        there = torch.ones(captions.shape[:2], dtype=torch.bool, device=captions.device)
    grams = ngrams(captions, count_eos=False, there=there)
    samples = captions.shape[1]
    itself = torch.eye(samples, dtype=torch.bool, device=captions.device)
    in_others = RowCounts.of(grams.keys).at(grams.keys)  # [images, j, orders, time, k]
    most = in_others.masked_fill(itself[:, None, None], 0).amax(-1)
    others = there.unsqueeze(1) & ~itself
    closest = closest_length(grams.lengths, grams.lengths.unsqueeze(1), others)
    numbers = join_statistics(clipped_matches(grams.counts, most), grams.lengths, closest)
    return numbers * (there & others.any(-1)).unsqueeze(-1)


def distinct_captions(
    captions: Int[Tensor, "images samples time"], there: Bool[Tensor, "images samples"]
) -> Int[Tensor, " images"]:
    """How many different captions a set has."""
    grams = ngrams(captions, count_eos=False, there=there)
    words = grams.keys[:, :, 0]
    same = (words.unsqueeze(1) == words.unsqueeze(2)).all(-1) & there.unsqueeze(1)
    seen_before = same.tril(-1).any(-1)
    return (there & ~seen_before).sum(-1)


def self_cider(
    kernel: Float[Tensor, "images samples samples"], there: Bool[Tensor, "images samples"] | None = None
) -> Float[Tensor, " images"]:
    """Self-CIDEr (Wang and Chan, CVPR 2019): -log( sqrt(l_1) / sum_i sqrt(l_i) ) / log(samples).

    l are the eigenvalues of K, largest first; K_ij is the CIDEr of caption i against caption j, on a scale to 1.
    0: all captions are the same; 1: no two share an n-gram. One caption has no diversity: 0.
    """
    return formulas.self_cider(*_eigenvalues(kernel, there), log=torch.log)


def vendi_score(
    kernel: Float[Tensor, "images samples samples"], there: Bool[Tensor, "images samples"] | None = None
) -> Float[Tensor, " images"]:
    """Vendi score (Friedman and Dieng, 2023): exp(-sum_i l_i log l_i), l the eigenvalues of K / samples, K_ii = 1.

    The effective number of different captions, 1 .. samples.
    """
    return formulas.vendi(*_eigenvalues(kernel, there), log=torch.log, exp=torch.exp)


def unit_diagonal(
    kernel: Float[Tensor, "images samples samples"], there: Bool[Tensor, "images samples"] | None = None
) -> Float[Tensor, "images samples samples"]:
    """K_ij / sqrt(K_ii K_jj). A caption that is nothing even like itself (an empty one) is like itself alone."""
    itself = kernel.diagonal(dim1=-2, dim2=-1)
    scale = torch.where(itself > 0, itself.clamp(min=1e-30).rsqrt(), 0)
    scaled = kernel * scale.unsqueeze(-1) * scale.unsqueeze(-2)
    alone = itself <= 0 if there is None else (itself <= 0) & there
    return scaled + torch.diag_embed(alone.to(kernel.dtype))


def log_det(
    kernel: Float[Tensor, "images samples samples"],
    there: Bool[Tensor, "images samples"] | None = None,
    jitter: float = 1e-3,
) -> Float[Tensor, " images"]:
    """log det(K + jitter): a determinantal point process's score of the set, the volume its captions span.

    With qualities q, K_ij = q_i S_ij q_j makes it 2 sum log q_i + log det S. The jitter keeps a set with the same
    caption twice finite.
    """
    masked = _masked(kernel, there)
    eye = torch.eye(kernel.shape[-1], dtype=kernel.dtype, device=kernel.device)
    missing = eye * (0 if there is None else (~there).to(kernel.dtype).unsqueeze(-1) * (1 - jitter))
    return torch.linalg.slogdet(masked + jitter * eye + missing).logabsdet


def _masked(kernel: Tensor, there: Tensor | None) -> Tensor:
    """A similarity is symmetric; CIDEr-D and BLEU are so only when both directions are averaged."""
    kernel = (kernel + kernel.transpose(-1, -2)) / 2
    return kernel if there is None else kernel * (there.unsqueeze(-1) & there.unsqueeze(-2))


def _eigenvalues(kernel: Tensor, there: Tensor | None) -> tuple[Tensor, Tensor]:
    """Ascending, a missing caption giving a 0; and how many captions there are."""
    values = torch.linalg.eigvalsh(_masked(kernel, there))
    size = kernel.new_full(kernel.shape[:1], kernel.shape[1]) if there is None else there.sum(-1)
    return values, size.to(kernel.dtype)

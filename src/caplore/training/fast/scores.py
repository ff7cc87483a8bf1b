"""CIDEr-D and the pairwise BLEU distance, one program per caption or per pair.

Captions are short: an n-gram is counted by comparing every position with every position, in registers, and its
document frequency is looked up in the same hash table that `caplore.metrics.ngrams` uses. The formulas are those of
`caplore.metrics.cider` and `caplore.metrics.bleu`, which are the reference; tests compare the two.
"""

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from caplore.metrics.cider import CiderD, References
from caplore.metrics.formulas import ORDERS, SCALE, SMALL, TINY
from caplore.metrics.ngrams import BITS

LONGEST = 64  # positions are compared in one block

_ORDERS, _BITS = tl.constexpr(ORDERS), tl.constexpr(BITS)
_TINY, _SMALL = tl.constexpr(TINY), tl.constexpr(SMALL)
_LOW31 = tl.constexpr(2**31 - 1)
_MIX, _MIX_AGAIN = 0x2545F4914F6CDD1D, tl.constexpr(0x369DEA0F31A53F85)  # as ngrams._slots


class CiderTables(NamedTuple):
    """What CIDEr-D knows of all training inputs and of their corpus."""

    references: Int[Tensor, "inputs refs time"]
    inverse_norms: Float[Tensor, "inputs refs orders"]
    bigrams: Float[Tensor, "inputs refs"]
    share: Float[Tensor, "inputs refs"]
    table_keys: Int[Tensor, " slots"]
    table_counts: Int[Tensor, " slots"]
    mix: int  # what the table's hash multiplies with
    log_images: float
    sigma: float
    count_eos: bool

    @classmethod
    def of(
        cls, metric: CiderD, references: Int[Tensor, "inputs refs time"], prepared: References
    ) -> "CiderTables":
        df = metric.df
        return cls(
            references.contiguous(),
            prepared.inverse_norms.contiguous(),
            prepared.bigrams.contiguous(),
            prepared.share.contiguous(),
            df.table_keys,
            df.table_counts,
            _MIX + 2 * df.seed,
            math.log(max(1, df.images)),
            metric.sigma,
            df.count_eos,
        )


def cider_d(
    captions: Int[Tensor, "images samples time"], index: Int[Tensor, " images"], tables: CiderTables
) -> Float[Tensor, "images samples"]:
    """The score of each caption against the references of the inputs `index`."""
    images, samples, time = captions.shape
    _, refs, longest = tables.references.shape
    score = torch.empty(images, samples, ORDERS, device=captions.device)
    _cider_d[(images * samples, ORDERS)](
        captions.contiguous(), index, tables.references, tables.inverse_norms, tables.bigrams, tables.share,
        tables.table_keys, tables.table_counts, score, samples, time, longest, len(tables.table_keys),
        tables.mix, tables.log_images, tables.sigma, SCALE,
        REFS=refs, EOS=tables.count_eos, TIME=triton.next_power_of_2(time),
        LONGEST=triton.next_power_of_2(longest), num_warps=1,
    )  # fmt: skip
    return score.sum(-1)


@triton.jit
def _length(tokens, place, time, EOS: tl.constexpr):
    """Words before the first end, and the end where there is one and it counts."""
    token = tl.load(tokens + place, mask=place < time, other=0)
    words = tl.min(tl.where(token == 0, place, time), 0)
    if EOS:
        words = tl.minimum(words + 1, time)
    return words


@triton.jit
def _digit(tokens, place, length):
    """id + 1 of the caption's own tokens, 0 of what follows."""
    return tl.load(tokens + place, mask=place < length, other=-1).to(tl.int64) + 1


@triton.jit
def _same(a, length_a, place_a, b, length_b, place_b, ORDER: tl.constexpr):
    """Where the n-grams of two captions agree: [places of a, places of b]."""
    same = _digit(a, place_a, length_a)[:, None] == _digit(b, place_b, length_b)[None, :]
    for k in tl.static_range(1, ORDER):
        same &= _digit(a, place_a + k, length_a)[:, None] == _digit(b, place_b + k, length_b)[None, :]
    there = (place_a + ORDER <= length_a)[:, None] & (place_b + ORDER <= length_b)[None, :]
    return (same & there).to(tl.float32)


@triton.jit
def _frequency(tokens, place, length, table_keys, table_counts, slots, mix, ORDER: tl.constexpr):
    """In how many images each n-gram stands."""
    key = _digit(tokens, place, length)
    for k in tl.static_range(1, ORDER):
        key = (key << _BITS) + _digit(tokens, place + k, length)
    there = place + ORDER <= length
    mixed = key * mix
    mixed = (mixed ^ (mixed >> 32)) * _MIX_AGAIN
    mixed = mixed ^ (mixed >> 29)
    first = (((mixed >> 33) & _LOW31) * slots) >> 31
    second = ((mixed & _LOW31) * slots) >> 31
    at_first = tl.load(table_keys + first, mask=there, other=0) == key
    at_second = tl.load(table_keys + second, mask=there, other=0) == key
    slot = tl.where(at_first, first, second)
    return tl.load(table_counts + slot, mask=there & (at_first | at_second), other=0)


@triton.jit
def _cider_d(
    captions, index, references, inverse_norms, bigrams, share, table_keys, table_counts, score,
    samples, time, longest, slots, mix, log_images, sigma, scale,
    REFS: tl.constexpr, EOS: tl.constexpr, TIME: tl.constexpr, LONGEST: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    image = tl.load(index + row // samples)
    caption = captions + row.to(tl.int64) * time
    place, other = tl.arange(0, TIME), tl.arange(0, LONGEST)
    length = _length(caption, place, time, EOS=EOS)
    pairs = tl.maximum(length - 1, 0).to(tl.float32)
    for n in tl.static_range(_ORDERS):  # each order is another program
        if tl.program_id(1) == n:
            total = 0.0
            df = _frequency(caption, place, length, table_keys, table_counts, slots, mix, ORDER=n + 1)
            idf = log_images - tl.log(tl.maximum(df, 1).to(tl.float32))
            tf = tl.sum(_same(caption, length, place, caption, length, place, ORDER=n + 1), 1)
            weight = tl.where(tf > 0, idf * idf, 0.0)
            norm = tl.sqrt(tl.sum(tf * weight, 0))
            weight = weight / tl.maximum(tf, 1.0)  # an n-gram that stands tf times is met tf times
            inverse = tl.where(norm > 0, 1 / tl.where(norm > 0, norm, 1.0), 0.0)
            for r in range(REFS):
                at = image * REFS + r
                reference = references + at * longest
                words = _length(reference, other, longest, EOS=EOS)
                met = tl.sum(_same(caption, length, place, reference, words, other, ORDER=n + 1), 1)
                dot = tl.sum(tl.minimum(met, tf) * met * weight, 0)
                apart = pairs - tl.load(bigrams + at)
                likeness = dot * inverse * tl.load(inverse_norms + at * _ORDERS + n)
                total += tl.load(share + at) * likeness * tl.exp(-apart * apart / (2 * sigma * sigma))
            tl.store(score + row * _ORDERS + n, total * scale / _ORDERS)


def bleu_distance(captions: Int[Tensor, "images samples time"]) -> Float[Tensor, "images samples samples"]:
    """1 - (BLEU-3 + BLEU-4) / 2, both directions averaged; the end is not counted."""
    images, samples, time = captions.shape
    distance = torch.empty(images, samples, samples, device=captions.device)
    _bleu_distance[(images, samples * samples)](
        captions.contiguous(), distance, samples, time, TIME=triton.next_power_of_2(time), num_warps=1
    )
    return distance


@triton.jit
def _log_precision(met, tf, length, ORDER: tl.constexpr):
    """log of the share of n-grams that are found in the other caption, none of them more often than it stands there."""
    matches = tl.sum(tl.where(tf > 0, tl.minimum(met, tf) / tl.maximum(tf, 1.0), 0.0), 0)
    matches = tl.floor(matches + 0.5)
    grams = tl.maximum(length - (ORDER - 1), 0).to(tl.float32)
    return tl.log((matches + _TINY) / (grams + _SMALL))


@triton.jit
def _brevity(length, other):
    ratio = (length.to(tl.float32) + _TINY) / (other.to(tl.float32) + _SMALL)
    return tl.minimum(1 - 1 / ratio, 0.0)


@triton.jit
def _bleu_distance(captions, distance, samples, time, TIME: tl.constexpr):
    image, pair = tl.program_id(0).to(tl.int64), tl.program_id(1)
    j, k = pair // samples, pair % samples
    if j <= k:
        one = captions + (image * samples + j) * time
        other = captions + (image * samples + k) * time
        place = tl.arange(0, TIME)
        length = _length(one, place, time, EOS=False)
        length_other = _length(other, place, time, EOS=False)
        brevity, brevity_other = _brevity(length, length_other), _brevity(length_other, length)
        logs, logs_other, bleu = 0.0, 0.0, 0.0
        for n in tl.static_range(_ORDERS):
            both = _same(one, length, place, other, length_other, place, ORDER=n + 1)
            tf = tl.sum(_same(one, length, place, one, length, place, ORDER=n + 1), 1)
            tf_other = tl.sum(_same(other, length_other, place, other, length_other, place, ORDER=n + 1), 0)
            logs += _log_precision(tl.sum(both, 1), tf, length, ORDER=n + 1)
            logs_other += _log_precision(tl.sum(both, 0), tf_other, length_other, ORDER=n + 1)
            if n >= 2:
                bleu += tl.exp(logs / (n + 1) + brevity) + tl.exp(logs_other / (n + 1) + brevity_other)
        out = distance + image * samples * samples
        tl.store(out + j * samples + k, 1 - bleu / 4)
        tl.store(out + k * samples + j, 1 - bleu / 4)

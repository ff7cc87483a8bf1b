"""The output layer joined with what is done to its logits: drawing a word, and the loss with its gradient.

A row of hidden states meets `vocab` words; the logits [rows, vocab] are the largest tensor of a step by far.

    draw   Where a tile of rows x words is computed, each row leaves behind only the tile's largest logit m, its
           mass s = sum exp(logit - m), and one candidate word, drawn within the tile by inverting the tile's own
           distribution function. A second kernel draws the tile in the same way from the masses s exp(m). That is
           an exact draw from two uniform numbers per row: P(tile) P(word | tile) = P(word). The logits are never
           written. Greedy rows take the best word of the best tile.
    push   Loss and gradient in one pass: a row of logits is read once, and the gradient of
           sum_i push_i (-log p_i) takes its place, with label smoothing or SLL-ME's entropy where asked.
           Rows come own tokens first, so that padding costs next to nothing.

Matrix products are bf16 with float32 accumulation; logits, sums and log-probabilities are float32.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from jaxtyping import Bool, Float, Int
from torch import Tensor

BELOW_ONE = tl.constexpr(1 - 2**-23)  # a target stays below the whole mass: no word of probability 0 is drawn
MOST_WORDS = 32768  # a row of logits stays in registers from reading to writing


class Output(NamedTuple):
    """The last layer: logits = hidden @ weight.T + bias, filled up with rows of zeros that are no words.

    A number of rows that 64 divides keeps every row of logits aligned, which matrix products and wide loads need.
    """

    weight: Float[Tensor, "stride dim"]
    bias: Float[Tensor, " stride"]
    vocab: int


class Said(NamedTuple):
    """Captions while they are being drawn."""

    tokens: Int[Tensor, "rows time"]
    token_logprob: Float[Tensor, "rows time"]
    last: Int[Tensor, " rows"]  # the word before
    ended: Int[Tensor, " rows"]


def draw(
    hidden: Float[Tensor, "rows dim"],
    output: Output,
    uniform: Float[Tensor, "two rows"],
    said: Said,
    time: int,
    *,
    drawn: int,
) -> None:
    """Write the next word of each row into `said`; rows from `drawn` on are greedy."""
    rows, dim = hidden.shape
    vocab = output.vocab
    block_rows, block_words = (64, 128) if rows > 64 else (64, 64)
    tiles = triton.cdiv(vocab, block_words)
    top, mass, logit = torch.empty(3, rows, tiles, device=hidden.device).unbind(0)
    word = torch.empty(rows, tiles, dtype=torch.int32, device=hidden.device)
    _draw_in_tiles[(tiles, triton.cdiv(rows, block_rows))](
        hidden, output.weight, output.bias, uniform[0], top, mass, word, logit, rows, drawn, vocab, tiles,
        DIM=dim, ROWS=block_rows, WORDS=block_words, STEP=64, num_warps=4, num_stages=4,
    )  # fmt: skip
    _draw_tile[(rows,)](
        uniform[1], top, mass, word, logit, *said, drawn, tiles, time, said.tokens.shape[1],
        TILES=triton.next_power_of_2(tiles), num_warps=1,
    )  # fmt: skip


@triton.jit
def _logits(
    hidden, weight, bias, row, word, rows, vocab,
    DIM: tl.constexpr, ROWS: tl.constexpr, WORDS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """hidden[row] @ weight[word].T + bias[word]; -inf for words beyond the vocabulary."""
    inner = tl.arange(0, STEP)
    left = hidden + row.to(tl.int64)[:, None] * DIM + inner[None, :]
    right = weight + word.to(tl.int64)[None, :] * DIM + inner[:, None]
    there, known = row[:, None] < rows, word[None, :] < vocab
    total = tl.zeros((ROWS, WORDS), tl.float32)
    for k in range(0, DIM, STEP):
        a = tl.load(left + k, mask=there & (inner[None, :] + k < DIM), other=0.0)
        b = tl.load(right + k, mask=known & (inner[:, None] + k < DIM), other=0.0)
        total = tl.dot(a, b, total)
    offset = tl.load(bias + word, mask=word < vocab, other=0.0).to(tl.float32)
    return tl.where(known, total + offset[None, :], float("-inf"))


@triton.jit
def _draw_in_tiles(
    hidden, weight, bias, uniform, top_out, mass_out, word_out, logit_out, rows, drawn, vocab, tiles,
    DIM: tl.constexpr, ROWS: tl.constexpr, WORDS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Each tile's largest logit, mass and candidate."""
    tile = tl.program_id(0)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    place = tl.arange(0, WORDS)
    logits = _logits(
        hidden,
        weight,
        bias,
        row,
        tile * WORDS + place,
        rows,
        vocab,
        DIM=DIM,
        ROWS=ROWS,
        WORDS=WORDS,
        STEP=STEP,
    )
    top = tl.max(logits, 1)
    reached = tl.cumsum(tl.exp(logits - top[:, None]), 1)
    mass = tl.max(reached, 1)
    target = tl.load(uniform + row, mask=row < drawn, other=0.0) * mass * BELOW_ONE
    chosen = tl.sum((reached <= target[:, None]).to(tl.int32), 1)
    if tl.program_id(1) * ROWS + ROWS > drawn:
        best = tl.min(tl.where(logits == top[:, None], place[None, :], WORDS), 1)
        chosen = tl.where(row < drawn, chosen, best)
    logit = tl.sum(tl.where(place[None, :] == chosen[:, None], logits, 0.0), 1)
    out = row.to(tl.int64) * tiles + tile
    tl.store(top_out + out, top, mask=row < rows)
    tl.store(mass_out + out, mass, mask=row < rows)
    tl.store(word_out + out, tile * WORDS + chosen, mask=row < rows)
    tl.store(logit_out + out, logit, mask=row < rows)


@triton.jit
def _draw_tile(
    uniform, top_in, mass_in, word_in, logit_in, tokens, logprobs, last, ended, drawn, tiles, time, most,
    TILES: tl.constexpr,
):  # fmt: skip
    """One row: which tile, hence which word; what a caption that has ended says is 0."""
    row = tl.program_id(0)
    tile = tl.arange(0, TILES)
    there = tile < tiles
    start = row.to(tl.int64) * tiles
    top = tl.load(top_in + start + tile, mask=there, other=float("-inf"))
    highest = tl.max(top, 0)
    reached = tl.cumsum(tl.load(mass_in + start + tile, mask=there, other=0.0) * tl.exp(top - highest), 0)
    mass = tl.max(reached, 0)
    target = tl.load(uniform + row, mask=row < drawn, other=0.0) * mass * BELOW_ONE
    chosen = tl.sum((reached <= target).to(tl.int32), 0)
    best = tl.min(tl.where(top == highest, tile, TILES), 0)
    chosen = tl.where(row < drawn, chosen, best)
    over = tl.load(ended + row) != 0
    word = tl.where(over, 0, tl.load(word_in + start + chosen)).to(tl.int64)
    logprob = tl.load(logit_in + start + chosen) - highest - tl.log(mass)
    tl.store(tokens + row.to(tl.int64) * most + time, word)
    tl.store(logprobs + row.to(tl.int64) * most + time, tl.where(over, 0.0, logprob))
    tl.store(last + row, word)
    tl.store(ended + row, (over | (word == 0)).to(tl.int8))


class Pushed(NamedTuple):
    """What `push` found: the loss's gradients, and of each row (0 for padding) ..."""

    hidden: Float[Tensor, "rows dim"]
    weight: Float[Tensor, "vocab dim"]
    bias: Float[Tensor, " vocab"]
    logprob: Float[Tensor, " rows"]  # log p(token)
    mean_logprob: Float[Tensor, " rows"]  # the mean over all words of log p, with label smoothing
    entropy: Float[Tensor, " rows"]  # with an entropy weight


def own_first(own: Bool[Tensor, " rows"]) -> tuple[Int[Tensor, " rows"], Int[Tensor, ""]]:
    """An order in which own tokens come before padding, and how many there are; without asking the host."""
    place = torch.arange(len(own), device=own.device)
    before = own.cumsum(0)
    count = before[-1]
    goes_to = torch.where(own, before - 1, count + place - before)
    return torch.empty_like(place).scatter_(0, goes_to, place), count


def push(
    hidden: Float[Tensor, "rows dim"],
    output: Output,
    tokens: Int[Tensor, " rows"],
    weight: Float[Tensor, " rows"],
    own: Bool[Tensor, " rows"],
    *,
    smoothing: float = 0.0,
    entropy_weight: Float[Tensor, ""] | None = None,
) -> Pushed:
    """The gradient of

        sum_i weight_i ((1 - e) (-log p_i(token_i)) + e mean_v (-log p_i(v))) - entropy_weight sum_i H(p_i)

    over own tokens, e being `smoothing`.
    """
    rows, stride = len(hidden), len(output.weight)
    order, count = own_first(own)
    packed = hidden.index_select(0, order)
    logits = _product(packed, output.weight)
    slope = torch.empty(rows, stride, dtype=hidden.dtype, device=hidden.device)
    seen = torch.zeros(3, rows, device=hidden.device)
    _push_rows[(rows,)](
        logits, output.bias, slope, order, tokens, weight, count, seen,
        seen if entropy_weight is None else entropy_weight, rows, output.vocab, stride, smoothing,
        ENTROPY=entropy_weight is not None, SMOOTH=smoothing > 0, WORDS=triton.next_power_of_2(stride),
        num_warps=max(4, min(16, triton.next_power_of_2(stride) // 1024)),
    )  # fmt: skip
    back = torch.empty_like(hidden).index_copy_(0, order, slope @ output.weight)
    to_bias = slope.sum(0, dtype=torch.float32).to(output.bias.dtype)
    return Pushed(back, (slope.T @ packed)[: output.vocab], to_bias[: output.vocab], *seen.unbind(0))


def _product(a: Float[Tensor, "rows dim"], b: Float[Tensor, "vocab dim"]) -> Float[Tensor, "rows vocab"]:
    """a @ b.T, kept in float32."""
    return torch.mm(a, b.T, out_dtype=torch.float32) if a.is_cuda else a.float() @ b.float().T


@triton.jit
def _push_rows(
    logits, bias, slopes, order, tokens, weights, count, seen, entropy_weight, rows, vocab, stride, smoothing,
    ENTROPY: tl.constexpr, SMOOTH: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """One row: its logits are read once, their gradient is written once."""
    row = tl.program_id(0).to(tl.int64)
    word = tl.arange(0, WORDS)
    there, known = word < stride, word < vocab
    out = slopes + row * stride + word
    if row < tl.load(count):
        place = tl.load(order + row)
        token = tl.load(tokens + place)
        weight = tl.load(weights + place)
        logit = tl.load(logits + row * stride + word, mask=there, other=0.0)
        logit = tl.where(
            known, logit + tl.load(bias + word, mask=there, other=0.0).to(tl.float32), float("-inf")
        )
        top = tl.max(logit, 0)
        mass = tl.exp(logit - top)
        total = tl.sum(mass, 0)
        log_total = top + tl.log(total)
        tl.store(seen + place, tl.sum(tl.where(word == token, logit, 0.0), 0) - log_total)
        p = mass / total
        slope = weight * (p - tl.where(word == token, 1.0 - smoothing, 0.0))
        if SMOOTH:
            tl.store(seen + rows + place, tl.sum(tl.where(known, logit, 0.0), 0) / vocab - log_total)
            slope -= weight * smoothing / vocab
        if ENTROPY:
            logprob = tl.where(known, logit - log_total, 0.0)
            entropy = -tl.sum(p * logprob, 0)
            tl.store(seen + 2 * rows + place, entropy)
            slope += tl.load(entropy_weight) * p * (logprob + entropy)
        tl.store(out, tl.where(known, slope, 0.0).to(slopes.dtype.element_ty), mask=there)
    else:
        tl.store(out, tl.zeros((WORDS,), slopes.dtype.element_ty), mask=there)

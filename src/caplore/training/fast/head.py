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
NO_WORD = tl.constexpr(-1e30)  # the logit of what is no word: its exponential is 0, and 0 times it is 0
MOST_WORDS = 32768  # a row of logits stays in registers from reading to writing


class Output(NamedTuple):
    """The last layer: logits = hidden @ weight.T + bias, filled up with rows of zeros whose bias is NO_WORD.

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
    stride = len(output.weight)
    block_rows, block_words = (64, 128) if rows > 64 else (64, 64)
    tiles = triton.cdiv(stride, block_words)
    top, mass, logit = torch.empty(3, rows, tiles, device=hidden.device).unbind(0)
    word = torch.empty(rows, tiles, dtype=torch.int32, device=hidden.device)
    _draw_in_tiles[(tiles, triton.cdiv(rows, block_rows))](
        hidden, output.weight, output.bias, uniform[0], top, mass, word, logit, rows, drawn, stride, tiles,
        DIM=dim, ROWS=block_rows, WORDS=block_words, STEP=step_of(dim), num_warps=4, num_stages=4,
    )  # fmt: skip
    _draw_tile[(rows,)](
        uniform[1], top, mass, word, logit, *said, drawn, tiles, time, said.tokens.shape[1],
        TILES=triton.next_power_of_2(tiles), num_warps=1,
    )  # fmt: skip


def step_of(dim: int) -> int:
    """How many terms of an inner product are loaded at once: a power of two that divides `dim`, at most 64."""
    return min(64, dim & -dim)


@triton.jit
def _logits(
    hidden, weight, bias, row, word, rows, stride,
    DIM: tl.constexpr, ROWS: tl.constexpr, WORDS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """hidden[row] @ weight[word].T + bias[word]."""
    inner = tl.arange(0, STEP)
    left = hidden + row.to(tl.int64)[:, None] * DIM + inner[None, :]
    right = weight + word.to(tl.int64)[None, :] * DIM + inner[:, None]
    there, known = row[:, None] < rows, word[None, :] < stride
    total = tl.zeros((ROWS, WORDS), tl.float32)
    for k in range(0, DIM, STEP):
        a = tl.load(left + k, mask=there, other=0.0)
        b = tl.load(right + k, mask=known, other=0.0)
        total = tl.dot(a, b, total)
    return total + tl.load(bias + word, mask=word < stride, other=NO_WORD).to(tl.float32)[None, :]


@triton.jit
def _draw_in_tiles(
    hidden, weight, bias, uniform, top_out, mass_out, word_out, logit_out, rows, drawn, stride, tiles,
    DIM: tl.constexpr, ROWS: tl.constexpr, WORDS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Each tile's largest logit, mass and candidate."""
    tile = tl.program_id(0)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    place = tl.arange(0, WORDS)
    word = tile * WORDS + place
    logits = _logits(hidden, weight, bias, row, word, rows, stride, DIM=DIM, ROWS=ROWS, WORDS=WORDS, STEP=STEP)
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


def own_first(own: Bool[Tensor, " rows"]) -> tuple[Int[Tensor, " rows"], Int[Tensor, ""]]:
    """An order in which own tokens come before padding, and how many there are; without asking the host."""
    place = torch.arange(len(own), device=own.device)
    before = own.cumsum(0)
    count = before[-1]
    goes_to = torch.where(own, before - 1, count + place - before)
    return torch.empty_like(place).scatter_(0, goes_to, place), count


class Packed(NamedTuple):
    """Logits of all rows, own tokens first."""

    hidden: Float[Tensor, "rows dim"]
    logits: Float[Tensor, "rows stride"]  # without the bias
    order: Int[Tensor, " rows"]
    count: Int[Tensor, ""]


def pack(hidden: Float[Tensor, "rows dim"], output: Output, own: Bool[Tensor, " rows"]) -> Packed:
    order, count = own_first(own)
    packed = hidden.index_select(0, order)
    return Packed(packed, _product(packed, output.weight), order, count)


class Pushed(NamedTuple):
    """The loss's gradient with respect to the logits, and what was seen on the way (rows in their first order)."""

    slope: Float[Tensor, "rows stride"]  # in the packed order
    logprob: Float[Tensor, " rows"]  # log p(token), 0 for padding, as those below
    mean_logprob: Float[Tensor, " rows"]  # the mean over all words of log p, with label smoothing
    entropy: Float[Tensor, " rows"]  # with an entropy weight

    def of_hidden(self, packed: Packed, output: Output) -> Float[Tensor, "rows dim"]:
        return torch.empty_like(packed.hidden).index_copy_(0, packed.order, self.slope @ output.weight)

    def of_output(self, packed: Packed, output: Output) -> tuple[Tensor, Tensor]:
        """Of weight and bias."""
        bias = self.slope.sum(0, dtype=torch.float32).to(output.bias.dtype)
        return (self.slope.T @ packed.hidden)[: output.vocab], bias[: output.vocab]


def push(
    packed: Packed,
    output: Output,
    tokens: Int[Tensor, " rows"],
    weight: Float[Tensor, " rows"],
    *,
    smoothing: float = 0.0,
    entropy_weight: Float[Tensor, " rows"] | None = None,
) -> Pushed:
    """The gradient of

        sum_i weight_i ((1 - e) (-log p_i(token_i)) + e mean_v (-log p_i(v))) - sum_i entropy_weight_i H(p_i)

    over own tokens, e being `smoothing`.
    """
    rows, stride = packed.logits.shape
    slope = torch.empty_like(packed.logits, dtype=packed.hidden.dtype)
    seen = torch.zeros(3, rows, device=slope.device)
    many = triton.next_power_of_2(stride + 1) // 2
    rest = triton.next_power_of_2(max(stride - many, 64))
    _push_rows[(rows,)](
        packed.logits, output.bias, slope, packed.order, tokens, weight, packed.count, seen,
        seen if entropy_weight is None else entropy_weight, rows, output.vocab, stride, smoothing,
        ENTROPY=entropy_weight is not None, SMOOTH=smoothing > 0, MANY=many, REST=rest,
        num_warps=max(4, min(16, many // 1024)),
    )  # fmt: skip
    return Pushed(slope, *seen.unbind(0))


def _product(a: Float[Tensor, "rows dim"], b: Float[Tensor, "vocab dim"]) -> Float[Tensor, "rows vocab"]:
    """a @ b.T, kept in float32."""
    return torch.mm(a, b.T, out_dtype=torch.float32) if a.is_cuda else a.float() @ b.float().T


@triton.jit
def _row_of_logits(logits, bias, start, word, stride):
    there = word < stride
    logit = tl.load(logits + start + word, mask=there, other=0.0)
    return logit + tl.load(bias + word, mask=there, other=NO_WORD).to(tl.float32)


@triton.jit
def _write_slopes(slopes, start, word, stride, mass, logit, scale, smooth, tilt, log_total, entropy, vocab,
                  ENTROPY: tl.constexpr, SMOOTH: tl.constexpr):  # fmt: skip
    """weight p, without the token's own part; a word that is none has mass 0 and so no slope."""
    slope = scale * mass
    if ENTROPY:
        slope += tilt * mass * (logit - log_total + entropy)
    if SMOOTH:
        slope -= tl.where(word < vocab, smooth, 0.0)
    tl.store(slopes + start + word, slope.to(slopes.dtype.element_ty), mask=word < stride)


@triton.jit
def _push_rows(
    logits, bias, slopes, order, tokens, weights, count, seen, entropy_weights, rows, vocab, stride, smoothing,
    ENTROPY: tl.constexpr, SMOOTH: tl.constexpr, MANY: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    """One row: its logits are read once and their gradient is written once; in two blocks, of MANY and of REST words."""
    row = tl.program_id(0).to(tl.int64)
    start = row * stride
    many, rest = tl.arange(0, MANY), MANY + tl.arange(0, REST)
    if row < tl.load(count):
        place = tl.load(order + row)
        token = tl.load(tokens + place)
        weight = tl.load(weights + place)
        logit = tl.load(logits + start + token) + tl.load(bias + token).to(tl.float32)
        a = _row_of_logits(logits, bias, start, many, stride)
        b = _row_of_logits(logits, bias, start, rest, stride)
        top = tl.maximum(tl.max(a, 0), tl.max(b, 0))
        p, q = tl.exp(a - top), tl.exp(b - top)
        total = tl.sum(p, 0) + tl.sum(q, 0)
        log_total = top + tl.log(total)
        tl.store(seen + place, logit - log_total)
        smooth = weight * smoothing / vocab
        own = weight * (tl.exp(logit - log_total) - (1.0 - smoothing))
        tilt, entropy = 0.0, 0.0
        if SMOOTH:
            sum_a = tl.sum(tl.where(many < vocab, a, 0.0), 0)
            sum_b = tl.sum(tl.where(rest < vocab, b, 0.0), 0)
            tl.store(seen + rows + place, (sum_a + sum_b) / vocab - log_total)
            own -= smooth
        if ENTROPY:
            entropy = log_total - (tl.sum(p * a, 0) + tl.sum(q * b, 0)) / total
            tl.store(seen + 2 * rows + place, entropy)
            tilt = tl.load(entropy_weights + place) / total
            own += tilt * tl.exp(logit - top) * (logit - log_total + entropy)
        scale = weight / total
        _write_slopes(slopes, start, many, stride, p, a, scale, smooth, tilt, log_total, entropy, vocab,
                      ENTROPY=ENTROPY, SMOOTH=SMOOTH)  # fmt: skip
        _write_slopes(slopes, start, rest, stride, q, b, scale, smooth, tilt, log_total, entropy, vocab,
                      ENTROPY=ENTROPY, SMOOTH=SMOOTH)  # fmt: skip
        tl.debug_barrier()  # the token's own slope must be the one that stays
        tl.store(slopes + start + token, own.to(slopes.dtype.element_ty))
    else:
        tl.store(slopes + start + many, tl.zeros((MANY,), slopes.dtype.element_ty), mask=many < stride)
        tl.store(slopes + start + rest, tl.zeros((REST,), slopes.dtype.element_ty), mask=rest < stride)

"""The output layer joined with what is done to its logits: drawing a word, and the loss with its gradient.

A row of hidden states meets `vocab` words; the logits [rows, vocab] are the largest tensor of a step by far.

    draw     Where a tile of rows x words is computed, its largest logit m and its mass s = sum exp(logit - m) are
             computed too. A second kernel draws a tile by inverting the distribution function of the masses s exp(m),
             then a word of that tile in the same way: an exact draw from two uniform numbers a row, which reads back
             one tile in `vocab` / 128. Greedy rows take the best word of the best tile.
    push     Loss and gradient in one pass: a row of logits is read once, and the gradient of
             sum_i push_i (-log p_i) takes its place, with label smoothing or SLL-ME's entropy where asked.
    push_drawn   The same for words that `draw` drew from these very states: log sum exp is known, so that the gradient
             is written where the logits are computed, and the logits are not.

Rows come own tokens first, so that padding costs little. Matrix products are bf16 with float32 accumulation; logits,
sums and log-probabilities are float32.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from jaxtyping import Bool, Float, Int
from torch import Tensor

from caplore.training.fast.products import product

NO_WORD = tl.constexpr(-1e30)  # the logit of what is no word: its exponential is 0, and 0 times it is 0
BELOW_ONE = tl.constexpr(1 - 2**-23)  # a target stays below the whole mass: no word of probability 0 is drawn
MOST_WORDS = 32768  # a row of logits stays in registers from reading to writing
MOST_ROWS = 65536  # that one program puts in order


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
    log_total: Float[Tensor, "time rows"]  # log sum exp of the logits
    last: Int[Tensor, " rows"]  # the word before
    ended: Int[Tensor, " rows"]


class Tiles(NamedTuple):
    """Logits, and of every tile the largest and the mass."""

    logits: Float[Tensor, "rows width"]
    top: Float[Tensor, "rows tiles"]
    mass: Float[Tensor, "rows tiles"]
    words: int  # of a tile


def logits_in_tiles(hidden: Float[Tensor, "rows dim"], output: Output) -> Tiles:
    rows, dim = hidden.shape
    stride = len(output.weight)
    words, stages = (128, 3) if rows > 128 else (64, 4)
    tiles = triton.cdiv(stride, words)
    logits = torch.empty(rows, tiles * words, device=hidden.device)
    top, mass = torch.empty(2, rows, tiles, device=hidden.device).unbind(0)
    _logits_in_tiles[(tiles, triton.cdiv(rows, 64))](
        hidden, output.weight, output.bias, logits, top, mass, rows, stride, tiles,
        DIM=dim, ROWS=64, WORDS=words, STEP=step_of(dim), num_warps=4, num_stages=stages,
    )  # fmt: skip
    return Tiles(logits, top, mass, words)


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
    logits, top, mass, words = logits_in_tiles(hidden, output)
    rows, tiles = top.shape
    _draw[(rows,)](
        uniform, logits, top, mass, said.tokens, said.token_logprob, said.log_total[time], said.last, said.ended,
        rows, drawn, tiles, time, said.tokens.shape[1],
        TILES=triton.next_power_of_2(tiles), WORDS=words, num_warps=1,
    )  # fmt: skip


def step_of(dim: int) -> int:
    """How many terms of an inner product are loaded at once: a power of two that divides `dim`, at most 64."""
    return min(64, dim & -dim)


@triton.jit
def _logits(
    hidden, weight, bias, place, there, word, stride,
    DIM: tl.constexpr, ROWS: tl.constexpr, WORDS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """hidden[place] @ weight[word].T + bias[word]."""
    inner = tl.arange(0, STEP)
    left = hidden + place.to(tl.int64)[:, None] * DIM + inner[None, :]
    right = weight + word.to(tl.int64)[None, :] * DIM + inner[:, None]
    known = word < stride
    total = tl.zeros((ROWS, WORDS), tl.float32)
    for k in range(0, DIM, STEP):
        a = tl.load(left + k, mask=there[:, None], other=0.0)
        b = tl.load(right + k, mask=known[None, :], other=0.0)
        total = tl.dot(a, b, total)
    return total + tl.load(bias + word, mask=known, other=NO_WORD).to(tl.float32)[None, :]


@triton.jit
def _logits_in_tiles(
    hidden, weight, bias, logits_out, top_out, mass_out, rows, stride, tiles,
    DIM: tl.constexpr, ROWS: tl.constexpr, WORDS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    there = row < rows
    word = tile * WORDS + tl.arange(0, WORDS)
    logits = _logits(
        hidden, weight, bias, row, there, word, stride, DIM=DIM, ROWS=ROWS, WORDS=WORDS, STEP=STEP
    )
    top = tl.max(logits, 1)
    at = row.to(tl.int64) * tiles
    tl.store(top_out + at + tile, top, mask=there)
    tl.store(mass_out + at + tile, tl.sum(tl.exp(logits - top[:, None]), 1), mask=there)
    tl.store(logits_out + (at * WORDS)[:, None] + word[None, :], logits, mask=there[:, None])


@triton.jit
def _reached(mass, uniform):
    """The first place with a mass at which the running sum exceeds this share of the whole, and the whole.

    Sums are made in parallel, so that one further on may be smaller by a bit: a place without mass is never taken.
    """
    sums = tl.cumsum(mass, 0)
    whole = tl.max(sums, 0)
    place = tl.arange(0, mass.shape[0])
    reached = tl.min(tl.where((mass > 0) & (sums > uniform * whole * BELOW_ONE), place, mass.shape[0]), 0)
    return tl.minimum(reached, tl.max(tl.where(mass > 0, place, 0), 0)), whole


@triton.jit
def _draw(
    uniform, logits, tops, masses, tokens, logprobs, log_totals, last, ended, rows, drawn, tiles, time, most,
    TILES: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """One row: which tile, which of its words; what a caption that has ended says is 0."""
    row = tl.program_id(0).to(tl.int64)
    tile, place = tl.arange(0, TILES), tl.arange(0, WORDS)
    there = tile < tiles
    top = tl.load(tops + row * tiles + tile, mask=there, other=float("-inf"))
    highest = tl.max(top, 0)
    mass = tl.load(masses + row * tiles + tile, mask=there, other=0.0) * tl.exp(top - highest)
    chosen, total = _reached(mass, tl.load(uniform + row))
    if row >= drawn:
        chosen = tl.min(tl.where(top == highest, tile, TILES), 0)
    logit = tl.load(logits + row * tiles * WORDS + chosen * WORDS + place)
    best = tl.max(logit, 0)
    at, _ = _reached(tl.exp(logit - best), tl.load(uniform + rows + row))
    if row >= drawn:
        at = tl.min(tl.where(logit == best, place, WORDS), 0)
    log_total = highest + tl.log(total)
    logprob = tl.sum(tl.where(place == at, logit, 0.0), 0) - log_total
    over = tl.load(ended + row) != 0
    word = tl.where(over, 0, chosen * WORDS + at).to(tl.int64)
    tl.store(tokens + row * most + time, word)
    tl.store(logprobs + row * most + time, tl.where(over, 0.0, logprob))
    tl.store(log_totals + row, log_total)
    tl.store(last + row, word)
    tl.store(ended + row, (over | (word == 0)).to(tl.int8))


def own_first(own: Bool[Tensor, " rows"]) -> tuple[Int[Tensor, " rows"], Int[Tensor, ""]]:
    """An order in which own tokens come before padding, and how many there are; without asking the host."""
    rows, device = len(own), own.device
    order = torch.empty(rows, dtype=torch.long, device=device)
    if rows <= MOST_ROWS:
        count = torch.empty((), dtype=torch.long, device=device)
        block = triton.next_power_of_2(rows)
        _own_first[(1,)](own, order, count, rows, ROWS=block, num_warps=max(1, min(32, block // 256)))
        return order, count
    place, before = torch.arange(rows, device=device), own.cumsum(0)
    goes_to = torch.where(own, before - 1, before[-1] + place - before)
    return order.scatter_(0, goes_to, place), before[-1]


@triton.jit
def _own_first(own, order, count, rows, ROWS: tl.constexpr):
    place = tl.arange(0, ROWS)
    there = place < rows
    mine = tl.load(own + place, mask=there, other=0).to(tl.int32)
    before = tl.cumsum(mine, 0)
    total = tl.sum(mine, 0)
    goes_to = tl.where(mine != 0, before - 1, total + place - before)
    tl.store(order + goes_to, place.to(tl.int64), mask=there)
    tl.store(count, total.to(tl.int64))


class Packed(NamedTuple):
    """Hidden states of `kept` of the rows, own tokens first."""

    hidden: Float[Tensor, "kept dim"]
    order: Int[Tensor, " kept"]
    own: Int[Tensor, ""]  # how many are own tokens
    rows: int

    def back(self, slope: Float[Tensor, "kept dim"]) -> Float[Tensor, "rows dim"]:
        """In the first order; rows that were not kept are 0."""
        room = torch.empty if self.rows == len(self.order) else torch.zeros
        out = room(self.rows, slope.shape[1], dtype=slope.dtype, device=slope.device)
        return out.index_copy_(0, self.order, slope)


def pack(hidden: Float[Tensor, "rows dim"], own: Bool[Tensor, " rows"], kept: int) -> Packed:
    """`kept` is at least the number of own tokens, whatever they are."""
    order, count = own_first(own)
    return Packed(hidden.index_select(0, order[:kept]), order[:kept], count, len(hidden))


class Slope(NamedTuple):
    """The loss's gradient with respect to the logits of packed rows."""

    of_logits: Float[Tensor, "kept stride"]

    def of_hidden(self, packed: Packed, output: Output) -> Float[Tensor, "rows dim"]:
        return packed.back(self.of_logits @ output.weight)

    def of_output(self, packed: Packed, output: Output) -> tuple[Tensor, Tensor]:
        """Of weight and bias."""
        bias = self.of_logits.sum(0, dtype=torch.float32).to(output.bias.dtype)
        return (self.of_logits.T @ packed.hidden)[: output.vocab], bias[: output.vocab]


class Seen(NamedTuple):
    """What `push` saw of every row, in the first order; 0 for padding."""

    logprob: Float[Tensor, " rows"]  # log p(token)
    mean_logprob: Float[Tensor, " rows"]  # the mean over all words of log p, with label smoothing
    entropy: Float[Tensor, " rows"]  # with an entropy weight


def push(
    packed: Packed,
    output: Output,
    tokens: Int[Tensor, " rows"],
    weight: Float[Tensor, " rows"],
    *,
    smoothing: float = 0.0,
    entropy_weight: Float[Tensor, " rows"] | None = None,
) -> tuple[Slope, Seen]:
    """The gradient of

        sum_i weight_i ((1 - e) (-log p_i(token_i)) + e mean_v (-log p_i(v))) - sum_i entropy_weight_i H(p_i)

    over own tokens, e being `smoothing`.
    """
    logits = product(packed.hidden, output.weight)
    kept, stride = logits.shape
    slope = torch.empty_like(logits, dtype=packed.hidden.dtype)
    seen = torch.zeros(3, packed.rows, device=slope.device)
    many = triton.next_power_of_2(stride + 1) // 2
    rest = triton.next_power_of_2(max(stride - many, 64))
    _push_rows[(kept,)](
        logits, output.bias, slope, packed.order, tokens, weight, packed.own, seen,
        seen if entropy_weight is None else entropy_weight, packed.rows, output.vocab, stride, smoothing,
        ENTROPY=entropy_weight is not None, SMOOTH=smoothing > 0, MANY=many, REST=rest,
        num_warps=4 if many <= 8192 else 16,
    )  # fmt: skip
    return Slope(slope), Seen(*seen.unbind(0))


def push_drawn(
    packed: Packed,
    output: Output,
    tokens: Int[Tensor, " rows"],
    weight: Float[Tensor, " rows"],
    log_total: Float[Tensor, " rows"],
) -> Slope:
    """The gradient of sum_i weight_i (-log p_i(token_i)), where `draw` found log_total from the same hidden states."""
    kept, dim = packed.hidden.shape
    stride = len(output.weight)
    slope = torch.empty(kept, stride, dtype=packed.hidden.dtype, device=packed.hidden.device)
    _push_tiles[(triton.cdiv(stride, 128), triton.cdiv(kept, 128))](
        packed.hidden, output.weight, output.bias, slope, packed.order, tokens, weight, log_total, packed.own,
        kept, stride, DIM=dim, ROWS=128, WORDS=128, STEP=step_of(dim), num_warps=8, num_stages=3,
    )  # fmt: skip
    return Slope(slope)


@triton.jit
def _push_tiles(
    hidden, weight, bias, slopes, order, tokens, weights, log_totals, count, kept, stride,
    DIM: tl.constexpr, ROWS: tl.constexpr, WORDS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(1) * ROWS
    row = first + tl.arange(0, ROWS)
    word = tl.program_id(0) * WORDS + tl.arange(0, WORDS)
    own = tl.load(count)
    out = slopes + row.to(tl.int64)[:, None] * stride + word[None, :]
    inside = (row < kept)[:, None] & (word < stride)[None, :]
    if first < own:
        there = row < own
        place = tl.load(order + row, mask=there, other=0)
        push = tl.load(weights + place, mask=there, other=0.0)
        token = tl.load(tokens + place, mask=there, other=-1)
        log_total = tl.load(log_totals + place, mask=there, other=0.0)
        logits = _logits(
            hidden, weight, bias, row, there, word, stride, DIM=DIM, ROWS=ROWS, WORDS=WORDS, STEP=STEP
        )
        p = tl.exp(logits - log_total[:, None])
        slope = push[:, None] * tl.where(word[None, :] == token[:, None], p - 1, p)
        tl.store(out, slope.to(slopes.dtype.element_ty), mask=inside)
    else:
        tl.store(out, tl.zeros((ROWS, WORDS), slopes.dtype.element_ty), mask=inside)


@triton.jit
def _row_of_logits(logits, bias, start, word, stride):
    there = word < stride
    logit = tl.load(logits + start + word, mask=there, other=0.0)
    return logit + tl.load(bias + word, mask=there, other=NO_WORD).to(tl.float32)


@triton.jit
def _write_slopes(
    slopes, start, word, stride, mass, logit, scale, smooth, tilt, log_total, entropy, vocab,
    ENTROPY: tl.constexpr, SMOOTH: tl.constexpr,
):  # fmt: skip
    """weight p, without the token's own part; what is no word has mass 0 and so no slope."""
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
    """One row: its logits are read once, their gradient is written once; in blocks of MANY and of REST words."""
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
        _write_slopes(
            slopes, start, many, stride, p, a, scale, smooth, tilt, log_total, entropy, vocab,
            ENTROPY=ENTROPY, SMOOTH=SMOOTH,
        )  # fmt: skip
        _write_slopes(
            slopes, start, rest, stride, q, b, scale, smooth, tilt, log_total, entropy, vocab,
            ENTROPY=ENTROPY, SMOOTH=SMOOTH,
        )  # fmt: skip
        tl.debug_barrier()  # the token's own slope must be the one that stays
        tl.store(slopes + start + token, own.to(slopes.dtype.element_ty))
    else:
        tl.store(slopes + start + many, tl.zeros((MANY,), slopes.dtype.element_ty), mask=many < stride)
        tl.store(slopes + start + rest, tl.zeros((REST,), slopes.dtype.element_ty), mask=rest < stride)

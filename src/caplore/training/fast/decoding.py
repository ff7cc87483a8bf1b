"""Beam search in bf16 with the fused output layer, as CUDA graphs: no gaps between a thousand small kernels."""

from collections.abc import Callable
from functools import partial

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from caplore.decoding.beam import Nodes, beam
from caplore.decoding.captions import Captions
from caplore.models.protocol import Features, State
from caplore.training.fast.capture import captured
from caplore.training.fast.half import HalfCopy
from caplore.training.fast.head import logits_in_tiles

FAR = tl.constexpr(2**30)  # beyond any place


class Decoder:
    """A model to decode with: `caplore.decoding` takes it like the model itself."""

    def __init__(self, half: HalfCopy) -> None:
        self.half = half
        self._graphs: dict[tuple[int, ...], CapturedDecoding] = {}

    def beam(self, features: Features, *, width: int, max_words: int) -> Captions:
        """`decoding.beam`'s best captions, as one graph for each batch size; the next call overwrites them."""
        self.half.model.eval()
        if not self.half.output.weight.is_cuda:
            return beam(self, features, width=width, max_words=max_words)
        key = (features.rows, width, max_words)
        if key not in self._graphs:
            search = partial(beam, self, width=width, max_words=max_words)
            self._graphs[key] = CapturedDecoding(search, features)
        return self._graphs[key](features)

    def begin(self, features: Features) -> State:
        return self.half.model.begin(features)

    def step(self, tokens: Int[Tensor, " rows"], state: State) -> tuple[Float[Tensor, "rows vocab"], State]:
        return self.half.model.step(tokens, state)

    def forward(
        self, features: Features, tokens: Int[Tensor, "rows time"]
    ) -> Float[Tensor, "rows time vocab"]:
        return self.half.model(features, tokens)

    __call__ = forward

    def expand(
        self, tokens: Int[Tensor, " rows"], state: State, live: Float[Tensor, "searches beams"], width: int
    ) -> tuple[Nodes, State]:
        """The best children of each search's live nodes, from the best words of each tile."""
        hidden, state = self.half.model.advance(tokens, state)
        return best_nodes(hidden, self.half, live, width), state


def best_nodes(
    hidden: Float[Tensor, "rows dim"], half: HalfCopy, live: Float[Tensor, "searches beams"], width: int
) -> Nodes:
    logits, top, mass, words = logits_in_tiles(hidden, half.output)
    rows, tiles = top.shape
    searches, beams = live.shape
    best, log_total = hidden.new_empty(rows, width, dtype=torch.float32), live.new_empty(rows)
    word = torch.empty(rows, width, dtype=torch.long, device=hidden.device)
    _best_words[(rows,)](
        logits, top, mass, best, word, log_total, tiles,
        WIDTH=width, TILES=triton.next_power_of_2(tiles), WORDS=words, num_warps=1,
    )  # fmt: skip
    token, parent = torch.empty(2, searches, width, dtype=torch.long, device=hidden.device).unbind(0)
    logprob, total = torch.empty(2, searches, width, device=hidden.device).unbind(0)
    _best_nodes[(searches,)](
        live.contiguous(), best, word, log_total, token, parent, logprob, total,
        BEAMS=beams, WIDTH=width, BLOCK=triton.next_power_of_2(beams * width), num_warps=1,
    )  # fmt: skip
    return Nodes(token, parent, logprob, total)


@triton.jit
def _next_best(values, place, last, last_place):
    """The largest value, the first of equals, that comes after the last one found in this order."""
    left = (values < last) | ((values == last) & (place > last_place))
    best = tl.max(tl.where(left, values, float("-inf")), 0)
    return best, tl.min(tl.where(left & (values == best), place, FAR), 0)


@triton.jit
def _best_words(
    logits, tops, masses, best_out, word_out, log_total_out, tiles,
    WIDTH: tl.constexpr, TILES: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """One row: the tile with the best word that is left, that word, and what the tile has after it."""
    row = tl.program_id(0).to(tl.int64)
    tile, place = tl.arange(0, TILES), tl.arange(0, WORDS)
    there = tile < tiles
    top = tl.load(tops + row * tiles + tile, mask=there, other=float("-inf"))
    highest = tl.max(top, 0)
    mass = tl.load(masses + row * tiles + tile, mask=there, other=0.0)
    tl.store(log_total_out + row, highest + tl.log(tl.sum(mass * tl.exp(top - highest), 0)))
    last, last_word = highest + 1, -1
    for i in tl.static_range(WIDTH):
        best = tl.max(top, 0)
        chosen = tl.min(tl.where(top == best, tile, TILES), 0)
        word = chosen * WORDS + place
        logit = tl.load(logits + row * tiles * WORDS + word)
        last, last_word = _next_best(logit, word, last, last_word)
        tl.store(best_out + row * WIDTH + i, last)
        tl.store(word_out + row * WIDTH + i, last_word.to(tl.int64))
        after, _ = _next_best(logit, word, last, last_word)
        top = tl.where(tile == chosen, after, top)


@triton.jit
def _best_nodes(
    live, best, word, log_total, token_out, parent_out, logprob_out, total_out,
    BEAMS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One search: the best of the best words of its nodes."""
    search = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, BLOCK)
    there = place < BEAMS * WIDTH
    node = search * BEAMS + place // WIDTH
    logprob = tl.load(best + search * BEAMS * WIDTH + place, mask=there, other=0.0)
    logprob -= tl.load(log_total + node, mask=there, other=0.0)
    words = tl.load(word + search * BEAMS * WIDTH + place, mask=there, other=0)
    total = tl.where(there, tl.load(live + node, mask=there, other=0.0) + logprob, float("-inf"))
    last, chosen = float("inf"), -1
    for i in tl.static_range(WIDTH):
        last, chosen = _next_best(total, place, last, chosen)
        out = search * WIDTH + i
        tl.store(total_out + out, last)
        tl.store(parent_out + out, (chosen // WIDTH).to(tl.int64))
        tl.store(token_out + out, tl.sum(tl.where(place == chosen, words, 0), 0))
        tl.store(logprob_out + out, tl.sum(tl.where(place == chosen, logprob, 0.0), 0))


class CapturedDecoding:
    """`decode` for batches of the shape of `like`; what it gives is overwritten by the next call."""

    def __init__(self, decode: Callable[[Features], Captions], like: Features) -> None:
        self._features = Features(*(None if f is None else f.clone() for f in like))
        self._decode = decode
        present = like.pooled if like.pooled is not None else like.regions
        assert present is not None
        self._replay = captured(self._body, [], present.device)

    def __call__(self, features: Features) -> Captions:
        for mine, given in zip(self._features, features, strict=True):
            if mine is not None and given is not None:
                mine.copy_(given)
        self._replay()
        return self._captions

    def _body(self) -> None:
        with torch.no_grad():
            self._captions = self._decode(self._features)

"""A pre-norm transformer: encode the regions (and the pooled vector), decode words with a cache.

Vaswani et al. (2017) with layer norms in front (Xiong et al., 2020). Shapes in attention are
rows heads time dim throughout; `memory` is what the encoder makes of an image.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from caplore.models.attention import Dot
from caplore.models.entry import Entry
from caplore.models.protocol import Features, State, shift_right, spread

MAX_TIME = 256  # positions in the sinusoid table


class Transformer(nn.Module):
    """The image is a sequence: its pooled vector, where there is one, then its regions with learned places
    (grid cells and segments of a clip have an order). Words read earlier words, and the image, by attention.

    A state is, per layer, the keys and values of the words so far, then those of the image. The first grow
    by one word a step (the position is their length): a step reads no more than is there, and never writes
    into the state it was given. Dropout acts in `forward` in train mode only.
    """

    sinusoids: Tensor

    def __init__(
        self,
        vocab: int,
        *,
        pooled_dim: int | None = None,
        regions: tuple[int, int] | None = None,
        hidden: int = 512,
        heads: int = 8,
        encoder_layers: int = 3,
        layers: int = 3,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        if pooled_dim is None and regions is None:
            raise ValueError("a transformer needs pooled_dim, regions or both")
        if hidden % heads or hidden % 2:
            raise ValueError(f"hidden is {hidden}; it must be even and a multiple of heads, {heads}")
        self.config: dict[str, Any] = {
            "name": "transformer",
            "vocab": vocab,
            "pooled_dim": pooled_dim,
            "regions": None if regions is None else list(regions),
            "hidden": hidden,
            "heads": heads,
            "encoder_layers": encoder_layers,
            "layers": layers,
            "dropout": dropout,
        }
        self.dropout = dropout
        self.heads = heads
        self.pooled_entry = None if pooled_dim is None else Entry("pooled", (pooled_dim,))
        self.pooled = None if pooled_dim is None else nn.Linear(pooled_dim, hidden)
        self.regions = None if regions is None else Regions(regions, hidden)
        self.encoder = nn.ModuleList(EncoderLayer(hidden, heads) for _ in range(encoder_layers))
        self.encoder_norm = nn.LayerNorm(hidden)
        self.memory = nn.ModuleList(nn.Linear(hidden, 2 * hidden) for _ in range(layers))  # keys and values
        self.embedding = nn.Embedding(vocab, hidden)
        self.decoder = nn.ModuleList(DecoderLayer(hidden, heads) for _ in range(layers))
        self.decoder_norm = nn.LayerNorm(hidden)
        self.out = nn.Linear(hidden, vocab)
        self.register_buffer("sinusoids", sinusoids(MAX_TIME, hidden), persistent=False)

    def begin(self, features: Features) -> State:
        memories = self._memories(features, 0.0)
        rows, _, heads, _, dim = memories[0].shape
        empty = memories[0].new_zeros(rows, 2, heads, 0, dim)
        return (empty,) * len(memories) + memories

    def advance(self, tokens: Int[Tensor, " rows"], state: State) -> tuple[Float[Tensor, "rows dim"], State]:
        layers = len(self.decoder)
        caches, memories = state[:layers], state[layers:]
        x = self._embed(tokens[:, None], start=caches[0].shape[3])
        grown = []
        for layer, cache, memory in zip(self.decoder, caches, memories, strict=True):
            x, cache = layer(x, memory, cache, 0.0)
            grown.append(cache)
        return self.decoder_norm(x[:, 0]), (*grown, *memories)

    def step(self, tokens: Int[Tensor, " rows"], state: State) -> tuple[Float[Tensor, "rows vocab"], State]:
        said, state = self.advance(tokens, state)
        return self.out(said), state

    def hidden(self, features: Features, tokens: Int[Tensor, "rows time"]) -> Float[Tensor, "rows time dim"]:
        drop = self.dropout if self.training else 0.0
        memories = spread(self._memories(features, drop), len(tokens))
        x = F.dropout(self._embed(shift_right(tokens), start=0), drop)
        for layer, memory in zip(self.decoder, memories, strict=True):
            x, _ = layer(x, memory, None, drop)
        return self.decoder_norm(x)

    def forward(
        self, features: Features, tokens: Int[Tensor, "rows time"]
    ) -> Float[Tensor, "rows time vocab"]:
        return self.out(self.hidden(features, tokens))

    def _embed(self, tokens: Int[Tensor, "rows time"], start: int) -> Float[Tensor, "rows time hidden"]:
        stop = start + tokens.shape[1]
        if stop > MAX_TIME:
            raise ValueError(f"a caption of {stop} tokens is longer than the model's limit of {MAX_TIME}")
        return self.embedding(tokens) + self.sinusoids[start:stop]

    def _memories(self, features: Features, drop: float) -> State:
        """Keys and values of the encoded image, for each decoder layer."""
        parts = []
        if self.pooled is not None and self.pooled_entry is not None:
            parts.append(self.pooled(self.pooled_entry(features.pooled))[:, None])
        if self.regions is not None:
            parts.append(self.regions(features.regions))
        x = F.dropout(torch.cat(parts, dim=1), drop)
        for layer in self.encoder:
            x = layer(x, drop)
        x = self.encoder_norm(x)
        return tuple(split_heads(project(x), 2, self.heads) for project in self.memory)


class Regions(nn.Module):
    """Region vectors, each with a learned mark of its place."""

    def __init__(self, shape: tuple[int, int], hidden: int) -> None:
        super().__init__()
        self.entry = Entry("region", shape)
        self.project = nn.Linear(shape[1], hidden)
        self.place = nn.Parameter(torch.zeros(shape[0], hidden))

    def forward(
        self, regions: Float[Tensor, "rows regions dim"] | None
    ) -> Float[Tensor, "rows regions hidden"]:
        return self.project(self.entry(regions)) + self.place


class EncoderLayer(nn.Module):
    """Every region reads every region, then thinks for itself."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attend = Dot()
        self.norm = nn.LayerNorm(hidden)
        self.read = nn.Linear(hidden, 3 * hidden)
        self.write = nn.Linear(hidden, hidden)
        self.think = FeedForward(hidden)

    def forward(
        self, x: Float[Tensor, "rows regions hidden"], drop: float
    ) -> Float[Tensor, "rows regions hidden"]:
        query, key, value = split_heads(self.read(self.norm(x)), 3, self.heads).unbind(dim=1)
        seen = join_heads(self.attend(query, key, value))
        return self.think(x + F.dropout(self.write(seen), drop), drop)


class DecoderLayer(nn.Module):
    """Every word reads the words up to itself, then the image, then thinks for itself."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attend = Dot()
        self.norm = nn.LayerNorm(hidden)
        self.read = nn.Linear(hidden, 3 * hidden)
        self.write = nn.Linear(hidden, hidden)
        self.look_norm = nn.LayerNorm(hidden)
        self.look = nn.Linear(hidden, hidden)
        self.look_write = nn.Linear(hidden, hidden)
        self.think = FeedForward(hidden)

    def forward(
        self,
        x: Float[Tensor, "rows time hidden"],
        memory: Float[Tensor, "rows 2 heads regions dim"],
        cache: Float[Tensor, "rows 2 heads past dim"] | None,
        drop: float,
    ) -> tuple[Float[Tensor, "rows time hidden"], Float[Tensor, "rows 2 heads all dim"]]:
        """One layer further; `cache` holds the words before these, None where these are all there are."""
        read = split_heads(self.read(self.norm(x)), 3, self.heads)
        query, words = read[:, 0], read[:, 1:]
        if cache is not None:
            words = torch.cat([cache, words], dim=3)
        said = self.attend(query, words[:, 0], words[:, 1], causal=cache is None)
        x = x + F.dropout(self.write(join_heads(said)), drop)
        query = split_heads(self.look(self.look_norm(x)), 1, self.heads)[:, 0]
        seen = self.attend(query, memory[:, 0], memory[:, 1])
        x = x + F.dropout(self.look_write(join_heads(seen)), drop)
        return self.think(x, drop), words


class FeedForward(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def forward(self, x: Float[Tensor, "rows time hidden"], drop: float) -> Float[Tensor, "rows time hidden"]:
        thought = F.dropout(F.gelu(self.up(self.norm(x))), drop)
        return x + F.dropout(self.down(thought), drop)


def split_heads(
    x: Float[Tensor, "rows time all"], parts: int, heads: int
) -> Float[Tensor, "rows parts heads time dim"]:
    rows, time, _ = x.shape
    return x.view(rows, time, parts, heads, -1).permute(0, 2, 3, 1, 4)


def join_heads(x: Float[Tensor, "rows heads time dim"]) -> Float[Tensor, "rows time hidden"]:
    return x.transpose(1, 2).flatten(2)


def sinusoids(time: int, hidden: int) -> Float[Tensor, "time hidden"]:
    """sin and cos of position / 10000^(i / (hidden/2))."""
    rate = torch.exp(torch.arange(0, hidden, 2) * (-math.log(10_000.0) / hidden))
    angle = torch.arange(time)[:, None] * rate
    return torch.cat([angle.sin(), angle.cos()], dim=1)

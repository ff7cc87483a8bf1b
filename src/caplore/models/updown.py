"""Two LSTMs: one decides where to look, the other what to say.

Anderson et al., Bottom-Up and Top-Down Attention for Image Captioning and VQA (CVPR 2018).
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from caplore.models.attention import Additive
from caplore.models.entry import Entry
from caplore.models.protocol import Features, State, shift_right, spread


class UpDown(nn.Module):
    """With v_i = relu(V x_i), g = relu(G x) of the pooled vector (or of the mean region where there is none),

        h1 = LSTM1([E y_{t-1}; g; h2'], h1', c1')
        z  = sum_i softmax(w . tanh(K v_i + Q h1))_i v_i
        h2 = LSTM2([z; h1], h2', c2'),   p(y_t | y_<t, x) = softmax(W h2 + b)

    (primes: one step before; all zero at the start). What g and the regions add is computed once per image,
    what the words add and the logits once per caption; the loop over time holds only what depends on h.
    Dropout (image, words, outputs) acts in `forward` in train mode only.
    """

    def __init__(
        self,
        vocab: int,
        regions: tuple[int, int],
        *,
        pooled_dim: int | None = None,
        hidden: int = 512,
        embed: int = 512,
        attention: int = 512,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.config: dict[str, Any] = {
            "name": "updown",
            "vocab": vocab,
            "pooled_dim": pooled_dim,
            "regions": list(regions),
            "hidden": hidden,
            "embed": embed,
            "attention": attention,
            "dropout": dropout,
        }
        self.entry = Entry("region", regions)
        self.pooled_entry = None if pooled_dim is None else Entry("pooled", (pooled_dim,))
        self.dropout = dropout
        self.width, self.attention = hidden, attention
        self.value = nn.Linear(regions[1], hidden)
        self.key = nn.Linear(hidden, attention)
        self.image = nn.Linear(pooled_dim or regions[1], hidden)
        self.embedding = nn.Embedding(vocab, embed)
        # LSTM1's gates, by what they read; the biases are in `word`
        self.word = nn.Linear(embed, 4 * hidden)
        self.glimpse = nn.Linear(hidden, 4 * hidden, bias=False)
        self.look = nn.Linear(2 * hidden, 4 * hidden, bias=False)  # h1, h2 of the step before
        # what reads the new h1: the attention's query, and LSTM2's gates
        self.from_look = nn.Linear(hidden, attention + 4 * hidden, bias=False)
        self.attend = Additive(attention)
        self.say = nn.Linear(2 * hidden, 4 * hidden)  # z, h2 of the step before
        self.out = nn.Linear(hidden, vocab)

    def begin(self, features: Features) -> State:
        return self._begin(features, 0.0)

    def advance(self, tokens: Int[Tensor, " rows"], state: State) -> tuple[Float[Tensor, "rows dim"], State]:
        memory, (glimpse, values, keys) = state[:4], state[4:]
        memory = self._advance(self.word(self.embedding(tokens)) + glimpse, memory, values, keys)
        return memory[2], (*memory, glimpse, values, keys)

    def step(self, tokens: Int[Tensor, " rows"], state: State) -> tuple[Float[Tensor, "rows vocab"], State]:
        said, state = self.advance(tokens, state)
        return self.out(said), state

    def hidden(self, features: Features, tokens: Int[Tensor, "rows time"]) -> Float[Tensor, "rows time dim"]:
        drop = self.dropout if self.training else 0.0
        state = spread(self._begin(features, drop), len(tokens))
        memory, (glimpse, values, keys) = state[:4], state[4:]
        words = self.word(F.dropout(self.embedding(shift_right(tokens)), drop)) + glimpse[:, None]
        outputs = []
        for word in words.unbind(dim=1):
            memory = self._advance(word, memory, values, keys)
            outputs.append(memory[2])
        return F.dropout(torch.stack(outputs, dim=1), drop)

    def forward(
        self, features: Features, tokens: Int[Tensor, "rows time"]
    ) -> Float[Tensor, "rows time vocab"]:
        return self.out(self.hidden(features, tokens))

    def _begin(self, features: Features, drop: float) -> State:
        regions = self.entry(features.regions)
        pooled = regions.mean(dim=1) if self.pooled_entry is None else self.pooled_entry(features.pooled)
        values = F.dropout(self.value(regions).relu(), drop)
        glimpse = self.glimpse(F.dropout(self.image(pooled).relu(), drop))
        zero = values.new_zeros(len(values), self.width)
        return zero, zero, zero, zero, glimpse, values, self.key(values)

    def _advance(
        self,
        gates: Float[Tensor, "rows gates"],
        memory: State,
        values: Float[Tensor, "rows regions hidden"],
        keys: Float[Tensor, "rows regions attention"],
    ) -> State:
        look, look_cell, say, say_cell = memory
        look, look_cell = lstm(gates, self.look(torch.cat([look, say], dim=-1)), look_cell)
        query, look_gates = self.from_look(look).split([self.attention, 4 * self.width], dim=-1)
        seen = self.attend(query, keys, values)
        say, say_cell = lstm(look_gates, self.say(torch.cat([seen, say], dim=-1)), say_cell)
        return look, look_cell, say, say_cell


def lstm(
    some: Float[Tensor, "rows gates"], others: Float[Tensor, "rows gates"], cell: Float[Tensor, "rows hidden"]
) -> tuple[Float[Tensor, "rows hidden"], Float[Tensor, "rows hidden"]]:
    """The new h and c from the two summands of the gates, in torch's order: write, keep, new, show."""
    if some.is_cuda:  # one kernel, forward and backward
        hidden, cell, _ = torch.ops.aten._thnn_fused_lstm_cell(some, others, cell)
        return hidden, cell
    write, keep, new, show = (some + others).chunk(4, dim=-1)
    cell = keep.sigmoid() * cell + write.sigmoid() * new.tanh()
    return show.sigmoid() * cell.tanh(), cell

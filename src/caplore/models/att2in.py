"""One LSTM that looks at the regions before each word; what it sees goes into the cell only.

Rennie et al., Self-critical Sequence Training for Image Captioning (CVPR 2017), "Att2in".
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from caplore.models.attention import Additive, MaxoutCell
from caplore.models.entry import Entry
from caplore.models.protocol import Features, State, shift_right, spread


class Att2in(nn.Module):
    """With v_i = relu(V x_i), s_i = w . tanh(K v_i + Q h_{t-1}) and the context z = sum_i softmax(s)_i v_i,

        i, f, o = sigmoid(W E y_{t-1} + U h_{t-1} + b)
        c_t = f c_{t-1} + i maxout(W' E y_{t-1} + U' h_{t-1} + b' + A z),  h_t = o tanh(c_t)

    and h_0 = c_0 = 0: all the model knows of the picture comes through the attention. Region projections
    are computed once per image, those of the words and the logits once per caption; the loop over time
    holds only what depends on h. Dropout (regions, words, outputs) acts in `forward` in train mode only.
    """

    def __init__(
        self,
        vocab: int,
        regions: tuple[int, int],
        *,
        hidden: int = 512,
        embed: int = 512,
        attention: int = 512,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.config: dict[str, Any] = {
            "name": "att2in",
            "vocab": vocab,
            "pooled_dim": None,
            "regions": list(regions),
            "hidden": hidden,
            "embed": embed,
            "attention": attention,
            "dropout": dropout,
        }
        self.entry = Entry("region", regions)
        self.dropout = dropout
        self.width, self.attention = hidden, attention
        self.value = nn.Linear(regions[1], hidden)
        self.key = nn.Linear(hidden, attention)
        self.embedding = nn.Embedding(vocab, embed)
        self.word = nn.Linear(embed, 5 * hidden)  # three gates, two pieces of the maxout
        self.recurrent = nn.Linear(hidden, attention + 5 * hidden, bias=False)  # the query, then as `word`
        self.attend = Additive(attention)
        self.context = nn.Linear(hidden, 2 * hidden, bias=False)
        self.cell = MaxoutCell()
        self.out = nn.Linear(hidden, vocab)

    def begin(self, features: Features) -> State:
        return self._begin(features, 0.0)

    def advance(self, tokens: Int[Tensor, " rows"], state: State) -> tuple[Float[Tensor, "rows dim"], State]:
        hidden, cell, values, keys = state
        hidden, cell = self._advance(self.word(self.embedding(tokens)), hidden, cell, values, keys)
        return hidden, (hidden, cell, values, keys)

    def step(self, tokens: Int[Tensor, " rows"], state: State) -> tuple[Float[Tensor, "rows vocab"], State]:
        hidden, state = self.advance(tokens, state)
        return self.out(hidden), state

    def hidden(self, features: Features, tokens: Int[Tensor, "rows time"]) -> Float[Tensor, "rows time dim"]:
        drop = self.dropout if self.training else 0.0
        hidden, cell, values, keys = spread(self._begin(features, drop), len(tokens))
        words = self.word(F.dropout(self.embedding(shift_right(tokens)), drop))
        outputs = []
        for word in words.unbind(dim=1):
            hidden, cell = self._advance(word, hidden, cell, values, keys)
            outputs.append(hidden)
        return F.dropout(torch.stack(outputs, dim=1), drop)

    def forward(
        self, features: Features, tokens: Int[Tensor, "rows time"]
    ) -> Float[Tensor, "rows time vocab"]:
        return self.out(self.hidden(features, tokens))

    def _begin(self, features: Features, drop: float) -> State:
        regions = self.entry(features.regions)
        values = F.dropout(self.value(regions).relu(), drop)
        zero = values.new_zeros(len(values), self.width)
        return zero, zero, values, self.key(values)

    def _advance(
        self,
        word: Float[Tensor, "rows gates"],
        hidden: Float[Tensor, "rows hidden"],
        cell: Float[Tensor, "rows hidden"],
        values: Float[Tensor, "rows regions hidden"],
        keys: Float[Tensor, "rows regions attention"],
    ) -> tuple[Float[Tensor, "rows hidden"], Float[Tensor, "rows hidden"]]:
        query, recurrent = self.recurrent(hidden).split([self.attention, 5 * self.width], dim=-1)
        seen = self.context(self.attend(query, keys, values))
        after: tuple[Tensor, Tensor] = self.cell(word, recurrent, seen, cell)
        return after

"""The paper's captioner: a picture becomes the first state of an LSTM, and is not looked at again."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from caplore.models.entry import Entry
from caplore.models.protocol import Features, State, pooled_vector, shift_right, spread


class Fc(nn.Module):
    """p(y_t | y_<t, x) = softmax(W h_t + b), (h_t, c_t) = LSTM(E y_{t-1}, h_{t-1}, c_{t-1}), h_0 = c_0 = A x.

    Features without a pooled vector are pooled here, by the mean over their regions.
    `forward` runs all words in one fused LSTM call; `step` runs one word with the same weights.
    Dropout (on the LSTM's input and output) acts in `forward` and in train mode only: samples are
    drawn from the policy itself, never from a damaged copy of it.
    """

    def __init__(
        self, vocab: int, pooled_dim: int, *, hidden: int = 512, embed: int = 512, dropout: float = 0.5
    ) -> None:
        super().__init__()
        self.config: dict[str, Any] = {
            "name": "fc",
            "vocab": vocab,
            "pooled_dim": pooled_dim,
            "regions": None,
            "hidden": hidden,
            "embed": embed,
            "dropout": dropout,
        }
        self.entry = Entry("pooled", (pooled_dim,))
        self.image = nn.Linear(pooled_dim, hidden)
        self.embedding = nn.Embedding(vocab, embed)
        self.lstm = nn.LSTM(embed, hidden, batch_first=True)
        self.out = nn.Linear(hidden, vocab)
        self.dropout = nn.Dropout(dropout)

    def train(self, mode: bool = True) -> "Fc":
        """As usual, but for the LSTM: cuDNN takes no gradient outside train mode, and it has no dropout of its own."""
        super().train(mode)
        self.lstm.train()
        return self

    def begin(self, features: Features) -> State:
        start = self.image(self.entry(pooled_vector(features)))
        return start, start

    def advance(self, tokens: Int[Tensor, " rows"], state: State) -> tuple[Float[Tensor, "rows dim"], State]:
        weights = self.lstm.all_weights[0]  # of input and hidden state, then their biases
        hidden, cell = torch.lstm_cell(self.embedding(tokens), state, *weights)
        return hidden, (hidden, cell)

    def step(self, tokens: Int[Tensor, " rows"], state: State) -> tuple[Float[Tensor, "rows vocab"], State]:
        hidden, state = self.advance(tokens, state)
        return self.out(hidden), state

    def hidden(self, features: Features, tokens: Int[Tensor, "rows time"]) -> Float[Tensor, "rows time dim"]:
        hidden, cell = spread(self.begin(features), len(tokens))
        words = self.dropout(self.embedding(shift_right(tokens)))
        outputs, _ = self.lstm(words, (hidden[None], cell[None]))
        return self.dropout(outputs)

    def forward(
        self, features: Features, tokens: Int[Tensor, "rows time"]
    ) -> Float[Tensor, "rows time vocab"]:
        return self.out(self.hidden(features, tokens))

"""A captioner small enough to list everything it can say."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from caplore.models.protocol import BOS, EOS, Features, State

Caption = tuple[int, ...]


class Toy:
    """p(word | image, time, word before) from a table of logits: image time before vocab."""

    def __init__(self, images: int, max_words: int, vocab: int, seed: int, spread: float = 1.5) -> None:
        rng = torch.Generator().manual_seed(seed)
        self.table = torch.randn(images, max_words, vocab, vocab, generator=rng) * spread
        self.logprob = self.table.double().log_softmax(-1)
        self.features = Features(torch.arange(images, dtype=torch.float32)[:, None], None)

    def begin(self, features: Features) -> State:
        assert features.pooled is not None
        image = features.pooled[:, 0].long()
        return image, torch.zeros_like(image)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        image, time = state
        return self.table[image, time, tokens], (image, time + 1)

    def forward(self, features: Features, tokens: Tensor) -> Tensor:
        raise AssertionError("decoders only step")

    __call__ = forward

    def next_logprob(self, image: int, prefix: Caption) -> Tensor:
        return self.logprob[image, len(prefix), prefix[-1] if prefix else BOS]

    def everything(self, image: int) -> dict[Caption, float]:
        """Each caption within the limit, its end included where there is room, and its log-probability."""
        time, vocab = self.table.shape[1], self.table.shape[-1]
        found = {}
        for words in itertools.product(range(vocab), repeat=time):
            caption = words[: words.index(EOS) + 1] if EOS in words else words
            found[caption] = math.fsum(
                float(self.next_logprob(image, caption[:t])[word]) for t, word in enumerate(caption)
            )
        return found


def own(row: Tensor) -> Caption:
    """The tokens of a row up to and with the first end."""
    words = row.tolist()
    return tuple(words[: words.index(EOS) + 1] if EOS in words else words)


@pytest.fixture(scope="session")
def toy() -> type[Toy]:
    return Toy


@pytest.fixture(scope="session")
def own_tokens():
    return own

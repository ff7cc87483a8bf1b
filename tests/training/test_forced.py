"""Logits of the captions' own tokens against a run over everything."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from caplore.models import Model, build
from caplore.models.protocol import Features
from caplore.objectives.policy import own_tokens
from caplore.training import forced
from caplore.training.forced import force

IMAGES, CAPTIONS, TIME, VOCAB = 70, 3, 12, 30


class Headless(nn.Module):
    """A model that shows only its logits."""

    def __init__(self, inside: Model) -> None:
        super().__init__()
        self.inside = inside

    def begin(self, features: Features) -> tuple:
        return self.inside.begin(features)

    def step(self, tokens: Tensor, state: tuple) -> tuple:
        return self.inside.step(tokens, state)

    def forward(self, features: Features, tokens: Tensor) -> Tensor:
        return self.inside(features, tokens)


@pytest.fixture
def captions() -> Tensor:
    """Of all lengths from none to all words, those of an image about as long."""
    rng = torch.Generator().manual_seed(0)
    words = torch.randint(3, VOCAB, (IMAGES, CAPTIONS, TIME), generator=rng)
    lengths = torch.randint(0, TIME + 1, (IMAGES, 1, 1), generator=rng)
    apart = torch.randint(0, 3, (IMAGES, CAPTIONS, 1), generator=rng)
    return words * (torch.arange(TIME) < lengths - apart)


@pytest.fixture
def features() -> Features:
    rng = torch.Generator().manual_seed(1)
    return Features(torch.randn(IMAGES, 7, generator=rng), torch.randn(IMAGES, 3, 5, generator=rng))


def made(name: str) -> Model:
    torch.manual_seed(0)
    sizes = {"heads": 2} if name == "transformer" else {}
    return build(name, vocab=VOCAB, pooled_dim=7, regions=(3, 5), hidden=16, dropout=0.0, **sizes)


def gradient(model: nn.Module, loss: Tensor) -> Tensor:
    model.zero_grad()
    loss.backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


@pytest.mark.parametrize("wrap", [lambda model: model, Headless], ids=["headed", "headless"])
@pytest.mark.parametrize("name", ["fc", "att2in", "updown", "transformer"])
@pytest.mark.parametrize("images", [IMAGES, 5])
def test_logits_and_gradients_are_those_of_a_run_over_everything(
    name: str, wrap: Callable[[Model], Model], images: int, captions: Tensor, features: Features
) -> None:
    model = wrap(made(name))
    captions, features = captions[:images], Features(*(f[:images] for f in features))
    own = own_tokens(captions)
    whole = model(features, captions.flatten(0, 1)).view(*captions.shape, VOCAB)
    said = force(model, features, captions)
    assert torch.equal(said.own, own)
    assert said.mask.all()
    assert len(said.tokens) == len(said.logits) == int(own.sum())
    torch.testing.assert_close(said.logits, whole.flatten(0, 2)[said.places], rtol=1e-5, atol=1e-5)
    assert torch.equal(said.tokens, captions.flatten()[said.places])
    weight = torch.randn(own.shape, generator=torch.Generator().manual_seed(2))
    ours = (said.at_home(said.logits.square().sum(-1)) * weight).sum()
    theirs = (whole.square().sum(-1) * weight * own).sum()
    torch.testing.assert_close(gradient(model, ours), gradient(model, theirs), rtol=1e-4, atol=1e-2)


def test_little_padding_is_computed(
    captions: Tensor, features: Features, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = made("fc")
    run, met = [], []
    hidden, out = model.hidden, model.out.forward
    monkeypatch.setattr(
        model, "hidden", lambda some, tokens: run.append(tokens.numel()) or hidden(some, tokens)
    )
    monkeypatch.setattr(model.out, "forward", lambda rows: met.append(len(rows)) or out(rows))
    force(model, features, captions)
    assert len(run) == forced.GROUPS
    assert sum(run) < 0.75 * captions.numel()
    assert met == [int(own_tokens(captions).sum())]


def test_what_is_not_own_comes_home_as_zero(captions: Tensor, features: Features) -> None:
    said = force(made("fc"), features, captions)
    home = said.at_home(said.tokens.float() + 1)
    assert torch.equal(home, (captions.float() + 1) * own_tokens(captions))


def test_where_everything_is_computed_padding_is_masked(captions: Tensor) -> None:
    """As on a GPU."""
    own = own_tokens(captions)
    said = forced.Forced(torch.randn(captions.numel(), VOCAB), captions.flatten(), None, own)
    assert torch.equal(said.mask.view(own.shape), own)
    assert torch.equal(said.at_home(said.tokens), captions)

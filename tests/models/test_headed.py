"""The output layer apart from the rest: what training relies on to compute no more logits than it needs."""

import pytest
import torch

from caplore.models import build
from caplore.models.protocol import Features, Headed

SIZES = {
    "fc": {"hidden": 16, "embed": 12},
    "att2in": {"hidden": 16, "embed": 12, "attention": 10},
    "updown": {"hidden": 16, "embed": 12, "attention": 10},
    "transformer": {"hidden": 16, "heads": 4, "encoder_layers": 1, "layers": 2},
}


@pytest.mark.parametrize("name", SIZES)
def test_logits_are_one_linear_layer_of_the_outputs(name) -> None:
    torch.manual_seed(0)
    model = build(name, vocab=11, pooled_dim=6, regions=(3, 8), **SIZES[name]).double().eval()
    assert isinstance(model, Headed)
    features = Features(torch.randn(2, 6).double(), torch.randn(2, 3, 8).double())
    tokens = torch.randint(2, 11, (4, 5))
    assert torch.equal(model.out(model.hidden(features, tokens)), model(features, tokens))
    first, state = torch.tensor([4, 7]), model.begin(features)
    output, after = model.advance(first, state)
    logits, same = model.step(first, state)
    assert torch.equal(model.out(output), logits)
    assert all(torch.equal(a, b) for a, b in zip(after, same, strict=True))

"""Features come in standardised by the training split, and refused when they are not the model's."""

import pytest
import torch

from caplore import models
from caplore.errors import InputError
from caplore.models.entry import Entry, fit_entries
from caplore.models.protocol import Features


def test_fitted_features_have_mean_zero_and_spread_one() -> None:
    features = torch.randn(500, 3, 4) * torch.tensor([1e-2, 1.0, 1e2, 0.0]) + torch.tensor(
        [5.0, 0.0, -7.0, 2.0]
    )
    entry = Entry("region", (3, 4))
    torch.testing.assert_close(entry(features), features)  # identity until fitted
    fit_entries(entry, [Features(None, part) for part in features.split(70)])
    inside = entry(features).flatten(0, 1)
    torch.testing.assert_close(inside.mean(0), torch.zeros(4), atol=1e-3, rtol=0)
    torch.testing.assert_close(inside.std(0), torch.tensor([1.0, 1.0, 1.0, 0.0]), atol=1e-2, rtol=0)


@pytest.mark.parametrize("name", models.NAMES)
def test_the_scale_of_an_encoder_does_not_matter(name: str) -> None:
    features = Features(torch.randn(50, 6), torch.randn(50, 2, 5))
    louder = Features(features.pooled * 100 + 3, features.regions * 0.01 - 1)
    tokens = torch.randint(3, 9, (50, 4))
    torch.manual_seed(0)
    model = models.build(name, vocab=9, pooled_dim=6, regions=(2, 5), hidden=16).eval()
    fit_entries(model, [features])
    plain = model(features, tokens)
    fit_entries(model, [louder])
    torch.testing.assert_close(model(louder, tokens), plain, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("name", models.NAMES)
def test_other_features_are_refused(name: str) -> None:
    model = models.build(name, vocab=9, pooled_dim=6, regions=(2, 5), hidden=16)
    with pytest.raises(InputError, match=r"the model was built for (pooled|region) features of shape"):
        model.begin(Features(torch.zeros(1, 7), torch.zeros(1, 2, 6)))

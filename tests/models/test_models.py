"""Building a model by name."""

import pytest

from caplore.errors import ConfigError
from caplore.models import NAMES, Fc, Transformer, UpDown, build


def test_every_name_builds() -> None:
    sizes = {"hidden": 8}
    for name in NAMES:
        model = build(name, vocab=9, pooled_dim=4, regions=(3, 5), **sizes)
        assert model.config["name"] == name
        assert model.config["hidden"] == 8


def test_the_papers_sizes_are_the_defaults() -> None:
    model = build("fc", vocab=50, pooled_dim=2048, regions=None)
    assert isinstance(model, Fc)
    shapes = {name: tuple(w.shape) for name, w in model.named_parameters()}
    assert shapes == {
        "image.weight": (512, 2048),
        "image.bias": (512,),
        "embedding.weight": (50, 512),
        "lstm.weight_ih_l0": (2048, 512),
        "lstm.weight_hh_l0": (2048, 512),
        "lstm.bias_ih_l0": (2048,),
        "lstm.bias_hh_l0": (2048,),
        "out.weight": (50, 512),
        "out.bias": (50,),
    }


def test_what_is_missing_is_replaced_where_that_makes_sense() -> None:
    fc = build("fc", vocab=9, pooled_dim=None, regions=(3, 5))
    assert fc.config["pooled_dim"] == 5
    updown = build("updown", vocab=9, pooled_dim=None, regions=(3, 5), hidden=8)
    assert isinstance(updown, UpDown)
    transformer = build("transformer", vocab=9, pooled_dim=4, regions=None, hidden=8, heads=2)
    assert isinstance(transformer, Transformer)


@pytest.mark.parametrize("name", ["att2in", "updown"])
def test_attention_without_regions_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"model {name} attends to regions.*\n  fix: use fc"):
        build(name, vocab=9, pooled_dim=4, regions=None)


def test_no_features_at_all_are_refused() -> None:
    with pytest.raises(ConfigError, match="neither a pooled vector nor regions"):
        build("fc", vocab=9, pooled_dim=None, regions=None)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="no model 'lstm'\n  fix: name one of fc, att2in"):
        build("lstm", vocab=9, pooled_dim=4, regions=None)


def test_an_unknown_size_names_itself() -> None:
    with pytest.raises(ConfigError, match=r"model fc cannot be built: .*'heads'"):
        build("fc", vocab=9, pooled_dim=4, regions=None, heads=2)


def test_an_impossible_size_says_why() -> None:
    with pytest.raises(ConfigError, match="hidden is 10; it must be even and a multiple of heads, 4"):
        build("transformer", vocab=9, pooled_dim=4, regions=None, hidden=10, heads=4)

"""Captioners: fc, att2in, updown, transformer, behind one protocol of three functions."""

from typing import Any, TypeAlias

from caplore.errors import ConfigError
from caplore.models.fc import Fc

Model: TypeAlias = Fc
NAMES = ("fc",)


def build(
    name: str, *, vocab: int, pooled_dim: int | None, regions: tuple[int, int] | None, **sizes: Any
) -> Model:
    """The model of this name for features of these shapes; `regions` is (number, dim).

    `sizes` are the model's own knobs. Every model has a JSON-able `config` such that `build(**model.config)` makes the same
    architecture again. fc takes the mean of the regions where there is no pooled vector.
    """
    if pooled_dim is None and regions is None:
        raise ConfigError("the features have neither a pooled vector nor regions, so no model can use them")
    try:
        match name:
            case "fc":
                return Fc(vocab, _pooled_dim(pooled_dim, regions), **sizes)
    except TypeError as error:
        raise ConfigError(f"model {name} cannot be built: {error}") from None
    raise ConfigError(f"there is no model {name!r}", fix=f"name one of {', '.join(NAMES)}")


def _pooled_dim(pooled_dim: int | None, regions: tuple[int, int] | None) -> int:
    if pooled_dim is not None:
        return pooled_dim
    assert regions is not None
    return regions[1]

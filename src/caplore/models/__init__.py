"""Captioners: fc, att2in, updown, transformer, behind one protocol of three functions."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from caplore.errors import ConfigError
from caplore.models.att2in import Att2in
from caplore.models.fc import Fc
from caplore.models.transformer import Transformer
from caplore.models.updown import UpDown

Model: TypeAlias = Fc | Att2in | UpDown | Transformer
NAMES = ("fc", "att2in", "updown", "transformer")


def build(
    name: str, *, vocab: int, pooled_dim: int | None, regions: Sequence[int] | None, **sizes: Any
) -> Model:
    """The model of this name for features of these shapes; `regions` is (number, dim).

    `sizes` are the model's own knobs. Every model has a JSON-able `config`, and `build(**model.config)` makes
    the same architecture again. fc takes the mean of the regions where there is no pooled vector, updown
    likewise; the transformer takes whatever there is; att2in and updown refuse features without regions,
    over which there would be nothing to attend to.
    """
    if pooled_dim is None and regions is None:
        raise ConfigError("the features have neither a pooled vector nor regions: no model can use them")
    try:
        match name:
            case "fc":
                return Fc(vocab, pooled_dim or _needed(name, regions)[1], **sizes)
            case "att2in":
                return Att2in(vocab, _needed(name, regions), **sizes)
            case "updown":
                return UpDown(vocab, _needed(name, regions), pooled_dim=pooled_dim, **sizes)
            case "transformer":
                shape = None if regions is None else (regions[0], regions[1])
                return Transformer(vocab, pooled_dim=pooled_dim, regions=shape, **sizes)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"model {name} cannot be built: {error}") from None
    raise ConfigError(f"there is no model {name!r}", fix=f"name one of {', '.join(NAMES)}")


def _needed(name: str, regions: Sequence[int] | None) -> tuple[int, int]:
    if regions is None:
        raise ConfigError(
            f"model {name} attends to regions, but these features have only a pooled vector",
            fix="use fc or transformer, or encode with regions (caplore features --help)",
        )
    return regions[0], regions[1]

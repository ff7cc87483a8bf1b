"""A plain Python function of yours as an encoder: `--encoder mymodule:myfunction`.

    def myfunction(pixels):            # float [frames, 3, height, width], values 0 to 1
        return features                # [frames, dim], or {"pooled": [frames, dim], "regions": [frames, n, dim]}
    myfunction.size = 224              # optional: what each frame is scaled to (a number, or (height, width))
    myfunction.version = "1"           # optional: names its weights; else the text of its source does

A torch module works as well: its weights are hashed, and it is moved to the GPU where there is one.
"""

import importlib
import inspect
import os
import sys
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from caplore.errors import InputError
from caplore.features.decoding import ClipSampling, Preprocessing
from caplore.features.encoder import Encoded, Encoder, weights_hash
from caplore.files import digest_of

DEFAULT_SIZE = 224


class Function(nn.Module):
    """Calls the function and checks what comes back, so that a wrong shape is said at once and by name."""

    def __init__(self, name: str, function: Any) -> None:
        super().__init__()
        self.name = name
        self.function = function

    def forward(self, pixels: Float[Tensor, "frames 3 height width"]) -> Encoded:
        returned = self.function(pixels)
        encoded = dict(returned) if isinstance(returned, Mapping) else {"pooled": returned}
        for kind, axes in (("pooled", 2), ("regions", 3)):
            value = encoded.get(kind)
            if value is not None and (
                not isinstance(value, Tensor) or value.ndim != axes or len(value) != len(pixels)
            ):
                found = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
                raise InputError(
                    f"the encoder {self.name} gave {kind} {found} for {len(pixels)} frames",
                    fix="return a tensor [frames, dim], or {'pooled': [frames, dim], 'regions': [frames, n, dim]}",
                )
        if not encoded or set(encoded) - {"pooled", "regions"}:
            raise InputError(f"the encoder {self.name} returned {sorted(encoded)}, not pooled and/or regions")
        return encoded


def function_encoder(name: str, *, clip: ClipSampling | None = None) -> Encoder:
    function = _imported(name)
    size = getattr(function, "size", DEFAULT_SIZE)
    height, width = size if isinstance(size, tuple) else (size, size)
    return Encoder(
        name=name,
        family="function",
        network=Function(name, function),
        preprocessing=Preprocessing(height, width),
        weights=_version(function),
        clip=clip,
    )


def _imported(name: str) -> Any:
    module_name, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:  # the console script does not look where it is called, `python -m` does
        sys.path.insert(0, os.getcwd())
    try:
        function = getattr(importlib.import_module(module_name), attribute)
    except ImportError as error:
        raise InputError(
            f"encoder {name!r}: module {module_name!r} cannot be imported ({error})",
            fix="call caplore from the folder that holds it, or put that folder on PYTHONPATH",
        ) from None
    except AttributeError:
        raise InputError(f"encoder {name!r}: module {module_name!r} has no {attribute!r}") from None
    if not callable(function):
        raise InputError(f"encoder {name!r} is a {type(function).__name__}, not a function")
    return function


def _version(function: Any) -> str:
    if isinstance(function, torch.nn.Module):
        return f"values:{weights_hash(function)}"
    if hasattr(function, "version"):
        return f"version:{function.version}"
    try:
        return f"source:{digest_of(inspect.getsource(function))}"
    except (OSError, TypeError):
        return "unknown"

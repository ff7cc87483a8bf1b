"""Encoders by name, and back from the description that a feature index or a checkpoint keeps."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from caplore.errors import ConfigError, InputError
from caplore.features.decoding import ClipSampling, Preprocessing
from caplore.features.encoder import Encoder

NAMES = ("patches", "tiny", "efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2")


def encoder_named(
    name: str, *, grid: int = 3, clip: ClipSampling | None = None, device: str = "auto"
) -> Encoder:
    """One of NAMES; module:function; else a model of Hugging Face transformers. Imports only what that needs."""
    if grid < 0:
        raise ConfigError(f"a grid has 1 x 1 cells or more (0: no regions), not {grid}")
    if name == "patches":
        from caplore.features.patches import patches

        encoder = patches(clip=clip)
    elif name == "tiny":
        from caplore.features.tiny import tiny

        encoder = tiny(clip=clip)
    elif name in NAMES:
        from caplore.features.efficientnet import efficientnet_lite

        encoder = efficientnet_lite(name, grid=grid, clip=clip)
    elif ":" in name:
        from caplore.features.function import function_encoder

        encoder = function_encoder(name, clip=clip)
    else:
        from caplore.features.transformers import backbone

        encoder = backbone(name, grid=grid, clip=clip)
    return on_device(encoder, device)


def on_device(encoder: Encoder, device: str) -> Encoder:
    """The encoder moved; "auto" is the GPU where there is one."""
    try:
        chosen = torch.device(
            ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
        )
        if isinstance(encoder.network, torch.nn.Module):
            encoder.network.to(chosen).eval()
    except (RuntimeError, AssertionError) as error:  # a name that is none, or a GPU that is not there
        raise ConfigError(
            f"the device {device!r} cannot be used ({str(error).splitlines()[0]})", fix="--device auto"
        ) from None
    return replace(encoder, device=chosen)


def encoder_from(description: Mapping[str, Any], *, device: str = "auto") -> Encoder:
    """The encoder that made some features, for new files; refused where its weights are no longer the same."""
    try:
        name = description["name"]
        if description["family"] == "imported":
            raise InputError(
                f"the features {name!r} were computed elsewhere and imported: there is no encoder here for new files",
                fix="train on features that caplore features made; new pictures can be captioned then",
            )
        clip = None if description["clip"] is None else ClipSampling(**description["clip"])
        as_json = description["preprocessing"]
        preprocessing = Preprocessing(**as_json | {key: tuple(as_json[key]) for key in ("mean", "std")})
        encoder = encoder_named(name, clip=clip, device=device, **description["settings"])
        weights = description["weights"]
    except (KeyError, TypeError) as error:
        text = str(dict(description))[:200]
        raise InputError(f"this description of an encoder is malformed ({error!r}): {text}") from None
    if encoder.weights != weights:
        raise InputError(
            f"the encoder {name!r} here has the weights {encoder.weights}, but {weights} made the features",
            fix="install the version that made them; or encode the data set again (--again) and train again",
        )
    return replace(encoder, preprocessing=preprocessing)

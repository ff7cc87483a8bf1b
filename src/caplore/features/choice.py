"""Encoders by name, and back from the description that a feature index or a checkpoint keeps."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from caplore.errors import ConfigError, InputError
from caplore.features.decoding import ClipSampling
from caplore.features.encoder import Encoder


def encoder_named(name: str, *, clip: ClipSampling | None = None, device: str = "auto") -> Encoder:
    """`patches`, ..."""
    match name:
        case "patches":
            from caplore.features.patches import patches

            encoder = patches(clip)
        case "efficientnet-lite0" | "efficientnet-lite1" | "efficientnet-lite2":
            from caplore.features.efficientnet import efficientnet_lite

            encoder = efficientnet_lite(name, clip=clip)
        case _:
            raise ConfigError(f"there is no encoder {name!r}", fix="one of: patches")
    return on_device(encoder, device)


def on_device(encoder: Encoder, device: str) -> Encoder:
    """The encoder moved; "auto" is the GPU where there is one."""
    chosen = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)
    if isinstance(encoder.network, torch.nn.Module):
        encoder.network.to(chosen).eval()
    return replace(encoder, device=chosen)


def encoder_from(description: Mapping[str, Any], *, device: str = "auto") -> Encoder:
    """The encoder that made some features, for new files; refuses one whose weights are no longer the same."""
    try:
        name, weights, clip = description["name"], description["weights"], description.get("clip")
        sampling = None if clip is None else ClipSampling(**clip)
    except (KeyError, TypeError) as error:
        raise InputError(
            f"this description of an encoder is malformed ({error}): {str(dict(description))[:200]}"
        ) from None
    encoder = encoder_named(name, clip=sampling, device=device)
    if encoder.weights != weights:
        raise InputError(
            f"the encoder {name!r} here has weights {encoder.weights}, the features were made with {weights}",
            fix="install the version that made them, or encode the data set again and train again",
        )
    return encoder

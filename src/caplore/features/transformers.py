"""Any vision backbone of Hugging Face transformers, by name or local folder (extra `transformers`).

ResNet (microsoft/resnet-152 is the paper's), ViT, DINO, CLIP, SigLIP, Swin, ConvNeXt, ...: what is asked of
a model is a `last_hidden_state`, either a map [frames, dim, height, width] or tokens [frames, n, dim] whose
last square number is the grid of patches (what stands before, class and register tokens, is left out).

    pooled   the model's own pooler_output, else its class token, else the mean of the cells
    regions  the cells, averaged down to grid x grid

Weights are read from safetensors only and no code from a model folder is run. Preprocessing (size, crop,
mean, deviation) is the model's own, from its preprocessor_config.json.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d

from caplore.errors import InputError, MissingError
from caplore.features.decoding import ClipSampling, Preprocessing
from caplore.features.encoder import Encoded, Encoder, weights_hash

RESAMPLE: dict[int, Literal["bilinear", "bicubic", "lanczos"]] = {1: "lanczos", 2: "bilinear", 3: "bicubic"}
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Backbone(nn.Module):
    """A vision model of transformers, its output as pooled and regions."""

    def __init__(self, model: nn.Module, grid: int, *, has_pooler: bool) -> None:
        super().__init__()
        self.model = model.eval().requires_grad_(False)
        self.grid = grid
        self.has_pooler = has_pooler

    def forward(self, pixels: Float[Tensor, "frames 3 height width"]) -> Encoded:
        output = self.model(pixel_values=pixels)
        hidden, pooled = output.last_hidden_state, getattr(output, "pooler_output", None)
        maps = as_map(hidden)
        if pooled is None or not self.has_pooler:
            has_class_token = hidden.ndim == 3 and hidden.shape[1] > maps.shape[2] * maps.shape[3]
            pooled = hidden[:, 0] if has_class_token else maps.mean((2, 3))
        encoded = {"pooled": pooled.flatten(1)}
        if self.grid:
            encoded["regions"] = adaptive_avg_pool2d(maps, self.grid).flatten(2).transpose(1, 2)
        return encoded


def as_map(hidden: Float[Tensor, "frames ..."]) -> Float[Tensor, "frames dim side side2"]:
    """Cells in their places: a map as it is, tokens without those in front of the largest square number of them."""
    if hidden.ndim == 4:
        return hidden
    side = math.isqrt(hidden.shape[1])
    return hidden[:, -side * side :].transpose(1, 2).unflatten(2, (side, side))


def backbone(name: str, *, grid: int = 3, clip: ClipSampling | None = None) -> Encoder:
    model, invented = _model(name)
    config = _preprocessor_config(name)
    return Encoder(
        name=name,
        family="transformers",
        network=Backbone(model, grid, has_pooler=not invented),
        preprocessing=preprocessing_of(config, default_size=_image_size(model)),
        weights=f"values:{weights_hash(model, without=invented)}",
        clip=clip,
        settings={"grid": grid},
    )


def _model(name: str) -> tuple[nn.Module, set[str]]:
    """The vision tower (text towers of CLIP and SigLIP are dropped), and the weights of a pooler it did not come with.

    Many checkpoints have no pooler; transformers then makes one of random numbers, which we must not use.
    """
    try:
        import transformers
    except ImportError:
        raise MissingError(
            f"the encoder {name!r} is a model of Hugging Face transformers, which is not installed",
            fix="pip install 'transformers>=4.50'",
        ) from None
    if Path(name).is_dir() and not (Path(name) / "config.json").is_file():
        raise InputError(f"{name} is a folder without config.json: not a model that transformers has saved")
    try:
        model, loading = transformers.AutoModel.from_pretrained(
            name, use_safetensors=True, trust_remote_code=False, output_loading_info=True
        )
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"transformers cannot load {name!r}: {str(error).splitlines()[0]}",
            fix="check the name or give a folder; HF_HUB_OFFLINE=1 looks only at what is already downloaded",
        ) from None
    prefix = "vision_model." if hasattr(model, "vision_model") else ""
    missing = {key.removeprefix(prefix) for key in loading["missing_keys"] if key.startswith(prefix)}
    lost = sorted(key for key in missing if "pooler" not in key and not key.startswith("head."))
    if lost:
        raise InputError(
            f"{name} has no weights for {len(lost)} parameters of its vision model (first: {lost[0]})"
        )
    return getattr(model, "vision_model", model), missing


def _image_size(model: Any) -> int:
    size = getattr(model.config, "image_size", 224)
    return int(size) if isinstance(size, int) else int(max(size))


def _preprocessor_config(name: str) -> Mapping[str, Any]:
    from transformers.image_processing_base import ImageProcessingMixin

    try:
        return ImageProcessingMixin.get_image_processor_dict(name)[0]
    except OSError:  # a bare backbone: saved without one
        return {}


def preprocessing_of(config: Mapping[str, Any], *, default_size: int) -> Preprocessing:
    """A preprocessor_config.json as ours: its size, its crop if it has one, its mean and deviation."""
    size = config.get("size", default_size)
    size = size if isinstance(size, Mapping) else {"shortest_edge": size}
    edge = int(
        size.get("shortest_edge", 0) or max(size.get("height", 0), size.get("width", 0)) or default_size
    )
    resample = RESAMPLE.get(int(config.get("resample", 3)), "bicubic")
    normalises = config.get("do_normalize", True)
    mean = tuple(config.get("image_mean", IMAGENET_MEAN)) if normalises else (0.0, 0.0, 0.0)
    std = tuple(config.get("image_std", IMAGENET_STD)) if normalises else (1.0, 1.0, 1.0)
    if config.get("do_center_crop") or ("crop_pct" in config and "shortest_edge" in size):
        crop = config.get("crop_size", edge)
        high, wide = (crop["height"], crop["width"]) if isinstance(crop, Mapping) else (crop, crop)
        # ConvNeXt and ResNet scale by 1 / crop_pct instead of naming two sizes.
        scale = max(round(edge / (config.get("crop_pct") or 1)), high, wide)
        return Preprocessing(high, wide, fit="crop", scale=scale, resample=resample, mean=mean, std=std)
    high, wide = int(size.get("height", edge)), int(size.get("width", edge))
    return Preprocessing(high, wide, resample=resample, mean=mean, std=std)

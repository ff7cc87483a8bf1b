"""Backbones of Hugging Face transformers: small ones, made here, saved to a folder and loaded as a user would."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image

from caplore.errors import InputError
from caplore.features.choice import encoder_from, encoder_named
from caplore.features.encoding import encode_files
from caplore.features.transformers import as_map, preprocessing_of

transformers = pytest.importorskip("transformers", reason="the extra `transformers` is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

TOKENS = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
}


def save(family: str, folder: Path) -> torch.nn.Module:
    torch.manual_seed(0)
    match family:
        case "resnet":
            config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])
            model = transformers.ResNetModel(config)
        case "clip":
            vision, text = (
                transformers.CLIPVisionConfig(**TOKENS),
                transformers.CLIPTextConfig(
                    hidden_size=16,
                    intermediate_size=16,
                    num_hidden_layers=1,
                    num_attention_heads=2,
                    vocab_size=99,
                ),
            )
            model = transformers.CLIPModel(transformers.CLIPConfig(vision_config=vision, text_config=text))
        case "siglip":
            model = transformers.SiglipVisionModel(transformers.SiglipVisionConfig(**TOKENS))
        case "dino":
            sizes = {k: v for k, v in TOKENS.items() if k != "intermediate_size"}
            model = transformers.Dinov2Model(transformers.Dinov2Config(**sizes, mlp_ratio=1))
        case _:
            model = transformers.ViTModel(transformers.ViTConfig(**TOKENS), add_pooling_layer=False)
    model.eval().save_pretrained(folder)
    return model


@pytest.mark.parametrize("family", ["resnet", "clip", "siglip", "dino", "vit"])
def test_a_backbone_from_a_folder(family: str, tmp_path: Path) -> None:
    model = save(family, tmp_path / family)
    encoder = encoder_named(str(tmp_path / family), grid=2, device="cpu")
    Image.effect_noise((50, 40), 80).convert("RGB").save(tmp_path / "a.png")
    [(_, row)] = encode_files([tmp_path / "a.png"], encoder)
    assert isinstance(row, dict)
    assert row["pooled"].shape == (16,)
    assert row["regions"].shape == (4, 16)
    pixels = torch.rand(2, 3, encoder.preprocessing.height, encoder.preprocessing.width)
    with torch.no_grad():
        output = getattr(model, "vision_model", model)(pixel_values=pixels)
        found = encoder.network(pixels)
    # transformers invents a pooler for a ViT that was saved without one: random numbers, not to be used.
    pooled = output.last_hidden_state[:, 0] if family == "vit" else output.pooler_output.flatten(1)
    torch.testing.assert_close(found["pooled"], pooled)
    back = encoder_from(json.loads(json.dumps(encoder.description)), device="cpu")
    assert back.weights == encoder.weights


def test_the_weights_name_their_values(tmp_path: Path) -> None:
    model = save("dino", tmp_path / "one")
    with torch.no_grad():
        next(model.parameters()).add_(1e-3)
    model.save_pretrained(tmp_path / "two")
    description = encoder_named(str(tmp_path / "one"), device="cpu").description
    with pytest.raises(InputError, match="has the weights"):
        encoder_from(description | {"name": str(tmp_path / "two")}, device="cpu")


def test_pickled_weights_are_not_read(tmp_path: Path) -> None:
    model = save("dino", tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match="transformers cannot load"):
        encoder_named(str(tmp_path))


def test_a_folder_that_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"without config\.json"):
        encoder_named(str(tmp_path))


def test_cells_keep_their_places() -> None:
    """A class and register tokens stand before the patches, which are in reading order."""
    tokens = torch.arange(4 * 4 + 3.0).view(1, -1, 1)
    torch.testing.assert_close(as_map(tokens)[0, 0], torch.arange(3.0, 19.0).view(4, 4))
    maps = torch.rand(1, 2, 3, 5)
    assert as_map(maps) is maps


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        (  # CLIP
            {
                "size": {"shortest_edge": 224},
                "crop_size": {"height": 224, "width": 224},
                "do_center_crop": True,
                "resample": 3,
            },
            (224, 224, "crop", 224, "bicubic"),
        ),
        (
            {"size": {"height": 384, "width": 384}, "resample": 2},
            (384, 384, "whole", None, "bilinear"),
        ),  # ViT, SigLIP
        (
            {"size": {"shortest_edge": 224}, "crop_pct": 0.875, "resample": 3},
            (224, 224, "crop", 256, "bicubic"),
        ),  # ResNet
        (  # DINOv2
            {
                "size": {"shortest_edge": 256},
                "crop_size": {"height": 224, "width": 224},
                "do_center_crop": True,
            },
            (224, 224, "crop", 256, "bicubic"),
        ),
        (
            {"size": 224, "crop_size": 224, "do_center_crop": True},
            (224, 224, "crop", 224, "bicubic"),
        ),  # older files
        ({}, (64, 64, "whole", None, "bicubic")),
    ],
)
def test_preprocessor_configs_of_the_field(config: dict[str, object], wanted: tuple[object, ...]) -> None:
    found = preprocessing_of(config, default_size=64)
    assert (found.height, found.width, found.fit, found.scale, found.resample) == wanted


def test_normalisation_is_the_model_s_own() -> None:
    given = preprocessing_of({"image_mean": [0.5, 0.4, 0.3], "image_std": [0.1, 0.2, 0.3]}, default_size=8)
    assert given.mean == (0.5, 0.4, 0.3)
    assert given.std == (0.1, 0.2, 0.3)
    none = preprocessing_of({"do_normalize": False, "image_mean": [0.5] * 3}, default_size=8)
    assert none.mean == (0, 0, 0)

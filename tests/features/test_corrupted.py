"""Corrupted pictures and clips by the thousand, as a data set: nothing crashes, and each is encoded or listed."""

import io
import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from caplore.data.dataset import Input, write_dataset
from caplore.features.decoding import ClipSampling, Preprocessing
from caplore.features.encoder import Encoder
from caplore.features.encoding import encode

COUNTS = [
    1000,
    pytest.param(2000, marks=pytest.mark.slow),
]  # 2,000 pictures and clips each time the tests are run
EIGHT = ClipSampling(frames=8, segments=4)


def whole_pictures() -> list[bytes]:
    image = noise()
    kinds = ["JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "JPEG2000", "ICO", "TGA"]
    modes = [*((kind, "RGB") for kind in kinds), ("PNG", "P"), ("PNG", "RGBA"), ("JPEG", "CMYK")]
    return [saved(image.convert(mode), kind) for kind, mode in modes]


def whole_clips(write_video: Callable[..., Path]) -> list[bytes]:
    frames = [noise().rotate(10 * i) for i in range(6)]
    moving = [
        saved(frames[0], kind, save_all=True, append_images=frames[1:], duration=80)
        for kind in ("GIF", "WEBP", "PNG")
    ]
    codecs = {"s.mp4": "mpeg4", "s.webm": "libvpx", "s.avi": "mpeg4", "s.mkv": "mpeg4"}
    times = [i / 10 for i in range(6)]
    return moving + [
        write_video(name, frames, times, codec=codec).read_bytes() for name, codec in codecs.items()
    ]


def noise() -> Image.Image:
    values = np.random.default_rng(0).integers(0, 255, (12, 16, 3), np.uint8)
    return Image.fromarray(values).resize((96, 64))


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def corrupted(whole: bytes, rng: random.Random) -> bytes:
    """Cut, flipped, zeroed, spliced, stuffed, or nothing but noise."""
    data = bytearray(whole)
    match rng.randrange(6):
        case 0:
            return bytes(data[: rng.randrange(len(data))])
        case 1:
            for _ in range(rng.choice((1, 3, 10, 100))):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        case 2:
            for _ in range(rng.choice((1, 3, 8))):
                data[rng.randrange(min(64, len(data)))] = rng.randrange(256)
        case 3:
            start = rng.randrange(len(data))
            data[start : start + rng.randrange(1, 200)] = bytes(rng.randrange(1, 200))
        case 4:
            data = data[: rng.randrange(len(data))] + data[rng.randrange(len(data)) :]
        case _:
            return rng.randbytes(rng.randrange(2000))
    return bytes(data)


def encode_corrupted(originals: list[bytes], count: int, clip: ClipSampling | None, folder: Path) -> None:
    """A data set of nothing else: every input has its features or its reason."""
    rng = random.Random(count)
    names = [f"{number:04}" for number in range(count)]
    (folder / "media").mkdir(parents=True)
    for name in names:
        (folder / "media" / name).write_bytes(corrupted(rng.choice(originals), rng))
    inputs = [Input(name, "train", f"media/{name}", ("a",)) for name in names]
    dataset = write_dataset(folder, name="corrupted", media="clip" if clip else "image", inputs=inputs)
    mean = Encoder(
        "mean", "test", lambda pixels: {"pooled": pixels.mean((2, 3))}, Preprocessing(16, 16), "1", clip
    )
    store = encode(dataset, mean)
    reasons = {row["id"]: row["reason"] for row in map(json.loads, store.bad.read_text().splitlines())}
    assert sorted([*store.ids, *reasons]) == names
    assert count / 3 < len(reasons) < count, "the corruption is too strong or too weak to test anything"
    assert all(reason and "\n" not in reason and str(folder) not in reason for reason in reasons.values())


@pytest.mark.parametrize("count", COUNTS)
def test_corrupted_pictures(count: int, tmp_path: Path) -> None:
    encode_corrupted(whole_pictures(), count, None, tmp_path / "data")


@pytest.mark.parametrize("count", COUNTS)
def test_corrupted_clips(count: int, write_video: Callable[..., Path], tmp_path: Path) -> None:
    encode_corrupted(whole_clips(write_video), count, EIGHT, tmp_path / "data")

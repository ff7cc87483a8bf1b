"""Pictures and clips as small data URIs; what is not a picture is not shown and harms nothing."""

import base64
import io
import random
from pathlib import Path

import pytest
from PIL import Image

from caplore.report.thumbnails import HEIGHT, PIXELS, WIDTH, thumbnail


def opened(uri: str | None) -> Image.Image:
    assert uri is not None
    head, data = uri.split(",", 1)
    assert head == "data:image/webp;base64"
    return Image.open(io.BytesIO(base64.b64decode(data)))


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P", "CMYK", "1", "LA", "I;16"])
def test_any_mode_of_picture_becomes_small_rgb(tmp_path: Path, mode: str) -> None:
    suffix = "tiff" if mode in ("CMYK", "I;16") else "png"
    Image.new(mode, (900, 300)).save(tmp_path / f"a.{suffix}")
    found = opened(thumbnail(tmp_path, f"a.{suffix}"))
    assert (found.mode, found.size) == ("RGB", (WIDTH, round(WIDTH / 3)))


def test_transparency_is_white_not_black(tmp_path: Path) -> None:
    Image.new("RGBA", (20, 20), (0, 0, 0, 0)).save(tmp_path / "a.png")
    assert min(opened(thumbnail(tmp_path, "a.png")).getpixel((10, 10))) > 250  # type: ignore[type-var, arg-type]


def test_a_picture_is_turned_as_the_camera_was_held(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees
    Image.new("RGB", (200, 100)).save(tmp_path / "a.jpg", exif=exif)
    assert opened(thumbnail(tmp_path, "a.jpg")).size == (100, 200)


def test_a_clip_becomes_four_frames_in_reading_order(tmp_path: Path) -> None:
    grey = [Image.new("RGB", (90, 60), (30 * i, 30 * i, 30 * i)) for i in range(8)]
    grey[0].save(tmp_path / "a.gif", save_all=True, append_images=grey[1:])
    found = opened(thumbnail(tmp_path, "a.gif"))
    width, height = found.size
    seen = [
        found.getpixel((x, y)) for y in (height // 4, 3 * height // 4) for x in (width // 4, 3 * width // 4)
    ]
    levels = [p[0] for p in seen if isinstance(p, tuple)]
    assert levels == sorted(levels)
    assert levels == pytest.approx([30, 90, 150, 210], abs=6)


def test_only_files_inside_the_folder_are_opened(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    Image.new("RGB", (9, 9)).save(tmp_path / "secret.png")
    (tmp_path / "data" / "link.png").symlink_to(tmp_path / "secret.png")
    for name in ("../secret.png", str(tmp_path / "secret.png"), "link.png", ".", "missing.png"):
        assert thumbnail(tmp_path / "data", name) is None


def test_a_picture_that_would_fill_the_memory_is_refused(tmp_path: Path) -> None:
    side = int(PIXELS**0.5) + 10
    Image.new("1", (side, side)).save(tmp_path / "bomb.png")
    assert thumbnail(tmp_path, "bomb.png") is None
    assert (side, side) > (HEIGHT, WIDTH)


def test_damaged_pictures_are_not_shown_and_raise_nothing(tmp_path: Path) -> None:
    """Cut short or with bytes changed, as PNG, JPEG, GIF and WebP: a data URI or None."""
    rng = random.Random(0)
    image = Image.effect_noise((64, 48), 60).convert("RGB")
    for kind in ("png", "jpeg", "gif", "webp"):
        whole = io.BytesIO()
        image.save(whole, kind)
        for i in range(60):
            raw = bytearray(
                whole.getvalue()[: rng.randrange(len(whole.getvalue()))] if i % 2 else whole.getvalue()
            )
            for _ in range(rng.randrange(6) if raw else 0):
                raw[rng.randrange(len(raw))] = rng.randrange(256)
            (tmp_path / "a").write_bytes(raw)
            assert thumbnail(tmp_path, "a") is None or opened(thumbnail(tmp_path, "a"))

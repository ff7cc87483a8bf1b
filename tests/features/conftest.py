"""Small pictures and clips for the tests of features, drawn and written by the test itself."""

import io
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import pytest
from PIL import Image, ImageDraw

RED, BLUE, GREEN, WHITE = (230, 20, 20), (20, 20, 230), (20, 200, 20), (255, 255, 255)


@pytest.fixture
def halves() -> Image.Image:
    """Wider than high: the left half red, the right half blue."""
    image = Image.new("RGB", (96, 64), RED)
    ImageDraw.Draw(image).rectangle((48, 0, 96, 64), fill=BLUE)
    return image


@pytest.fixture
def write_video(tmp_path: Path) -> Callable[..., Path]:
    """Frames with their start times as a video file; needs PyAV."""
    av = pytest.importorskip("av", reason="clips need PyAV")

    def write(
        name: str,
        frames: Sequence[Image.Image],
        times: Sequence[float],
        *,
        codec: str = "mpeg4",
        **options: str,
    ) -> Path:
        path = tmp_path / name
        with av.open(str(path), "w", options=options) as container:
            stream = container.add_stream(codec, rate=10, options={"g": "5"})
            stream.width, stream.height, stream.pix_fmt = frames[0].width, frames[0].height, "yuv420p"
            stream.codec_context.time_base = Fraction(1, 1000)
            for image, time in zip(frames, times, strict=True):
                frame = av.VideoFrame.from_image(image)
                frame.pts, frame.time_base = round(time * 1000), Fraction(1, 1000)
                container.mux(stream.encode(frame))
            container.mux(stream.encode())
        return path

    return write


@pytest.fixture
def picture_bytes() -> Callable[..., bytes]:
    def encode(image: Image.Image, kind: str, **options: object) -> bytes:
        buffer = io.BytesIO()
        image.save(buffer, kind, **options)
        return buffer.getvalue()

    return encode

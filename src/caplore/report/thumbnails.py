"""A picture or a clip as a small data URI; of a clip, four frames in reading order, which also print.

The file is someone else's: only files inside the data set's folder are opened, decompression bombs are
refused, and whatever cannot be decoded is simply not shown.
"""

import base64
import io
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from PIL import Image, ImageOps

WIDTH, HEIGHT = 320, 240
FRAMES = 4
PIXELS = 50_000_000


def thumbnail(folder: Path, file: str) -> str | None:
    """`data:image/webp;base64,...`, or None where there is no such picture or it cannot be decoded."""
    path = (folder / file).resolve()
    if not path.is_relative_to(folder.resolve()) or not path.is_file():
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd EXIF and the like; the picture shows or it does not
            with Image.open(path) as image:
                if image.width * image.height > PIXELS:
                    return None
                return _data_uri(_sheet(list(_frames(image))))
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError):
        return None


def _frames(image: Image.Image) -> Iterator[Image.Image]:
    """The picture itself, or frames spread evenly over a clip; turned as the camera was held, on white."""
    total = getattr(image, "n_frames", 1)
    wanted = [(2 * i + 1) * total // (2 * FRAMES) for i in range(FRAMES)] if total > 1 else [0]
    for index in wanted:
        image.seek(index)
        frame = ImageOps.exif_transpose(image).convert("RGBA")
        frame.thumbnail((WIDTH, HEIGHT), Image.Resampling.LANCZOS)
        flat = Image.new("RGB", frame.size, "white")
        flat.paste(frame, mask=frame.getchannel("A"))
        yield flat


def _sheet(frames: Sequence[Image.Image]) -> Image.Image:
    """One frame as it is; four as two rows of two with a thin white line between."""
    if len(frames) == 1:
        return frames[0]
    width, height, gap = frames[0].width * 2 // 3, frames[0].height * 2 // 3, 4
    sheet = Image.new("RGB", (2 * width + gap, 2 * height + gap), "white")
    for i, frame in enumerate(frames):
        sheet.paste(frame.resize((width, height)), (i % 2 * (width + gap), i // 2 * (height + gap)))
    return sheet


def _data_uri(image: Image.Image) -> str:
    out = io.BytesIO()
    image.save(out, "WEBP", quality=82, method=4)
    return f"data:image/webp;base64,{base64.b64encode(out.getvalue()).decode()}"

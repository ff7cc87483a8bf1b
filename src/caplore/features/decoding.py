"""Files into frames: a picture or a clip of any kind becomes uint8 [frames, height, width, 3], or a reason why not.

    picture   Pillow: EXIF turn, palette, alpha over white, grey, 16 bit, CMYK; one frame
    clip      Pillow for GIF, WebP and APNG; PyAV (extra `video`) for mp4, webm, mkv, avi, ...; frames by time

A file that cannot be read is normal in a set of a million: `Undecodable` carries a reason a person can
read, and nothing else ever leaves `decode`. No torch here: decoding runs in threads beside the encoder.
"""

import bisect
import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image, ImageOps, UnidentifiedImageError

from caplore.errors import ConfigError, MissingError

MAX_PIXELS = 80_000_000  # of one frame; below the size at which Pillow itself warns of a decompression bomb
SEEK_BEYOND = 120.0  # seconds; in longer clips we jump to each wanted frame instead of decoding all of them
MAX_CLIP_PIXELS = 20_000_000_000  # of all frames of a GIF, WebP or APNG, or of those decoded of a video
MAX_FRAMES = 20_000  # likewise

Frames = UInt8[np.ndarray, "frames height width 3"]
Shown = tuple[float, Any]  # when a frame starts to be shown (seconds), and the frame

CONTAINERS = "mov,mp4,matroska,webm,avi,mpeg,mpegts,mpegvideo,h264,hevc,flv,asf,ogg,ivf,dv,swf,gif"
RESAMPLING = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


class Undecodable(Exception):
    """This file gives no frames; the message is the reason, for the list of bad files."""


@dataclass(frozen=True)
class Preprocessing:
    """How a decoded picture becomes an encoder's input; kept in the feature index.

    fit "whole" squashes the picture to height x width, so that nothing at its borders is lost; "crop" scales
    the shorter side to `scale` and cuts height x width out of the centre. The encoder then computes
    (pixel / 255 - mean) / std per channel.
    """

    height: int
    width: int
    fit: Literal["whole", "crop"] = "whole"
    scale: int | None = None
    resample: Literal["bilinear", "bicubic", "lanczos"] = "bicubic"
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)

    def __post_init__(self) -> None:
        if min(self.height, self.width) < 1 or self.resample not in RESAMPLING:
            raise ConfigError(f"impossible preprocessing: {self.height} x {self.width}, {self.resample}")
        if self.fit == "crop" and (self.scale or 0) < max(self.height, self.width):
            raise ConfigError(
                f"fit 'crop' needs a scale of at least {max(self.height, self.width)}, got {self.scale}"
            )


@dataclass(frozen=True)
class ClipSampling:
    """How a clip becomes `frames` pictures, and these `segments` stretches of time: evenly by time, not by count."""

    frames: int = 16
    segments: int = 8

    def __post_init__(self) -> None:
        if self.frames < 1 or self.segments < 1 or self.frames % self.segments:
            raise ConfigError(f"{self.frames} frames cannot be cut into {self.segments} equal segments")


def decode(path: Path, preprocessing: Preprocessing, clip: ClipSampling | None = None) -> Frames:
    """The frames of one file: 1 for a picture (clip is None), clip.frames for a clip.

    Everything a broken file can do to a decoder ends as Undecodable.
    """
    try:
        images = [_picture(path, preprocessing)] if clip is None else _clip(path, clip.frames)
        return np.stack([np.asarray(fit(image, preprocessing)) for image in images])
    except (Undecodable, MissingError):
        raise
    except Exception as error:  # decoders raise anything on bytes nobody meant: struct.error, IndexError, ...
        raise reason_of(path, error) from None


def reason_of(path: Path, error: Exception) -> Undecodable:
    """What a decoder's exception means for the person who has the file."""
    for kind, reason in REASONS:
        if isinstance(error, kind):
            return Undecodable(reason)
    if os.path.isdir(path):  # unlike Path.is_dir, never raises
        return Undecodable("a folder, not a file")
    if os.path.isfile(path) and os.path.getsize(path) == 0:
        return Undecodable("an empty file")
    if _starts_as_heic(path):
        return Undecodable("a HEIC picture, which we cannot read: save it as JPEG")
    if isinstance(error, EOFError) or "truncated" in str(error):
        return Undecodable("it ends too early: cut off, or damaged")
    if isinstance(error, UnidentifiedImageError):
        return Undecodable("not a picture, or damaged in its first bytes")
    text = " ".join(str(error).replace(str(path), "the file").split())
    return Undecodable(f"damaged or of an unknown kind ({type(error).__name__}: {text[:120]})")


def _starts_as_heic(path: Path) -> bool:
    """What telephones call .heic. AVIF, its cousin, is read by Pillow and does not come here."""
    with contextlib.suppress(OSError, ValueError), open(path, "rb") as data:
        head = data.read(12)
        return head[4:8] == b"ftyp" and head[8:] in (
            b"heic",
            b"heix",
            b"hevc",
            b"heim",
            b"heis",
            b"mif1",
            b"msf1",
        )
    return False


REASONS: tuple[tuple[type[Exception], str], ...] = (
    (FileNotFoundError, "the file is not there"),
    (PermissionError, "the file may not be read (permissions)"),
    (
        Image.DecompressionBombError,
        f"over {MAX_PIXELS / 1e6:.0f} megapixels: refused, it could fill the memory",
    ),
    (
        Image.DecompressionBombWarning,
        f"over {MAX_PIXELS / 1e6:.0f} megapixels: refused, it could fill the memory",
    ),
    (MemoryError, "decoding it takes more memory than there is"),
)


def fit(image: Image.Image, to: Preprocessing) -> Image.Image:
    """RGB of exactly height x width."""
    size, resample = (to.width, to.height), RESAMPLING[to.resample]
    if to.fit == "whole":
        return image if image.size == size else image.resize(size, resample)
    assert to.scale is not None
    # The box of the original whose scaled version is the centre cut: one resize, nothing computed that is cut away.
    by = min(image.size) / to.scale
    wide, high = to.width * by, to.height * by
    left, top = (image.width - wide) / 2, (image.height - high) / 2
    return image.resize(size, resample, box=(left, top, left + wide, top + high))


# Pictures


def _picture(path: Path, to: Preprocessing) -> Image.Image:
    with Image.open(path) as image:
        check_size(image.width, image.height)
        # JPEG only: decode at 1/2, 1/4 or 1/8 where that still leaves twice the pixels we need.
        wanted = 2 * max(to.height, to.width, to.scale or 0)
        image.draft(None, (wanted, wanted))
        image.load()
        return upright_rgb(image)


def check_size(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise Undecodable(
            f"{width} x {height} is {width * height / 1e6:.0f} megapixels, "
            f"over the limit of {MAX_PIXELS / 1e6:.0f}: refused"
        )


def check_length(frames: int, width: int, height: int) -> None:
    if frames > MAX_FRAMES or frames * width * height > MAX_CLIP_PIXELS:
        raise Undecodable(
            f"{frames} frames of {width} x {height} or more, over the limits of {MAX_FRAMES} frames "
            f"and {MAX_CLIP_PIXELS / 1e9:.0f} gigapixels: refused"
        )


def upright_rgb(image: Image.Image) -> Image.Image:
    """Turned as the camera was held, transparent parts over white, any depth as 8-bit RGB."""
    with contextlib.suppress(Exception):  # broken EXIF is common and says nothing about the pixels
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith(("I", "F")):
        return _to_8_bit(image).convert("RGB")
    if image.has_transparency_data:
        over = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", over.size, "white"), over).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")


def _to_8_bit(image: Image.Image) -> Image.Image:
    """16-bit grey keeps its high byte; wider integers and floats have no agreed white: their extremes are stretched."""
    given = np.asarray(image)
    low, high = float(given.min()), float(given.max())
    if not np.isfinite([low, high]).all():
        raise Undecodable("a pixel is not a finite number")
    is_16_bit = image.mode != "F" and low >= 0 and high <= 65535
    if is_16_bit:
        low, high = 0.0, 65535.0
    values: Float[np.ndarray, "height width"] = given.astype(np.float32 if is_16_bit else np.float64)
    np.subtract(values, low, out=values)
    np.multiply(values, 255 / max(high - low, 1e-12), out=values)
    return Image.fromarray(np.rint(values, out=values).astype(np.uint8))


# Clips


def sample_times(start: float, end: float, count: int) -> list[float]:
    """The middles of `count` equal stretches of [start, end]."""
    return [start + (end - start) * (i + 0.5) / count for i in range(count)]


def _clip(path: Path, count: int) -> list[Image.Image]:
    """`count` RGB frames, evenly by time; a still picture is a clip that does not move."""
    try:
        with Image.open(path) as image:
            check_size(image.width, image.height)
            return _animation(image, count)
    except UnidentifiedImageError:
        if path.suffix.lower() == ".gif":
            raise
        return _video(path, count)


def _animation(image: Image.Image, count: int) -> list[Image.Image]:
    """Frames of an opened GIF, WebP or APNG: once through for the times, once for the pixels that are wanted."""
    number = getattr(image, "n_frames", 1)
    check_length(number, image.width, image.height)
    starts = [0.0]
    for index in range(number):
        image.seek(index)
        image.load()  # WebP knows how long a frame is shown only then
        milliseconds = image.info.get("duration", 0)
        # Browsers show a frame without a delay for a tenth of a second; so do we.
        starts.append(starts[-1] + (milliseconds / 1000 if milliseconds > 10 else 0.1))
    wanted = [bisect.bisect_right(starts, time) - 1 for time in sample_times(0.0, starts[-1], count)]
    chosen: dict[int, Image.Image] = {}
    for index in sorted(set(wanted)):
        image.seek(index)
        chosen[index] = upright_rgb(image)
    return [chosen[index] for index in wanted]


def _video(path: Path, count: int) -> list[Image.Image]:
    with _opened_video(path) as (container, stream):
        start, end = _span(container, stream)
        times = sample_times(start, end, count)
        if end - start > SEEK_BEYOND:
            chosen = [_frame_after_seek(container, stream, time) for time in times]
        else:
            chosen = shown_at(_timed(container, stream), times)
        images = {id(frame): _frame_to_image(frame) for frame in chosen}
        return [images[id(frame)] for frame in chosen]


@contextlib.contextmanager
def _opened_video(path: Path) -> Iterator[tuple[Any, Any]]:
    """A container and its first picture track."""
    # Only files that hold their own frames: a playlist could make the reader open other files or addresses.
    options = {"protocol_whitelist": "file", "format_whitelist": CONTAINERS}
    with _pyav().open(str(path), options=options) as container:
        if not container.streams.video:
            raise Undecodable("it has no picture track")
        stream = container.streams.video[0]
        check_size(stream.width or 0, stream.height or 0)
        yield container, stream


def _pyav() -> Any:
    try:
        import av
    except ImportError:
        raise MissingError(
            "reading clips other than GIFs needs PyAV, which is not installed",
            fix="pip install 'av>=14'",
        ) from None
    return av


def _span(container: Any, stream: Any) -> tuple[float, float]:
    """When the clip starts and ends, in seconds: as declared, else from the time stamps of its packets."""
    start = float((stream.start_time or 0) * stream.time_base)
    if stream.duration:
        return start, start + float(stream.duration * stream.time_base)
    if container.duration:
        return start, start + container.duration / 1_000_000
    ends = [
        packet.pts + (packet.duration or 0) for packet in container.demux(stream) if packet.pts is not None
    ]
    container.seek(0)
    return start, max([start, *(float(end * stream.time_base) for end in ends)])


def _timed(container: Any, stream: Any) -> Iterator[Shown]:
    """Decoded frames with their times; one without a time stamp follows the last by a frame's length."""
    length = float(1 / stream.average_rate) if stream.average_rate else 0.04
    time = -length
    for number, frame in enumerate(container.decode(stream), start=1):
        check_length(number, frame.width, frame.height)
        time = frame.time if frame.time is not None else time + length
        yield time, frame


def shown_at(frames: Iterable[Shown], times: Sequence[float]) -> list[Any]:
    """The frame on screen at each time: the last one that started by then (the first, for times before it)."""
    chosen: list[Any] = []
    current = None
    for starts, frame in frames:
        while current is not None and len(chosen) < len(times) and times[len(chosen)] < starts:
            chosen.append(current)
        if len(chosen) == len(times):
            return chosen
        current = frame
    if current is None:
        raise Undecodable("no frame in it can be decoded")
    return chosen + [current] * (len(times) - len(chosen))


def _frame_after_seek(container: Any, stream: Any, time: float) -> Any:
    """Jump to the key frame before `time`, decode up to it."""
    container.seek(int(time / stream.time_base), stream=stream)
    return shown_at(_timed(container, stream), [time])[0]


def _frame_to_image(frame: Any) -> Image.Image:
    """RGB, turned as the phone was held."""
    check_size(frame.width, frame.height)
    image = frame.to_image()
    return image.rotate(frame.rotation, expand=True) if frame.rotation else image


# A first look


def count_frames(path: Path, *, is_clip: bool) -> int:
    """Frames of a picture or clip without decoding it: 1, or 2 for "more than one". Undecodable where it is neither.

    Reads headers only, so a file that is damaged further in passes; `decode` finds that.
    """
    try:
        try:
            with Image.open(path) as image:
                check_size(image.width, image.height)
                return min(getattr(image, "n_frames", 1), 2) if is_clip else 1
        except UnidentifiedImageError:
            if not is_clip or path.suffix.lower() == ".gif":
                raise
            return _count_video_frames(path)
    except (Undecodable, MissingError):
        raise
    except Exception as error:
        raise reason_of(path, error) from None


def _count_video_frames(path: Path) -> int:
    with _opened_video(path) as (container, stream):
        packets = (packet for packet in container.demux(stream) if packet.size)
        return sum(1 for _ in itertools.islice(packets, 2))

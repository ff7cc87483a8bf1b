"""Files into frames: every kind of picture and clip, and every way a file can be wrong."""

import struct
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from caplore.errors import ConfigError, MissingError
from caplore.features import decoding
from caplore.features.decoding import ClipSampling, Preprocessing, Undecodable, count_frames, decode

RED, BLUE, GREEN = (230, 20, 20), (20, 20, 230), (20, 200, 20)
WHOLE = Preprocessing(32, 48)
EIGHT = ClipSampling(frames=8, segments=4)
LOSSY = 30  # of 255: JPEG, video and palettes are not exact


def colour(frames: np.ndarray, frame: int = 0, *, left: bool = True) -> np.ndarray:
    """The mean colour of a quarter of the picture, far from its edges."""
    _, height, width, _ = frames.shape
    columns = slice(width // 8, 3 * width // 8) if left else slice(5 * width // 8, 7 * width // 8)
    return frames[frame, height // 4 : 3 * height // 4, columns].reshape(-1, 3).mean(0)


def near(found: np.ndarray, wanted: tuple[int, int, int]) -> bool:
    return bool(np.abs(found - wanted).max() < LOSSY)


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        *[(kind, "RGB") for kind in ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "JPEG2000", "TGA")],
        ("PNG", "P"),
        ("PNG", "RGBA"),
        ("JPEG", "CMYK"),
        ("TIFF", "CMYK"),
        ("TIFF", "YCbCr"),
    ],
)
def test_a_picture_of_any_kind_has_its_colours(
    kind: str, mode: str, halves: Image.Image, tmp_path: Path
) -> None:
    path = tmp_path / "picture"
    halves.convert(mode).save(path, kind)
    frames = decode(path, WHOLE)
    assert frames.shape == (1, 32, 48, 3)
    assert frames.dtype == np.uint8
    assert near(colour(frames), RED)
    assert near(colour(frames, left=False), BLUE)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_turned_photo_is_put_upright(orientation: int, halves: Image.Image, tmp_path: Path) -> None:
    """The camera stores the pixels turned or mirrored and says so; undoing it by hand must give the same as decode."""
    undo = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,  # stored so that turning it clockwise puts it right
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    stored = halves.transpose(undo[orientation]) if orientation in undo else halves
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored.save(tmp_path / "turned.png", exif=exif)
    frames = decode(tmp_path / "turned.png", WHOLE)
    assert near(colour(frames), RED)
    assert near(colour(frames, left=False), BLUE)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_broken_exif_does_not_cost_the_picture(halves: Image.Image, tmp_path: Path) -> None:
    halves.save(tmp_path / "odd.jpg", exif=b"Exif\x00\x00MM\x00*\x00\x00\x00\x08\xff\xff" + b"\x01" * 40)
    assert near(colour(decode(tmp_path / "odd.jpg", WHOLE)), RED)


def test_transparent_parts_are_white(tmp_path: Path) -> None:
    image = Image.new("RGBA", (64, 64), (*RED, 0))
    image.paste((*RED, 255), (0, 0, 32, 64))
    image.save(tmp_path / "see-through.png")
    frames = decode(tmp_path / "see-through.png", WHOLE)
    assert near(colour(frames), RED)
    assert near(colour(frames, left=False), (255, 255, 255))


def test_transparency_of_a_palette_is_white(halves: Image.Image, tmp_path: Path) -> None:
    image = halves.convert("P", palette=Image.Palette.ADAPTIVE, colors=4)
    clear = image.getpixel((90, 30))
    image.save(tmp_path / "palette.gif", transparency=clear)
    frames = decode(tmp_path / "palette.gif", WHOLE)
    assert near(colour(frames), RED)
    assert near(colour(frames, left=False), (255, 255, 255))


@pytest.mark.parametrize("level", [0, 64, 128, 255])
def test_sixteen_bits_keep_their_brightness(level: int, tmp_path: Path) -> None:
    """A dark 16-bit picture stays dark: it is not stretched."""
    Image.fromarray(np.full((8, 8), level * 257, np.uint16)).save(tmp_path / "deep.png")
    assert np.abs(decode(tmp_path / "deep.png", WHOLE).astype(int) - level).max() <= 1


def test_grey_and_two_colour_pictures(tmp_path: Path) -> None:
    Image.new("L", (8, 8), 77).save(tmp_path / "grey.png")
    Image.new("1", (8, 8), 1).save(tmp_path / "ink.png")
    Image.new("LA", (8, 8), (77, 255)).save(tmp_path / "grey-alpha.png")
    assert (decode(tmp_path / "grey.png", WHOLE) == 77).all()
    assert (decode(tmp_path / "ink.png", WHOLE) == 255).all()
    assert (decode(tmp_path / "grey-alpha.png", WHOLE) == 77).all()


def test_floating_point_pixels_are_stretched_and_nan_refused(tmp_path: Path) -> None:
    values = np.linspace(-3, 5, 64, dtype=np.float32).reshape(8, 8)
    Image.fromarray(values).save(tmp_path / "float.tif")
    frames = decode(tmp_path / "float.tif", Preprocessing(8, 8))
    assert frames.min() == 0
    assert frames.max() == 255
    values[0, 0] = np.nan
    Image.fromarray(values).save(tmp_path / "nan.tif")
    with pytest.raises(Undecodable, match="not a finite number"):
        decode(tmp_path / "nan.tif", WHOLE)


def test_crop_takes_the_centre_and_whole_takes_all(tmp_path: Path) -> None:
    """A 4:1 picture, green in its middle quarter: the crop of a square is all green, the whole is not."""
    image = Image.new("RGB", (256, 64), RED)
    image.paste(GREEN, (96, 0, 160, 64))
    image.save(tmp_path / "wide.png")
    crop = decode(tmp_path / "wide.png", Preprocessing(32, 32, fit="crop", scale=32))
    assert np.abs(crop[0].astype(int) - GREEN).max() < LOSSY
    whole = decode(tmp_path / "wide.png", Preprocessing(32, 32))
    assert near(colour(whole), RED)


def test_crop_scales_before_it_cuts(tmp_path: Path) -> None:
    """scale 64, cut 32: half of the height is cut away, so a border of a quarter disappears."""
    image = Image.new("RGB", (128, 128), RED)
    image.paste(GREEN, (32, 32, 96, 96))
    image.save(tmp_path / "framed.png")
    crop = decode(tmp_path / "framed.png", Preprocessing(32, 32, fit="crop", scale=64))
    assert np.abs(crop[0, 1:-1, 1:-1].astype(int) - GREEN).max() < LOSSY


@pytest.mark.parametrize(
    "bad", [{"height": 0}, {"fit": "crop"}, {"fit": "crop", "scale": 16}, {"resample": "magic"}]
)
def test_impossible_preprocessing_is_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        Preprocessing(**{"height": 32, "width": 32, **bad})  # type: ignore[arg-type]


@pytest.mark.parametrize(("frames", "segments"), [(0, 1), (8, 3), (8, 0)])
def test_impossible_clip_sampling_is_refused(frames: int, segments: int) -> None:
    with pytest.raises(ConfigError):
        ClipSampling(frames, segments)


# Files that are wrong


def png_header(width: int, height: int) -> bytes:
    """A valid PNG whose header promises this size: some dozens of bytes for any number of pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(b"\0"))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    ("width", "height"), [(9000, 9000), (12_000, 12_000), (100_000, 100_000), (80_000_001, 1)]
)
@pytest.mark.parametrize("clip", [None, EIGHT])
def test_decompression_bombs_are_refused(
    width: int, height: int, clip: ClipSampling | None, tmp_path: Path
) -> None:
    (tmp_path / "bomb.png").write_bytes(png_header(width, height))
    with pytest.raises(Undecodable, match="refused"):
        decode(tmp_path / "bomb.png", WHOLE, clip)
    with pytest.raises(Undecodable, match="refused"):
        count_frames(tmp_path / "bomb.png", is_clip=clip is not None)


def test_a_clip_of_too_many_frames_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = [Image.new("L", (8, 8), 10 * i) for i in range(12)]
    frames[0].save(tmp_path / "long.gif", save_all=True, append_images=frames[1:], duration=50)
    monkeypatch.setattr(decoding, "MAX_FRAMES", 11)
    with pytest.raises(Undecodable, match="12 frames of 8 x 8 or more, over the limits of 11 frames"):
        decode(tmp_path / "long.gif", WHOLE, EIGHT)


def test_a_video_of_too_many_pixels_is_refused(
    write_video: Callable[..., Path], halves: Image.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_video("long.mp4", [halves] * 20, [0.1 * i for i in range(20)])
    monkeypatch.setattr(decoding, "MAX_CLIP_PIXELS", 96 * 64 * 10)
    with pytest.raises(Undecodable, match="refused"):
        decode(path, WHOLE, EIGHT)


@pytest.mark.parametrize("clip", [None, EIGHT])
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "an empty file"),
        (b"these are only words", "not a picture|damaged or of an unknown kind"),
        (None, "not there"),
    ],
)
def test_what_is_no_picture_says_so(
    content: bytes | None, reason: str, clip: ClipSampling | None, tmp_path: Path
) -> None:
    path = tmp_path / "thing.jpg"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(Undecodable, match=reason):
        decode(path, WHOLE, clip)


@pytest.mark.parametrize("name", ["x" * 3000, "a\0b"])
def test_a_name_that_no_file_can_have(name: str, tmp_path: Path) -> None:
    with pytest.raises(Undecodable):
        decode(tmp_path / name, WHOLE)


def test_a_folder_is_no_picture(tmp_path: Path) -> None:
    with pytest.raises(Undecodable, match="a folder"):
        decode(tmp_path, WHOLE)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "TIFF", "WEBP"])
def test_a_truncated_picture_is_listed_not_half_decoded(
    kind: str, picture_bytes: Callable[..., bytes], tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    noise = Image.fromarray(rng.integers(0, 255, (64, 64, 3), np.uint8))
    whole = picture_bytes(noise, kind)
    (tmp_path / "cut").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(Undecodable):
        decode(tmp_path / "cut", WHOLE)


# Clips


def still(rgb: tuple[int, int, int]) -> Image.Image:
    return Image.new("RGB", (96, 64), rgb)


@pytest.mark.parametrize("kind", ["gif", "webp", "png"])
def test_frames_of_an_animation_are_sampled_by_time(kind: str, tmp_path: Path) -> None:
    """Red for 600 ms in one frame, blue for 200 ms in four: by time a quarter is blue, by count four fifths were."""
    blues = [still((20, 20, 230 - i)) for i in range(4)]  # all different, or they would be merged into one
    still(RED).save(
        tmp_path / f"clip.{kind}", save_all=True, append_images=blues, duration=[600, 50, 50, 50, 50]
    )
    frames = decode(tmp_path / f"clip.{kind}", WHOLE, EIGHT)
    assert frames.shape == (8, 32, 48, 3)
    assert [near(colour(frames, i), RED) for i in range(8)] == [True] * 6 + [False] * 2
    assert all(near(colour(frames, i), BLUE) for i in (6, 7))


def test_frames_without_a_delay_are_shown_as_browsers_do(tmp_path: Path) -> None:
    """No delay counts as 100 ms: next to a frame of 300 ms it gets a quarter of the samples, not none."""
    still(RED).save(tmp_path / "clip.gif", save_all=True, append_images=[still(BLUE)], duration=[300, 0])
    frames = decode(tmp_path / "clip.gif", WHOLE, EIGHT)
    assert [near(colour(frames, i), BLUE) for i in range(8)] == [False] * 6 + [True] * 2


def test_a_still_picture_is_a_clip_that_does_not_move(halves: Image.Image, tmp_path: Path) -> None:
    halves.save(tmp_path / "still.png")
    frames = decode(tmp_path / "still.png", WHOLE, EIGHT)
    assert len(frames) == 8
    assert (frames == decode(tmp_path / "still.png", WHOLE)).all()


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("a.mp4", "mpeg4"),
        ("a.mkv", "mpeg4"),
        ("a.avi", "mpeg4"),
        ("a.mov", "mpeg4"),
        ("a.webm", "libvpx"),
        ("b.mp4", "libx264"),
    ],
)
def test_videos_of_every_container_keep_their_order(
    name: str, codec: str, write_video: Callable[..., Path]
) -> None:
    colours = [RED] * 10 + [GREEN] * 10 + [BLUE] * 20
    path = write_video(name, [still(c) for c in colours], [i / 10 for i in range(40)], codec=codec)
    frames = decode(path, WHOLE, EIGHT)
    wanted = [RED] * 2 + [GREEN] * 2 + [BLUE] * 4
    assert [near(colour(frames, i), c) for i, c in enumerate(wanted)] == [True] * 8


@pytest.mark.parametrize("name", ["variable.mp4", "variable.mkv"])
def test_a_variable_frame_rate_is_sampled_by_time(name: str, write_video: Callable[..., Path]) -> None:
    """Two red frames last 3 s, ten blue ones 1 s."""
    times = [0.0, 1.5, *(3 + i / 10 for i in range(11))]
    frames = decode(write_video(name, [still(RED)] * 2 + [still(BLUE)] * 11, times), WHOLE, EIGHT)
    assert [near(colour(frames, i), RED) for i in range(8)] == [True] * 6 + [False] * 2


def test_a_stream_that_does_not_say_how_long_it_is(write_video: Callable[..., Path]) -> None:
    colours = [RED] * 10 + [BLUE] * 10
    path = write_video(
        "live.webm", [still(c) for c in colours], [i / 10 for i in range(20)], codec="libvpx", live="1"
    )
    with decoding._opened_video(path) as (container, stream):
        assert not container.duration, "the muxer has written a duration: this test tests nothing"
        assert not stream.duration
    frames = decode(path, WHOLE, EIGHT)
    assert [near(colour(frames, i), RED) for i in range(8)] == [True] * 4 + [False] * 4


def test_jumping_finds_the_frames_that_reading_through_finds(
    write_video: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    shades = [still((10 * i % 256, 255 - 6 * i, 40)) for i in range(40)]
    path = write_video("long.mp4", shades, [i / 10 for i in range(40)])
    read_through = decode(path, WHOLE, EIGHT)
    monkeypatch.setattr(decoding, "SEEK_BEYOND", 0.0)
    assert (decode(path, WHOLE, EIGHT) == read_through).all()


def test_a_phone_video_is_turned_upright() -> None:
    class Frame:
        width, height, rotation = 96, 64, 90

        def to_image(self) -> Image.Image:
            return still(RED)

    assert decoding._frame_to_image(Frame()).size == (64, 96)


def test_a_playlist_cannot_make_us_open_other_files(write_video: Callable[..., Path], tmp_path: Path) -> None:
    write_video("secret.mp4", [still(RED)] * 5, [i / 10 for i in range(5)])
    (tmp_path / "list.m3u8").write_text(
        "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nsecret.mp4\n#EXT-X-ENDLIST\n"
    )
    (tmp_path / "list.ffconcat").write_text("ffconcat version 1.0\nfile 'secret.mp4'\n")
    for name in ("list.m3u8", "list.ffconcat"):
        with pytest.raises(Undecodable):
            decode(tmp_path / name, WHOLE, EIGHT)


def test_sound_without_pictures_says_so(tmp_path: Path) -> None:
    av = pytest.importorskip("av")
    with av.open(str(tmp_path / "song.mkv"), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=8000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), format="s16", layout="mono")
        frame.rate = 8000
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    with pytest.raises(Undecodable, match="no picture track"):
        decode(tmp_path / "song.mkv", WHOLE, EIGHT)


def test_without_pyav_gifs_work_and_videos_name_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, halves: Image.Image
) -> None:
    halves.save(tmp_path / "clip.gif", save_all=True, append_images=[still(BLUE)], duration=100)
    (tmp_path / "clip.mp4").write_bytes(b"\0\0\0\x18ftypmp42")
    monkeypatch.setitem(sys.modules, "av", None)
    assert len(decode(tmp_path / "clip.gif", WHOLE, EIGHT)) == 8
    with pytest.raises(MissingError, match=r"pip install 'av>=14'"):
        decode(tmp_path / "clip.mp4", WHOLE, EIGHT)


def slow_shown_at(starts: list[float], times: list[float]) -> list[int]:
    """The definition: the last frame that started by then, else the first."""
    return [max([i for i, start in enumerate(starts) if start <= time], default=0) for time in times]


@given(
    steps=st.lists(st.floats(0.01, 2), min_size=1, max_size=12),
    first=st.floats(0, 2),
    times=st.lists(st.floats(0, 20), min_size=1, max_size=12).map(sorted),
)
@settings(deadline=None, max_examples=100)
def test_the_frame_shown_is_the_last_that_started(
    steps: list[float], first: float, times: list[float]
) -> None:
    starts = [first + sum(steps[:i]) for i in range(len(steps))]
    shown = decoding.shown_at(((start, i) for i, start in enumerate(starts)), times)
    assert shown == slow_shown_at(starts, times)


@given(start=st.floats(0, 100), length=st.floats(0.1, 100), count=st.integers(1, 40))
def test_sampled_times_are_even_and_inside(start: float, length: float, count: int) -> None:
    times = decoding.sample_times(start, start + length, count)
    assert len(times) == count
    assert start < times[0]
    assert times[-1] < start + length
    assert np.allclose(np.diff(times), length / count)


# A first look


def test_a_first_look_tells_stills_from_clips(tmp_path: Path, write_video: Callable[..., Path]) -> None:
    still(RED).save(tmp_path / "still.gif")
    still(RED).save(tmp_path / "moving.gif", save_all=True, append_images=[still(BLUE)], duration=100)
    video = write_video("moving.mp4", [still(RED)] * 5, [i / 10 for i in range(5)])
    one = write_video("one.mp4", [still(RED)], [0.0])
    found = [count_frames(tmp_path / name, is_clip=True) for name in ("still.gif", "moving.gif")]
    assert found == [1, 2]
    assert count_frames(video, is_clip=True) == 2
    assert count_frames(one, is_clip=True) == 1
    assert count_frames(tmp_path / "moving.gif", is_clip=False) == 1


def test_a_first_look_at_nonsense(tmp_path: Path) -> None:
    (tmp_path / "words.gif").write_bytes(b"only words")
    for is_clip in (False, True):
        with pytest.raises(Undecodable):
            count_frames(tmp_path / "words.gif", is_clip=is_clip)


# Reasons that say what to do


@pytest.mark.parametrize("brand", [b"heic", b"heix", b"mif1", b"hevc"])
@pytest.mark.parametrize("clip", [None, EIGHT])
def test_a_telephone_s_heic_is_called_by_its_name(
    brand: bytes, clip: ClipSampling | None, tmp_path: Path
) -> None:
    (tmp_path / "IMG_1.heic").write_bytes(b"\0\0\0\x18ftyp" + brand + bytes(200))
    with pytest.raises(Undecodable, match=r"a HEIC picture.*JPEG"):
        decode(tmp_path / "IMG_1.heic", WHOLE, clip)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF"])
def test_a_file_that_ends_too_early_is_called_that(
    kind: str, halves: Image.Image, picture_bytes: Callable[..., bytes], tmp_path: Path
) -> None:
    whole = picture_bytes(Image.effect_noise((200, 200), 90), kind)
    (tmp_path / "cut").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(Undecodable, match="ends too early"):
        decode(tmp_path / "cut", WHOLE)


def test_sixteen_bits_take_no_more_memory_than_they_must(tmp_path: Path) -> None:
    """On many threads a folder of these would fill the memory, else."""
    Image.fromarray(np.full((1000, 1000), 40_000, np.uint16)).save(tmp_path / "deep.png")
    tracemalloc.start()
    try:
        decode(tmp_path / "deep.png", WHOLE)
        assert (
            tracemalloc.get_traced_memory()[1] < 9e6
        )  # numpy's: 2 bytes a pixel as read, 4 as computed, 1 as given
    finally:
        tracemalloc.stop()

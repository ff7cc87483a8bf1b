"""Files to features: decoding, encoding, both at once, and reading back.

The reference of each row is the plain way to do the same: one file after the other, decode then encode, with
Pillow and torch as they come (whole pictures decoded, all cores for one batch), or a compressed .npz per input.
Real photos where the development data is (COCO val2017, 40 pictures), else noise of the same size.
"""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from bench import Row, fastest
from caplore.data.dataset import Input, write_dataset
from caplore.data.scenes import draw, world
from caplore.errors import MissingError
from caplore.features.choice import encoder_named
from caplore.features.decoding import ClipSampling, Preprocessing, decode
from caplore.features.encoder import Encoder
from caplore.features.encoding import encode, encode_files, in_order, threads_per_batch
from caplore.features.store import StoreWriter
from caplore.machine import cores

PHOTOS = Path(__file__).parents[2] / "shared/data/coco-mini/val2017"
PICTURES = 5000
PRINT = Preprocessing(224, 224)


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yield from decoding_rows(folder)
        yield from encoding_rows(folder)
        yield from clip_rows(folder)
        yield from made_world_rows(folder)
        yield from store_rows(folder)


def rate(count: int, what: str, seconds: float) -> str:
    return f"{count / seconds:,.0f} {what}/s"


# Decoding


def photos(folder: Path) -> list[Path]:
    """40 JPEGs of 640 x 480 or so, five times over."""
    if PHOTOS.is_dir():
        return sorted(PHOTOS.glob("*.jpg")) * 5
    paths = [folder / f"photo-{i}.jpg" for i in range(40)]
    for path in paths:
        Image.effect_noise((640, 480), 60).convert("RGB").save(path)
    return paths * 5


def large(folder: Path, sources: Sequence[Path]) -> list[Path]:
    """The same as a telephone takes them: 12 megapixels."""
    paths = [folder / f"large-{i}.jpg" for i in range(8)]
    for path, source in zip(paths, sources, strict=False):
        Image.open(source).convert("RGB").resize((4000, 3000)).save(path, quality=90)
    return paths


def plainly(paths: Sequence[Path], size: int) -> list[np.ndarray]:
    return [
        np.asarray(Image.open(path).convert("RGB").resize((size, size), Image.Resampling.BICUBIC))
        for path in paths
    ]


def decoding_rows(folder: Path) -> Iterator[Row]:
    for what, paths in (("640 x 480", photos(folder)), ("12 megapixels", large(folder, photos(folder)))):

        def ours(paths: Sequence[Path] = paths) -> list[np.ndarray]:
            return list(in_order(lambda path: decode(path, PRINT)[0], paths, workers=cores(), ahead=32))

        seconds, reference = fastest(ours, 3), fastest(lambda paths=paths: plainly(paths, 224), 2)
        # Large JPEGs are decoded at half or a quarter of their size: not the same pixels, nearly the same picture.
        apart = np.mean(
            [np.abs(a.astype(int) - b).mean() for a, b in zip(ours(), plainly(paths, 224), strict=True)]
        )
        note = rate(len(paths), "pictures", seconds)
        yield Row(
            f"decode {len(paths)} JPEGs of {what} to 224 x 224", seconds, reference, "s", apart / 255, note
        )
    clip = ClipSampling(16, 8)
    for name, path in clips(folder).items():
        seconds = fastest(lambda path=path: decode(path, PRINT, clip), 3)
        yield Row(f"16 of {name}", seconds, None, "s", None, f"{rate(16, 'frames', seconds)}; one thread")


def clips(folder: Path) -> dict[str, Path]:
    rng = np.random.default_rng(0)
    small = rng.integers(0, 255, (60, 12, 16, 3), np.uint8)
    frames = [Image.fromarray(frame).resize((320, 240)) for frame in small]
    gif, mp4 = folder / "clip.gif", folder / "clip.mp4"
    frames[0].save(gif, save_all=True, append_images=frames[1:], duration=80)
    found = {"60 frames of a GIF of 320 x 240": gif}
    try:
        import av
    except ImportError:
        return found
    with av.open(str(mp4), "w") as container:
        stream = container.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = 320, 240, "yuv420p"
        for frame in frames * 4:
            container.mux(stream.encode(av.VideoFrame.from_image(frame)))
        container.mux(stream.encode(None))
    return found | {"240 frames of an MP4 of 320 x 240": mp4}


# Encoding, from files


def encoding_rows(folder: Path) -> Iterator[Row]:
    paths = photos(folder)[:80]
    for name in ("efficientnet-lite0", "efficientnet-lite2"):
        what = f"{name} of {len(paths)} photos"
        try:
            encoder = encoder_named(name, device="cpu")
        except MissingError as error:
            yield Row(f"{what}: not run", 0.0, note=error.what)
            continue
        apart = float((at_once(paths, encoder) - batch_by_batch(paths, encoder)).abs().max())
        seconds = fastest(lambda encoder=encoder: at_once(paths, encoder), 1)
        reference = fastest(lambda encoder=encoder: batch_by_batch(paths, encoder), 1)
        yield Row(f"{what}, CPU", seconds, reference, "s", apart, rate(len(paths), "pictures", seconds))
        if torch.cuda.is_available():
            on_gpu = encoder_named(name, device="cuda")
            seconds = fastest(lambda encoder=on_gpu: at_once(paths, encoder), 3)
            yield Row(f"{what}, GPU", seconds, reference, "s", None, rate(len(paths), "pictures", seconds))


def clip_rows(folder: Path) -> Iterator[Row]:
    """Whole clips through an encoder: 16 frames each of as many GIFs as MP4s."""
    name, sampling = "efficientnet-lite0", ClipSampling(16, 8)
    try:
        encoder = encoder_named(name, device="cpu", clip=sampling)
    except MissingError as error:
        yield Row(f"{name} of clips: not run", 0.0, note=error.what)
        return
    paths = list(clips(folder).values()) * 6
    apart = float((at_once(paths, encoder) - one_by_one(paths, encoder)).abs().max())
    seconds = fastest(lambda: at_once(paths, encoder), 1)
    reference = fastest(lambda: one_by_one(paths, encoder), 1)
    note = f"{rate(len(paths), 'clips', seconds)}, {rate(16 * len(paths), 'frames', seconds)}"
    yield Row(f"{name} of {len(paths)} clips, CPU", seconds, reference, "s", apart, note)


def one_by_one(paths: Sequence[Path], encoder: Encoder) -> torch.Tensor:
    """A clip is decoded, then its frames encoded by all cores, then the next."""
    with threads_per_batch(cores()):
        decoded = (torch.from_numpy(decode(path, encoder.preprocessing, encoder.clip)) for path in paths)
        return torch.cat([encoder.inputs(frames)["pooled"] for frames in decoded])


def at_once(paths: Sequence[Path], encoder: Encoder) -> torch.Tensor:
    """Decoded and encoded at the same time, as caplore does."""
    said = [row for _, row in encode_files(paths, encoder)]
    return torch.stack([row["pooled"] for row in said if not isinstance(row, str)])


def batch_by_batch(paths: Sequence[Path], encoder: Encoder, size: int = 32) -> torch.Tensor:
    """32 decoded one after the other, then encoded by all cores, then the next 32."""
    with threads_per_batch(cores()):
        batches = [
            encoder(
                torch.from_numpy(
                    np.concatenate([decode(p, encoder.preprocessing) for p in paths[i : i + size]])
                )
            )
            for i in range(0, len(paths), size)
        ]
    return torch.cat([batch["pooled"] for batch in batches])


# The made world, as `caplore features` does it


def made_world_rows(folder: Path) -> Iterator[Row]:
    from random import Random

    inputs = []
    (folder / "media").mkdir()
    for i in range(PICTURES):
        rng = Random(i)
        draw.save_picture(folder / f"media/{i}.png", world.random_scene(rng), rng)
        inputs.append(Input(str(i), "train", f"media/{i}.png", ("a picture",)))
    dataset = write_dataset(folder, name="bench", media="image", inputs=inputs)
    for name in ("patches", "tiny"):
        encoder = encoder_named(name, device="cpu")
        seconds = fastest(lambda encoder=encoder: encode(dataset, encoder, again=True), 1)
        note = rate(PICTURES, "pictures", seconds)
        yield Row(f"{name} of {PICTURES:,} made pictures of 144 px, kept", seconds, None, "s", None, note)


# Reading back


def store_rows(folder: Path) -> Iterator[Row]:
    """300 random inputs of 36 x 2048 (bottom-up features' size), page cache warm."""
    count, shape = 2000, (36, 2048)
    writer = StoreWriter(folder / "store", {"name": "bench"})
    each = folder / "each"
    each.mkdir()
    values = torch.randn(count, *shape).half()
    for start in range(0, count, 500):
        ids = [str(i) for i in range(start, start + 500)]
        writer.add(ids, {"regions": values[start : start + 500]})
    store = writer.finish()
    wanted = [str(i) for i in np.random.default_rng(0).choice(count, 300, replace=False)]
    for name in wanted:
        np.savez_compressed(each / f"{name}.npz", feat=values[int(name)].numpy())
    seconds = fastest(lambda: store.load(wanted), 5)
    reference = fastest(lambda: np.stack([np.load(each / f"{name}.npz")["feat"] for name in wanted]), 2)
    found = store.load(wanted)["regions"]
    apart = float((found - values[[int(name) for name in wanted]]).abs().max())
    yield Row(
        "read 300 random inputs of 36 x 2048, fp16", seconds, reference, "s", apart, "against .npz per input"
    )

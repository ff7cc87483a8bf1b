"""Files through an encoder: in order, in batches, bad ones listed, resumed after a kill."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import caplore
from caplore.data.dataset import Dataset, Input, write_dataset
from caplore.errors import InputError
from caplore.features import encoding
from caplore.features.decoding import ClipSampling, Preprocessing
from caplore.features.encoder import Encoded, Encoder
from caplore.features.encoding import encode, encode_files, in_order
from caplore.features.store import open_store


class MeanColour:
    """Pooled: the mean colour of a frame. Counts the frames it is shown, and fails when told to."""

    def __init__(self, fail_after: int | None = None) -> None:
        self.seen = 0
        self.fail_after = fail_after

    def __call__(self, pixels: torch.Tensor) -> Encoded:
        self.seen += len(pixels)
        if self.fail_after is not None and self.seen > self.fail_after:
            raise KeyboardInterrupt
        return {"pooled": pixels.mean((2, 3)) * 255}


def encoder(
    network: MeanColour | None = None, clip: ClipSampling | None = None, weights: str = "1"
) -> Encoder:
    return Encoder("mean", "test", network or MeanColour(), Preprocessing(8, 8), weights, clip)


def pictures(folder: Path, count: int) -> list[Path]:
    """Grey pictures: number i has the brightness i."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{i}.png" for i in range(count)]
    for level, path in enumerate(paths):
        Image.new("RGB", (10, 10), (level,) * 3).save(path)
    return paths


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """Twenty grey pictures, of which 3 is empty, 7 is missing, 11 is no picture and 12 names no file."""
    paths = pictures(tmp_path / "data/media", 20)
    paths[3].write_bytes(b"")
    paths[7].unlink()
    paths[11].write_text("not a picture")
    inputs = [
        Input(f"p{i}", "train", f"media/{i}.png" if i != 12 else None, ("a picture",)) for i in range(20)
    ]
    return write_dataset(tmp_path / "data", name="grey", media="image", inputs=inputs)


BAD = {
    "p3": "an empty file",
    "p7": "the file is not there",
    "p11": "not a picture",
    "p12": "the file is not there",
}


@pytest.mark.parametrize("batch", [1, 3, 64])
@pytest.mark.parametrize("workers", [1, 4])
def test_every_file_gets_its_own_features_in_order(batch: int, workers: int, tmp_path: Path) -> None:
    paths = pictures(tmp_path, 23)
    found = list(encode_files(paths, encoder(), batch=batch, workers=workers))
    assert [path for path, _ in found] == paths
    for level, (_, row) in enumerate(found):
        assert isinstance(row, dict)
        torch.testing.assert_close(row["pooled"], torch.full((3,), float(level)), atol=1e-3, rtol=0)


def test_bad_files_become_reasons_in_their_places(tmp_path: Path) -> None:
    paths = pictures(tmp_path, 6)
    paths[1].write_bytes(b"")
    paths[2].write_bytes(b"nonsense")
    found = list(encode_files(paths, encoder(), batch=2))
    assert [isinstance(row, str) for _, row in found] == [False, True, True, False, False, False]
    assert list(encode_files(paths[1:3], encoder(), batch=2)) == found[1:3]


def test_files_are_not_listed_ahead_of_need(tmp_path: Path) -> None:
    """A folder of millions: what is asked for bounds what is opened."""
    paths = pictures(tmp_path, 5)
    asked = 0

    def endless() -> Iterator[Path]:
        nonlocal asked
        while True:
            asked += 1
            yield paths[asked % 5]

    stream = encode_files(endless(), encoder(), batch=2, workers=2)
    for _ in range(10):
        next(stream)
    stream.close()
    assert asked < 60


def test_clips_are_pooled_over_time(tmp_path: Path) -> None:
    """Pooled is the mean of the frames, regions the means of segments of time, in order."""
    frames = [Image.new("RGB", (8, 8), (20 * i,) * 3) for i in range(8)]
    frames[0].save(tmp_path / "clip.gif", save_all=True, append_images=frames[1:], duration=100)
    clip = ClipSampling(frames=8, segments=4)
    [(_, row)] = encode_files([tmp_path / "clip.gif"], encoder(clip=clip))
    assert isinstance(row, dict)
    torch.testing.assert_close(row["pooled"], torch.full((3,), 70.0), atol=0.5, rtol=0)
    torch.testing.assert_close(
        row["regions"][:, 0], torch.tensor([10.0, 50.0, 90.0, 130.0]), atol=0.5, rtol=0
    )


@given(count=st.integers(0, 40), workers=st.integers(1, 4), ahead=st.integers(1, 9))
@settings(deadline=None, max_examples=20)
def test_work_comes_back_in_order_and_never_too_far_ahead(count: int, workers: int, ahead: int) -> None:
    begun, handed_out, most = 0, 0, 0
    lock = threading.Lock()

    def work(item: int) -> int:
        nonlocal begun, most
        with lock:
            begun += 1
            most = max(most, begun - handed_out)
        time.sleep(0.0005 * (item % 3))
        return item * item

    for item, result in enumerate(in_order(work, range(count), workers=workers, ahead=ahead)):
        assert result == item * item
        with lock:
            handed_out += 1
    assert handed_out == count
    assert most <= ahead + 1  # the one just handed out is counted after the next may begin


# Data sets


def test_a_data_set_is_encoded_and_its_bad_files_are_listed(dataset: Dataset) -> None:
    told: list[tuple[int, int]] = []
    store = encode(dataset, encoder(), progress=lambda done, bad: told.append((done, bad)))
    assert set(store.ids) == {item.id for item in dataset.inputs} - set(BAD)
    assert store.load(["p19", "p0"])["pooled"][:, 0].tolist() == [19, 0]
    listed = {row["id"]: row["reason"] for row in map(json.loads, store.bad.read_text().splitlines())}
    assert set(listed) == set(BAD)
    assert all(BAD[name] in reason for name, reason in listed.items())
    assert told[0] == (0, 0)
    assert told[-1] == (20, 4)
    assert store.encoder == encoder().description


def test_after_an_interruption_only_the_rest_is_encoded(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "SHARD_ROWS", 4)
    whole = encode(dataset, encoder(), name="whole", batch=2, workers=1)
    with pytest.raises(KeyboardInterrupt):
        encode(dataset, encoder(MeanColour(fail_after=10)), batch=2, workers=1)
    with pytest.raises(InputError, match="no features at"):
        open_store(dataset.store_path("mean"))
    again = MeanColour()
    store = encode(dataset, encoder(again), batch=2, workers=1)
    assert 0 < again.seen < 16
    ids = list(whole.ids)
    assert set(store.ids) == set(ids)
    assert torch.equal(store.load(ids)["pooled"], whole.load(ids)["pooled"])


def test_new_and_mended_inputs_are_added_to_a_finished_store(dataset: Dataset) -> None:
    encode(dataset, encoder())
    Image.new("RGB", (10, 10), (3, 3, 3)).save(dataset.path / "media/3.png")
    again = MeanColour()
    store = encode(dataset, encoder(again))
    assert again.seen == 1
    assert store.load(["p3"])["pooled"][0, 0] == 3
    assert "p3" not in store.bad.read_text()


def test_a_replaced_picture_is_noticed(dataset: Dataset) -> None:
    encode(dataset, encoder())
    Image.effect_noise((30, 30), 90).save(dataset.path / "media/5.png")
    with pytest.raises(InputError, match=r"1 files .* \(first: 'p5'\)\n  fix: .*--again"):
        encode(dataset, encoder())
    noisy = encode(dataset, encoder(), again=True)
    assert noisy.load(["p5"])["pooled"][0, 0] != 5


def test_other_weights_need_another_name_or_again(dataset: Dataset) -> None:
    encode(dataset, encoder())
    with pytest.raises(InputError, match="made in another way"):
        encode(dataset, encoder(weights="2"))
    assert encode(dataset, encoder(weights="2"), again=True).encoder["weights"] == "2"


def test_features_that_are_no_numbers_are_listed(dataset: Dataset) -> None:
    class Sometimes(MeanColour):
        def __call__(self, pixels: torch.Tensor) -> Encoded:
            pooled = super().__call__(pixels)["pooled"]
            return {
                "pooled": torch.where(pooled == 5, torch.nan, pooled) * torch.where(pooled == 6, 1e6, 1.0)
            }

    store = encode(dataset, encoder(Sometimes()))
    assert {"p5", "p6"} & set(store.ids) == set()
    assert store.bad.read_text().count("not finite in 16 bits") == 2


def test_int8_is_half_the_size(dataset: Dataset) -> None:
    wide = replace(encoder(), network=lambda pixels: {"pooled": pixels.flatten(1).repeat(1, 20)})
    sizes = {}
    for storage in ("fp16", "int8"):
        store = encode(dataset, wide, name=storage, storage=storage)  # type: ignore[arg-type]
        sizes[storage] = (store.path / "part-00000.safetensors").stat().st_size
        torch.testing.assert_close(
            store.load(["p19"])["pooled"].float(), torch.full((1, 3840), 19 / 255), rtol=0.01, atol=0
        )
    assert sizes["int8"] < 0.6 * sizes["fp16"]


def test_nothing_to_encode_is_an_error(dataset: Dataset) -> None:
    for item in dataset.inputs:
        if item.file:
            (dataset.path / item.file).unlink(missing_ok=True)
    with pytest.raises(InputError, match=r"none of the 20 inputs .* the file is not there"):
        encode(dataset, encoder())


def test_an_encoder_whose_shapes_change_is_one_message(dataset: Dataset) -> None:
    def changing(pixels: torch.Tensor) -> Encoded:
        return {"pooled": pixels.mean((2, 3))[:, : 1 + int(pixels.max() * 255) % 3]}

    with pytest.raises(InputError, match=r"the encoder gave features of the shapes .* before"):
        encode(dataset, replace(encoder(), network=changing), batch=1)


SLOW_ENCODER = """
import time
def slow(pixels):
    time.sleep(0.02 * len(pixels))
    return pixels.mean((2, 3)) * 255
slow.size = 8
"""


def test_kill_nine_then_the_same_command(tmp_path: Path) -> None:
    """The whole command, killed while it encodes, then given again: nothing is lost and nothing is done twice."""
    paths = pictures(tmp_path / "data/media", 120)
    inputs = [Input(path.stem, "train", f"media/{path.name}", ("a",)) for path in paths]
    dataset = write_dataset(tmp_path / "data", name="grey", media="image", inputs=inputs)
    (tmp_path / "mine.py").write_text(SLOW_ENCODER)
    code = (
        "import sys; from caplore.features import encoding; encoding.SHARD_ROWS = 10; "
        "from caplore.cli.main import run; run()"
    )
    command = [
        sys.executable,
        "-c",
        code,
        "features",
        str(dataset.path),
        "--encoder",
        "mine:slow",
        "--workers",
        "1",
    ]
    source = str(Path(caplore.__file__).parents[1])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": source}
    running = subprocess.Popen(command, cwd=tmp_path, env=environment)
    folder = dataset.store_path("mine-slow")
    deadline = time.monotonic() + 60
    while len(list(folder.glob("part-*"))) < 3 and running.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    running.send_signal(signal.SIGKILL)
    assert running.wait() == -signal.SIGKILL
    kept = len(list(folder.glob("part-*.safetensors")))
    assert 3 <= kept < 12
    assert not (folder / "index.json").exists()
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, timeout=120)
    store = open_store(folder)
    assert len(store.ids) == len(set(store.ids)) == 120
    assert store.load([str(i) for i in range(120)])["pooled"][:, 0].tolist() == list(range(120))

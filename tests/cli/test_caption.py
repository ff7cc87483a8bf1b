"""`caplore caption` as a user types it: terminal, files, what was skipped, and every wrong input as one message."""

import csv
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from caplore.cli.caption import image_id
from caplore.cli.main import main
from caplore.data.dataset import Input, write_dataset
from caplore.evaluation.caption_formats import read_rows
from caplore.features.choice import encoder_named
from caplore.features.encoding import encode
from caplore.training import loop
from caplore.training.config import Model, Recipe, Xe

NAMES = ("red", "green", "000000000042")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learnt nothing: what it says is of no interest here."""
    home = tmp_path_factory.mktemp("caption")
    (home / "data/media").mkdir(parents=True)
    inputs = []
    for name, split in zip(NAMES, ("train", "val", "test"), strict=True):
        colour = (7 * len(name), 99, 99)
        Image.new("RGB", (40, 30), colour).save(home / f"data/media/{name}.png")
        inputs.append(Input(name, split, f"media/{name}.png", ("a plain, coloured picture", 'a "café" wall')))
    dataset = write_dataset(home / "data", name="plain", media="image", inputs=inputs)
    encode(dataset, encoder_named("patches", device="cpu"), workers=1)
    recipe = Recipe(data=home / "data", to=home / "run", model=Model(hidden=8), xe=Xe(epochs=0), max_words=6)
    return loop.train(recipe, "own-xe", quiet=True).path


@pytest.fixture
def photos(run: Path, tmp_path: Path) -> Path:
    shutil.copytree(run.parent / "data/media", tmp_path / "photos")
    return tmp_path / "photos"


Caption = Callable[..., int]


@pytest.fixture
def caption(run: Path) -> Caption:
    """`caplore caption` with these arguments, and this run unless another is named."""
    return lambda *arguments: main(["caption", *map(str, arguments), "--model", str(run), "--workers", "1"])


def test_one_photo_on_the_terminal(
    caption: Caption, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert caption(photos / "red.png") == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 1
    assert said.out.strip()
    assert said.err == ""
    assert caption(photos / "red.png", "-n", 3) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_a_folder_on_the_terminal(caption: Caption, photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (photos / "broken.jpg").write_bytes(b"")
    assert caption(photos, "-n", 2, "--decoder", "sample", "--top-k", 3, "--top-p", 0.9) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert [line for line in lines if not line.startswith("  ")] == [
        str(photos / f"{n}.png") for n in sorted(NAMES)
    ]
    assert len(lines) == 3 * 3
    assert said.err.splitlines() == ["skipped: 1", f"  {photos}/broken.jpg: an empty file"]


def test_jsonl(caption: Caption, photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert caption(photos, "-n", 2, "--out", out) == 0
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [row["id"] for row in rows] == sorted(NAMES)
    assert rows[0]["file"] == str(photos / "000000000042.png")
    assert [set(c) for row in rows for c in row["captions"]] == [{"caption", "logprob"}] * 6
    assert rows[0]["captions"][0]["logprob"] >= rows[0]["captions"][1]["logprob"]
    ranked = ("--decoder", "sample", "--rank", "consensus", "--seed", 1)
    assert caption(photos, "-n", 2, "-o", out, *ranked) == 0
    agreed = [[c["consensus"] for c in json.loads(line)["captions"]] for line in out.read_text().splitlines()]
    assert all(first >= second for first, second in agreed)


def test_every_format_holds_the_same_captions(
    caption: Caption, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And `caplore score` reads them all, under the ids of the data set (the text under the files' names)."""
    found = {}
    for name in ("out.jsonl", "out.csv", "out.json", "out.txt"):
        assert caption(photos, "-n", 2, "-o", tmp_path / name) == 0
        found[name] = read_rows(str(tmp_path / name), "candidates").rows
    ids = ["000000000042", "green", "red"]
    assert [name for name, _ in found["out.jsonl"]] == [one for one in ids for _ in range(2)]
    assert found["out.csv"] == found["out.jsonl"]
    assert [(name.replace("42", ids[0]), text) for name, text in found["out.json"]] == found["out.jsonl"]
    assert [(Path(name).stem, text) for name, text in found["out.txt"]] == found["out.jsonl"]
    assert json.loads((tmp_path / "out.json").read_text())[0]["image_id"] == 42
    with (tmp_path / "out.csv").open(newline="") as file:
        assert [row["rank"] for row in csv.DictReader(file)] == ["1", "2"] * 3


def test_a_format_on_the_terminal(caption: Caption, photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert caption(photos, "--format", "coco") == 0
    assert len(json.loads(capsys.readouterr().out)) == 3
    assert caption(photos, "--format", "csv") == 0
    assert len(list(csv.DictReader(io.StringIO(capsys.readouterr().out)))) == 3


def test_names_that_need_care(caption: Caption, photos: Path, tmp_path: Path) -> None:
    for name in ('tab\tand\nline".png', "komma, é.png", "caf\udce9.png"):
        shutil.copy(photos / "red.png", photos / name)
    for out in ("out.jsonl", "out.csv", "out.json", "out.txt"):
        assert caption(photos, "-o", tmp_path / out) == 0
        assert len(read_rows(str(tmp_path / out), "candidates").rows) == 6


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("COCO_val2014_000000391895", 391895),
        ("000000000042", 42),
        ("val/7", 7),
        ("dog", "dog"),
        ("2024-06-01", "2024-06-01"),
    ],
)
def test_coco_numbers(name: str, number: int | str) -> None:
    assert image_id(name) == number


def test_what_was_skipped_is_kept_beside_the_file(
    caption: Caption, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, beside = tmp_path / "out.csv", tmp_path / "out.csv.skipped.jsonl"
    for i in range(25):
        (photos / f"bad{i}.jpg").write_bytes(b"")
    assert caption(photos, "-o", out) == 0
    said = capsys.readouterr().err.splitlines()
    assert said[:2] == [f"wrote {out}: 3 captions of 3 files", "skipped: 25"]
    assert said[-2:] == ["  ...", f"  all of them: {beside}"]
    rows = [json.loads(line) for line in beside.read_text().splitlines()]
    assert len(rows) == 25
    assert rows[0] == {"file": f"{photos}/bad0.jpg", "reason": "an empty file"}
    assert caption(photos / "red.png", "-o", out) == 0
    assert not beside.exists(), "the list of an earlier time"


def test_where_nothing_can_be_captioned_nothing_is_written(
    caption: Caption, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("what was there\n")
    (tmp_path / "bad.jpg").write_bytes(b"")
    assert caption(tmp_path / "bad.jpg", tmp_path / "nowhere.jpg", "-o", out) == 2
    said = capsys.readouterr().err
    assert "bad.jpg: an empty file" in said
    assert "nowhere.jpg: the file is not there" in said
    assert "error: none of the 2 files could be captioned" in said
    assert out.read_text() == "what was there\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.jpg", "out.jsonl"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-n", "0"], "--n is 0; it needs to be 1 or more"),
        (["--temperature", "2"], "--temperature is for --decoder sample, not for beam"),
        (["--width", "3", "--decoder", "sample"], "--width is for --decoder beam or diverse"),
        (["--decoder", "sample", "--temperature", "0"], "--temperature is 0.0"),
        (["--decoder", "sample", "--temperature", "nan"], "--temperature is nan"),
        (["--decoder", "sample", "--top-k", "-1"], "--top-k is -1"),
        (["--decoder", "sample", "--top-p", "0"], "--top-p is 0.0"),
        (["--decoder", "greedy", "-n", "2"], "--decoder greedy gives one caption"),
        (["--decoder", "diverse", "-n", "3", "--width", "4"], "--width 4 cannot be shared out"),
        (["--decoder", "diverse", "--strength", "-1"], "--strength is -1.0"),
        (["--width", "2", "-n", "3"], "--width 2 cannot give -n 3"),
        (["--candidates", "2", "-n", "3"], "--candidates 2 are too few"),
        (["--rank", "consensus", "--decoder", "diverse"], "here is only one"),
        (["--out", "."], "--out . is a folder"),
        (["--out", "captions.xml"], "its name says no format"),
        (["--device", "toaster"], "toaster"),
        (["--model", "nowhere"], "nowhere is not a run folder"),
    ],
)
def test_a_mistake_is_one_message_and_exit_2(
    arguments: list[str],
    message: str,
    caption: Caption,
    run: Path,
    photos: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = [] if "--model" in arguments else ["--model", str(run)]
    assert main(["caption", str(photos / "red.png"), *arguments, *model]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert "Traceback" not in said.err
    assert said.out == ""


def test_no_files(caption: Caption, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert caption() == 2
    assert "no file was named" in capsys.readouterr().err
    assert caption(tmp_path) == 2
    assert "a folder without pictures or clips" in capsys.readouterr().err


def test_msvd_cannot_caption_new_clips(
    shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], run: Path
) -> None:
    """Its features came without an encoder: refused before anything is decoded."""
    shutil.copytree(run, tmp_path / "run")
    head = json.loads((tmp_path / "run/run.json").read_text())
    pack = shared / "data/msvd"
    assert main(["data", "import", "msvd", str(pack), "--to", str(tmp_path / "msvd")]) == 0
    index = json.loads((tmp_path / "msvd/features/vgg/index.json").read_text())
    (tmp_path / "run/run.json").write_text(json.dumps({**head, "encoder": index["encoder"]}))
    capsys.readouterr()
    assert main(["caption", "clip.mp4", "--model", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert "'vgg' were computed elsewhere and imported: there is no encoder here for new files" in said
    assert "train on features that caplore features made" in said

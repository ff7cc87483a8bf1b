"""`caplore table`: what is missing is trained and evaluated, and the paper's tables come out, in three forms."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from caplore.cli.main import main
from caplore.data.dataset import Dataset, Input, write_dataset
from caplore.evaluation import grid
from caplore.features.store import write_store

KNOBS = ["--xe.epochs", "3", "--xe.batch", "8", "--model.hidden", "16", "--device", "cpu", "--max-words", "6"]
KNOBS += ["--sequence.epochs", "1", "--sequence.batch", "8", "--sequence.lr", "1e-3", "--min-count", "1"]


@pytest.fixture
def data(tmp_path: Path) -> Dataset:
    """Twelve things in train and six in val, called as the paper's data set is."""
    inputs, rows = [], []
    for i in range(18):
        colour, thing = ("red", "green", "blue")[i % 3], ("cat", "dog")[i % 2]
        captions = (f"a {colour} {thing}", f"the {thing} is {colour}")
        inputs.append(Input(str(i), "train" if i < 12 else "val", None, captions))
        rows.append(torch.cat([torch.eye(3)[i % 3], torch.eye(2)[i % 2]]))
    dataset = write_dataset(tmp_path / "data", name="coco", media="none", inputs=inputs)
    pooled = torch.stack(rows)
    store = dataset.store_path("made")
    write_store(store, [i.id for i in inputs], iter([{"pooled": pooled}]), encoder={"name": "made"})
    return dataset


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that the grid gave, run in this process: a dozen imports of torch are spared."""
    commands: list[list[str]] = []

    def call(command: Sequence[str], threads: int) -> tuple[int, str]:
        commands.append(list(command))
        return main([*command, *(["--quiet"] if command[0] == "train" else [])]), ""

    monkeypatch.setattr(grid, "_call", call)
    return commands


def test_the_tables_of_the_paper(
    data: Dataset, tmp_path: Path, typed: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "runs"
    command = ["table", str(data.path), "--objectives", "xe,sll,sll_sle", "--seeds", "2", "--split", "val"]
    command += ["--to", str(to), "--jobs", "1", "--", *KNOBS]
    assert main(command) == 0
    assert sorted(path.name for path in to.iterdir() if path.is_dir()) == sorted(
        f"fc-{objective}-{seed}" for objective in ("xe", "sll", "sle") for seed in (0, 1)
    )
    assert [words[0] for words in typed].count("train") == 6

    markdown = (to / "tables.md").read_text()
    for row in (r"\| SLL-SLE \| .* ± ", r"\| SLL-SLE \| 27\.0 \| 117\.2 \| 20\.3", r"\*the paper\*"):
        assert re.search(row, markdown), row  # ours over two seeds, and the paper's below
    assert re.search(r"```text\nfc: sll_sle against sll, 2 seeds, paired by input:\n  beam/cider_d", markdown)
    assert re.search(r"beam/cider_d .* 95 % .* p ", capsys.readouterr().out)
    assert "<html" in (to / "report.html").read_text()

    made = json.loads((to / "tables.json").read_text())
    sle = next(row for row in made["rows"] if row["objective"] == "sll_sle")
    cider = sle["scores"]["beam"]["cider_d"]
    assert sle["seeds"] == [0, 1]
    assert cider["mean"] == pytest.approx(sum(cider["values"]) / 2)
    assert {
        "label": "SLL-SLE",
        "part": "beam",
        "scores": {"meteor": 0.27, "cider_d": 1.172, "spice": 0.203},
    } in (made["paper"])
    (test,) = made["tests"]
    assert test["objective"] == "sll_sle"
    assert {"beam/cider_d", "rs/div_2", "rs/mbleu_4"} <= {one["name"] for one in test["differences"]}

    typed.clear()  # a second time there is nothing to do, but for what has gone
    (to / "fc-sll-1/results/val.json").unlink()
    assert main(command) == 0
    assert typed == [["evaluate", str(to / "fc-sll-1"), "--split", "val"]]


def test_what_cannot_be_is_said_before_anything_is_trained(
    data: Dataset,
    tmp_path: Path,
    typed: list[list[str]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = ["table", str(data.path), "--to", str(tmp_path / "runs"), "--split"]
    monkeypatch.setenv("CAPLORE_CACHE", str(tmp_path / "empty"))
    for asked, said in (
        ([*table, "val", "--", "--epochs", "3"], "--epochs"),
        ([*table, "val", "--objectives", "sll_slee"], "coco-sll-slee"),
        ([*table, "val", "--models", "fcc"], "fcc"),
        ([*table, "val", "--spice"], "caplore setup spice"),
        ([*table, "test"], "it has train, val"),
    ):
        assert main(asked) == 2
        assert said in capsys.readouterr().err
    assert typed == []


def test_told_to_stop_it_leaves_no_run_behind_that_goes_on(data: Dataset, tmp_path: Path) -> None:
    to = tmp_path / "runs"
    command = [
        "table",
        str(data.path),
        "--objectives",
        "sll",
        "--split",
        "val",
        "--to",
        str(to),
        "--jobs",
        "1",
    ]
    endless = ["--xe.epochs", "100000", *KNOBS[2:]]
    child = subprocess.Popen([sys.executable, "-m", "caplore", *command, "--", *endless])
    log = to / "fc-xe-0" / "log.jsonl"
    try:
        waited_for(lambda: log.is_file() or child.poll() is not None)
        child.terminate()
        assert child.wait(timeout=60) == 128 + signal.SIGTERM
    finally:
        child.kill()
    said = log.read_bytes()
    assert json.loads((log.parent / "run.json").read_text())["status"] == "started"
    assert (log.parent / "checkpoints" / "last.safetensors").is_file()
    time.sleep(1)
    assert log.read_bytes() == said


def waited_for(event: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not event():
        assert time.monotonic() < until
        time.sleep(0.05)

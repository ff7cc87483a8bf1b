"""`caplore evaluate RUNS`: runs that differ by their seed are one row, by a knob they are two."""

import json
import re
from pathlib import Path

import pytest
import torch

from caplore.cli.main import main
from caplore.data.dataset import Input, write_dataset
from caplore.features.store import write_store

KNOBS = "--model.hidden 16 --xe.epochs 1 --xe.batch 4 --max-words 6 --min-count 1 --device cpu --quiet"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    inputs = [Input(str(i), "train" if i < 6 else "val", None, ("a cat", f"{i} cats")) for i in range(9)]
    dataset = write_dataset(tmp_path / "data", name="cats", media="none", inputs=inputs)
    store = dataset.store_path("made")
    write_store(store, [i.id for i in inputs], iter([{"pooled": torch.eye(9)}]), encoder={"name": "made"})
    return dataset.path


def test_a_row_for_each_setting(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = {"a": ("0", "0.1"), "b": ("1", "0.1"), "c": ("0", "0.2")}
    for name, (seed, dropout) in made.items():
        where = ["--data", str(data), "--to", str(tmp_path / name), "--seed", seed]
        assert main(["train", "own-xe", *where, "--model.dropout", dropout, *KNOBS.split()]) == 0
    capsys.readouterr()
    assert main(["evaluate", *(str(tmp_path / name) for name in made), "--split", "val"]) == 0
    shown = capsys.readouterr().out.split("Sets of 5")[0]
    assert re.search(r"^XE · dropout 0\.1 \(2 seeds\) .* ±", shown, re.M)
    assert re.search(r"^XE · dropout 0\.2 \(1 seed\)  ", shown, re.M)
    assert json.loads((tmp_path / "c/results/val.json").read_text())["inputs"] == 3

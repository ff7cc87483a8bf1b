"""A data set of two dozen inputs whose captions can be learnt from their features in seconds."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from caplore.data.dataset import Dataset, Input, write_dataset
from caplore.features.store import write_store
from caplore.training.config import Model, Recipe, Sequence, SllSle, Xe

THINGS = ("cat", "dog", "bird", "fish")
COLOURS = ("red", "blue", "green")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Inputs of four things in three colours, twice in train and once in val and test, three captions each."""
    path = tmp_path_factory.mktemp("tiny")
    inputs, rows = [], []
    for copy, split in enumerate(("train", "train", "val", "test")):
        for t, thing in enumerate(THINGS):
            for c, colour in enumerate(COLOURS):
                captions = (
                    f"a {colour} {thing}",
                    f"there is a {colour} {thing}",
                    f"a {thing} that is {colour}",
                )
                inputs.append(Input(f"{thing}-{colour}-{copy}", split, None, captions))
                rows.append(torch.cat([torch.eye(4)[t], torch.eye(3)[c]]))
    dataset = write_dataset(path, name="tiny", media="none", inputs=inputs)
    pooled = torch.stack(rows)
    regions = torch.stack([pooled, pooled.flip(1)], dim=1)
    write_store(
        path / "features" / "made",
        [i.id for i in inputs],
        iter([{"pooled": pooled, "regions": regions}]),
        encoder={"name": "made"},
    )
    return dataset


@pytest.fixture
def recipe(tiny: Dataset, tmp_path: Path) -> Callable[..., Recipe]:
    """A recipe that trains in about a second; keywords replace its fields."""

    def make(**changes: object) -> Recipe:
        fields: dict[str, object] = {
            "data": tiny.path,
            "to": tmp_path / "run",
            "model": Model(hidden=32, dropout=0.1),
            "xe": Xe(epochs=4, lr=2e-2, batch=8, captions=3),
            "sequence": Sequence(objective=SllSle(), epochs=2, lr=2e-3, batch=8),
            "max_words": 8,
            "log_every": 2,
            "device": "cpu",
        }
        return Recipe(**{**fields, **changes})  # type: ignore[arg-type]

    return make

"""Splits by hash: the same every time."""

from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from caplore.data.importers.checking import check
from caplore.data.importers.source import Item, Source
from caplore.data.importers.splitting import ByHash
from caplore.errors import ConfigError


def test_splits_by_hash_never_change() -> None:
    """Golden: these ids were split like this the first time, and must be on every machine and in every version."""
    names = [f"picture-{i}" for i in range(12)]
    splits = [ByHash(0.2, 0.2).of(name) for name in names]
    assert splits == [
        "test",
        "train",
        "test",
        "train",
        "test",
        "train",
        "train",
        "train",
        "val",
        "train",
        "train",
        "train",
    ]


@given(
    names=st.sets(st.text(max_size=8), min_size=1, max_size=30), val=st.floats(0, 0.4), test=st.floats(0, 0.4)
)
def test_a_split_does_not_depend_on_the_others(names: set[str], val: float, test: float) -> None:
    alone = {name: ByHash(val, test).of(name) for name in names}
    fewer = {name: ByHash(val, test).of(name) for name in sorted(names)[: len(names) // 2 + 1]}
    assert fewer.items() <= alone.items()


def test_shares_are_what_was_asked() -> None:
    counts = Counter(ByHash(0.1, 0.2).of(str(i)) for i in range(20_000))
    assert abs(counts["val"] / 20_000 - 0.1) < 0.01  # 5 standard deviations
    assert abs(counts["test"] / 20_000 - 0.2) < 0.015


def test_another_seed_splits_another_way() -> None:
    names = [str(i) for i in range(100)]
    assert [ByHash(0.3, 0.3, seed=0).of(n) for n in names] != [ByHash(0.3, 0.3, seed=1).of(n) for n in names]


@given(count=st.integers(3, 40), seed=st.integers(0, 50))
@example(count=3, seed=39)  # one to train on, two in val: the test split's must come from val
def test_few_inputs_leave_no_split_empty(count: int, seed: int) -> None:
    names = [f"i{n}" for n in range(count)]
    assert set(ByHash(seed=seed).settled(names).values()) == {"train", "val", "test"}


def test_inputs_that_are_left_out_leave_no_split_empty() -> None:
    """Splits are settled among what is left."""
    by_hash = ByHash(seed=3)
    names = [f"i{n}" for n in range(8)]
    (one,) = [name for name, split in by_hash.settled(names).items() if split == "val"]
    items = [Item(name, None, None, [] if name == one else ["a caption"]) for name in names]
    checked = check(Source("mine", "none", items), by_hash=by_hash)
    assert len(checked.inputs) == 7
    assert {item.split for item in checked.inputs} == {"train", "val", "test"}


@pytest.mark.parametrize(("val", "test"), [(0.5, 0.5), (-0.1, 0.1), (0.0, 1.0)])
def test_shares_that_leave_nothing_to_train_on(val: float, test: float) -> None:
    with pytest.raises(ConfigError, match="leave nothing to train on"):
        ByHash(val, test)

"""Features computed elsewhere: every form they come in, row for row, and what is wrong with them."""

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from caplore.errors import InputError, MissingError
from caplore.features.importing import import_features, open_table, read_ids
from caplore.features.store import open_store

IDS = ["a.jpg", "b.jpg", "c.jpg", "d.jpg"]
POOLED = np.arange(12, dtype=np.float32).reshape(4, 3)
REGIONS = np.arange(24, dtype=np.float16).reshape(4, 2, 3)


def as_npy(path: Path, values: np.ndarray) -> Path:
    np.save(path / "x.npy", values)
    return path / "x.npy"


def as_npz(path: Path, values: np.ndarray) -> Path:
    np.savez_compressed(path / "x.npz", features=values, other=np.zeros(1))
    return path / "x.npz"


def as_h5(path: Path, values: np.ndarray) -> Path:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path / "x.h5", "w") as file:
        file["features"] = values
    return path / "x.h5"


def as_files(path: Path, values: np.ndarray) -> Path:
    (path / "each").mkdir()
    for name, row in zip(IDS, values, strict=True):
        np.save(path / "each" / f"{name}.npy", row)
    return path / "each"


def as_zipped_files(path: Path, values: np.ndarray) -> Path:
    (path / "each").mkdir()
    for name, row in zip(IDS, values, strict=True):
        np.savez_compressed(path / "each" / f"{name}.npz", feat=row)
    return path / "each"


def as_h5_of_each(path: Path, values: np.ndarray) -> Path:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path / "each.h5", "w") as file:
        for name, row in zip(IDS, values, strict=True):
            file[name] = row
    return path / "each.h5"


@pytest.mark.parametrize("values", [POOLED, REGIONS], ids=["pooled", "regions"])
@pytest.mark.parametrize(
    ("form", "has_ids"),
    [
        (as_npy, False),
        (as_npz, False),
        (as_h5, False),
        (as_files, True),
        (as_zipped_files, True),
        (as_h5_of_each, True),
    ],
)
def test_every_form_row_for_row(
    form: Callable[[Path, np.ndarray], Path], has_ids: bool, values: np.ndarray, tmp_path: Path
) -> None:
    table = open_table(form(tmp_path, values), None if has_ids else IDS)
    kind = "pooled" if values.ndim == 2 else "regions"
    assert (table.kind, table.shape) == (kind, values.shape[1:])
    wanted = ["c.jpg", "a.jpg", "d.jpg"]
    store, left = import_features(tmp_path / "store", [*wanted, "z.jpg"], [table], name="mine")
    assert left == ["z.jpg"]
    assert torch.equal(store.load(wanted)[kind], torch.from_numpy(values[[2, 0, 3]]).half())
    assert json.loads(store.bad.read_text())["reason"] == "not in the imported features"
    assert store.encoder["family"] == "imported"


def test_pooled_and_regions_share_a_store_and_the_ids_both_have(tmp_path: Path) -> None:
    pooled = open_table(as_npy(tmp_path, POOLED), IDS)
    np.save(tmp_path / "regions.npy", REGIONS[:3])
    regions = open_table(tmp_path / "regions.npy", IDS[:3])
    store, left = import_features(tmp_path / "store", IDS, [pooled, regions], name="mine")
    assert left == ["d.jpg"]
    found = store.load(["b.jpg"])
    assert found["pooled"].tolist() == [[3, 4, 5]]
    assert found["regions"].tolist() == [[[6, 7, 8], [9, 10, 11]]]


def test_int8_keeps_its_bytes_and_its_scale(tmp_path: Path) -> None:
    values = np.array([[127, -127, 3], [1, 2, 3]], np.int8)
    np.save(tmp_path / "x.npy", values)
    table = open_table(tmp_path / "x.npy", ["a", "b"])
    with pytest.raises(InputError, match="--feature-scale"):
        import_features(tmp_path / "store", ["a", "b"], [table], name="mine")
    store, _ = import_features(tmp_path / "store", ["b", "a"], [table], name="mine", scale=0.5)
    assert store.load(["a"])["pooled"].tolist() == [[63.5, -63.5, 1.5]]


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ("a.jpg\nb.jpg\n\n", "rows.txt"),
        ('["a.jpg", "b.jpg"]', "rows.json"),
        ('[{"id": "a.jpg", "split": "train"}, {"id": "b.jpg"}]', "rows.json"),
        ('{"id": "a.jpg"}\n{"id": "b.jpg"}\n', "rows.jsonl"),
    ],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_ids_of_rows_in_every_form(content: str, name: str, zipped: bool, tmp_path: Path) -> None:
    path = tmp_path / (name + ".gz" if zipped else name)
    path.write_bytes(gzip.compress(content.encode()) if zipped else content.encode())
    assert read_ids(path) == ["a.jpg", "b.jpg"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rows.json", b'{"a": 1}x'),
        ("rows.json", b'[{"name": "a"}]'),
        ("rows.jsonl", b"{"),
        ("rows.txt.gz", b"not gzip"),
    ],
)
def test_ids_that_are_none(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError):
        read_ids(tmp_path / name)


@pytest.mark.parametrize(
    ("values", "rows", "message"),
    [
        (POOLED, IDS[:3], "4 rows, but there are 3 ids"),
        (POOLED, None, "--feature-rows"),
        (POOLED[0], IDS, "features are"),
        (np.full((4, 3), np.nan), IDS, "4 rows are nan or too large"),
        (np.full((4, 3), 1e6), IDS, "too large for 16 bits"),
        (np.array([["a"]] * 4), IDS, "not numbers"),
    ],
)
def test_features_that_cannot_be(
    values: np.ndarray, rows: list[str] | None, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        import_features(tmp_path / "s", IDS, [open_table(as_npy(tmp_path, values), rows)], name="mine")


def test_pickled_arrays_are_not_read(tmp_path: Path) -> None:
    np.save(tmp_path / "evil.npy", np.array([print], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="cannot be read"):
        open_table(tmp_path / "evil.npy", IDS)


@pytest.mark.parametrize("name", ["missing.npy", "words.npy", "words.npz", "words.h5", "words.txt"])
def test_files_that_are_no_features(name: str, tmp_path: Path) -> None:
    if not name.startswith("missing"):
        (tmp_path / name).write_text("only words")
    with pytest.raises(InputError):
        open_table(tmp_path / name, IDS)


def test_regions_that_differ_in_number_say_which(tmp_path: Path) -> None:
    folder = as_files(tmp_path, REGIONS)
    np.save(folder / "c.jpg.npy", np.zeros((5, 3), np.float32))
    with pytest.raises(InputError, match=r"'c.jpg' has the shape \(5, 3\)"):
        import_features(tmp_path / "s", IDS, [open_table(folder)], name="mine")


def test_features_of_other_inputs_show_both_sides(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none of the 1 inputs \(its first: 'a.jpg'; an input: 'e'\)"):
        import_features(tmp_path / "s", ["e"], [open_table(as_npy(tmp_path, POOLED), IDS)], name="mine")


def test_two_tables_of_one_kind_are_refused(tmp_path: Path) -> None:
    table = open_table(as_npy(tmp_path, POOLED), IDS)
    with pytest.raises(InputError, match="one table of pooled"):
        import_features(tmp_path / "s", IDS, [table, table], name="mine")


def test_without_h5py_the_command_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.h5").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingError, match=r"pip install 'h5py>=3.12'"):
        open_table(tmp_path / "x.h5", IDS)


def test_importing_again_replaces(tmp_path: Path) -> None:
    table = open_table(as_npy(tmp_path, POOLED), IDS)
    import_features(tmp_path / "s", IDS, [table], name="mine")
    import_features(tmp_path / "s", IDS[:1], [table], name="mine")
    assert open_store(tmp_path / "s").ids == ("a.jpg",)


def test_rows_may_be_named_by_the_files_of_the_inputs(tmp_path: Path) -> None:
    table = open_table(
        as_npy(tmp_path, POOLED), ["dog.jpg", "sub/cat.PNG", "COCO_val2014_000000000042.jpg", "000000000007"]
    )
    wanted = ["7", "42", "sub/cat", "dog"]
    store, left = import_features(tmp_path / "store", wanted, [table], name="mine")
    assert left == []
    assert torch.equal(store.load(wanted)["pooled"], torch.from_numpy(POOLED[[3, 2, 1, 0]]).half())


@pytest.mark.parametrize("rows", [["a", "b", "a", "c"], ["a", "b", "a.jpg", "c"]])
def test_two_rows_for_one_input_are_refused(rows: list[str], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="two rows for one input"):
        import_features(tmp_path / "store", ["a"], [open_table(as_npy(tmp_path, POOLED), rows)], name="mine")


@pytest.mark.parametrize("cut", [0, 10, 100, 300])
def test_an_archive_that_is_cut_off_is_one_message(cut: int, tmp_path: Path) -> None:
    path = as_npz(tmp_path, REGIONS)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(InputError, match="cannot be read"):
        open_table(path, IDS)


def test_an_import_that_fails_leaves_the_features_that_were_there(tmp_path: Path) -> None:
    to = tmp_path / "store"
    table = open_table(as_zipped_files(tmp_path, POOLED))
    import_features(to, IDS, [table], name="mine")
    (tmp_path / "each/c.jpg.npz").write_bytes(b"PK nothing")
    with pytest.raises(InputError, match=r"c\.jpg\.npz cannot be read"):
        import_features(to, IDS, [table], name="mine")
    assert torch.equal(open_store(to).load(IDS)["pooled"], torch.from_numpy(POOLED).half())
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()].count("store") == 1
    assert not list(tmp_path.glob("store.*"))


def test_ids_that_are_no_list_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text('{"ids": ["a", "b"]}')
    with pytest.raises(InputError, match="not a list of ids"):
        read_ids(tmp_path / "rows.json")

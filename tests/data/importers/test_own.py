"""Your own data: tables, folders, and splits that are the same every time."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from caplore.data.importers.checking import check
from caplore.data.importers.own import give_splits, read_own, split_by_hash
from caplore.data.importers.source import Item
from caplore.errors import ConfigError, InputError

Draw = Callable[[str, Sequence[str]], Path]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("captions.csv", 'file,caption\ndog.jpg,"a dog, running"\ncat.jpg,a cat\ndog.jpg,the dog\n'),
        ("captions.tsv", "caption\timage\na dog, running\tdog.jpg\na cat\tcat.jpg\nthe dog\tdog.jpg\n"),
        (
            "captions.jsonl",
            '{"file": "dog.jpg", "captions": ["a dog, running", "the dog"]}\n{"image": "cat.jpg", "text": "a cat"}\n',
        ),
        (
            "captions.csv",
            '\ufeffFILE , Caption\r\ndog.jpg,"a dog, running"\r\ncat.jpg,a cat\r\ndog.jpg,the dog\r\n',
        ),
    ],
)
@pytest.mark.parametrize("by_folder", [True, False])
def test_tables_of_every_kind_say_the_same(name: str, content: str, by_folder: bool, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    source = read_own(tmp_path if by_folder else tmp_path / name)
    assert {i.id: (i.file, i.captions) for i in source.items} == {
        "dog": ("dog.jpg", ["a dog, running", "the dog"]),
        "cat": ("cat.jpg", ["a cat"]),
    }
    assert source.media == "image"
    assert source.media_folder == tmp_path


def test_ids_and_splits_of_your_own_are_kept(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(
        "id,file,split,caption\n7,a/dog.png,validation,a dog\n8,b/dog.png,test,another dog\n"
    )
    items = read_own(tmp_path / "x.csv").items
    assert [(i.id, i.split, i.file) for i in items] == [("7", "val", "a/dog.png"), ("8", "test", "b/dog.png")]


def test_the_same_name_in_two_folders_is_two_inputs(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("file,caption\na/dog.png,a dog\nb/dog.png,another dog\n")
    assert [i.id for i in read_own(tmp_path / "x.csv").items] == ["a/dog", "b/dog"]


def test_rows_that_are_none_are_listed_with_their_line(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(
        "id,file,caption\n1,a.jpg,one\n,,nobody's\n1,b.jpg,other file\n\n2,c.jpg\n"
    )
    source = read_own(tmp_path / "x.csv")
    assert [(i.id, i.captions) for i in source.items] == [("1", ["one"]), ("2", [])]
    assert [(f.kind, f.id) for f in source.findings] == [
        ("malformed", "x.csv, line 3"),
        ("duplicate-id", "1"),
    ]


def test_json_that_is_no_text_is_listed(tmp_path: Path) -> None:
    rows = [
        '{"file": "a.jpg", "captions": [null]}',
        '{"file": {}, "text": "x"}',
        '{"file": "b.jpg", "text": "ok"}',
    ]
    (tmp_path / "x.jsonl").write_text("\n".join(rows))
    source = read_own(tmp_path / "x.jsonl")
    assert [i.id for i in source.items] == ["b"]
    assert [f.id for f in source.findings] == ["x.jsonl, line 1", "x.jsonl, line 2"]


@pytest.mark.parametrize("file", [".", "/", "..", "a\0b.jpg", "x" * 3000])
def test_a_path_that_is_none_is_left_out(file: str, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(json.dumps({"file": file, "text": "a dog", "id": "i"}) + "\n")
    (tmp_path / "y.jsonl").write_text(json.dumps({"file": file, "text": "a dog"}) + "\n")
    for name in ("x.jsonl", "y.jsonl"):
        source = read_own(tmp_path / name)
        give_splits(source.items, val=0.1, test=0.1)
        assert check(source).inputs == []


@pytest.mark.parametrize("content", ["", "a.jpg,a dog\n", "file,comment\na.jpg,x\n", "caption\na dog\n"])
def test_a_table_without_its_columns_shows_what_it_has(content: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(content)
    with pytest.raises(InputError, match="names no file and caption column"):
        read_own(tmp_path / "x.csv")


def test_pictures_and_clips_do_not_mix(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("file,caption\na.jpg,one\nb.mp4,two\n")
    with pytest.raises(InputError, match=r"pictures and clips \(a\.jpg, b\.mp4\)"):
        read_own(tmp_path / "x.csv")


def test_clips_are_known_by_their_suffix(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("video\tcaption\na.mp4\tone\nb.GIF\ttwo\n")
    assert read_own(tmp_path / "x.tsv").media == "clip"


def test_a_text_file_beside_each_picture(draw: Draw) -> None:
    folder = draw("mine", ["dog.jpg", "sub/cat.png", "silent.jpg"])
    (folder / "dog.txt").write_text("a dog\nthe dog\n")
    (folder / "sub/cat.txt").write_text("a cat")
    items = {i.id: (i.split, i.captions) for i in read_own(folder).items}
    assert items == {"dog": (None, ["a dog", "the dog"]), "sub/cat": (None, ["a cat"]), "silent": (None, [])}


def test_sub_folders_can_be_the_splits(draw: Draw) -> None:
    folder = draw("mine", ["train/a.jpg", "validation/b.jpg", "test/c.jpg", "else/d.jpg"])
    splits = {i.id: i.split for i in read_own(folder).items}
    assert splits == {"train/a": "train", "validation/b": "val", "test/c": "test", "else/d": None}


def test_a_folder_of_nothing_says_what_to_put_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no pictures or clips.*\n.*captions"):
        read_own(tmp_path)


# Splits


def test_splits_by_hash_never_change() -> None:
    """Golden: these ids were split like this the first time, and must be on every machine and in every version."""
    names = [f"picture-{i}" for i in range(12)]
    splits = [split_by_hash(name, val=0.2, test=0.2) for name in names]
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
    alone = {name: split_by_hash(name, val=val, test=test) for name in names}
    fewer = {name: split_by_hash(name, val=val, test=test) for name in sorted(names)[: len(names) // 2 + 1]}
    assert fewer.items() <= alone.items()


def test_shares_are_what_was_asked() -> None:
    counts = Counter(split_by_hash(str(i), val=0.1, test=0.2) for i in range(20_000))
    assert abs(counts["val"] / 20_000 - 0.1) < 0.01  # 5 standard deviations
    assert abs(counts["test"] / 20_000 - 0.2) < 0.015


def test_another_seed_splits_another_way() -> None:
    names = [str(i) for i in range(100)]
    assert [split_by_hash(n, val=0.3, test=0.3, seed=0) for n in names] != [
        split_by_hash(n, val=0.3, test=0.3, seed=1) for n in names
    ]


@given(count=st.integers(3, 40), seed=st.integers(0, 50))
@example(count=3, seed=39)  # one to train on, two in val: the test split's must come from val
def test_few_inputs_leave_no_split_empty(count: int, seed: int) -> None:
    items = [Item(f"i{n}", None, None, ["a"]) for n in range(count)]
    give_splits(items, val=0.1, test=0.1, seed=seed)
    assert {item.split for item in items} == {"train", "val", "test"}


@pytest.mark.parametrize(("val", "test"), [(0.5, 0.5), (-0.1, 0.1), (0.0, 1.0)])
def test_shares_that_leave_nothing_to_train_on(val: float, test: float) -> None:
    with pytest.raises(ConfigError, match="leave nothing to train on"):
        split_by_hash("a", val=val, test=test)

"""Your own data: tables and folders."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from caplore.data.importers.checking import check
from caplore.data.importers.own import read_own
from caplore.data.importers.splitting import ByHash
from caplore.errors import InputError

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
        assert check(source, by_hash=ByHash()).inputs == []


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


def test_a_folder_of_text_beside_pictures_ignores_what_is_hidden(draw: Draw) -> None:
    folder = draw("mine", ["a.jpg", "._a.jpg", "__MACOSX/._a.jpg", ".thumbnails/a.jpg"])
    assert [item.id for item in read_own(folder).items] == ["a"]


# Tables as spreadsheets, other systems and people write them


def test_a_caption_with_a_comma_but_no_quotes_is_left_out_not_cut(tmp_path: Path) -> None:
    """Its rest would be its split, or nothing."""
    (tmp_path / "x.csv").write_text("file,caption,split\na.jpg,a dog, running,train\nb.jpg,a cat,val,,\n")
    source = read_own(tmp_path / "x.csv")
    assert [(i.id, i.captions, i.split) for i in source.items] == [("b", ["a cat"], "val")]
    ((kind, where, detail),) = [(f.kind, f.id, f.detail) for f in source.findings]
    assert (kind, where) == ("malformed", "x.csv, line 2")
    assert detail.startswith("4 columns, 3 in the first line; a caption with a comma in it needs quotes")


@pytest.mark.parametrize(
    ("suffix", "between"), [(".csv", ","), (".csv", ";"), (".csv", "\t"), (".tsv", "\t")]
)
def test_a_quote_that_is_not_closed_takes_no_rows_with_it_in_silence(
    suffix: str, between: str, tmp_path: Path
) -> None:
    lines = [
        "file|caption",
        'a.jpg|"STOP it says',
        "b.jpg|a cat",
        'c.jpg|a sign that says "STOP"',
        "d.jpg|a cow",
    ]
    (tmp_path / f"x{suffix}").write_text("\n".join(lines).replace("|", between))
    source = read_own(tmp_path / f"x{suffix}")
    assert [(f.kind, f.id) for f in source.findings] == [("malformed", f"x{suffix}, lines 2 to 4")]
    assert [i.id for i in source.items] == ["d"]


def test_a_caption_of_several_lines_in_quotes_is_one(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text('file,caption\na.jpg,"a dog,\nrunning, fast"\nb.jpg,a cat\n')
    source = read_own(tmp_path / "x.csv")
    assert [i.captions for i in source.items] == [["a dog,\nrunning, fast"], ["a cat"]]
    assert source.findings == []


def test_a_spreadsheet_with_semicolons(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes("\ufeffImage;Caption\r\nhünd.jpg;a dog, running\r\n".encode())
    assert [(i.id, i.captions) for i in read_own(tmp_path / "x.csv").items] == [("hünd", ["a dog, running"])]


def test_lines_that_are_no_json_are_listed_and_the_others_read(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(
        '{"file": "a.jpg", "text": "a dog"}\n{"file": \n[1]\n\n{"id": "b", "text": "x"}'
    )
    source = read_own(tmp_path / "x.jsonl")
    assert [i.id for i in source.items] == ["a", "b"]
    assert [(f.kind, f.id) for f in source.findings] == [
        ("malformed", "x.jsonl, line 2"),
        ("malformed", "x.jsonl, line 3"),
    ]


def test_a_json_list_of_objects(tmp_path: Path) -> None:
    rows = [{"image": "a.jpg", "caption": ["a dog", "the dog"]}, 3, {"image": "b.jpg", "caption": "a cat"}]
    (tmp_path / "x.json").write_text(json.dumps(rows, indent=1))
    source = read_own(tmp_path / "x.json")
    assert {i.id: i.captions for i in source.items} == {"a": ["a dog", "the dog"], "b": ["a cat"]}
    assert [f.id for f in source.findings] == ["x.json[1]"]


def test_splits_are_known_by_their_usual_names(tmp_path: Path) -> None:
    names = ["Train", "TRAINING", "valid", "Validation", "dev", " test ", "Testing", "fold 3"]
    rows = [f"{number}.jpg,a caption,{name}" for number, name in enumerate(names)]
    (tmp_path / "x.csv").write_text("\n".join(["file,caption,split", *rows]))
    source = read_own(tmp_path / "x.csv")
    assert [i.split for i in source.items] == [
        "train",
        "train",
        "val",
        "val",
        "val",
        "test",
        "test",
        "fold 3",
    ]
    source.media = "none"
    assert [(f.kind, f.id, f.detail) for f in check(source).findings if f.kind == "odd-split"] == [
        ("odd-split", "fold 3", "1 inputs")
    ]


def test_rows_of_one_input_in_two_splits_are_said(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("file,caption,split\na.jpg,one,\na.jpg,two,val\na.jpg,three,train\n")
    source = read_own(tmp_path / "x.csv")
    assert [(i.split, i.captions) for i in source.items] == [("val", ["one", "two", "three"])]
    assert [(f.kind, f.id, f.detail) for f in source.findings] == [
        ("in-two-splits", "a", "val, and train by x.csv, line 4")
    ]


def test_paths_are_taken_relative_to_the_folder(draw: Draw, tmp_path: Path) -> None:
    """So that ids are the same wherever the folder is, and those that caplore caption gives."""
    folder = draw("mine", ["a.jpg", "sub/b.jpg"])
    (folder / "captions.csv").write_text(f"file,caption\n{folder / 'a.jpg'},a dog\nsub\\b.jpg,a cat\n")
    assert [(i.id, i.file) for i in read_own(folder).items] == [("a", "a.jpg"), ("sub/b", "sub/b.jpg")]


def test_kaggle_s_flickr8k(draw: Draw) -> None:
    folder = draw("flickr", ["Images/1.jpg", "Images/2.jpg"])
    (folder / "captions.txt").write_text("image,caption\n1.jpg,A dog .\n2.jpg,A cat .\n1.jpg,The dog .\n")
    assert [(i.id, i.file) for i in check(read_own(folder), by_hash=ByHash()).inputs] == [
        ("1", folder / "Images/1.jpg"),
        ("2", folder / "Images/2.jpg"),
    ]

"""Every kind of trouble is found, and nothing is dropped in silence."""

import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caplore.data.dataset import Media
from caplore.data.importers.checking import KINDS, check, oddity, report, summary
from caplore.data.importers.source import Finding, Item, Source

Draw = Callable[[str, Sequence[str]], Path]


def source(items: Sequence[Item], folder: Path | None = None, media: Media = "image") -> Source:
    return Source("mine", media, list(items), folder)


def text_only(*captions: str) -> Source:
    return source([Item("a", "train", None, list(captions), "x.csv, line 2")], media="none")


def kinds(given: Source, **options: object) -> Counter[str]:
    return Counter(finding.kind for finding in check(given, **options).findings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("caption", "reason"),
    [
        ("a dog", None),
        ("Ein Hund läuft über die Wiese.", None),
        ("一只狗在草地上 跑", None),
        ("a dog " * 31, "62 words"),
        ("dog", "1 word"),
        ("12 34 !", "no letters"),
        ("a <b>dog</b> runs", "markup"),
        ("a dog &amp; a cat", "markup"),
        ("see http://example.org now", "an address"),
        ("a caf\ufffd in Paris", "wrongly decoded characters"),
        ("a cafÃ© in Paris", "wrongly decoded characters"),
        ("a man who is < 3 years old", None),
    ],
)
def test_what_is_odd_about_a_caption(caption: str, reason: str | None) -> None:
    assert oddity(caption) == reason


def test_captions_are_mended_counted_and_said() -> None:
    checked = check(text_only("a  dog\nruns", " ", "", "a dog runs", "zero\u200bwidth here", "fine as it is"))
    assert checked.inputs[0].captions == ("a dog runs", "a dog runs", "zero width here", "fine as it is")
    assert Counter(f.kind for f in checked.findings) == {
        "spaces": 2,
        "empty-caption": 2,
        "repeated-caption": 1,
    }


@given(st.lists(st.text(max_size=30), max_size=6))
@settings(deadline=None)
def test_a_caption_that_is_kept_is_one_clean_line(captions: list[str]) -> None:
    for item in check(text_only(*captions)).inputs:
        for caption in item.captions:
            assert caption
            assert caption == " ".join(caption.split())
            assert all(ord(character) >= 32 for character in caption)


def test_inputs_that_cannot_be_used_are_left_out_and_named(draw: Draw) -> None:
    folder = draw("pictures", ["a.png", "b.png", "c.png"])
    items = [
        Item("a", "train", "a.png", ["a good one"]),
        Item("b", None, "b.png", ["in no split"]),
        Item("c", "train", "c.png", []),
        Item("d", "val", "d.png", ["of a missing file"]),
        Item("e", "val", None, ["of no file"]),
    ]
    checked = check(source(items, folder))
    assert [item.id for item in checked.inputs] == ["a"]
    assert {(f.kind, f.id) for f in checked.findings} == {
        ("no-split", "b"),
        ("no-caption", "c"),
        ("missing-file", "d"),
        ("missing-file", "e"),
    }


def test_with_features_the_files_may_be_missing(draw: Draw) -> None:
    folder = draw("pictures", ["a.png"])
    items = [Item("a", "train", "a.png", ["one here"]), Item("b", "train", "b.png", ["one gone"])]
    checked = check(source(items, folder), needs_media=False)
    assert [(item.id, item.file is None) for item in checked.inputs] == [("a", False), ("b", True)]
    assert checked.media == "image"
    assert [(f.kind, f.id) for f in checked.findings] == [("media-missing", "b")]
    assert check(source(items[1:], folder), needs_media=False).media == "none"


def test_a_file_is_found_flat_or_with_another_suffix(draw: Draw) -> None:
    folder = draw("pictures", ["COCO_1.jpg", "two.png"])
    items = [
        Item("1", "train", "val2014/COCO_1.jpg", ["first one"]),
        Item("2", "train", "two.jpg", ["second one"]),
    ]
    assert [str(i.file) for i in check(source(items, folder)).inputs] == [
        str(folder / "COCO_1.jpg"),
        str(folder / "two.png"),
    ]


def test_a_file_is_found_in_another_case_another_unicode_form_or_a_folder_further_in(draw: Draw) -> None:
    """Cameras write .JPG, macOS takes accents apart, archives have a folder in them; a guess between two is none."""
    apart = unicodedata.normalize("NFD", "café.jpg")
    folder = draw("pictures", ["ONE.JPG", apart, "images/three.jpg", "x/four.jpg", "y/four.jpg", ".five.jpg"])
    names = ["one.jpg", "café.jpg", "three.jpg", "four.jpg", "z/three.jpg", "five.jpg"]
    checked = check(source([Item(name, "train", name, [f"a picture {name}"]) for name in names], folder))
    assert {i.id: i.file for i in checked.inputs} == {
        "one.jpg": folder / "ONE.JPG",
        "café.jpg": folder / apart,
        "three.jpg": folder / "images/three.jpg",
    }
    assert [f.id for f in checked.findings if f.kind == "missing-file"] == names[3:]


def test_what_a_look_says_is_listed_with_the_id(draw: Draw) -> None:
    folder = draw("gifs", ["a.gif", "b.gif", "c.gif"])
    trouble = {"b": Finding("still", "", "1 frame"), "c": Finding("unreadable-file", "", "an empty file")}
    items = [Item(n, "test", f"{n}.gif", ["a clip"]) for n in "abc"]
    checked = check(source(items, folder, "clip"), look=lambda path, media: trouble.get(path.stem))
    assert [i.id for i in checked.inputs] == ["a"]
    assert [(f.kind, f.id, f.detail) for f in checked.findings] == [
        ("unreadable-file", "c", "an empty file"),
        ("still", "b", "1 frame"),
    ]


def test_the_same_picture_in_two_splits_is_a_leak(draw: Draw) -> None:
    folder = draw("pictures", ["a.png", "b.png", "c.png", "d.png", "e.png"])
    (folder / "b.png").write_bytes((folder / "a.png").read_bytes())
    (folder / "d.png").write_bytes((folder / "c.png").read_bytes())
    splits = {"a": "train", "b": "test", "c": "train", "d": "train", "e": "test"}
    items = [Item(n, split, f"{n}.png", [f"picture {n}"]) for n, split in splits.items()]
    checked = check(source(items, folder))
    assert len(checked.inputs) == 5
    assert [(f.kind, f.id, f.detail) for f in checked.findings] == [
        ("leak", "b", "test; the same as a (train)"),
        ("same-file", "d", "train; the same as c (train)"),
    ]


def test_files_that_differ_at_their_end_only_are_not_the_same(tmp_path: Path) -> None:
    for name, last in (("a", b"1"), ("b", b"2"), ("c", b"1")):
        (tmp_path / f"{name}.png").write_bytes(b"0" * 40_000 + last)
    items = [Item(n, "train", f"{n}.png", [f"picture {n}"]) for n in "abc"]
    findings = check(source(items, tmp_path)).findings
    assert [(f.kind, f.id) for f in findings] == [("same-file", "c")]


def test_records_with_the_same_id() -> None:
    items = [
        Item("a", "train", None, ["one caption"]),
        Item("a", "train", None, ["another caption"]),
        Item("b", "train", None, ["a caption of b"]),
        Item("b", "test", None, ["the same b"]),
        Item("c", "train", "c.jpg", ["a caption of c"]),
        Item("c", "train", "d.jpg", ["another c"]),
    ]
    checked = check(source(items, media="none"))
    assert {i.id: i.captions for i in checked.inputs}["a"] == ("one caption", "another caption")
    assert {i.id: i.split for i in checked.inputs}["b"] == "train"
    assert [(f.kind, f.id) for f in checked.findings] == [("in-two-splits", "b"), ("duplicate-id", "c")]


def test_a_caption_that_many_inputs_have() -> None:
    items = [Item(str(i), "train", None, ["an image", f"number {i} of many"]) for i in range(10)]
    assert [(f.id, f.detail) for f in check(source(items, media="none")).findings] == [
        ("an image", "10 inputs")
    ]


def test_the_gravest_stand_first_and_everything_is_counted(draw: Draw) -> None:
    folder = draw("pictures", ["a.png", "b.png"])
    (folder / "b.png").write_bytes((folder / "a.png").read_bytes())
    items = [Item("a", "train", "a.png", ["dog", "dog"]), Item("b", "val", "b.png", ["a cat", "<p> cat"])]
    items += [Item(f"gone {i}", "val", f"{i}.png", ["a cat"]) for i in range(9)]
    checked = check(source(items, folder))
    text = summary(checked, examples=2)
    lines = text.splitlines()
    assert lines[1].split() == ["train", "1", "2", "2", "1.0"]
    assert lines[2].split() == ["val", "1", "2", "2", "2.0"]
    assert text.index("in two splits") < text.index("the file is not there") < text.index("looks odd")
    assert "9  the file is not there [left out]" in text
    assert "... and 7 more" in text
    whole = report(checked)
    assert whole["found"]["missing-file"]["count"] == len(whole["found"]["missing-file"]["all"]) == 9
    assert whole["splits"] == {"train": 1, "val": 1}


def test_nothing_wrong_is_said_too() -> None:
    assert "nothing wrong or odd was found" in summary(check(text_only("a fine caption")))


def test_every_kind_that_is_used_is_explained() -> None:
    """A finding of a kind without a line in KINDS would break the report."""
    room = Path(__file__).parents[3] / "src/caplore"
    files = [*(room / "data/importers").glob("*.py"), room / "cli/data_import.py"]
    used = {
        text.split('"')[1]
        for file in files
        for text in file.read_text().split("Finding(")[1:]
        if text.lstrip().startswith('"')
    }
    assert used
    assert used <= set(KINDS)

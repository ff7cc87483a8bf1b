"""Every format, every oddity, and no file whatsoever that ends in another exception than InputError."""

import gzip
import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caplore.data.dataset import Input, write_dataset
from caplore.errors import InputError
from caplore.evaluation.caption_formats import Role, _Json
from caplore.evaluation.captions_io import Captions, captions_from, gather, pair, read_captions

TWO = {"1": ["a cat"], "2": ["a dog", "two dogs"]}
RESULTS = [
    {"image_id": 1, "caption": "a cat"},
    {"image_id": 2, "caption": "a dog"},
    {"image_id": 2, "caption": "two dogs"},
]
SAME = {  # the same two inputs, in every format
    "results.json": json.dumps(RESULTS),
    "annotations.json": json.dumps({"images": [{"id": 1}, {"id": 2}], "annotations": RESULTS}),
    "karpathy.json": json.dumps(
        {
            "images": [
                {"cocoid": 1, "split": "test", "sentences": [{"raw": "a cat", "tokens": []}]},
                {"cocoid": 2, "split": "test", "sentences": [{"raw": "a dog"}, {"raw": "two dogs"}]},
            ]
        }
    ),
    "msrvtt.json": json.dumps(
        {
            "videos": [{"video_id": "1"}],
            "sentences": [{"video_id": str(r["image_id"]), "caption": r["caption"]} for r in RESULTS],
        }
    ),
    "mapping.json": json.dumps({"1": "a cat", "2": ["a dog", "two dogs"]}),
    "of_objects.json": json.dumps({"1": [{"caption": "a cat"}], "2": [{"caption": c} for c in TWO["2"]]}),
    "records.json": json.dumps([{"_id": 1.0, "captions": ["a cat"]}, {"_id": 2.0, "captions": TWO["2"]}]),
    "positions.json": json.dumps([["a cat"], ["a dog", "two dogs"]]),
    "lines.jsonl": "\n".join(json.dumps(row) for row in RESULTS) + "\n\n",
    "lines_called.json": "\n".join(json.dumps(row) for row in RESULTS),
    "table.csv": 'id,caption\n1,a cat\n2,"a dog"\n2,two dogs\n',
    "wide.csv": "image_id,caption_1,caption_2\r\n1,a cat,\r\n2,a dog,two dogs\r\n",
    "table.tsv": "filename\tcaption\tsplit\n1\ta cat\ttest\n2\ta dog\ttest\n2\ttwo dogs\ttest\n",
    "tabs.txt": "1#0\ta cat\n2#0\ta dog\n2#1\ttwo dogs\n",
}


@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize("role", ["candidates", "references"])
def test_every_format_says_the_same(name: str, role: Role, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text("\ufeff" + SAME[name] if name.endswith("csv") else SAME[name], encoding="utf-8")
    assert read_captions([path], role).of == TWO


def test_a_data_set_and_its_splits(tmp_path: Path) -> None:
    inputs = [Input("1", "test", None, ("a cat",)), Input("9", "train", None, ("a bus",))]
    write_dataset(tmp_path / "set", name="x", media="none", inputs=inputs)
    assert read_captions([f"{tmp_path}/set"], "references").of == {"1": ["a cat"], "9": ["a bus"]}
    assert read_captions([f"{tmp_path}/set:test"], "references").of == {"1": ["a cat"]}
    with pytest.raises(InputError, match="no split 'val'"):
        read_captions([f"{tmp_path}/set:val"], "references")


def test_a_split_of_karpathys_file(tmp_path: Path) -> None:
    value = json.loads(SAME["karpathy.json"])
    value["images"][0]["split"] = "train"
    path = tmp_path / "k.json"
    path.write_text(json.dumps(value))
    assert list(read_captions([f"{path}:test"], "references").of) == ["2"]
    with pytest.raises(InputError, match=r"no entries of split 'val'\n  fix: one of 'test', 'train'"):
        read_captions([f"{path}:val"], "references")


def test_what_a_run_said_by_way_of_decoding(tmp_path: Path) -> None:
    path = tmp_path / "test.captions.jsonl"
    row = {
        "id": "1",
        "beam": [{"caption": "a cat", "logprob": -1.0}],
        "rs": [{"caption": "x"}, {"caption": "y"}],
    }
    path.write_text(json.dumps(row))
    assert read_captions([f"{path}:rs"], "candidates").of == {"1": ["x", "y"]}
    with pytest.raises(InputError, match=r"ways of decoding: .*test\.captions\.jsonl:beam"):
        read_captions([path], "candidates")


def test_plain_text_files_stand_side_by_side(tmp_path: Path) -> None:
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_text("a cat\na dog\n")
    second.write_text("\ntwo dogs")
    assert read_captions([first, second], "references").of == TWO
    second.write_text("a cat\n")
    with pytest.raises(InputError, match=r"different numbers of lines .*a.txt: 2, .*b.txt: 1"):
        read_captions([first, second], "references")


def test_one_file_may_hold_both_sides(shared: Path) -> None:
    path = shared / "data/fixtures/fakecap.json"
    candidates, references = read_captions([path], "candidates"), read_captions([path], "references")
    assert len(candidates) == len(references) == 1000
    assert {len(captions) for captions in references.of.values()} == {5, 6}
    assert {len(captions) for captions in candidates.of.values()} == {1}


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 50),
    st.floats(0, 9),
    st.text("ab 1\n", max_size=4),
    st.just(10**5000),
)
KEYS = st.sampled_from(
    [("image_id", "caption"), ("caption", "id"), ("id", "image_id", "caption", "text"), ("caption",)]
)


@given(KEYS, st.data(), st.sampled_from(["candidates", "references"]))
@settings(deadline=None)
def test_records_that_are_alike_are_read_as_one_by_one(
    keys: tuple[str, ...], data: st.DataObject, role: Role
) -> None:
    records = data.draw(st.lists(st.fixed_dictionaries(dict.fromkeys(keys, VALUES)), min_size=1, max_size=5))
    results = []
    for alike in (_Json._alike, lambda *_: None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_Json, "_alike", alike)
            try:
                results.append(_Json("x", role, None).rows(records))
            except InputError as error:
                results.append(str(error))
    assert results[0] == results[1]


def test_oddities_are_counted_with_first_examples() -> None:
    rows = [("7", "a\ncat"), ("8", "a\r\ndog\u2028here"), ("9", "half \ud83d"), ("10", " "), ("10", "x")]
    read = gather(rows, "c.json", "candidates")
    assert read.of == {"7": ["a cat"], "8": ["a dog here"], "9": ["half \ufffd"], "10": ["", "x"]}
    assert read.notes == [
        "c.json: 2 captions hold line breaks: read as spaces (first: '7', '8')",
        "c.json: 1 captions hold half a character (a lone surrogate): replaced (first: '9')",
        "c.json: 1 candidates are empty: kept, they score 0 (first: '10')",
        "c.json: 1 of 4 ids have another number of captions than the usual 1 (first: '10')",
    ]
    assert gather(rows, "c.json", "references").of["10"] == ["x"], "an empty reference is none"


def test_an_id_written_twice_is_said() -> None:
    rows = [*((str(i), "a cat") for i in range(9)), ("3", "a cat")]
    (note,) = gather(rows, "c.json", "candidates").notes
    assert "1 of 9 ids have another number of captions than the usual 1" in note
    assert "1 of them repeat a caption word for word (first: '3')" in note
    (note,) = gather([("1", "a cat"), ("1", "a cat"), ("2", "a dog")], "c.json", "candidates").notes
    assert "than the usual 1 (first: '1'); 1 of them repeat" in note, "of two sizes as frequent, the smaller"
    sets = gather([(str(i), "a cat") for i in range(9) for _ in range(5)], "c", "candidates")
    assert sets.notes == [], "a set that repeats itself is what a collapsed model says, not a mistake"


def captions(of: dict[str, list[str]], by_position: bool = False) -> Captions:
    return Captions(of, "f", by_position)


def test_ids_on_one_side_only_are_left_out_and_said() -> None:
    candidates = captions({"b": ["x"], "a": ["y"], "lone": ["z"], "bare": ["z"]})
    references = captions({"a": ["r"], "b": ["r"], "bare": [], "s1": ["r"], "s2": ["r"]})
    paired = pair(candidates, references)
    assert paired.ids == ["b", "a"]
    assert paired.notes == [
        "1 of 4 ids of the candidates are not in the references (first: 'lone'): left out",
        "1 of 4 inputs have only empty references (first: 'bare'): left out",
        "2 of 5 inputs of the references have no candidate (first: 's1', 's2'): left out",
    ]


def test_line_numbers_that_are_taken_for_ids_are_said() -> None:
    named, lines = captions({"2": ["x"], "1": ["y"]}), captions({"1": ["r"], "2": ["s"]}, by_position=True)
    for paired in (pair(named, lines), pair(lines, named)):
        (note,) = paired.notes
        assert (
            "names no ids, so its lines, counted from 1, were taken for the ids of f (first: '2', '1')"
            in note
        )
    assert pair(lines, lines).notes == pair(named, named).notes == []


def test_nothing_in_common_shows_both_sides() -> None:
    with pytest.raises(InputError, match=r"first: 'COCO_val2014_000000000042.jpg'.*first: '42'"):
        pair(captions({"COCO_val2014_000000000042.jpg": ["x"]}), captions({"42": ["y"]}))
    with pytest.raises(InputError, match="2 lines, f 1, and without ids they are matched line by line"):
        pair(captions({"1": ["x"], "2": ["y"]}, by_position=True), captions({"1": ["x"]}, by_position=True))


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.json", b"[1, 2", "is not valid JSON"),
        ("a.jsonl", b'{"id": 1, "caption": "x"}\n{"id": 2,\n', "line 2"),
        ("a.json", b"12", "neither a list nor an object"),
        ("a.json", b"[12]", "entry 1 has no caption: '12'"),
        ("a.json", b'[{"id": 1}]', "entry 1 has no caption"),
        ("a.json", b'[{"id": true, "caption": "x"}]', "its id is 'true'"),
        ("a.json", b'[{"id": 1, "caption": "x"}, {"caption": "y"}]', "1 of 2 entries have no id"),
        ("a.json", b'{"1": 3}', "neither a string nor a list of strings"),
        ("a.json", b'{"images": [], "annotations": []}', "has no captions in it"),
        ("a.json", b'{"format": "caplore-evaluation-1"}', "holds results"),
        ("a.json", b"[" * 100_000, "not valid JSON"),
        ("a.json", b'[{"id": 1' + b"0" * 5000 + b', "caption": "x"}]', "not valid JSON"),
        ("a.csv", b"id,words\n1,x\n", "no column of captions"),
        ("a.csv", b"id,caption\n1,a man, a plan\n", "line 2 has 3 cells, the header 2"),
        ("a.csv", b'id,caption\n1,"' + b"x" * 200_000 + b'"\n', "not a table row"),
        ("a.csv", b"", "no column of captions"),
        ("a.txt", b"", "holds no captions"),
        ("a.txt", b"\n\n\n", "holds no captions"),
        ("a.txt", "café".encode("latin1"), "not UTF-8"),
        ("a.txt", "a cat".encode("utf-16"), "iconv -f utf-16"),
        ("a.json.gz", gzip.compress(b'{"1": "a cat"}', mtime=0), "gunzip -k"),
        ("a.zip", b"PK\x03\x04 and so on", "unzip"),
        ("x" * 300, None, "cannot be read"),
        ("nothing.json", None, "not found"),
    ],
)
def test_a_broken_file_is_said_in_one_sentence(
    name: str, content: bytes | None, says: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_captions([tmp_path / name], "candidates")
    assert says in str(caught.value)
    assert len(str(caught.value)) < 800


def test_python_values_are_taken_as_they_are(tmp_path: Path) -> None:
    assert captions_from({1: "a cat", 2: ["a dog", "two dogs"]}, "candidates").of == TWO
    assert captions_from(["a cat", ["a dog", "two dogs"]], "candidates").of == TWO
    assert captions_from([["a cat"], ["a dog", "two dogs"]], "references").by_position
    (tmp_path / "r.json").write_text(SAME["results.json"])
    assert captions_from([tmp_path / "r.json"], "references").of == TWO
    with pytest.raises(ValueError, match="not a int"):
        captions_from(7, "candidates")


SEEDS = [content.encode() for content in SAME.values()]


def damaged(rng: random.Random) -> bytes:
    """Random bytes, or a good file with bytes changed, cut or doubled."""
    if rng.random() < 0.3:
        return rng.randbytes(rng.randrange(200))
    data = bytearray(rng.choice(SEEDS))
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(4):
            case 0:
                data[at : at + 1] = rng.randbytes(1)
            case 1:
                del data[at : at + rng.randrange(20)]
            case 2:
                data[at:at] = rng.choice(
                    [b'"', b"{", b"[", b"\n", b",", b"\t", b"\x00", b"null", b"\\ud800", b"1e999"]
                )
            case 3:
                data[at:at] = data[at : at + rng.randrange(40)]
    return bytes(data)


def read_or_refuse(seed: int, folder: Path) -> None:
    rng = random.Random(seed)
    path = folder / f"f{rng.choice(['.json', '.jsonl', '.csv', '.tsv', '.txt', ''])}"
    path.write_bytes(damaged(rng))
    try:
        read = read_captions([path], rng.choice(["candidates", "references"]))
    except InputError:
        return
    assert any(any(texts) for texts in read.of.values())
    for texts in read.of.values():
        "\n".join(texts).encode()  # every caption can be written again
        assert not any("\n" in text for text in texts)


@given(st.integers(0, 2**32))
@settings(deadline=None, max_examples=300)
def test_any_bytes_are_read_or_refused(seed: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        read_or_refuse(seed, Path(folder))


@pytest.mark.slow
def test_ten_thousand_files_are_read_or_refused(tmp_path: Path) -> None:
    for seed in range(10_000):
        read_or_refuse(seed, tmp_path)

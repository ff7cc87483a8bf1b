"""Each reader on files written as their authors write them, with the mistakes that are found in them."""

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caplore.cli.data_import import read
from caplore.data.importers.checking import check
from caplore.data.importers.coco import read_coco
from caplore.data.importers.flickr import read_flickr8k
from caplore.data.importers.proxy import read_coco_proxy
from caplore.data.importers.source import Item, Source
from caplore.data.importers.tgif import read_tgif
from caplore.data.importers.video import read_msrvtt, read_msvd
from caplore.errors import InputError


def found(source: Source) -> dict[str, tuple[str | None, str | None, list[str]]]:
    return {item.id: (item.split, item.file, item.captions) for item in source.items}


def kinds(source: Source) -> list[tuple[str, str]]:
    return [(finding.kind, finding.id) for finding in source.findings]


def save(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


# COCO


def official(images: Sequence[tuple[int, str]], captions: Sequence[tuple[int, str]]) -> dict[str, object]:
    return {
        "images": [{"id": number, "file_name": file} for number, file in images],
        "annotations": [{"image_id": number, "caption": text} for number, text in captions],
    }


def test_coco_official_takes_the_split_and_the_folder_from_the_file(tmp_path: Path) -> None:
    train = official([(1, "one.jpg"), (2, "two.jpg")], [(1, "a cat"), (2, "a dog"), (1, "the cat")])
    save(tmp_path / "annotations/captions_train2014.json", train)
    save(
        tmp_path / "annotations/captions_val2014.json",
        official([(3, "three.jpg")], [(3, "a hat"), (9, "a ghost")]),
    )
    save(tmp_path / "annotations/instances_train2014.json", "not looked at")
    (tmp_path / "train2014").mkdir()
    source = read_coco(tmp_path)
    assert found(source) == {
        "1": ("train", "train2014/one.jpg", ["a cat", "the cat"]),
        "2": ("train", "train2014/two.jpg", ["a dog"]),
        "3": ("val", "three.jpg", ["a hat"]),
    }
    assert kinds(source) == [("caption-of-nothing", "9")]


def test_coco_records_that_are_none_are_listed(tmp_path: Path) -> None:
    content = official([(1, "one.jpg")], [(1, "a cat")])
    content["images"] += [{"id": 2}, "three"]  # type: ignore[operator]
    content["annotations"] += [{"caption": "whose?"}]  # type: ignore[operator]
    source = read_coco(save(tmp_path / "captions_val2017.json", content))
    assert list(found(source)) == ["1"]
    assert kinds(source) == [
        ("malformed", "captions_val2017.json annotations[1]"),
        ("malformed", "captions_val2017.json images[1]"),
        ("malformed", "captions_val2017.json images[2]"),
    ]


def test_karpathy_trains_on_restval(tmp_path: Path) -> None:
    def image(split: str, number: int) -> dict[str, object]:
        return {
            "filepath": "val2014",
            "filename": f"COCO_val2014_{number}.jpg",
            "cocoid": number,
            "split": split,
            "sentences": [{"raw": f"picture {number}", "tokens": []}],
        }

    images = [image("train", 1), image("restval", 2), image("val", 3), image("test", 4), {"split": "train"}]
    save(tmp_path / "dataset_coco.json", {"dataset": "coco", "images": images})
    source = read_coco(tmp_path)
    assert {i: split for i, (split, _, _) in found(source).items()} == {
        "1": "train",
        "2": "train",
        "3": "val",
        "4": "test",
    }
    assert found(source)["2"][1:] == ("val2014/COCO_val2014_2.jpg", ["picture 2"])
    assert kinds(source) == [("malformed", "dataset_coco.json images[4]")]


def test_karpathy_s_flickr_is_named_by_its_files(tmp_path: Path) -> None:
    image = {"filename": "123_ab.jpg", "split": "test", "sentences": [{"raw": "A dog ."}]}
    source = read_coco(save(tmp_path / "dataset_flickr30k.json", {"dataset": "flickr30k", "images": [image]}))
    assert source.name == "flickr30k"
    assert found(source) == {"123_ab": ("test", "123_ab.jpg", ["A dog ."])}


def test_of_karpathy_s_three_files_the_one_that_is_meant_is_read(tmp_path: Path) -> None:
    for name in ("coco", "flickr8k", "flickr30k"):
        image = {"filename": f"{name}.jpg", "split": "test", "sentences": [{"raw": "A dog ."}]}
        save(tmp_path / f"dataset_{name}.json", {"dataset": name, "images": [image]})
    for name in ("coco", "flickr8k", "flickr30k"):
        source = read(name, tmp_path, None)
        assert (source.name, [item.id for item in source.items]) == (name, [name])


def test_coco_s_annotations_folder_has_its_pictures_beside_it(tmp_path: Path) -> None:
    (tmp_path / "val2017").mkdir()
    (tmp_path / "annotations").mkdir()
    content = {
        "images": [{"id": 1, "file_name": "1.jpg"}],
        "annotations": [{"image_id": 1, "caption": "A dog."}],
    }
    path = save(tmp_path / "annotations/captions_val2017.json", content)
    for where in (path, tmp_path / "annotations", tmp_path):
        source = read_coco(where)
        assert (source.media_folder, source.items[0].file) == (tmp_path, "val2017/1.jpg")


def test_boxes_are_no_captions(tmp_path: Path) -> None:
    content = {
        "images": [{"id": 1, "file_name": "1.jpg"}],
        "annotations": [{"image_id": 1, "bbox": [0, 0, 1, 1]}],
    }
    with pytest.raises(InputError, match=r"none of its 1 annotations has a caption\n.*captions_train2014"):
        read_coco(save(tmp_path / "instances_val2017.json", content))


@pytest.mark.parametrize("content", ["[]", '{"images": 3}', "{", '"words"'])
def test_json_that_is_not_coco(content: str, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        read_coco(save(tmp_path / "captions_val2017.json", content))


def test_a_folder_without_captions_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"dataset_coco\.json, captions_\*\.json"):
        read_coco(tmp_path)


# Flickr8k


def test_flickr8k_joins_tokens_and_lists(tmp_path: Path) -> None:
    tokens = "a.jpg#0\tA dog .\na.jpg#1\tThe dog .\nb.jpg#0\tA cat .\nc.jpg.1#0\tOdd name .\nno tab here\n"
    save(tmp_path / "Flickr8k.token.txt", tokens)
    save(tmp_path / "Flickr_8k.trainImages.txt", "a.jpg\nlost.jpg\n")
    save(tmp_path / "Flickr_8k.devImages.txt", "b.jpg\na.jpg\n")
    (tmp_path / "Flicker8k_Dataset").mkdir()
    source = read_flickr8k(tmp_path)
    assert found(source) == {
        "a.jpg": ("train", "a.jpg", ["A dog .", "The dog ."]),
        "b.jpg": ("val", "b.jpg", ["A cat ."]),
        "c.jpg.1": (None, "c.jpg.1", ["Odd name ."]),
    }
    assert source.media_folder == tmp_path / "Flicker8k_Dataset"
    assert sorted(kinds(source)) == [
        ("in-two-splits", "a.jpg"),
        ("malformed", "Flickr8k.token.txt, line 5"),
        ("not-captioned", "lost.jpg"),
    ]


# TGIF


def test_tgif_is_named_by_its_files(tmp_path: Path) -> None:
    base = "https://38.media.tumblr.com"
    rows = [
        f"{base}/9f/tumblr_one_500.gif\ta man is glaring",
        f"{base}/8e/tumblr_two_400.gif\ta cat jumps",
        f"{base}/8e/tumblr_two_400.gif\tthe cat is jumping",
        f"{base}/77/tumblr_one_500.gif\tanother address for the same name",
        "no tab",
    ]
    save(tmp_path / "data/tgif-v1.0.tsv", "\n".join(rows))
    save(tmp_path / "data/splits/train.txt", f"{base}/9f/tumblr_one_500.gif\n")
    save(tmp_path / "data/splits/test.txt", f"{base}/8e/tumblr_two_400.gif\n{base}/00/tumblr_gone_1.gif\n")
    source = read_tgif(tmp_path)
    assert source.media == "clip"
    assert found(source) == {
        "tumblr_one_500": ("train", "tumblr_one_500.gif", ["a man is glaring"]),
        "tumblr_two_400": ("test", "tumblr_two_400.gif", ["a cat jumps", "the cat is jumping"]),
    }
    assert sorted(kinds(source)) == [
        ("duplicate-id", "tumblr_one_500.gif"),
        ("malformed", "tgif-v1.0.tsv, line 5"),
        ("not-captioned", "tumblr_gone_1.gif"),
    ]


# MSVD and MSR-VTT


def test_msvd_descriptions_and_lists(tmp_path: Path) -> None:
    text = "# a comment\nvid_0_5 a squirrel eats\nvid_0_5 a chipmunk eats\nother_3_9 a man sings\nlonely\n"
    save(tmp_path / "AllVideoDescriptions.txt", text)
    save(tmp_path / "train_list.txt", "vid_0_5\n")
    save(tmp_path / "valid_list.txt", "other_3_9\n")
    source = read_msvd(tmp_path)
    assert found(source) == {
        "vid_0_5": ("train", "vid_0_5.avi", ["a squirrel eats", "a chipmunk eats"]),
        "other_3_9": ("val", "other_3_9.avi", ["a man sings"]),
    }
    assert kinds(source) == [("malformed", "AllVideoDescriptions.txt, line 5")]


def test_msvd_corpus_keeps_english_and_splits_by_the_usual_counts(tmp_path: Path) -> None:
    rows = ["VideoID,Start,End,WorkerID,Source,AnnotationTime,Language,Description"]
    rows += [f"v{i},0,9,1,clean,2,English,clip {i}" for i in range(1302)]
    rows += ['v0,0,9,1,clean,2,German,"ein Clip"', "v0,0,9,1,clean,2,English,"]
    save(tmp_path / "video_corpus.csv", "\n".join(rows))
    numbered = [f"v{i}_0_9 vid{i + 1}" for i in range(1302)]
    save(tmp_path / "youtube_mapping.txt", "\n".join(sorted(numbered)))
    splits = {i: split for i, (split, _, _) in found(read_msvd(tmp_path)).items()}
    assert [splits[f"v{i}_0_9"] for i in (0, 1199, 1200, 1299, 1300)] == [
        "train",
        "train",
        "val",
        "val",
        "test",
    ]
    assert found(read_msvd(tmp_path))["v0_0_9"][2] == ["clip 0"]


def test_msvd_corpus_without_its_columns(tmp_path: Path) -> None:
    save(tmp_path / "video_corpus.csv", "a,b\n1,2\n")
    with pytest.raises(InputError, match="no column 'Language'"):
        read_msvd(tmp_path)


def test_msrvtt_joins_videos_and_sentences(tmp_path: Path) -> None:
    videos = [
        {"video_id": "video0", "split": "train"},
        {"video_id": "video1", "split": "validate"},
        {"split": "test"},
    ]
    sentences = [
        {"video_id": "video1", "caption": "a man drives"},
        {"video_id": "video1", "caption": "a car moves"},
        {"video_id": "video0", "caption": "a woman sings"},
        {"video_id": "video9", "caption": "whose?"},
        3,
    ]
    save(tmp_path / "train_val_videodatainfo.json", {"videos": videos, "sentences": sentences})
    source = read_msrvtt(tmp_path)
    assert found(source) == {
        "video0": ("train", "video0.mp4", ["a woman sings"]),
        "video1": ("val", "video1.mp4", ["a man drives", "a car moves"]),
    }
    assert [kind for kind, _ in kinds(source)] == ["malformed", "caption-of-nothing", "malformed"]


@pytest.mark.parametrize("content", ["[]", '{"videos": []}'])
def test_json_that_is_not_msrvtt(content: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not an MSR-VTT file"):
        read_msrvtt(save(tmp_path / "x_videodatainfo.json", content))


# coco-proxy


@pytest.mark.parametrize("name", ["captions.jsonl", "captions.jsonl.gz"])
def test_coco_proxy_zipped_or_not(name: str, tmp_path: Path) -> None:
    content = b'{"id": 9, "split": "train", "captions": ["a meal"]}\n{"id": 1}\nnonsense\n'
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    source = read_coco_proxy(tmp_path)
    assert found(source) == {"9": ("train", None, ["a meal"])}
    assert kinds(source) == [("malformed", f"{name}, line 2"), ("malformed", f"{name}, line 3")]


def test_a_broken_archive_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "captions.jsonl.gz").write_bytes(b"not gzip")
    with pytest.raises(InputError, match="cannot be read"):
        read_coco_proxy(tmp_path)


@pytest.mark.parametrize("read", [read_flickr8k, read_tgif, read_msvd, read_msrvtt, read_coco_proxy])
def test_an_empty_folder_says_what_is_missing(read, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match="looked for"):
        read(tmp_path)


# The real ones


def test_the_real_flickr8k(shared: Path) -> None:
    source = read_flickr8k(shared / "data/flickr8k")
    splits = [item.split for item in source.items]
    assert (splits.count("train"), splits.count("val"), len(splits)) == (6000, 1000, 7000)
    assert all(len(item.captions) == 5 for item in source.items)
    assert source.findings == []


def test_the_real_msvd(shared: Path) -> None:
    source = read_msvd(shared / "data/msvd")
    splits = [item.split for item in source.items]
    assert (splits.count("train"), splits.count("val"), len(splits)) == (1200, 100, 1300)


def test_the_real_coco(shared: Path) -> None:
    source = read_coco(shared / "data/coco-mini")
    assert len(source.items) == 40
    assert isinstance(source.items[0], Item)
    assert source.media_folder is not None
    assert all((source.media_folder / str(item.file)).is_file() for item in source.items)


# Anything at all

JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just([]), st.just({})
)
VALID: dict[str, tuple[Callable[[Path], Source], object]] = {
    "captions_val2017.json": (
        read_coco,
        official([(1, "a.jpg"), (2, "b.jpg")], [(1, "a cat"), (2, "a dog")]),
    ),
    "dataset_coco.json": (
        read_coco,
        {"images": [{"filename": "a.jpg", "cocoid": 1, "split": "val", "sentences": [{"raw": "a cat"}]}]},
    ),
    "captions.json": (read_msvd, [{"id": "a", "split": "train", "captions": ["one", "two"]}]),
    "x_videodatainfo.json": (
        read_msrvtt,
        {"videos": [{"video_id": "v", "split": "train"}], "sentences": [{"video_id": "v", "caption": "a"}]},
    ),
}


def places(value: object, at: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """The path to every value inside some JSON."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, one in inner for place in places(one, (*at, key)))]


@pytest.mark.parametrize("name", VALID)
@given(data=st.data())
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_value_in_any_place_is_listed_or_refused(name: str, data: st.DataObject, tmp_path: Path) -> None:
    """What is not listed as malformed is of the right types: the check and the writer can rely on it."""
    read, valid = VALID[name]
    content = json.loads(json.dumps(valid))
    *way, last = data.draw(st.sampled_from(places(content)[1:]))
    inner = content
    for key in way:
        inner = inner[key]  # type: ignore[index]
    inner[last] = data.draw(JUNK)  # type: ignore[index]
    try:
        source = read(save(tmp_path / name, content).parent)
    except InputError:
        return
    for item in check(source, needs_media=False).inputs:
        assert isinstance(item.id, str)
        assert isinstance(item.split, str)
        assert all(isinstance(caption, str) for caption in item.captions)

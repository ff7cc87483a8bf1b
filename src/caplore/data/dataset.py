"""The data set format: one folder, three plain files, nothing pickled.

dataset.json      name, version, media kind, counts, checksum of captions.jsonl
captions.jsonl    one line per input: id, split, file, captions
media/            the pictures or clips (optional: features may be all there is)
features/<name>/  a feature store (caplore.features.store)
scenes.jsonl      made worlds only: what is really in each picture
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from caplore.errors import InputError
from caplore.files import digest_of_file, read_json, read_jsonl, write_json, write_jsonl

Media = Literal["image", "clip", "none"]
FORMAT = "caplore-dataset-1"


@dataclass(frozen=True)
class Input:
    """One picture or clip: what it is called, which split it is in, what people said about it."""

    id: str
    split: str
    file: str | None
    captions: tuple[str, ...]


@dataclass(frozen=True)
class Dataset:
    """A folder that was checked when it was opened; the inputs are in file order."""

    path: Path
    name: str
    version: str
    media: Media
    inputs: tuple[Input, ...]
    checksum: str

    def split(self, name: str) -> list[Input]:
        """The inputs of one split; a split that is not there is an error that lists those that are."""
        found = [item for item in self.inputs if item.split == name]
        if not found:
            raise InputError(
                f"{self.path} has no split {name!r}; it has {', '.join(sorted(self.counts)) or 'no inputs at all'}",
                fix="name one of those",
            )
        return found

    @cached_property
    def counts(self) -> dict[str, int]:
        return dict(Counter(item.split for item in self.inputs))

    def media_path(self, item: Input) -> Path:
        if item.file is None:
            raise InputError(f"{self.path}: input {item.id!r} has no media file, only captions and features")
        return self.path / item.file

    def store_path(self, encoder: str) -> Path:
        return self.path / "features" / encoder

    @property
    def encoders(self) -> list[str]:
        """Names of the feature stores that are there."""
        return sorted(p.parent.name for p in self.path.glob("features/*/index.json"))


def open_dataset(path: Path) -> Dataset:
    path = Path(path)
    if not (path / "dataset.json").is_file():
        raise InputError(
            f"{path} is not a caplore data set: it has no dataset.json",
            fix="caplore data scenes --to DIR makes one to try; caplore data import --help turns yours into one",
        )
    head = read_json(path / "dataset.json", "data set")
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise InputError(f"{path}/dataset.json is not of the format {FORMAT}")
    captions = path / "captions.jsonl"
    if not captions.is_file():
        raise InputError(f"{path} has no captions.jsonl")
    checksum = digest_of_file(captions)
    if head.get("captions_sha256") not in (None, checksum):
        raise InputError(
            f"{captions} is not the file that dataset.json describes: its checksum differs",
            fix="import the data set again, or delete captions_sha256 from dataset.json if you edited it on purpose",
        )
    inputs = tuple(_input(captions, number, row) for number, row in read_jsonl(captions, "captions"))
    _refuse_duplicates(captions, inputs)
    media = head.get("media", "none")
    if media not in get_args(Media):
        raise InputError(f"{path}/dataset.json: media is {media!r}, not one of {', '.join(get_args(Media))}")
    return Dataset(path, str(head["name"]), str(head.get("version", "1")), media, inputs, checksum)


def _input(path: Path, number: int, row: dict[str, Any]) -> Input:
    try:
        captions, file = row["captions"], row.get("file")
        if not isinstance(captions, list) or not all(isinstance(c, str) for c in captions):
            raise TypeError("captions is not a list of strings")
        if not (file is None or isinstance(file, str)):
            raise TypeError("file is neither null nor a string")
        return Input(str(row["id"]), str(row["split"]), file, tuple(captions))
    except KeyError as error:
        raise InputError(f"{path}, line {number} has no {error.args[0]!r}") from None
    except TypeError as error:
        raise InputError(f"{path}, line {number}: {error}") from None


def _refuse_duplicates(path: Path, inputs: Sequence[Input]) -> None:
    twice = [i for i, count in Counter(item.id for item in inputs).items() if count > 1]
    if twice:
        raise InputError(
            f"{path}: {len(twice)} ids stand twice (first: {twice[0]!r})", fix="give each input its own id"
        )


def write_dataset(
    path: Path, *, name: str, media: Media, inputs: Iterable[Input], version: str = "1", **notes: Any
) -> Dataset:
    """Write captions.jsonl, then dataset.json; `notes` are kept in dataset.json as they are."""
    path = Path(path)
    rows = list(inputs)
    write_jsonl(
        path / "captions.jsonl",
        ({"id": i.id, "split": i.split, "file": i.file, "captions": list(i.captions)} for i in rows),
    )
    head = {
        "format": FORMAT,
        "name": name,
        "version": version,
        "media": media,
        "splits": dict(Counter(i.split for i in rows)),
        "captions": sum(len(i.captions) for i in rows),
        "captions_sha256": digest_of_file(path / "captions.jsonl"),
        **notes,
    }
    write_json(path / "dataset.json", head)
    return open_dataset(path)

"""What an importer has read, before anything is decided about it.

read_<kind>(...) -> Source        items as the files give them, and what was wrong with the files themselves
checking.check(source) -> Checked the inputs that can be used, and everything that is odd, counted and listed
writing.write(checked, to)        the data set folder and its report
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from caplore.data.dataset import Media
from caplore.errors import InputError
from caplore.files import read_text

SPLIT_NAMES = ("train", "val", "test")
SPLITS = {
    "restval": "train",
    "training": "train",
    "dev": "val",
    "valid": "val",
    "validate": "val",
    "validation": "val",
    "testing": "test",
}


@dataclass
class Item:
    """One picture or clip as the source describes it. `file` is its path in the media folder, if it has one."""

    id: str
    split: str | None
    file: str | None
    captions: list[str]
    where: str = ""
    """The file and line it comes from, for messages."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong or odd: which kind (a key of checking.KINDS), where, and the detail."""

    kind: str
    id: str
    detail: str


@dataclass
class Source:
    """Everything an importer found. `media_folder` is None where there is text only."""

    name: str
    media: Media
    items: list[Item]
    media_folder: Path | None = None
    findings: list[Finding] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    """Kept in dataset.json: where the data comes from, its licence."""


def text_of(value: Any) -> str:
    """A caption or a name from someone's JSON; TypeError where it is no text (or a number, which some use as names)."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise TypeError(f"not text: {value!r}"[:100])
    return str(value)


def texts_of(value: Any) -> list[str]:
    """A list of captions; a string is not one."""
    if not isinstance(value, list):
        raise TypeError(f"not a list of texts: {value!r}"[:100])
    return [text_of(one) for one in value]


def known_split(value: Any) -> str:
    """train, val or test, also where the source says Train, dev, validate or restval; other names stay."""
    name = text_of(value).strip()
    return SPLITS.get(name.lower(), name.lower() if name.lower() in SPLIT_NAMES else name)


def records_of(content: Mapping[str, Any], key: str, path: Path) -> list[Any]:
    """The list at a key of someone's JSON; its elements may be anything."""
    records = content.get(key)
    if not isinstance(records, list):
        raise InputError(f"{path} has no list of {key}", fix="check that it is the file that was meant")
    return records


def lines_of(path: Path, what: str) -> Iterable[tuple[int, str]]:
    """The non-empty lines of a text file, numbered from 1, without their line ends."""
    for number, line in enumerate(read_text(path, what).splitlines(), start=1):
        if line.strip():
            yield number, line


def the_file(folder: Path, names: Sequence[str], what: str) -> Path:
    """The first of these names (or patterns) that is in the folder; an error lists what was looked for."""
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder", fix=f"give the folder that holds {what}")
    for name in names:
        found = sorted(folder.glob(name))
        if found:
            return found[0]
    raise InputError(
        f"{folder} has no {what} (looked for {', '.join(names)})", fix="give its path explicitly"
    )


def media_folder_in(folder: Path, names: Sequence[str]) -> Path | None:
    """The first of these sub-folders that is there."""
    return next((folder / name for name in names if (folder / name).is_dir()), None)

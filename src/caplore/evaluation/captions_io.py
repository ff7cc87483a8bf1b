"""Both sides of a score, from files or Python values: input id -> captions, and a note about everything odd.

Line breaks inside captions, empty captions, broken characters, ids that stand twice or on one side only: each
is counted, shown with its first examples, and never silently repaired. The formats are in `caption_formats`.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from caplore.errors import InputError
from caplore.evaluation.caption_formats import Role, read_rows, rows_of, shown

Row = tuple[str, str]
BREAKS = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")
SURROGATES = re.compile("[\ud800-\udfff]")
MAX_SHOWN = 3


@dataclass(frozen=True)
class Captions:
    """What was read: `of` in file order, `notes` as sentences for the reader, none when all was plain."""

    of: dict[str, list[str]]
    source: str
    by_position: bool = False
    """The file had no ids: its lines or entries were numbered from 1."""
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.of)


@dataclass(frozen=True)
class Paired:
    """Both sides of the inputs that have both, in the order of the candidates."""

    ids: list[str]
    candidates: list[list[str]]
    references: list[list[str]]
    notes: list[str]


def read_captions(sources: Sequence[str | Path], role: Role) -> Captions:
    """Every caption of the given files; several files are put together, plain text files line by line."""
    if not sources:
        raise InputError(f"no {role} were given")
    files = [read_rows(str(source), role) for source in sources]
    by_position = [file for file in files if file.by_position]
    if len({file.inputs for file in by_position}) > 1:
        counts = ", ".join(f"{file.source}: {file.inputs:,}" for file in by_position)
        raise InputError(f"files that stand side by side have different numbers of lines ({counts})")
    rows = (row for file in files for row in file.rows)
    return gather(rows, ", ".join(map(str, sources)), role, by_position=len(by_position) == len(files))


def gather(rows: Iterable[Row], source: str, role: Role, *, by_position: bool = False) -> Captions:
    """Rows as captions per input: cleaned, empty references dropped, everything odd counted."""
    odd = _Oddities(source, role)
    of: dict[str, list[str]] = {}
    for name, raw in rows:
        caption = raw.strip() if raw.isprintable() else ""  # what is odd is not printable, or nothing is left
        if not caption:
            caption = odd.clean(name, raw)
        captions = of.setdefault(name, [])
        if caption or role == "candidates":
            captions.append(caption)
    if not any(any(captions) for captions in of.values()):
        raise InputError(f"{source} holds no captions", fix="caplore score --help shows the formats")
    return Captions(of, source, by_position, odd.notes(of))


def pair(candidates: Captions, references: Captions) -> Paired:
    """The inputs that have candidates and references; those that lack one side are left out and said."""
    if candidates.by_position and references.by_position and len(candidates) != len(references):
        raise InputError(
            f"{candidates.source} has {len(candidates):,} lines, {references.source} {len(references):,}, "
            "and without ids they are matched line by line",
            fix="give both as many lines, or name the inputs on both sides",
        )
    ids = [name for name in candidates.of if references.of.get(name)]
    if not ids:
        raise InputError(
            f"no id of the candidates is an id of the references: {candidates.source} has "
            f"{_first(candidates.of)}, {references.source} has {_first(references.of)}",
            fix="name the inputs alike on both sides; plain text files are matched by line number",
        )
    notes = [*candidates.notes, *references.notes, *_numbered(candidates, references)]
    lone = [name for name in candidates.of if name not in references.of]
    bare = [name for name in candidates.of if name in references.of and not references.of[name]]
    silent = [name for name in references.of if name not in candidates.of]
    for missing, total, what in (
        (lone, len(candidates), "ids of the candidates are not in the references"),
        (bare, len(candidates), "inputs have only empty references"),
        (silent, len(references), "inputs of the references have no candidate"),
    ):
        if missing:
            notes.append(f"{len(missing):,} of {total:,} {what} ({_first(missing)}): left out")
    return Paired(ids, [candidates.of[i] for i in ids], [references.of[i] for i in ids], notes)


def _numbered(candidates: Captions, references: Captions) -> list[str]:
    """Line numbers may equal ids of another meaning: where only one side was numbered, that is said."""
    if candidates.by_position == references.by_position:
        return []
    bare, named = (candidates, references) if candidates.by_position else (references, candidates)
    return [
        f"{bare.source} names no ids, so its lines, counted from 1, were taken for the ids of {named.source} "
        f"({_first(named.of)}): make sure that they are"
    ]


def _first(names: Iterable[str]) -> str:
    return "first: " + ", ".join(shown(name) for name in islice(names, MAX_SHOWN))


class _Oddities:
    """What is strange about a file's captions, counted while they are read."""

    def __init__(self, source: str, role: Role) -> None:
        self.source, self.role = source, role
        self.found: dict[str, list[str]] = {}

    def clean(self, name: str, raw: str) -> str:
        """One line of valid Unicode, without white space around it."""
        if BREAKS.search(raw):
            raw = BREAKS.sub(" ", raw)
            self._note("captions hold line breaks: read as spaces", name)
        if SURROGATES.search(raw):
            raw = SURROGATES.sub("\ufffd", raw)
            self._note("captions hold half a character (a lone surrogate): replaced", name)
        caption = raw.strip()
        if not caption:
            kept = "kept, they score 0" if self.role == "candidates" else "left out"
            self._note(f"{self.role} are empty: {kept}", name)
        return caption

    def _note(self, what: str, name: str) -> None:
        self.found.setdefault(what, []).append(name)

    def notes(self, of: dict[str, list[str]]) -> list[str]:
        notes = [
            f"{self.source}: {len(names):,} {what} ({_first(names)})" for what, names in self.found.items()
        ]
        if self.role == "candidates":
            notes += self._uneven(of)
        return notes

    def _uneven(self, of: dict[str, list[str]]) -> list[str]:
        """Sets of different sizes are often an accident: an id that was written twice."""
        sizes = Counter(map(len, of.values()))
        usual = min(sizes, key=lambda size: (-sizes[size], size))
        if len(sizes) == 1:
            return []
        other = [name for name, captions in of.items() if len(captions) != usual]
        twice = [name for name in other if len(set(of[name])) < len(of[name])]
        note = (
            f"{self.source}: {len(other):,} of {len(of):,} ids have another number of captions than the "
            f"usual {usual} ({_first(other)})"
        )
        if twice:
            note += f"; {len(twice):,} of them repeat a caption word for word ({_first(twice)})"
        return [note]


def captions_from(value: Any, role: Role) -> Captions:
    """Captions given in Python: a path or several, a mapping id -> caption(s), or a list by position."""
    if isinstance(value, Captions):
        return value
    if isinstance(value, str | Path):
        return read_captions([value], role)
    if not isinstance(value, Mapping | Sequence):
        raise ValueError(f"{role} are a path, a mapping or a list, not a {type(value).__name__}")
    if value and isinstance(value, Sequence) and all(isinstance(item, Path) for item in value):
        return read_captions(value, role)
    name = f"the {role} given"
    rows = rows_of(value, name, role)
    return gather(rows.rows, name, role, by_position=rows.by_position)

"""Everything that can be wrong with a data set, looked for before anything is trained on it.

`check` decides which inputs can be used, and lists what it left out, what it mended and what it only
noticed, each with the input's name: nothing is dropped in silence.
"""

import hashlib
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from caplore.data.dataset import Media
from caplore.data.importers.media import MediaFolder
from caplore.data.importers.source import SPLIT_NAMES, Finding, Item, Source
from caplore.data.importers.splitting import ByHash

LEFT_OUT, MENDED, NOTICED = "left out", "mended", "kept as it is"
KINDS = {  # kind -> (what it is, what was done about it), the gravest first
    "leak": ("the same picture or clip in two splits", NOTICED),
    "in-two-splits": ("named in two splits: the first is kept", MENDED),
    "missing-file": ("the file is not there", LEFT_OUT),
    "unreadable-file": ("the file cannot be read", LEFT_OUT),
    "still": ("a clip that does not move (one frame only)", LEFT_OUT),
    "no-caption": ("no caption", LEFT_OUT),
    "no-split": ("in no split", LEFT_OUT),
    "duplicate-id": ("the same id for two inputs: the first is kept", LEFT_OUT),
    "not-captioned": ("named in a list of inputs, but described nowhere", LEFT_OUT),
    "caption-of-nothing": ("a caption of an input that does not exist", LEFT_OUT),
    "malformed": ("a line or record that cannot be read", LEFT_OUT),
    "odd-split": ("a split that is not called train, val or test", NOTICED),
    "same-file": ("the same picture or clip twice in one split", NOTICED),
    "media-missing": ("the file is not there: the input has features only", NOTICED),
    "empty-caption": ("an empty caption", LEFT_OUT),
    "spaces": (
        "line breaks, tabs, control characters or stray spaces in a caption: now single spaces",
        MENDED,
    ),
    "repeated-caption": ("the same caption twice for one input", NOTICED),
    "odd-caption": ("a caption that looks odd", NOTICED),
    "common-caption": ("the same caption for many inputs", NOTICED),
    "no-features": ("no features in the store", NOTICED),
}
SHORTEST, LONGEST = 2, 60  # words; outside of it a caption is called odd
COMMON = 0.02  # a caption that more than this share of the inputs (and at least 5) have is called common
HEAD = 16_384  # bytes compared before whole files are

Look = Callable[[Path, Media], Finding | None]


@dataclass(frozen=True)
class Usable:
    """An input that passed: its file is where `file` says."""

    id: str
    split: str
    file: Path | None
    captions: tuple[str, ...]


@dataclass
class Checked:
    """The outcome of a check."""

    name: str
    media: Media
    inputs: list[Usable]
    findings: list[Finding]
    notes: dict[str, Any] = field(default_factory=dict)


def check(
    source: Source,
    *,
    look: Look = lambda path, media: None,
    needs_media: bool = True,
    by_hash: ByHash | None = None,
    workers: int = 4,
) -> Checked:
    """Look at everything. `look` opens a file and says what is wrong with it; without media, features must do.

    `by_hash` splits anew: among the inputs that can be used, so that what is left out leaves no split empty.
    """
    findings = list(source.findings)
    if by_hash is not None:
        source = replace(source, items=[replace(item, split=by_hash.of(item.id)) for item in source.items])
    usable: list[Usable] = []
    folder = MediaFolder(source.media_folder)
    for item in _merged(source.items, findings):
        captions = _captions(item, findings)
        if not item.split:
            findings.append(Finding("no-split", item.id, item.where))
        elif not captions:
            findings.append(Finding("no-caption", item.id, item.where))
        else:
            usable.append(Usable(item.id, item.split, folder.find(item.file), tuple(captions)))
    if source.media != "none":
        usable = _with_media(usable, source, findings, look, needs_media, workers)
    if by_hash is not None:
        split_of = by_hash.settled([item.id for item in usable])
        usable = [replace(item, split=split_of[item.id]) for item in usable]
    media = source.media if any(item.file for item in usable) else "none"
    findings += _odd_splits(usable)
    findings += _same_files(usable)
    findings += _common_captions(usable)
    order = {kind: rank for rank, kind in enumerate(KINDS)}
    findings.sort(key=lambda finding: order[finding.kind])
    return Checked(source.name, media, usable, findings, source.notes)


def _odd_splits(inputs: Sequence[Usable]) -> list[Finding]:
    counts = Counter(item.split for item in inputs)
    return [
        Finding("odd-split", split, f"{count} inputs")
        for split, count in counts.items()
        if split not in SPLIT_NAMES
    ]


def _merged(items: Sequence[Item], findings: list[Finding]) -> list[Item]:
    """One item per id: records of the same file are one input, anything else with a known id is left out."""
    merged: dict[str, Item] = {}
    for item in items:
        first = merged.setdefault(item.id, item)
        if first is item:
            continue
        if first.file != item.file:
            findings.append(Finding("duplicate-id", item.id, f"{first.where} and {item.where}"))
        elif first.split != item.split:
            findings.append(
                Finding("in-two-splits", item.id, f"{first.split} and {item.split} ({item.where})")
            )
        else:
            first.captions = [*first.captions, *item.captions]
    return list(merged.values())


# Captions


def _captions(item: Item, findings: list[Finding]) -> list[str]:
    kept: list[str] = []
    for given in item.captions:
        caption = " ".join(re.sub(r"[\x00-\x1f\x7f\u200b\ufeff]", " ", str(given)).split())
        if not caption:
            findings.append(Finding("empty-caption", item.id, item.where))
            continue
        if caption != str(given).strip():
            findings.append(Finding("spaces", item.id, repr(given)[:100]))
        reason = oddity(caption)
        if reason:
            findings.append(Finding("odd-caption", item.id, f"{reason}: {caption[:100]}"))
        if caption in kept:
            findings.append(Finding("repeated-caption", item.id, caption[:100]))
        kept.append(caption)
    return kept


def oddity(caption: str) -> str | None:
    """Why a caption looks odd, or None."""
    words = caption.split()
    if not any(character.isalpha() for character in caption):
        return "no letters"
    if len(words) < SHORTEST:
        return f"{len(words)} word"
    if len(words) > LONGEST:
        return f"{len(words)} words"
    if re.search(r"</?[a-zA-Z][^>]*>|&[a-z]+;|&#\d+;", caption):
        return "markup"
    if re.search(r"https?://|www\.", caption):
        return "an address"
    if re.search("\ufffd|Ã[\x80-\xbf©¨ª]|â€", caption):
        return "wrongly decoded characters"
    return None


def _common_captions(inputs: Sequence[Usable]) -> list[Finding]:
    counts = Counter(caption for item in inputs for caption in set(item.captions))
    bound = max(5, COMMON * len(inputs))
    return [
        Finding("common-caption", caption[:100], f"{count} inputs")
        for caption, count in counts.items()
        if count > bound
    ]


# Files


def _with_media(
    inputs: list[Usable], source: Source, findings: list[Finding], look: Look, needs_media: bool, workers: int
) -> list[Usable]:
    """Those whose file can be used; without needs_media also those that have none."""
    there = [item for item in inputs if item.file is not None]
    with ThreadPoolExecutor(workers) as pool:
        said = dict(
            zip(
                (item.id for item in there),
                pool.map(lambda item: look(item.file, source.media), there),
                strict=True,
            )
        )
    named = {item.id: item.file for item in source.items}
    kept = []
    for item in inputs:
        trouble = said.get(item.id)
        if trouble is not None:
            findings.append(Finding(trouble.kind, item.id, trouble.detail))
        elif item.file is None and needs_media:
            findings.append(Finding("missing-file", item.id, named[item.id] or "no file is named"))
        else:
            kept.append(item)
            if item.file is None:
                findings.append(Finding("media-missing", item.id, named[item.id] or "no file is named"))
    return kept


def _same_files(inputs: Sequence[Usable]) -> list[Finding]:
    """Files with the same bytes under different ids: worst where one is trained on and the other tested."""
    findings = []
    for group in same_content([item for item in inputs if item.file is not None]):
        kind = "leak" if len({item.split for item in group}) > 1 else "same-file"
        first = group[0]
        for item in group[1:]:
            findings.append(Finding(kind, item.id, f"{item.split}; the same as {first.id} ({first.split})"))
    return findings


def same_content(inputs: Iterable[Usable]) -> list[list[Usable]]:
    """Groups of two or more with the same bytes: by size, then by their first bytes, then by all of them."""
    groups = [list(inputs)]
    for key in (_size, _head, _whole):
        split: list[list[Usable]] = []
        for group in groups:
            by_key: dict[Any, list[Usable]] = defaultdict(list)
            for item in group:
                by_key[key(item)].append(item)
            split += [same for same in by_key.values() if len(same) > 1]
        groups = split
    return groups


def _path(item: Usable) -> Path:
    assert item.file is not None
    return item.file


def _size(item: Usable) -> int:
    return _path(item).stat().st_size


def _head(item: Usable) -> bytes:
    with _path(item).open("rb") as data:
        return hashlib.sha256(data.read(HEAD)).digest()


def _whole(item: Usable) -> bytes:
    with _path(item).open("rb") as data:
        return hashlib.file_digest(data, "sha256").digest()


# The report


def summary(checked: Checked, examples: int = 3, *, imported: bool = True) -> str:
    """What a person reads at the end of an import; or of a check only, in which nothing was left out or mended."""
    by_split: dict[str, list[Usable]] = defaultdict(list)
    for item in checked.inputs:
        by_split[item.split].append(item)
    lines = [f"{'split':<8}{'inputs':>9}{'captions':>10}{'per input':>12}{'words':>8}"]
    for split in sorted(
        by_split, key=lambda split: (SPLIT_NAMES.index(split) if split in SPLIT_NAMES else 9, split)
    ):
        items = by_split[split]
        captions = [caption for item in items for caption in item.captions]
        per_input = [len(item.captions) for item in items]
        words = sum(len(caption.split()) for caption in captions) / len(captions)
        spread = (
            f"{min(per_input)}-{max(per_input)}" if min(per_input) < max(per_input) else str(per_input[0])
        )
        lines.append(f"{split:<8}{len(items):>9,}{len(captions):>10,}{spread:>12}{words:>8.1f}")
    if not checked.findings:
        return "\n".join([*lines, "", "nothing wrong or odd was found"])
    lines += ["", "found:"]
    for kind, group in itertools.groupby(checked.findings, key=lambda finding: finding.kind):
        found = list(group)
        meaning, done = KINDS[kind]
        lines.append(f"{len(found):>9,}  {meaning}" + (f" [{done}]" if imported else ""))
        lines += [f"             {finding.id}: {finding.detail}"[:160] for finding in found[:examples]]
        if len(found) > examples:
            lines.append(f"             ... and {len(found) - examples:,} more")
    return "\n".join(lines)


def report(checked: Checked) -> dict[str, Any]:
    """Everything that was found, for import-report.json."""
    found: dict[str, Any] = {}
    for kind, group in itertools.groupby(checked.findings, key=lambda finding: finding.kind):
        meaning, done = KINDS[kind]
        listed = [{"id": finding.id, "detail": finding.detail} for finding in group]
        found[kind] = {"what": meaning, "done": done, "count": len(listed), "all": listed}
    return {
        "inputs": len(checked.inputs),
        "captions": sum(len(item.captions) for item in checked.inputs),
        "splits": dict(Counter(item.split for item in checked.inputs)),
        "found": found,
    }

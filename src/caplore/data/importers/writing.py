"""A checked source as a data set folder: captions, links to the media files (or copies), and the report."""

import errno
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from caplore.data.dataset import Dataset, Input, write_dataset
from caplore.data.importers.checking import Checked, Usable, report
from caplore.errors import InputError
from caplore.files import digest_of, write_json

REPORT = "import-report.json"


def write(checked: Checked, to: Path, *, copy: bool = False) -> Dataset:
    """The data set at `to`, its media as media/<id><suffix>; dataset.json comes last, so half of it is no data set."""
    refuse_existing(to)
    if not checked.inputs:
        raise InputError(
            f"no input of {checked.name} can be used: nothing was written", fix=_what_to_do(checked)
        )
    names = media_names(checked.inputs)
    (to / "media").mkdir(parents=True, exist_ok=True) if any(names.values()) else to.mkdir(
        parents=True, exist_ok=True
    )
    for item in checked.inputs:
        name = names[item.id]
        if name is not None and item.file is not None:
            _place(item.file, to / name, copy)
    write_json(to / REPORT, report(checked))
    inputs = [Input(item.id, item.split, names[item.id], item.captions) for item in checked.inputs]
    return write_dataset(to, name=checked.name, media=checked.media, inputs=inputs, **checked.notes)


def _what_to_do(checked: Checked) -> str:
    """Files that are not where they were looked for are the usual reason."""
    missing = sum(finding.kind == "missing-file" for finding in checked.findings)
    if not missing:
        return "see what was found, above"
    return f"{missing} files are not there: say which folder they are in with --media DIR"


def refuse_existing(to: Path) -> None:
    """A data set is never written over: features and runs may depend on it."""
    if (to / "dataset.json").exists():
        raise InputError(
            f"{to} already holds a data set", fix=f"choose another --to, or delete it first: rm -r {to}"
        )
    if to.exists() and not to.is_dir():
        raise InputError(f"{to} is a file, not a folder", fix="choose another --to")


def media_names(inputs: Sequence[Usable]) -> dict[str, str | None]:
    """media/<id><suffix> of each input that has a file; ids that are no file names, or clash, get a digest."""
    names: dict[str, str | None] = {}
    taken: set[str] = set()
    for item in inputs:
        if item.file is None:
            names[item.id] = None
            continue
        stem = re.sub(r"[^\w.-]+", "_", item.id)[:100].lstrip(".") or "_"
        name = f"media/{stem}{item.file.suffix.lower()}"
        if stem != item.id or name.lower() in taken:
            name = f"media/{stem}.{digest_of(item.id)[:8]}{item.file.suffix.lower()}"
        taken.add(name.lower())
        names[item.id] = name
    return names


def _place(file: Path, at: Path, copy: bool) -> None:
    at.unlink(missing_ok=True)  # left by an import that was interrupted
    if not copy:
        at.symlink_to(file.resolve())
        return
    try:
        shutil.copyfile(file, at)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise InputError(
            f"the disk is full: {at} was not copied, and the data set is not complete",
            fix="free some space and import again, or leave out --copy to link the files instead",
        ) from None

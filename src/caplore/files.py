"""Files on disk: written whole or not at all, read with messages that name the line.

Nothing here knows what the files mean. Every writer in caplore goes through `replacing`, so that a
reader never sees half a file: not after a crash, not after kill -9, not when the disk is full.
"""

import contextlib
import errno
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from caplore.errors import FullDiskError, InputError


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside `path`; on success flush it to the disk and rename it to `path`.

    On any error the temporary file goes and what stood at `path` stays as it was.
    """
    path = Path(path)
    refuse_special(path)
    with explaining_full_disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        os.close(handle)
    temporary = Path(name)
    try:
        with explaining_full_disk(path):
            yield temporary
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
            temporary.chmod(0o644)
            temporary.replace(path)
            _sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def refuse_special(path: Path) -> None:
    """No device, no pipe, no link to what a process has open: /dev/null, /dev/stdout."""
    is_open = path.is_symlink() and path.readlink().parts[:2] == ("/", "proc")
    if is_open or (path.exists() and not path.is_file() and not path.is_dir()):
        raise InputError(
            f"{path} is no file: a rename would put one in its place", fix="name a file; it may be a new one"
        )


@contextlib.contextmanager
def explaining_full_disk(path: Path) -> Iterator[None]:
    """A full disk while `path` is being written is a message, not a traceback."""
    try:
        yield
    except Exception as error:
        # safetensors' writer is Rust, has an exception of its own for every I/O error, and says which in words.
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        if not full and not str(error).endswith((f"(os error {errno.ENOSPC})", f"(os error {errno.EDQUOT})")):
            raise
        raise FullDiskError(
            f"the disk is full: {path} was not written (what was there before is untouched)",
            fix=f"free some space on the disk that holds {path.parent}, then run the same command again",
        ) from error


def sweep(folder: Path) -> None:
    """Remove what `replacing` left in a folder when it was killed; nobody else may be writing there."""
    for left in folder.glob(".*.tmp"):
        left.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable; some file systems cannot, and then it is left to them."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """JSON that a person can read; nan and infinity are refused, as JSON has neither."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_jsonl(path: Path, rows: Iterable[Any]) -> None:
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")


def read_text(path: Path, what: str = "file") -> str:
    """The text of a UTF-8 file; `what` is what the message calls it."""
    try:
        return Path(path).read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{what} not found: {path}", fix="check the path") from None
    except OSError as error:
        raise InputError(f"{what} cannot be read: {path} ({error.strerror})") from None
    except UnicodeDecodeError as error:
        wide = error.object[:2] in (b"\xff\xfe", b"\xfe\xff")
        raise InputError(
            f"{what} {path} is not UTF-8 (byte {error.start} is 0x{error.object[error.start]:02x})",
            fix=f"iconv -f {'utf-16' if wide else 'latin1'} -t utf-8 {path} > fixed"
            + ("" if wide else ", if it is Latin-1"),
        ) from None


def read_json(path: Path, what: str = "file") -> Any:
    try:
        return json.loads(read_text(path, what))
    except (ValueError, RecursionError) as error:
        where = (
            f"line {error.lineno}: {error.msg}"
            if isinstance(error, json.JSONDecodeError)
            else "nested too deep"
        )
        raise InputError(f"{what} {path} is not valid JSON ({where})") from None


def read_jsonl(path: Path, what: str = "file") -> Iterator[tuple[int, dict[str, Any]]]:
    """Each non-empty line as (line number, object)."""
    for number, line in enumerate(read_text(path, what).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{what} {path}, line {number} is not valid JSON ({error})") from None
        if not isinstance(row, dict):
            raise InputError(f"{what} {path}, line {number} is not a JSON object: {line[:80]}")
        yield number, row


def digest_of(*parts: bytes | str) -> str:
    """A short name for exactly this content (sha256, 16 hex digits)."""
    sha = hashlib.sha256()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        sha.update(len(raw).to_bytes(8, "little"))
        sha.update(raw)
    return sha.hexdigest()[:16]


def digest_of_file(path: Path) -> str:
    with Path(path).open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def cache_folder(*parts: str) -> Path:
    """Where caplore keeps what it can make or fetch again: $CAPLORE_CACHE, else XDG's cache, else ~/.cache/caplore.

    Only the name: whoever writes there makes the folder.
    """
    own, xdg = os.environ.get("CAPLORE_CACHE"), os.environ.get("XDG_CACHE_HOME")
    root = Path(own) if own else (Path(xdg) if xdg else Path.home() / ".cache") / "caplore"
    return root.joinpath(*parts)

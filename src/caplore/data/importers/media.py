"""Where the files are that captions name: people name them in another case, flat, or with another system's slashes."""

import os
import unicodedata
from collections import defaultdict
from functools import cached_property
from pathlib import Path

OTHER_SUFFIXES = (".jpg", ".jpeg", ".png", ".gif", ".mp4", ".webm", ".avi", ".mkv")
DEPTH = 3  # sub-folders that are looked into


class MediaFolder:
    """Finds files in a folder; None where there is none, and then only absolute names are found."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def find(self, name: str | None) -> Path | None:
        """The file as it is named; else without its folders, with another suffix, or the only one that is alike."""
        if name is None or not Path(name).name:
            return None
        named = Path(name)
        if self.folder is None:
            return named if named.is_absolute() and os.path.isfile(named) else None
        candidates = [self.folder / named, self.folder / named.name]
        candidates += [candidates[0].with_suffix(suffix) for suffix in OTHER_SUFFIXES]
        # os.path, unlike Path, says False of names that no file can have.
        there = next((candidate for candidate in candidates if os.path.isfile(candidate)), None)
        return there or self._alike(named)

    def _alike(self, named: Path) -> Path | None:
        """dog.JPG for dog.jpg, an accent written in Unicode's other way, images/dog.jpg: where only one fits."""
        wanted = _key(named.as_posix())
        found = [
            path
            for path in self._by_name.get(_key(named.name), [])
            if f"/{_key(path.as_posix())}".endswith(f"/{wanted}")
        ]
        return found[0] if len(found) == 1 else None

    @cached_property
    def _by_name(self) -> dict[str, list[Path]]:
        """Every file some folders deep, hidden ones aside."""
        assert self.folder is not None
        found: dict[str, list[Path]] = defaultdict(list)
        for where, folders, names in os.walk(self.folder):
            inside = Path(where).relative_to(self.folder)
            deep = len(inside.parts) >= DEPTH
            folders[:] = [] if deep else [name for name in folders if not name.startswith(".")]
            for name in names:
                if not name.startswith("."):
                    found[_key(name)].append(Path(where, name))
        return found


def _key(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()

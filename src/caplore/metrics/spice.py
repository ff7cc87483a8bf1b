"""SPICE (Anderson et al., 2016) by its own program: captions become scene graphs, compared tuple by tuple.

For a caption c and its references S, with T(.) the objects, attributes and relations of a scene graph,

    precision = |T(c) matched in T(S)| / |T(c)|,  recall = the same over |T(S)|,  SPICE = their harmonic mean.

The program takes minutes where every other metric takes a second, so here it works in chunks: each chunk's
counts are stored when it is done, under a key made of the very texts that were compared. A run that is
stopped, killed or out of time goes on where it was; a set that was scored before costs nothing. Parses of
single captions are kept as well (in the program's own cache), so a second system pays for its captions only.

What is stored per caption are the counts (true positives, false positives, false negatives) of all tuples
and of six kinds of them: enough for every score and for the bootstrap. Texts are PTB-tokenised and joined
by single spaces, as coco-caption does.
"""

import json
import os
import platform
import sqlite3
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caplore.errors import CaploreError
from caplore.files import cache_folder, digest_of
from caplore.metrics.java import Java, TimeLimit, find_java, memory_gib, run_java
from caplore.metrics.signature import signature
from caplore.metrics.spice_setup import installed_jars
from caplore.text.ptb import SIGNATURE as PTB

KINDS = ("All", "Object", "Attribute", "Relation", "Cardinality", "Color", "Size")
COUNTS = ("tp", "fp", "fn")
VERSION = "1.0"
SIGNATURE = signature("SPICE", tok=PTB, program=VERSION, parser="corenlp-3.6.0", synonyms="wordnet", scale=1)

FIRST_CHUNK = 50
CHUNK_SECONDS = 60.0
LARGEST_CHUNK = 2000

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Pair:
    """One caption and what it is compared with, each already tokenised."""

    caption: str
    references: tuple[str, ...]

    @property
    def key(self) -> str:
        return digest_of(VERSION, self.caption, *self.references)


@dataclass
class Spice:
    """The program, ready to run. `cache=None` keeps nothing."""

    java: Java
    jars: Sequence[Path]
    cache: Path | None = None
    threads: int = field(default_factory=lambda: os.cpu_count() or 1)
    heap_gib: float = field(default_factory=lambda: min(4.0, 0.6 * memory_gib()))
    seconds: float | None = None
    """Time limit for one call of `counts`; what was done until then is kept."""

    @classmethod
    def installed(cls, **options: Any) -> "Spice":
        """SPICE as `caplore setup spice` left it, with the Java there is and caplore's cache."""
        return cls(find_java(), installed_jars(), cache_folder("spice"), **options)

    def counts(self, pairs: Sequence[Pair], progress: Progress | None = None) -> NDArray[np.int32]:
        """tp, fp, fn of every kind of tuple: [pairs, KINDS, COUNTS]; TimeLimit when `seconds` are over."""
        store = Store(None if self.cache is None else self.cache / "scores.sqlite")
        try:
            return self._counts(pairs, store, progress or (lambda done, total: None))
        finally:
            store.close()

    def _counts(self, pairs: Sequence[Pair], store: "Store", progress: Progress) -> NDArray[np.int32]:
        started = time.monotonic()
        keys = [pair.key for pair in pairs]
        known = store.get(keys)
        todo = _rounds({key: pair for key, pair in zip(keys, pairs, strict=True) if key not in known})
        total = len(known) + sum(map(len, todo))
        progress(len(known), total)
        size = FIRST_CHUNK
        for one_round in todo:
            while one_round:
                chunk, one_round = one_round[:size], one_round[size:]
                begun = time.monotonic()
                left = None if self.seconds is None else self.seconds - (begun - started)
                try:
                    found = self._chunk(chunk, left)
                except TimeLimit:
                    what = f"its time limit of {self.seconds:.0f} s was over after {len(known)} of {total} captions"
                    raise TimeLimit(what, fix="run the same command again: it goes on from there") from None
                store.put(found)
                known |= found
                progress(len(known), total)
                rate = len(chunk) / (time.monotonic() - begun)
                size = int(min(LARGEST_CHUNK, max(FIRST_CHUNK, CHUNK_SECONDS * rate)))
        return np.array([known[key] for key in keys], dtype=np.int32).reshape(-1, len(KINDS), len(COUNTS))

    def _chunk(self, chunk: list[Pair], seconds: float | None) -> dict[str, list[int]]:
        """One run of the program; a chunk that fails is halved until the caption that does it is alone."""
        started = time.monotonic()
        try:
            return self._run(chunk, seconds, parses=self.cache is not None and _lmdb_runs_here())
        except TimeLimit:
            raise
        except CaploreError as error:
            if len(chunk) == 1:
                caption = chunk[0].caption
                short = caption if len(caption) <= 60 else f"{caption[:60]}... ({len(caption)} characters)"
                raise CaploreError(f"{error.what} (on the caption {short!r})", fix=error.fix) from None
        half = len(chunk) // 2
        found: dict[str, list[int]] = {}
        for part in (chunk[:half], chunk[half:]):
            left = None if seconds is None else seconds - (time.monotonic() - started)
            found |= self._chunk(part, left)
        return found

    def _run(self, chunk: list[Pair], seconds: float | None, *, parses: bool) -> dict[str, list[int]]:
        if seconds is not None and seconds <= 0:
            raise TimeLimit("SPICE's time was up")
        rows = [{"image_id": i, "test": p.caption, "refs": list(p.references)} for i, p in enumerate(chunk)]
        with tempfile.TemporaryDirectory(prefix="caplore-spice-") as folder:
            given, made = Path(folder) / "in.json", Path(folder) / "out.json"
            given.write_text(json.dumps(rows), encoding="ascii")
            try:
                run_java(self.command(given, made, parses=parses), what="SPICE", seconds=seconds)
                return _read(made, chunk)
            except TimeLimit:
                raise
            except CaploreError as error:
                if parses and _is_about_the_parse_cache(error.what):
                    return self._run(chunk, seconds, parses=False)
                if "OutOfMemoryError" in error.what:
                    fix = f"more memory than the {self.heap_gib:.1f} GiB it had: --spice-memory GIB"
                    raise CaploreError(error.what, fix=fix) from None
                raise

    def command(self, given: Path, made: Path, *, parses: bool) -> list[str | Path]:
        """The command line; without the parse cache nothing in it needs reflection or native code."""
        flags = self.java.flags(heap_gib=self.heap_gib, reflection=parses, native=parses)
        classes = os.pathsep.join(map(str, self.jars))
        command: list[str | Path] = [
            self.java.path,
            *flags,
            "-cp",
            classes,
            "edu.anu.spice.SpiceScorer",
            given,
        ]
        command += ["-out", made, "-subset", "-silent", "-threads", str(self.threads)]
        if parses and self.cache is not None:
            folder = self.cache / "parses"
            folder.mkdir(parents=True, exist_ok=True)
            command += ["-cache", folder]
        return command


def _rounds(todo: dict[str, Pair]) -> list[list[Pair]]:
    """Pairs such that no round compares with the same references twice.

    The program parses a sentence again for each time it stands in one input, but finds those of earlier
    inputs in its cache: with five captions per image, five rounds parse the references once, not five times.
    """
    seen: defaultdict[tuple[str, ...], int] = defaultdict(int)
    rounds: defaultdict[int, list[Pair]] = defaultdict(list)
    for pair in todo.values():
        rounds[seen[pair.references]].append(pair)
        seen[pair.references] += 1
    return list(rounds.values())


def _lmdb_runs_here() -> bool:
    """The parse cache is native code that was built for three kinds of machine."""
    return (platform.system(), platform.machine()) in {
        ("Linux", "x86_64"),
        ("Darwin", "x86_64"),
        ("Windows", "AMD64"),
    }


def _is_about_the_parse_cache(what: str) -> bool:
    signs = (
        "lmdb",
        "UnsatisfiedLink",
        "nustaq",
        "InaccessibleObject",
        "NoClassDefFound",
        "ExceptionInInitializer",
    )
    return any(sign in what for sign in signs)


def _read(made: Path, chunk: list[Pair]) -> dict[str, list[int]]:
    try:
        rows = json.loads(made.read_text(encoding="utf-8"))
        counts = {
            int(row["image_id"]): [int(row["scores"][kind][count]) for kind in KINDS for count in COUNTS]
            for row in rows
        }
        return {pair.key: counts[i] for i, pair in enumerate(chunk)}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CaploreError(f"SPICE's output cannot be read ({type(error).__name__}: {error})") from None


def f_scores(counts: NDArray[np.int32]) -> NDArray[np.float64]:
    """SPICE of each caption and kind from its counts: [..., KINDS].

    Of all tuples, 0 where there is nothing to compare; of one kind, nan where the references have none of it.
    """
    tp, fp, fn = np.moveaxis(counts.astype(np.float64), -1, 0)
    both = 2 * tp + fp + fn
    with np.errstate(invalid="ignore", divide="ignore"):
        f = np.where(both > 0, 2 * tp / both, 0.0)
    f[..., 1:] = np.where((tp + fn)[..., 1:] > 0, f[..., 1:], np.nan)
    return f


@dataclass(frozen=True)
class SpiceCounts:
    """The counts of some captions, each as the program itself would print them."""

    counts: NDArray[np.int32]

    def of(self, caption: int) -> dict[str, dict[str, float]]:
        """{"All": {"tp": 3, ..., "pr": .5, "re": .4, "f": .44, "numImages": 1}, "Object": ...}; nan of nothing."""
        f = f_scores(self.counts[caption])
        found = {}
        for kind, (tp, fp, fn), value in zip(KINDS, self.counts[caption].tolist(), f.tolist(), strict=True):
            absent = value != value
            precision = float("nan") if absent else tp / (tp + fp) if tp + fp and tp + fn else 0.0
            recall = float("nan") if absent else tp / (tp + fn) if tp + fn else 0.0
            of_kind = {
                "pr": precision,
                "re": recall,
                "f": value,
                "fn": fn,
                "numImages": 1,
                "fp": fp,
                "tp": tp,
            }
            found[kind] = {key: float(number) for key, number in of_kind.items()}
        return found


class Store:
    """Counts by key in one SQLite file: whole after a kill, shared by processes; else in memory."""

    def __init__(self, path: Path | None) -> None:
        self._rows = _open(path)

    def get(self, keys: Iterable[str]) -> dict[str, list[int]]:
        found = {}
        for key in set(keys):
            row = self._rows.execute("select counts from spice where key = ?", (key,)).fetchone()
            if row is not None:
                found[key] = np.frombuffer(row[0], dtype="<i4").tolist()
        return found

    def put(self, counts: dict[str, list[int]]) -> None:
        rows = [(key, np.array(row, dtype="<i4").tobytes()) for key, row in counts.items()]
        with self._rows:
            self._rows.executemany("insert or replace into spice values (?, ?)", rows)

    def close(self) -> None:
        self._rows.close()


def _open(path: Path | None) -> sqlite3.Connection:
    """The file's table; a file that is not a database is replaced, a read-only folder is not used."""
    if path is not None:
        for _ in range(2):
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                return _with_table(sqlite3.connect(path, timeout=30))
            except (OSError, sqlite3.OperationalError):
                break
            except sqlite3.DatabaseError:
                path.unlink(missing_ok=True)
    return _with_table(sqlite3.connect(":memory:"))


def _with_table(rows: sqlite3.Connection) -> sqlite3.Connection:
    try:
        rows.execute(
            "create table if not exists spice (key text primary key, counts blob not null) without rowid"
        )
    except sqlite3.DatabaseError:
        rows.close()
        raise
    return rows

"""METEOR's tables: from the program's jar and its paraphrase file into one file that is mapped into memory.

    paraphrases    5.3 million pairs of phrases with their words as numbers: a trie of the left phrases, and for
                   each of them its right phrases in the order of the program's file (the order decides ties)
    synonyms       WordNet 3.0: the synonym sets of 147,000 words, and irregular forms with their base words
    lists          function words, and words whose period does not end a sentence

The trie is one sorted array: the step from state s by word w is the key s * 2**16 + w, and leads to state 1 + its
place in the array. States are numbered level by level, so that the keys of all levels are in order.
"""

import gzip
import importlib.util
import json
import mmap
import zipfile
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from caplore.errors import InputError, MissingError
from caplore.files import cache_folder, digest_of_file, replacing
from caplore.metrics.wheels import Wanted, collect, downloaded, have

FORMAT = "caplore-meteor-1"
REQUIREMENT = "pycocoevalcap==1.2"
SIZE = "104 MB to download, 130 MB to keep"
LICENCES = "METEOR is LGPL-2.1, its synonyms are WordNet's; both stay in the cache"
SETUP = "caplore setup meteor"

JAR = Wanted("meteor-1.5.jar", "1e57b4c72c0830ebe68558f1c799a624e96cbc1b6045c9f6330e26dcff6eafc2")
PARAPHRASES = Wanted("paraphrase-en.gz", "c147ac7d2c91f2fbb3ad31e4b352235061eb83145e0434daf217ee9ca5975f48")

Paraphrases = dict[str, list[tuple[int, list[str]]]]
"""The paraphrases of a phrase by their first words: each with its rank among them, and its words."""


def folder(cache: Path | None = None) -> Path:
    """Where everything of METEOR is kept: the tables, and what they were made from."""
    return cache_folder("meteor") if cache is None else cache / "meteor"


def tables_file(cache: Path | None = None) -> Path:
    return folder(cache) / "tables.safetensors"


def program_jar(cache: Path | None = None) -> Path:
    """The jar, which looks for its paraphrases in the folder `data` beside it."""
    return folder(cache) / "program" / JAR.name


def is_set_up(cache: Path | None = None) -> bool:
    return tables_file(cache).is_file()


def install_meteor(sources: Sequence[Path], say: Callable[[str], None], cache: Path | None = None) -> Path:
    """Fetch the jar and the paraphrases, check them, and write the tables; returns where those are.

    Taken from the given paths (a wheel, a folder, the files); without any, from an installed pycocoevalcap, else from
    its wheel, which is downloaded alone.
    """
    jar = program_jar(cache)
    paraphrases = jar.parent / "data" / PARAPHRASES.name
    wanted = [(JAR, jar.parent), (PARAPHRASES, paraphrases.parent)]
    missing = [(item, into) for item, into in wanted if not have(item, into)]
    missing = _collected(missing, sources or _installed_package())
    if missing and sources:
        raise MissingError(
            f"{missing[0][0].name} is in none of the given places",
            fix=f"add where it is to --from, or leave --from out to take it from {REQUIREMENT} ({SIZE})",
        )
    if missing:
        say(f"downloading {REQUIREMENT} without its dependencies ({SIZE})")
        with downloaded(REQUIREMENT) as wheel:
            missing = _collected(missing, [wheel])
        if missing:
            raise MissingError(
                f"{REQUIREMENT} does not hold {missing[0][0].name}", fix="give the files with --from"
            )
    target = tables_file(cache)
    if not _is_current(target):
        say("making METEOR's tables (half a minute)")
        with replacing(target) as temporary:
            build(jar, paraphrases, temporary)
    return target


def _collected(missing: list[tuple[Wanted, Path]], sources: Sequence[Path]) -> list[tuple[Wanted, Path]]:
    return [(item, into) for item, into in missing if collect([item], sources, into)]


def _installed_package() -> list[Path]:
    spec = importlib.util.find_spec("pycocoevalcap")
    found = spec.submodule_search_locations if spec is not None else None
    return [Path(found[0]) / "meteor"] if found else []


def _is_current(path: Path) -> bool:
    return path.is_file() and _is_readable(path, *_header(path))


def _is_readable(path: Path, header: dict[str, Any], begin: int) -> bool:
    """Whether these are tables of this format, and all of them."""
    if header.get("__metadata__", {}).get("format") != FORMAT:
        return False
    ends = [about["data_offsets"][1] for name, about in header.items() if name != "__metadata__"]
    return path.stat().st_size == begin + max(ends)


def build(jar: Path, paraphrases: Path, target: Path) -> None:
    """Write the tables that these two files hold."""
    words: dict[str, int] = {}
    with gzip.open(paraphrases, "rt", encoding="utf-8", newline="\n") as lines:
        arrays = _paraphrase_arrays(lines, words)
    arrays["words"] = _text(words)
    with zipfile.ZipFile(jar) as archive:
        arrays |= _synonym_arrays(_lines(archive, "synonym/english.synsets"))
        arrays["forms"] = _text(_lines(archive, "synonym/english.exceptions"))
        arrays["function_words"] = _text(_lines(archive, "function/english.words"))
        arrays["prefixes"] = _text(_lines(archive, "nonbreaking/english.prefixes"))
    made_from = {item.name: digest_of_file(path) for item, path in ((JAR, jar), (PARAPHRASES, paraphrases))}
    save_file(arrays, target, metadata={"format": FORMAT, **made_from})


def _paraphrase_arrays(lines: Iterator[str], words: dict[str, int]) -> dict[str, NDArray[Any]]:
    """The file is a probability, a phrase and its paraphrase, line by line. Probabilities are not used by METEOR."""
    phrases: dict[str, int] = {}
    source, lengths, flat = array("I"), array("B"), array("H")
    for _, phrase, paraphrase in zip(lines, lines, lines, strict=False):
        source.append(phrases.setdefault(phrase.rstrip("\n"), len(phrases)))
        ids = [words.setdefault(word, len(words)) for word in paraphrase.split()]
        lengths.append(len(ids))
        flat.extend(ids)
    paths = [[words.setdefault(word, len(words)) for word in phrase.split()] for phrase in phrases]
    if len(words) > 2**16:
        raise InputError(f"the paraphrases have {len(words)} different words; {2**16} is the most")
    keys, states = _trie(paths)
    owner = states[np.frombuffer(source, dtype=np.uint32)]
    order = owner.argsort(kind="stable")
    length = np.frombuffer(lengths, dtype=np.uint8)
    begins = np.concatenate([[0], length.cumsum(dtype=np.int64)])
    counts = np.bincount(owner, minlength=len(keys) + 1)
    return {
        "trie": keys,
        "paraphrase_begins": np.concatenate([[0], counts.cumsum()]).astype(np.uint32),
        "paraphrase_ends": length[order].cumsum(dtype=np.uint32),
        "paraphrase_words": _gathered(np.frombuffer(flat, dtype=np.uint16), begins, order),
    }


def _trie(paths: Sequence[Sequence[int]]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """The sorted keys, and the state at the end of each path."""
    depth = max(map(len, paths))
    padded = np.array([[*path, *[-1] * (depth - len(path))] for path in paths], dtype=np.int64)
    state = np.zeros(len(paths), dtype=np.int64)
    levels: list[NDArray[np.int64]] = []
    known = 0
    for words in padded.T:
        going = words >= 0
        step, place = np.unique(state[going] * 2**16 + words[going], return_inverse=True)
        state[going] = 1 + known + place
        known += len(step)
        levels.append(step)
    return np.concatenate(levels).astype(np.uint64), state


def _gathered(flat: NDArray[Any], begins: NDArray[np.int64], order: NDArray[np.int64]) -> NDArray[Any]:
    """Pieces of `flat` in another order."""
    lengths = begins.take(order + 1) - begins.take(order)
    ends = lengths.cumsum()
    within = np.arange(int(ends[-1])) - np.repeat(ends - lengths, lengths)
    return flat[np.repeat(begins.take(order), lengths) + within]


def _synonym_arrays(lines: list[str]) -> dict[str, NDArray[Any]]:
    """A word, then the numbers of its synonym sets, on two lines each."""
    sets = [[int(number) for number in row.split()] for row in lines[1::2]]
    return {
        "synonym_words": _text(lines[0::2]),
        "synonym_begins": np.array([0, *map(len, sets)], dtype=np.uint32).cumsum(dtype=np.uint32),
        "synonym_sets": np.array([number for row in sets for number in row], dtype=np.uint32),
    }


def _lines(archive: zipfile.ZipFile, name: str) -> list[str]:
    return archive.read(name).decode("utf-8").rstrip("\n").split("\n")


def _text(lines: Sequence[str] | dict[str, int]) -> NDArray[np.uint8]:
    return np.frombuffer("\n".join(lines).encode(), dtype=np.uint8)


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """The description at the head of a safetensors file, and where the numbers begin."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        try:
            return json.loads(file.read(min(size, 100_000))), 8 + size
        except ValueError:
            return {}, 0


@dataclass(frozen=True, eq=False)
class Tables:
    """What METEOR knows about English, read from the file as it is needed."""

    arrays: dict[str, memoryview]

    @classmethod
    def load(cls, path: Path) -> "Tables":
        """Map the file; nothing but its head is read."""
        if not path.is_file():
            raise MissingError(
                f"METEOR's tables are not set up (looked in {path.parent})", fix=f"{SETUP} ({SIZE})"
            )
        header, begin = _header(path)
        if not _is_readable(path, header, begin):
            raise InputError(f"{path} is not a table of METEOR that this version reads", fix=f"{SETUP}")
        del header["__metadata__"]
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        kinds: dict[str, Literal["B", "H", "I", "Q"]] = {"U8": "B", "U16": "H", "U32": "I", "U64": "Q"}
        numbers = memoryview(mapped)[begin:]
        arrays = {}
        for name, about in header.items():
            first, last = about["data_offsets"]
            arrays[name] = numbers[first:last].cast(kinds[about["dtype"]])
        return cls(arrays)

    def lines(self, name: str) -> list[str]:
        return self.arrays[name].tobytes().decode().split("\n")

    @cached_property
    def words(self) -> list[str]:
        """The words of the paraphrases, by number."""
        return self.lines("words")

    @cached_property
    def word_ids(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}

    @cached_property
    def function_words(self) -> frozenset[str]:
        return frozenset(self.lines("function_words"))

    @cached_property
    def prefixes(self) -> dict[str, bool]:
        """Words whose period ends no sentence; True where only before a number."""
        fields = [
            line.split() for line in self.lines("prefixes") if line.strip() and not line.startswith("#")
        ]
        return {word: rest[:1] == ["#NUMERIC_ONLY#"] for word, *rest in fields}

    @cached_property
    def synonym_ids(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.lines("synonym_words"))}

    @cached_property
    def bases(self) -> dict[str, list[str]]:
        """The base words of irregular forms: of `men`, `man`."""
        lines = self.lines("forms")
        bases: dict[str, list[str]] = {}
        for base, forms in zip(lines[0::2], lines[1::2], strict=True):
            for form in forms.split():
                bases.setdefault(form, []).append(base)
        return bases

    def synonym_sets(self, word: str) -> set[int]:
        """The synonym sets of the very word."""
        number = self.synonym_ids.get(word)
        if number is None:
            return set()
        first, last = self.arrays["synonym_begins"][number : number + 2]
        return set(self.arrays["synonym_sets"][first:last].tolist())

    @cached_property
    def phrases(self) -> "Phrase":
        """The beginning of all phrases that have paraphrases."""
        return Phrase(self, 0)


class Phrase(dict[str, "Phrase | None"]):
    """A phrase, or the beginning of one: `phrase[word]` is what the next word makes of it, None where nothing does.

    Filled as it is asked, so that of a million phrases only those of the captions at hand are ever made.
    """

    def __init__(self, tables: Tables, state: int) -> None:
        super().__init__()
        self.tables = tables
        self.state = state

    def __missing__(self, word: str) -> "Phrase | None":
        number, trie = self.tables.word_ids.get(word), self.tables.arrays["trie"]
        found = None
        if number is not None:
            key = self.state * 2**16 + number
            place = bisect_left(trie, key)
            if place < len(trie) and trie[place] == key:
                found = Phrase(self.tables, place + 1)
        self[word] = found
        return found

    @cached_property
    def paraphrases(self) -> Paraphrases:
        """Those of this phrase; none where it is only the beginning of one."""
        arrays, words = self.tables.arrays, self.tables.words
        first, last = arrays["paraphrase_begins"][self.state : self.state + 2]
        ends = arrays["paraphrase_ends"][first:last].tolist()
        begin = offset = arrays["paraphrase_ends"][first - 1] if first else 0
        numbers = arrays["paraphrase_words"][begin : ends[-1] if ends else begin].tolist()
        found: Paraphrases = {}
        for rank, end in enumerate(ends):
            paraphrase = [words[number] for number in numbers[begin - offset : end - offset]]
            found.setdefault(paraphrase[0], []).append((rank, paraphrase))
            begin = end
        return found

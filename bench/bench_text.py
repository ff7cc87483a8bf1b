"""The tokeniser against the Stanford program it stands for, on every caption there is here.

    python -m bench text                  time, and the number of captions that differ, in the last column
    python -m bench.bench_text --golden   ask the program again for the answers in tests/text/golden_ptb.json

The reference is pycocoevalcap's PTBTokenizer, start of Java included; ours forgets what it has learned before each run,
rules included, as a new process would have none of it.
"""

import gc
import importlib.util
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TypeVar

from bench import Row
from bench.coco import coco_captions
from caplore.errors import CaploreError, MissingError
from caplore.text import ptb

T = TypeVar("T")

PIECES = """
a A dog st. Mr. no. u.s. K. The it's don't 'n' cannot 5 555 1/2 . , ... -- - ( ) < > " & @ # é 日 ½ 😀 <b> </b> x.org.
http://a.b/c. www.x.com joe@x.org :) ;-) $5 10:30 5'4" 6-foot o'clock y'all rock'n'roll ol' '90s 90's A.M. e.g. 1,000
3.5 +44 555-1234 (555) 555-5555 C++ AT&T &amp; &lt; dogs' dog's wanna gonna gimme d'or ma'am 12/25/2012 t-shirt #1
black-and-white half‐eaten t‑shirt #tag @home * ** _ ~ ^ % / \\ | = + [ ] { } “ ” ‘ ’ – — … ` `` '' ? ! ?! !!! ; : ﬁ ß
İ ı Ω µ ² € £ ¢
"""
CHARACTERS = [*map(chr, (*range(32, 127), *range(0xA0, 0x250), *range(0x391, 0x3A1), *range(0x410, 0x44F)))]
CHARACTERS += map(
    chr, (*range(0x2010, 0x2028), *range(0x2030, 0x205E), *range(0x20A0, 0x20BF), *range(0x4E00, 0x4F00))
)

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "text" / "golden_ptb.json"
SHARED = ROOT.parent / "shared" / "data"


def rows() -> Iterator[Row]:
    for what, captions in corpora():
        try:
            texts = captions()
        except (CaploreError, OSError) as error:
            yield Row(f"PTB, {what}", 0.0, note=f"not run: {error}")
            continue
        turns = 9 if len(texts) < 100_000 else 3
        try:
            _jar()
        except CaploreError as error:
            ours, _ = timed([lambda texts=texts: _from_nothing(texts)], turns)[0]
            yield Row(f"PTB, {what}", ours, note=f"{len(texts)} captions; reference not run: {error}")
            continue
        (ours, words), (theirs, lines) = timed(
            [
                lambda texts=texts: _from_nothing(texts),
                lambda texts=texts: stanford_by_pycocoevalcap(texts),
            ],
            turns,
        )
        differ = sum(ours != line for ours, line in zip(words, lines, strict=True))
        yield Row(
            f"PTB, {what}", ours, theirs, "s", differ, f"{len(texts)} captions; max |diff|: how many differ"
        )


def corpora() -> Iterator[tuple[str, Callable[[], list[str]]]]:
    yield "5,000 COCO images", lambda: list(chain.from_iterable(list(coco_captions("val").values())[:5000]))
    yield "all of COCO 2014", lambda: [c for split in ("train", "val") for c in _flat(split)]
    yield "Flickr8k", flickr8k
    yield "MSVD", msvd
    yield "odd lines, made up", odd_lines


def _flat(split: str) -> list[str]:
    return list(chain.from_iterable(coco_captions(split).values()))  # type: ignore[arg-type]


def flickr8k() -> list[str]:
    lines = (SHARED / "flickr8k" / "Flickr8k.token.txt").read_text(encoding="utf-8").split("\n")
    return [line.split("\t", 1)[1] for line in lines if "\t" in line]


def msvd() -> list[str]:
    clips = json.loads((SHARED / "msvd" / "captions.json").read_text(encoding="utf-8"))
    return [caption for clip in clips for caption in clip["captions"]]


def odd_lines() -> list[str]:
    """Lines that no person would write: pieces that have rules of their own side by side, and any characters."""
    rng = random.Random(0)
    pieces = PIECES.split()

    def line() -> str:
        kind = rng.randrange(3)
        if kind == 0:
            return "".join(rng.choices(CHARACTERS + ["a", " "] * 200, k=rng.randint(1, 12)))
        ends = [" ", "" if kind == 1 else "  "]
        return "".join(rng.choice(pieces) + rng.choice(ends) for _ in range(rng.randint(1, 7)))

    return [line() for _ in range(30_000)]


def _from_nothing(captions: Sequence[str]) -> list[str]:
    ptb._known.clear()
    ptb._known[""] = ()
    for built in (ptb._rules, ptb._leans, ptb._kinds):
        built.cache_clear()
    re.purge()
    return ptb.tokenize_lines(captions)


def timed(works: Sequence[Callable[[], T]], turns: int) -> list[tuple[float, T]]:
    """The fastest of each, in turns, and what came out. No garbage collection meanwhile, as timeit does it."""
    found: list[tuple[float, T]] = []
    gc.disable()
    for turn in range(turns):
        for i, work in enumerate(works):
            begun = time.perf_counter()
            result = work()
            took = time.perf_counter() - begun
            found[i : i + 1] = [(took if turn == 0 else min(took, found[i][0]), result)]
    gc.enable()
    return found


def stanford_by_pycocoevalcap(captions: Sequence[str]) -> list[str]:
    """What coco-caption makes of them: one line of words for each, in order."""
    _jar()
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    found = PTBTokenizer().tokenize({i: [{"caption": caption}] for i, caption in enumerate(captions)})
    return [found[i][0] for i in range(len(captions))]


def stanford(captions: Sequence[str]) -> list[list[str]]:
    """The same from the program itself, with UTF-8 wherever this runs."""
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder) / "captions.txt"
        lines.write_bytes("\n".join(captions).encode() + b"\n")
        command = [
            "java",
            "-Dfile.encoding=UTF-8",
            "-cp",
            str(_jar()),
            "edu.stanford.nlp.process.PTBTokenizer",
        ]
        done = subprocess.run(
            [*command, "-preserveLines", "-lowerCase", lines], capture_output=True, check=True
        )
    words = [line.rstrip().split(" ") for line in done.stdout.decode().split("\n")[: len(captions)]]
    return [[word for word in line if word and word not in ptb.PUNCTUATION] for line in words]


def _jar() -> Path:
    if shutil.which("java") is None:
        raise MissingError("java is not on PATH", fix="caplore setup java")
    spec = importlib.util.find_spec("pycocoevalcap")
    if spec is None or spec.submodule_search_locations is None:
        raise MissingError(
            "pycocoevalcap is not installed", fix="pip install --no-deps pycocoevalcap==1.2 pycocotools"
        )
    return Path(spec.submodule_search_locations[0]) / "tokenizer" / "stanford-corenlp-3.4.1.jar"


def golden() -> None:
    """The same captions, answered anew: each alone (a line that opens no sentence comes next), and as one file."""
    kept = json.loads(GOLDEN.read_text(encoding="utf-8"))
    alone = [caption for caption, _ in kept["alone"]]
    lines = [caption for caption, _ in kept["lines"]]
    answers = stanford([line for caption in alone for line in (caption, "q")])[::2]
    kept["alone"] = [list(pair) for pair in zip(alone, answers, strict=True)]
    kept["lines"] = [list(pair) for pair in zip(lines, stanford(lines), strict=True)]
    GOLDEN.write_text(_json(kept), encoding="utf-8")


def _json(kept: dict[str, object]) -> str:
    """One caption per line."""
    parts = []
    for key, value in kept.items():
        if isinstance(value, list):
            inner = ",\n  ".join(json.dumps(row) for row in value)
            parts.append(f"{json.dumps(key)}: [\n  {inner}\n ]")
        else:
            parts.append(f"{json.dumps(key)}: {json.dumps(value)}")
    return "{\n " + ",\n ".join(parts) + "\n}\n"


if __name__ == "__main__":
    if sys.argv[1:] != ["--golden"]:
        sys.exit("usage: python -m bench text      python -m bench.bench_text --golden")
    golden()

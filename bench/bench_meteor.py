"""METEOR against meteor-1.5.jar on COCO: one human caption of an image as candidate, its others as references.

    python -m bench meteor                  time, and the largest difference of a caption and of the corpus
    python -m bench.bench_meteor --golden   ask the jar again for the answers in tests/metrics/golden_meteor.json

Both sides are whole processes, from tokenised captions in a file to scores: start, tables, matching.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import Row, in_turns
from bench.coco import coco_captions
from caplore.errors import CaploreError
from caplore.files import write_json
from caplore.metrics.meteor import Meteor
from caplore.metrics.meteor.stem import stem
from caplore.metrics.meteor.tables import Tables, program_jar, tables_file
from caplore.metrics.meteor_java import meteor_by_jar
from caplore.native import native
from caplore.text.ptb import tokenize_many

IMAGES = 5000
CLOSE = 1e-4
GOLDEN = Path(__file__).parents[1] / "tests" / "metrics" / "golden_meteor.json"
OURS = """\
import json, sys
import numpy as np
from caplore.metrics.meteor import Meteor, score
candidates, references = json.load(open(sys.argv[1]))
counts = Meteor.load().statistics_many(candidates, references)
json.dump([score(counts).tolist(), float(score(counts.sum(0)))], open(sys.argv[2], "w"))
"""
THEIRS = """\
import json, sys
from pycocoevalcap.meteor.meteor import Meteor
candidates, references = json.load(open(sys.argv[1]))
said = {i: [" ".join(words)] for i, words in enumerate(candidates)}
true = {i: [" ".join(words) for words in some] for i, some in enumerate(references)}
corpus, captions = Meteor().compute_score(true, said)
json.dump([captions, corpus], open(sys.argv[2], "w"))
"""


def rows() -> Iterator[Row]:
    begun = time.perf_counter()
    try:
        Tables.load(tables_file())
    except CaploreError as error:
        yield Row("METEOR", 0.0, note=f"not run: {error}")
        return
    yield Row("METEOR, map the tables", time.perf_counter() - begun)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_json(folder / "captions.json", held_out())
        ours, (captions, corpus) = run(OURS, folder)
        what = f"METEOR, {IMAGES:,} COCO images, start included"
        try:
            theirs, (their_captions, their_corpus) = run(THEIRS, folder)
        except RuntimeError as error:
            yield Row(what, ours, note=f"the jar did not run: {error}")
            return
    apart = np.abs(np.array(captions) - their_captions)
    note = f"{np.mean(apart <= CLOSE):.2%} of captions within {CLOSE}; corpus {corpus:.6f}, theirs {their_corpus:.6f}"
    yield Row(what, ours, theirs, "s", float(apart.max()), note)
    yield Row("METEOR, corpus", corpus, their_corpus, "", abs(corpus - their_corpus))
    yield from twin_rows()
    yield salad_row()


def twin_rows() -> Iterator[Row]:
    """The compiled twin against the Python that defines it, from mapped tables to counts, nothing learned before."""
    said, true = held_out()
    candidates = [" ".join(words) for words in said]
    references = [[" ".join(words) for words in some] for some in true]
    pairs = sum(map(len, references))

    def counts(threads: int = 1, twin: str = "1") -> NDArray[np.int32]:
        os.environ["CAPLORE_NATIVE"] = twin
        stem.cache_clear()
        try:
            return Meteor.load().statistics_lines(candidates, references, threads=threads)
        finally:
            del os.environ["CAPLORE_NATIVE"]

    what = f"METEOR, {pairs:,} pairs"
    if native("caplore.metrics.meteor._align") is None:
        yield Row(f"{what}, compiled", float("nan"), note="not run: the twin was not built")
        return
    apart = float(np.abs(counts() - counts(twin="0")).max())
    ours, theirs = in_turns([counts, lambda: counts(twin="0")], 5, time.process_time)
    yield Row(f"{what}, compiled : Python, processor", ours, theirs, "s", apart)
    apart = float(np.abs(counts(2) - counts(1)).max())
    two, one = in_turns([lambda: counts(2), counts], 15)
    yield Row(f"{what}, two threads : one", two, one, "s", apart)


def salad_row() -> Row:
    """All counts against the jar's where ambiguity is worst: sentences of twenty words, many of them phrases."""
    rng = random.Random(0)
    words = sorted(
        {word for captions in coco_captions("val").values() for word in tokenize_many(captions[:1])[0]}
    )
    candidates, references = [], []
    for _ in range(1500):
        few = [*rng.sample(words, 14), "a", "the", "of", "in", "on", "in front of", "next to"]
        salads = [" ".join(rng.choices(few, k=rng.randint(0, 40))).split() for _ in range(4)]
        candidates.append(salads[0])
        references.append(salads[1:])
    begun = time.perf_counter()
    ours = Meteor.load().statistics_many(candidates, references)
    took = time.perf_counter() - begun
    begun = time.perf_counter()
    theirs = meteor_by_jar(candidates, references).counts
    note = f"{int((ours != theirs).any(1).sum())} of {len(ours):,} differ in any of {ours.shape[1]} counts"
    what = "METEOR, 1,500 word salads x 3"
    return Row(what, took, time.perf_counter() - begun, "s", float(np.abs(ours - theirs).max()), note)


def held_out() -> list[list[Any]]:
    """[candidates, references], tokenised: the first caption of each image, and its others."""
    images = [captions for captions in coco_captions("val").values() if len(captions) > 1][:IMAGES]
    words = iter(tokenize_many([caption for captions in images for caption in captions]))
    of_images = [[next(words) for _ in captions] for captions in images]
    return [[of[0] for of in of_images], [of[1:] for of in of_images]]


def run(program: str, folder: Path) -> tuple[float, list[Any]]:
    """Seconds of the fastest of three processes, and what it wrote."""
    out = folder / "out.json"
    fastest = float("inf")
    for _ in range(3):
        begun = time.perf_counter()
        command = [sys.executable, "-c", program, str(folder / "captions.json"), str(out)]
        done = subprocess.run(command, capture_output=True, text=True)
        fastest = min(fastest, time.perf_counter() - begun)
        if done.returncode != 0:
            raise RuntimeError((done.stderr.strip().splitlines() or ["no reason given"])[-1])
    return fastest, json.loads(out.read_text())


def golden() -> None:
    """The same captions, answered anew by the jar: the counts of each, the corpus score, and stems of words."""
    kept = json.loads(GOLDEN.read_text(encoding="utf-8"))
    candidates = [case["candidate"].split(" ") for case in kept["cases"]]
    references = [[text.split(" ") for text in case["references"]] for case in kept["cases"]]
    by_jar = meteor_by_jar(candidates, references)
    for case, counts, value in zip(
        kept["cases"], by_jar.counts.tolist(), by_jar.scores.tolist(), strict=True
    ):
        case["counts"], case["score"] = counts, value
    kept["corpus"] = by_jar.corpus
    stems = subprocess.run(
        ["java", "-Dfile.encoding=UTF-8", "-cp", program_jar(), "Stemmer", "en"],
        input="\n".join(kept["stems"]),
        capture_output=True,
        check=True,
        encoding="utf-8",
    ).stdout.split("\n")
    kept["stems"] = dict(zip(kept["stems"], (stem.strip() for stem in stems), strict=False))
    lines = ",\n  ".join(json.dumps(case, ensure_ascii=False) for case in kept.pop("cases"))
    head = ",\n ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in kept.items())
    GOLDEN.write_text(f'{{\n {head},\n "cases": [\n  {lines}\n ]\n}}\n', encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] != ["--golden"]:
        sys.exit("usage: python -m bench meteor      python -m bench.bench_meteor --golden")
    golden()

"""`caplore score` against pycocoevalcap 1.2 as processes, from files to scores: everything but SPICE.

Both read the same two files of 5,000 COCO images with one candidate and five references each, tokenise, and compute
BLEU-1..4, METEOR, ROUGE-L and CIDEr-D ("CIDEr" there); pycocoevalcap with its Java tokeniser and its METEOR jar. A
candidate is the first half of a caption of its image and the second half of one of the next image, so that it
resembles its references without being one of them. Interpreter, imports and JVMs are part of the time.

Both sides run once uncounted and may keep what Python compiles of their sources (PYTHONDONTWRITEBYTECODE is taken out
of their environment): as on any machine where they were used before. Without that each run would compile them anew.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench import Row
from bench.coco import coco_captions
from caplore.files import write_json, write_jsonl

IMAGES = 5000
REPEATS = 3
THEIRS = """\
import json, sys
from pycocotools.coco import COCO
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.meteor.meteor import Meteor
from pycocoevalcap.rouge.rouge import Rouge
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

candidates, references, out, with_meteor = sys.argv[1:]
coco = COCO(references)
results = coco.loadRes(candidates)
ids = coco.getImgIds()
tokenizer = PTBTokenizer()
gts = tokenizer.tokenize({i: coco.imgToAnns[i] for i in ids})
res = tokenizer.tokenize({i: results.imgToAnns[i] for i in ids})
scorers = [(Bleu(4), ["bleu_1", "bleu_2", "bleu_3", "bleu_4"]), (Rouge(), "rouge_l"), (Cider(), "cider_d")]
scorers += [(Meteor(), "meteor")] if with_meteor == "yes" else []
scores = {}
for scorer, names in scorers:
    value, _ = scorer.compute_score(gts, res)
    scores.update(zip(names, value) if isinstance(names, list) else [(names, float(value))])
json.dump(scores, open(out, "w"))
"""


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        files = write_files(Path(folder))
        yield row(files, "BLEU, ROUGE-L, CIDEr-D", meteor=False)
        yield row(files, "the same and METEOR", meteor=True)
    yield from million_rows(1_000_000)


def write_files(folder: Path) -> tuple[Path, Path]:
    """(candidates, references) as COCO's results and annotations."""
    of = {image: captions[:5] for image, captions in coco_captions("val").items() if len(captions) >= 5}
    images = sorted(of)[: IMAGES + 1]
    rng = random.Random(0)
    candidates: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for image, neighbour in pairwise(images):
        first, second = rng.choice(of[image]).split(), rng.choice(of[neighbour]).split()
        mixed = first[: len(first) // 2] + second[len(second) // 2 :]
        candidates.append({"image_id": image, "caption": " ".join(mixed)})
        annotations += [{"image_id": image, "id": len(annotations), "caption": text} for text in of[image]]
    head = {"info": {}, "licenses": [], "images": [{"id": row["image_id"]} for row in candidates]}
    write_json(folder / "candidates.json", candidates)
    write_json(folder / "references.json", {**head, "annotations": annotations})
    return folder / "candidates.json", folder / "references.json"


def row(files: tuple[Path, Path], what: str, *, meteor: bool) -> Row:
    candidates, references = files
    ours, theirs = candidates.parent / "ours.json", candidates.parent / "theirs.json"
    metrics = "bleu,rouge_l,cider_d" + (",meteor" if meteor else "")
    command = [sys.executable, "-m", "caplore", "score", candidates, "--refs", references]
    took = seconds([*command, "--metrics", metrics, "--json", ours])
    reference = seconds([sys.executable, "-c", THEIRS, *files, theirs, "yes" if meteor else "no"])
    scores = {name: score["value"] for name, score in json.loads(ours.read_text())["scores"].items()}
    truth = json.loads(theirs.read_text())
    difference = max(abs(scores[name] - truth[name]) for name in truth)
    return Row(f"files to scores, {IMAGES:,} x 1 x 5: {what}", took, reference, "s", difference)


def seconds(command: Sequence[Any], repeats: int = REPEATS) -> float:
    """The fastest of several runs of a process, after one that does not count."""
    run(command)
    return min(run(command)[0] for _ in range(repeats))


def run(command: Sequence[Any]) -> tuple[float, str]:
    """Seconds of a process, and what it printed."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    begun = time.perf_counter()
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment)
    took = time.perf_counter() - begun
    if done.returncode != 0:
        raise RuntimeError(f"{command[:4]} ended with {done.returncode}: {done.stderr[-2000:]}")
    return took, done.stdout


MILLION = """\
import sys
from pathlib import Path
from caplore.cli.main import main
assert main(sys.argv[1:]) == 0
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(int(status["VmHWM"].split()[0]))
"""


def million_rows(captions: int) -> Iterator[Row]:
    """Ten captions of each of 100,000 inputs in one call; the memory is the most that the process had."""
    sets = [texts[:5] for texts in coco_captions("val").values()]
    inputs = captions // 10
    with tempfile.TemporaryDirectory() as name:
        said, refs = Path(name) / "said.jsonl", Path(name) / "refs.jsonl"
        write_jsonl(said, ({"id": i, "captions": of(sets, i) + of(sets, 7 * i + 1)} for i in range(inputs)))
        write_jsonl(refs, ({"id": i, "references": of(sets, i)} for i in range(inputs)))
        command = [sys.executable, "-c", MILLION, "score", said, "--refs", refs]
        took, printed = run([*command, "--metrics", "bleu,rouge_l,cider_d,div"])
        peak = int(printed.split()[-1]) / 2**20
        yield Row(f"files to scores, {captions:,} candidates, time", took, unit="s")
        yield Row(f"files to scores, {captions:,} candidates, memory", peak, unit="GiB")


def of(sets: list[list[str]], i: int) -> list[str]:
    return sets[i % len(sets)]

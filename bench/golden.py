"""Make the goldens of the tests again, from the reference implementations: `python -m bench.golden`.

    tests/metrics/golden_metrics.json    BLEU, ROUGE-L, CIDEr-D and mBLEU by pycocoevalcap
    tests/metrics/golden_meteor.json     METEOR's counts and scores by its jar
    tests/text/golden_ptb.json           words by Stanford's tokeniser

Captions are made up from a few words by a seeded generator, or written by hand, so that they may stand in the
repository. What comes out is byte for byte what is there: `git diff tests` afterwards shows what a program changed.
"""

import importlib.metadata
import json
import random
from pathlib import Path
from typing import Any

from bench import bench_meteor, bench_text

TESTS = Path(__file__).parent.parent / "tests"
WORDS = "a the red blue small man dog cat ball tree street runs sits holds on under near two with and".split()  # noqa: SIM905
STRANGE = ["zeppelin", "naïve", "wombat", "1492"]

Captions = list[list[str]]


def caption(rng: random.Random, longest: int = 14, words: list[str] = WORDS) -> str:
    return " ".join(rng.choices(words, k=rng.randint(3, longest)))


def changed(rng: random.Random, text: str) -> str:
    """A caption near another one: a few words replaced, dropped or doubled."""
    words = text.split()
    for _ in range(rng.randint(0, 4)):
        place = rng.randrange(len(words))
        words[place : place + 1] = rng.choice(
            [[rng.choice(WORDS)], [words[place]] * 2, [] if len(words) > 3 else ["a"]]
        )
    return " ".join(words)


def ordinary(rng: random.Random) -> tuple[Captions, Captions]:
    references = [[first := caption(rng), *(changed(rng, first) for _ in range(4))] for _ in range(30)]
    return [[changed(rng, rng.choice(refs)) for _ in range(3)] for refs in references], references


def ragged(rng: random.Random) -> tuple[Captions, Captions]:
    references = []
    for count in (1, 80, 2, 18, 1, 5, 33):
        first = caption(rng, 25)
        references.append([first, *(changed(rng, first) for _ in range(count - 1))])
    return [[changed(rng, rng.choice(refs)) for _ in range(3)] for refs in references], references


def odd(rng: random.Random) -> tuple[Captions, Captions]:
    """Empty captions and references, words seen nowhere else, one word, the same word forty times, long ones."""
    references = [[caption(rng), caption(rng)] for _ in range(7)]
    references[1][1] = ""
    references[5] = [caption(rng, 150, WORDS) for _ in range(2)]
    candidates = ["", "", "zeppelin wombat", "a", " ".join(["dog"] * 40), caption(rng, 150), references[6][0]]
    others = [caption(rng, 8, WORDS + STRANGE) for _ in candidates]
    return [[c, o, r[0]] for c, o, r in zip(candidates, others, references, strict=True)], references


def one_image(rng: random.Random) -> tuple[Captions, Captions]:
    candidates, references = ordinary(rng)
    return candidates[:1], references[:1]


def with_white_space(rng: random.Random) -> tuple[Captions, Captions]:
    """Words that the tokeniser keeps together by a no-break space: two to BLEU and CIDEr, one to ROUGE-L."""
    candidates, references = ordinary(rng)
    odd_ones = ["25\u00a01/2", "1\u00a01/2", "1/2", "25"]
    for captions in (*candidates, *references):
        for i in range(0, len(captions), 2):
            captions[i] = f"{captions[i]} {rng.choice(odd_ones)} {rng.choice(WORDS)}"
    return candidates, references


def metrics() -> tuple[Path, dict[str, Any]]:
    cases = {}
    for number, make in enumerate((ordinary, ragged, odd, one_image, with_white_space)):
        candidates, references = make(random.Random(number))
        cases[make.__name__] = {
            "candidates": candidates,
            "references": references,
            "slots": [slot_scores(candidates, references, slot) for slot in range(3)],
            "mbleu": mbleu(candidates),
        }
    made_by = f"pycocoevalcap {importlib.metadata.version('pycocoevalcap')}"
    golden = {"made_by": made_by, "command": "python -m bench.golden", "cases": cases}
    return TESTS / "metrics" / "golden_metrics.json", golden


def slot_scores(candidates: Captions, references: Captions, slot: int) -> dict[str, Any]:
    """Corpus and caption scores of the captions in one place of each set."""
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.rouge.rouge import Rouge

    gts = dict(enumerate(references))
    res = {i: [captions[slot]] for i, captions in enumerate(candidates)}
    bleu, bleus = Bleu(4).compute_score(gts, res, verbose=0)
    cider, ciders = Cider().compute_score(gts, res)
    rouge, rouges = Rouge().compute_score(gts, res)
    found = {f"bleu_{n}": (bleu[n - 1], bleus[n - 1]) for n in (1, 2, 3, 4)}
    found |= {"cider_d": (float(cider), ciders.tolist()), "rouge_l": (float(rouge), rouges.tolist())}
    return {name: {"corpus": corpus, "captions": values} for name, (corpus, values) in found.items()}


def mbleu(candidates: Captions) -> list[float]:
    """As the field does it: corpus BLEU of each slot against the other slots, then the mean over slots."""
    from pycocoevalcap.bleu.bleu import Bleu

    slots = []
    for slot in range(3):
        res = {i: [captions[slot]] for i, captions in enumerate(candidates)}
        gts = {i: captions[:slot] + captions[slot + 1 :] for i, captions in enumerate(candidates)}
        slots.append(Bleu(4).compute_score(gts, res, verbose=0)[0])
    return [sum(values) / len(slots) for values in zip(*slots, strict=True)]


def main() -> None:
    path, golden = metrics()
    path.write_text(json.dumps(golden, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for part in (bench_meteor, bench_text):
        part.golden()
    for made in (path, bench_meteor.GOLDEN, bench_text.GOLDEN):
        print(f"{made}: by {json.loads(made.read_text(encoding='utf-8'))['made_by']}")


if __name__ == "__main__":
    main()

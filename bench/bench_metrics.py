"""Metrics on ids and on words against pycocoevalcap 1.2, on COCO 2014 captions tokenised once for both.

The candidate of an image is its first caption, the references are the others. As a reward the reference scorer gets
the corpus's document frequencies: its own way of taking those of the batch would be another metric.
"""

import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bench import Row, fastest
from bench.coco import coco_captions
from caplore.metrics.bleu import bleu_distance
from caplore.metrics.bootstrap import bootstrap_all
from caplore.metrics.cider import CiderD
from caplore.metrics.ngrams import DocumentFrequencies
from caplore.metrics.scoring import text_scores
from caplore.text.ptb import tokenize_many
from caplore.text.vocabulary import Vocabulary, pack

IMAGES = 5000
TIME = 20
END = "<end>"

Words = list[str]


@cache
def tokenised(split: str) -> list[list[Words]]:
    """The captions of each image as words."""
    captions = coco_captions(split)  # type: ignore[arg-type]
    words = iter(tokenize_many([caption for some in captions.values() for caption in some]))
    return [[next(words) for _ in some] for some in captions.values()]


def rows() -> Iterator[Row]:
    yield from reward_rows()
    yield from word_rows()
    yield from set_rows()
    yield from million_rows()


# As a reward: ids in, scores out.


def reward_rows() -> Iterator[Row]:
    corpus = (tokenised("train") + tokenised("val"))[:113_287]
    batch = tokenised("val")[-50:]
    sampled = [captions[:5] for captions in tokenised("val")[-150:-100]]
    vocabulary = Vocabulary.from_captions((c for captions in corpus for c in captions), min_count=1)
    refs, there = ids(corpus, vocabulary, 7)
    df = DocumentFrequencies.from_references(refs, there, vocab=len(vocabulary))
    counts = slow_frequencies(corpus)

    def build() -> None:
        DocumentFrequencies.from_references(refs, there, vocab=len(vocabulary))

    def reference_build() -> None:
        slow_frequencies(corpus)

    yield Row("document frequencies of 113,287 images", fastest(build, 2), fastest(reference_build, 1))
    yield Row(f"their memory, {int((df.table_counts > 0).sum()):,} n-grams", df.bytes / 1e6, unit="MB")
    every, all_there = ids(tokenised("train") + tokenised("val"), vocabulary, 7)
    whole = DocumentFrequencies.from_references(every, all_there, vocab=len(vocabulary)).bytes
    yield Row("memory of all 123,287 images' document frequencies", whole / 1e6, unit="MB")

    metric = CiderD(df)
    captions, _ = ids(sampled, vocabulary, 5)
    batch_refs, batch_there = ids(batch, vocabulary, 5)
    prepared = metric.prepare(batch_refs, batch_there)
    wanted = slow_cider(sampled, [captions[:5] for captions in batch], counts, len(corpus))
    got = metric.score(captions, prepared).double().numpy()
    difference = float(np.abs(got - wanted).max())

    def reference_score() -> Any:
        return slow_cider(sampled, [captions[:5] for captions in batch], counts, len(corpus))

    def with_references() -> None:
        metric.score(captions, metric.prepare(batch_refs, batch_there))

    theirs = fastest(reference_score, 5)
    for threads in sorted({1, torch.get_num_threads()}):
        with_threads = at_threads(threads)
        ours = with_threads(lambda: metric.score(captions, prepared))
        yield Row(
            f"CIDEr-D reward, 50 x 5 x 5 refs, {threads} thread(s)", ours, theirs, difference=difference
        )
        ours = with_threads(with_references)
        yield Row("  with the references prepared anew", ours, theirs, difference=difference)
    slow, distance = slow_distance(sampled), bleu_distance(captions)
    difference = float((distance.double() - slow).abs().max())
    ours = fastest(lambda: bleu_distance(captions), 30)
    yield Row(
        "BLEU-3/4 distances, 50 x 5 x 5", ours, fastest(lambda: slow_distance(sampled), 2), "s", difference
    )


def at_threads(threads: int) -> Callable[[Callable[[], Any]], float]:
    def measure(work: Callable[[], Any]) -> float:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            return fastest(work, 100)
        finally:
            torch.set_num_threads(before)

    return measure


def ids(captions: Sequence[Sequence[Words]], vocabulary: Vocabulary, rows: int) -> tuple[Tensor, Tensor]:
    tokens = torch.zeros(len(captions), rows, TIME, dtype=torch.long)
    there = torch.zeros(len(captions), rows, dtype=torch.bool)
    for i, some in enumerate(captions):
        kept = [vocabulary.encode(c) for c in some[:rows]]
        tokens[i, : len(kept)] = pack(kept, TIME)
        there[i, : len(kept)] = True
    return tokens, there


def scored(caption: Words) -> str:
    """As the reward sees it: cut to the length of a row, with its end where there is room for it."""
    return " ".join([*caption[: TIME - 1], END] if len(caption) < TIME else caption[:TIME])


def slow_frequencies(corpus: Sequence[Sequence[Words]]) -> dict[tuple[str, ...], float]:
    from pycocoevalcap.cider.cider_scorer import CiderScorer

    scorer = CiderScorer()
    for captions in corpus:
        scorer += ("", [scored(c) for c in captions])
    scorer.compute_doc_freq()
    return scorer.document_frequency


class _Corpus(list):  # type: ignore[type-arg]
    """A batch that says it is as long as the corpus, as the scorer takes log(images) from it."""

    def __init__(self, items: list[Any], images: int) -> None:
        super().__init__(items)
        self.images = images

    def __len__(self) -> int:
        return self.images


def slow_cider(
    captions: Sequence[Sequence[Words]],
    references: Sequence[Sequence[Words]],
    counts: dict[tuple[str, ...], float],
    images: int,
) -> np.ndarray:
    from pycocoevalcap.cider.cider_scorer import CiderScorer

    scorer = CiderScorer()
    for some, refs in zip(captions, references, strict=True):
        for caption in some:
            scorer += (scored(caption), [scored(r) for r in refs])
    scorer.document_frequency = defaultdict(float, counts) if not isinstance(counts, defaultdict) else counts
    scorer.crefs = _Corpus(scorer.crefs, images)
    return np.array(scorer.compute_cider()).reshape(len(captions), -1)


def slow_distance(captions: Sequence[Sequence[Words]]) -> Tensor:
    from pycocoevalcap.bleu.bleu_scorer import BleuScorer

    scorer = BleuScorer(n=4)
    for some in captions:
        for first in some:
            for second in some:
                scorer += (" ".join(first[:TIME]), [" ".join(second[:TIME])])
    _, scores = scorer.compute_score(option="closest")
    similarity = (torch.tensor(scores[2]) + torch.tensor(scores[3])).view(len(captions), 5, 5) / 2
    return 1 - (similarity + similarity.transpose(1, 2)) / 2


# As evaluation: words in, corpus and caption scores out.


def word_rows() -> Iterator[Row]:
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.rouge.rouge import Rouge

    images = tokenised("val")[:IMAGES]
    candidates = [captions[:1] for captions in images]
    references = [captions[1:] for captions in images]
    gts = {i: [" ".join(c) for c in captions] for i, captions in enumerate(references)}
    res = {i: [" ".join(c) for c in captions] for i, captions in enumerate(candidates)}
    theirs = {"bleu": lambda: Bleu(4).compute_score(gts, res, verbose=0)}
    theirs |= {"rouge_l": lambda: Rouge().compute_score(gts, res)}
    theirs |= {"cider_d": lambda: Cider().compute_score(gts, res)}
    for metric, reference in theirs.items():
        ours = fastest(lambda m=metric: text_scores(candidates, references, metrics=[m]), 3)  # type: ignore[misc]
        corpus, of_captions = disagreement(
            metric, text_scores(candidates, references, metrics=[metric]), reference()
        )
        what = f"{metric}, {IMAGES:,} images x 1 x 4: worst caption"
        yield Row(what, ours, fastest(reference, 1), difference=of_captions)
        yield Row(f"{metric}: corpus", ours, None, difference=corpus, note="the same run")
    together = fastest(lambda: text_scores(candidates, references, metrics=list(theirs)), 3)
    apart = fastest(lambda: [reference() for reference in theirs.values()], 1)
    yield Row("all three together", together, apart)
    scores = text_scores(candidates, references)
    intervals = fastest(lambda: bootstrap_all(scores.statistics), 2)
    what = f"bootstrap intervals of {len(scores.statistics)} scores, 1,000 draws"
    yield Row(what, intervals, note="nothing is rescored")


def disagreement(metric: str, ours: Any, reference: tuple[Any, Any]) -> tuple[float, float]:
    names = [f"bleu_{n}" for n in (1, 2, 3, 4)] if metric == "bleu" else [metric]
    corpus, captions = np.atleast_1d(reference[0]), np.array(reference[1]).reshape(len(names), -1)
    got = np.stack([ours.captions[name] for name in names])
    values = np.array([ours.corpus[name].value for name in names])
    return float(np.abs(values - corpus).max()), float(np.abs(got - captions).max())


def set_rows() -> Iterator[Row]:
    """The captions of an image as a set of five: the field's mBLEU runs BLEU once a slot."""
    from pycocoevalcap.bleu.bleu import Bleu

    sets = [captions[:5] for captions in tokenised("val")[:IMAGES]]
    texts = [[" ".join(c) for c in captions] for captions in sets]

    def reference() -> np.ndarray:
        slots = []
        for slot in range(5):
            res = {i: [t[slot]] for i, t in enumerate(texts)}
            gts = {i: t[:slot] + t[slot + 1 :] for i, t in enumerate(texts)}
            slots.append(Bleu(4).compute_score(gts, res, verbose=0)[0])
        return np.mean(slots, axis=0)

    def ours() -> list[float]:
        scores = text_scores(sets, sets, metrics=["mbleu"])
        return [scores.corpus[f"mbleu_{n}"].value or 0.0 for n in (1, 2, 3, 4)]

    difference = float(np.abs(np.array(ours()) - reference()).max())
    yield Row(f"mBLEU-1..4, {IMAGES:,} sets of 5", fastest(ours, 2), fastest(reference, 1), "s", difference)
    everything = fastest(lambda: text_scores(sets, sets), 1)
    yield Row(f"every set metric, {IMAGES:,} sets of 5 with 5 references", everything)


def million_rows() -> Iterator[Row]:
    """A process of its own, so that its memory is its own."""
    command = [sys.executable, "-m", "bench.bench_metrics", "million"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-2000:])
    seconds, gigabytes = map(float, done.stdout.split())
    what = "1,000,000 captions of 200,000 inputs, 5 references each"
    yield Row(what, seconds, note="words to scores, tokenised as coco-caption does")
    yield Row("  memory at the peak, captions included", gigabytes, unit="GB")


def million() -> None:
    captions = [captions[:5] for split in ("train", "val") for captions in coco_captions(split).values()]  # type: ignore[arg-type]
    references = [captions[i % len(captions)] for i in range(200_000)]
    candidates = [captions[(i * 7 + 1) % len(captions)] for i in range(200_000)]
    begun = time.perf_counter()
    text_scores(candidates, references, metrics=["bleu", "rouge_l", "cider_d", "div", "distinct", "length"])
    print(time.perf_counter() - begun, peak_gigabytes())


def peak_gigabytes() -> float:
    """Of this process alone: what getrusage says includes its parent's before exec."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) * 1024 / 1e9


def human() -> None:
    """What people score: the five captions of an image as a set, and the first against the other four."""
    sets = [captions[:5] for captions in tokenised("val")[:IMAGES]]
    as_sets = text_scores(
        sets, sets, metrics=["div", "mbleu", "self_cider", "vendi", "distinct", "length", "bad_endings"]
    )
    one = text_scores(
        [c[:1] for c in sets], [c[1:] for c in sets], metrics=["bleu", "rouge_l", "cider_d", "cider"]
    )
    covered = text_scores([c[:2] for c in sets], [c[2:] for c in sets], metrics=["coverage"])
    for scores in (as_sets, one, covered):
        for name, score in scores.corpus.items():
            print(f"{name:20} {score.value:.4f}  {score.signature}")


if __name__ == "__main__":
    {"million": million, "human": human}[sys.argv[1]]()

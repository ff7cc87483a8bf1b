"""Scores of captions given as words: what `caplore score`, evaluation and reports are made of.

`text_scores` turns words into ids, has everything counted at once (`counts`), and keeps three things: the value of
each caption, the numbers each corpus score is the sum of (for intervals and tests, `bootstrap`), and the scores
with their signatures. METEOR and SPICE, which need words, join by `Scores.add`. Nothing here needs torch.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from caplore.errors import ConfigError, InputError
from caplore.metrics import formulas
from caplore.metrics.bootstrap import Statistics
from caplore.metrics.corpus import (
    Caption,
    Captions,
    Lexicon,
    Lines,
    Ragged,
    Tokenizer,
    encode,
    split_at_white_space,
    tokenizer_name,
)
from caplore.metrics.counts import WEIGHED, CorpusFrequencies, Counts, Engine, Pairs, engine
from caplore.metrics.formulas import BETA, ORDERS, SCALE, SIGMA
from caplore.metrics.scores import Scores
from caplore.metrics.signature import Score, signature

Covered = Literal["cider_d", "bleu_4", "rouge_l"]

SENTENCE = ("bleu", "rouge_l", "cider_d", "cider")
"""Metrics of a caption."""
SET = ("div", "mbleu", "self_cider", "vendi", "coverage", "distinct")
"""Metrics of the captions of an input together."""
SAID = ("length", "bad_endings", "vocabulary", "novel")
"""What the captions are like, whatever the references; "novel" needs training captions."""
DEFAULT = ("bleu", "rouge_l", "cider_d", "div", "mbleu", "self_cider", "coverage", "distinct", *SAID)
_CUT_OFF = "a an the in for at of with before after on upon near to is are am"
BAD_ENDINGS = tuple(_CUT_OFF.split())
"""The last words by which self-critical.pytorch recognises a caption that was cut off."""

_FEW_IMAGES = 500  # below this many, df from the references themselves is a poor estimate
_COUNTS_OF = {  # what has to be counted for a metric; ROUGE-L is counted on words of another kind
    "bleu": ("bleu",),
    "cider_d": ("cider_d",),
    "cider": ("cider",),
    "div": ("ngrams",),
    "mbleu": ("bleu_others",),
    "distinct": ("captions",),
    "self_cider": ("cider_others",),
    "vendi": ("cider_others",),
    "coverage cider_d": ("cider_d",),
    "coverage bleu_4": ("bleu_each",),
}


def corpus_frequencies(
    references: Captions, *, name: str, tokenize: Tokenizer | None = None
) -> CorpusFrequencies:
    """Document frequencies of a corpus, usually the training captions of each image; `name` goes into signatures."""
    lexicon = Lexicon()
    (refs,) = split_at_white_space([encode(references, lexicon, tokenize)], lexicon)
    return CorpusFrequencies.of(refs, lexicon, name)


def text_scores(
    candidates: Captions,
    references: Captions,
    *,
    metrics: Collection[str] | None = None,
    df: CorpusFrequencies | None = None,
    training: Iterable[Caption] | None = None,
    covered: Covered = "cider_d",
    tokenize: Tokenizer | None = None,
) -> Scores:
    """Score the captions of each input, one or more, against its references.

    Captions are strings, tokenised as coco-caption does or by `tokenize`, lists of words, or `Lines` that were
    tokenised before. `metrics` are names of SENTENCE, SET and SAID (None: DEFAULT, as far as they apply). Document
    frequencies are those of the references, as in coco-caption, or of a corpus `df` (`corpus_frequencies`).
    `training` captions are what `novel` compares with; `covered` is the metric whose recall, precision and F1
    `coverage` means. Deterministic, on the CPU.
    """
    chosen = _chosen(metrics, _sizes(candidates), training)
    _refuse_missing(_sizes(candidates), _sizes(references))
    lexicon = Lexicon(df.lexicon if df else {})
    as_tokenised = [encode(side, lexicon, tokenize) for side in (candidates, references)]
    words, refs = split_at_white_space(as_tokenised, lexicon)
    names = {
        n for metric in chosen for n in _COUNTS_OF.get(f"{metric} {covered}", _COUNTS_OF.get(metric, ()))
    }
    frequencies = df
    if df is None and names & WEIGHED:
        frequencies = CorpusFrequencies.of(refs, lexicon, "references")
    by = engine() if frequencies is None else frequencies.engine
    counts = by.count(words, refs, names, None if frequencies is None else frequencies.table)
    scores = Scores(words.inputs)
    sign = _Signer(tokenizer_name(candidates, tokenize), scores.size, frequencies)
    found = _Found(scores, words, refs, as_tokenised, by, counts, sign)
    _report_sentences(found, chosen)
    _report_sets(found, chosen, covered)
    if training is not None:
        known = encode([list(training)], lexicon, tokenize)
        (known,) = split_at_white_space([known], lexicon)
    _report_said(found, chosen, None if training is None else known, lexicon)
    return scores


def _sizes(captions: Captions) -> NDArray[np.int64]:
    """How many captions each input has."""
    if isinstance(captions, Lines):
        return np.diff(captions.inputs)
    return np.fromiter(map(len, captions), dtype=np.int64, count=len(captions))


def _chosen(
    metrics: Collection[str] | None, sizes: NDArray[np.int64], training: Iterable[Caption] | None
) -> frozenset[str]:
    if metrics is None:
        left_out = set() if (sizes > 1).any() else set(SET)
        return frozenset(DEFAULT) - left_out - (set() if training is not None else {"novel"})
    unknown = sorted(set(metrics) - {*SENTENCE, *SET, *SAID})
    if unknown:
        raise ConfigError(
            f"there is no metric {unknown[0]!r} here",
            fix=f"name some of {', '.join((*SENTENCE, *SET, *SAID))}",
        )
    if "novel" in metrics and training is None:
        raise ConfigError(
            "the metric 'novel' compares with training captions, and none were given",
            fix="--training FILE, in Python training=[...]",
        )
    return frozenset(metrics)


def _refuse_missing(candidates: NDArray[np.int64], references: NDArray[np.int64]) -> None:
    if len(candidates) != len(references):
        raise InputError(f"captions of {len(candidates)} inputs and references of {len(references)}")
    if not len(candidates):
        raise InputError("there is not one caption to score")
    for what, sizes in (("caption", candidates), ("reference", references)):
        without = np.flatnonzero(sizes == 0)
        if len(without):
            raise InputError(
                f"{len(without)} of {len(sizes)} inputs have no {what} (first: number {without[0] + 1})"
            )


class _Signer(NamedTuple):
    """What all signatures of a call have in common."""

    tok: str
    size: str
    frequencies: CorpusFrequencies | None

    def __call__(self, metric: str, **settings: object) -> str:
        return signature(metric, tok=self.tok, **settings)

    def of_set(self, metric: str, **settings: object) -> str:
        return self(metric, captions=self.size, **settings)

    def with_df(self, metric: str, scale: float, **settings: object) -> str:
        df = None if self.frequencies is None else self.frequencies.signature
        return self(metric, n=ORDERS, **settings, df=df, eos=False, scale=scale)

    @property
    def note(self) -> str | None:
        """What to know about a number made with these document frequencies."""
        images = _FEW_IMAGES if self.frequencies is None else self.frequencies.images
        if images == 1:
            return (
                "0 by definition: of one image's references no n-gram is rarer than another; give another df"
            )
        if images < _FEW_IMAGES:
            return f"document frequencies of {images} images only: compare with nothing but the same images"
        return None


@dataclass(frozen=True, eq=False)
class _Found:
    """What was counted, and where the scores made of it go."""

    scores: Scores
    said: Ragged
    refs: Ragged
    as_tokenised: Sequence[Ragged]
    """The same with words that hold white space, which ROUGE-L does not split."""
    engine: Engine
    counts: Counts
    sign: _Signer

    @cached_property
    def pairs(self) -> Pairs:
        return Pairs(self.said, self.refs)

    @cached_property
    def rouge_sides(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Precision and recall of each pair: an empty caption counts as one empty word."""
        words, refs = (np.maximum(1, side.lengths) for side in self.as_tokenised)
        common = self.engine.common(*self.as_tokenised)
        return common / words[self.pairs.caption], common / refs[self.pairs.other]

    def best_reference(self, of_pairs: NDArray[np.float64]) -> NDArray[np.float64]:
        """The largest value of each caption's pairs."""
        return np.maximum.reduceat(of_pairs, self.pairs.begins)

    def mean_reference(self, of_pairs: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.add.reduceat(of_pairs, self.pairs.begins) / self.pairs.of_caption

    def mean_of_sets(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.scores.sum_of_sets(values[:, None])[:, 0] / self.said.sizes


def _bleu(numbers: NDArray[Any]) -> NDArray[np.float64]:
    return formulas.bleu(numbers.astype(np.float64), log=np.log, exp=np.exp)


def _report_sentences(found: _Found, chosen: frozenset[str]) -> None:
    scores, sign = found.scores, found.sign
    if "bleu" in chosen:
        numbers = found.counts["bleu"]
        rows, of_captions = scores.sum_of_sets(numbers), _bleu(numbers)
        for n in range(1, ORDERS + 1):
            made = sign(f"BLEU-{n}", smooth="coco", ref="closest", eos=False, scale=1)
            scores.add(f"bleu_{n}", of_captions[:, n - 1], made, corpus=Statistics(rows, f"bleu_{n}"))
    if "rouge_l" in chosen:
        made = sign("ROUGE-L", beta=BETA, eos=False, scale=1)
        scores.add("rouge_l", formulas.rouge_l(*map(found.best_reference, found.rouge_sides)), made)
    if "cider_d" in chosen:
        made = sign.with_df("CIDEr-D", SCALE, sigma=SIGMA)
        scores.add("cider_d", SCALE * found.mean_reference(found.counts["cider_d"]), made, note=sign.note)
    if "cider" in chosen:
        made = sign.with_df("CIDEr", SCALE)
        scores.add("cider", SCALE * found.mean_reference(found.counts["cider"]), made, note=sign.note)


def _report_sets(found: _Found, chosen: frozenset[str], covered: Covered) -> None:
    reports: dict[str, Callable[[], None]] = {
        "div": lambda: _report_div(found),
        "mbleu": lambda: _report_mbleu(found),
        "distinct": lambda: _report_distinct(found),
        "self_cider": lambda: _report_kernel(found, "self_cider", "self-CIDEr", _self_cider),
        "vendi": lambda: _report_kernel(found, "vendi", "Vendi", _vendi),
        "coverage": lambda: _report_coverage(found, covered),
    }
    for name, report in reports.items():
        if name not in chosen:
            continue
        if found.sign.size == "1" and name in ("mbleu", "self_cider", "vendi"):
            found.scores.miss(name, found.sign.of_set(name), "needs several captions of an input")
        else:
            report()


def _report_div(found: _Found) -> None:
    words = np.diff(found.said.captions[found.said.inputs])
    shares = found.counts["ngrams"] / np.maximum(1, words)[:, None]
    for n in (1, 2):
        made = found.sign.of_set(f"Div-{n}", per="word")
        found.scores.put(f"div_{n}", Statistics(shares[:, n - 1 : n], "mean"), made)


def _report_distinct(found: _Found) -> None:
    rows = np.stack([found.counts["captions"], found.said.sizes], 1).astype(np.float64)
    found.scores.put("distinct", Statistics(rows, "ratio"), found.sign.of_set("distinct captions"))


def _report_mbleu(found: _Found) -> None:
    said, numbers, sign = found.said, found.counts["bleu_others"], found.sign
    slot = np.arange(len(said.owner)) - said.inputs[said.owner]
    slots = np.zeros((len(said.sizes), int(said.sizes.max()), numbers.shape[1]))
    slots[said.owner, slot] = numbers
    rows = slots.reshape(len(slots), -1)
    uneven = (
        "inputs have different numbers of captions, and each slot counts the same"
        if "-" in sign.size
        else None
    )
    for n in range(1, ORDERS + 1):
        made = sign.of_set(f"mBLEU-{n}", level="corpus per slot", smooth="coco")
        found.scores.put(f"mbleu_{n}", Statistics(rows, f"mbleu_{n}"), made, uneven)
    made = sign.of_set("mBLEU-4", level="sentence", smooth="coco")
    of_captions = _bleu(numbers)[:, ORDERS - 1]
    found.scores.put("mbleu_4_sentence", Statistics(found.mean_of_sets(of_captions)[:, None], "mean"), made)


Kernels = NDArray[np.float64]  # [sets, captions, captions]


def _self_cider(kernels: Kernels) -> NDArray[np.float64]:
    return formulas.self_cider(*_eigenvalues(kernels), log=np.log)


def _vendi(kernels: Kernels) -> NDArray[np.float64]:
    """Of kernels with 1 on the diagonal. A caption that is nothing even like itself (an empty one) is like itself."""
    itself = np.diagonal(kernels, axis1=1, axis2=2)
    scale = 1 / np.sqrt(np.where(itself > 0, itself, np.inf))
    alone = (itself <= 0)[:, :, None] * np.eye(itself.shape[1])
    alike = kernels * scale[:, :, None] * scale[:, None, :] + alone
    return formulas.vendi(*_eigenvalues(alike), log=np.log, exp=np.exp)


def _eigenvalues(kernels: Kernels) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Ascending, and the size of each set."""
    values = np.linalg.eigvalsh((kernels + kernels.swapaxes(1, 2)) / 2)
    return values.astype(np.float64), np.full(len(kernels), float(kernels.shape[1]))


def _report_kernel(
    found: _Found, name: str, label: str, score: Callable[[Kernels], NDArray[np.float64]]
) -> None:
    """A score of the matrix of how alike the captions of a set are; sets of one size at a time."""
    flat, sizes = found.counts["cider_others"], found.said.sizes
    begins = (sizes**2).cumsum() - sizes**2
    values = np.zeros(len(sizes))
    for size in np.unique(sizes).tolist():
        these = np.flatnonzero(sizes == size)
        kernels = flat[begins[these][:, None] + np.arange(size**2)].reshape(-1, size, size)
        values[these] = score(kernels)
    made = found.sign.with_df(label, 1.0, captions=found.sign.size, kernel="CIDEr")
    found.scores.put(name, Statistics(values[:, None], "mean"), made, found.sign.note)


def _report_coverage(found: _Found, covered: Covered) -> None:
    likeness, sign = _likeness(found, covered), found.sign
    best = np.zeros(len(found.refs.lengths))  # of each reference: no likeness is below 0
    np.maximum.at(best, found.pairs.other, likeness)
    recall = np.add.reduceat(best, found.refs.inputs[:-1]) / found.refs.sizes
    precision = found.mean_of_sets(found.best_reference(likeness))
    for name, values in (
        ("recall", recall),
        ("precision", precision),
        ("f1", formulas.f1(precision, recall)),
    ):
        if covered == "cider_d":
            made = sign.with_df(f"reference {name}", SCALE, captions=sign.size, sim="CIDEr-D")
        else:
            made = sign.of_set(f"reference {name}", sim=covered, scale=1)
        note = sign.note if covered == "cider_d" else None
        found.scores.put(f"{name}_{covered}", Statistics(values[:, None], "mean"), made, note)


def _likeness(found: _Found, covered: Covered) -> NDArray[np.float64]:
    """How much each caption is like each reference of its input."""
    match covered:
        case "cider_d":
            return SCALE * found.counts["cider_d"]
        case "bleu_4":
            return _bleu(found.counts["bleu_each"])[:, ORDERS - 1]
        case "rouge_l":
            return formulas.rouge_l(*found.rouge_sides)


def _report_said(found: _Found, chosen: frozenset[str], training: Ragged | None, lexicon: Lexicon) -> None:
    words, scores, sign = found.said, found.scores, found.sign

    def per_caption(name: str, label: str, values: NDArray[Any]) -> None:
        sums = scores.sum_of_sets(values[:, None])
        scores.put(name, Statistics(np.hstack([sums, words.sizes[:, None]]), "ratio"), sign(label))

    if "length" in chosen:
        per_caption("length", "words per caption", words.lengths)
    if "bad_endings" in chosen:
        bad = [lexicon.get(word, -1) for word in BAD_ENDINGS]
        per_caption("bad_endings", "captions ending as if cut off", np.isin(words.last_words(), bad))
    if "vocabulary" in chosen:
        scores.corpus["vocabulary"] = Score(float(len(np.unique(words.words))), sign("different words"))
    if "novel" in chosen and training is not None:
        known = set(training.rows())
        new = np.fromiter(
            (row not in known for row in words.rows()), dtype=np.bool_, count=len(words.lengths)
        )
        per_caption("novel", f"captions not among {len(known)} training captions", new)

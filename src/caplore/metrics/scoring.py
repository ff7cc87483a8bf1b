"""Scores of captions given as words: what `caplore score`, evaluation and reports are made of.

`text_scores` turns words into ids, runs the metrics of this room over them in parts, and keeps three things: the value
of each caption, the numbers each corpus score is the sum of (for intervals and tests, `bootstrap`), and the scores
with their signatures. METEOR and SPICE, which need words, join by `Scores.add`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from caplore.errors import ConfigError, InputError
from caplore.metrics import bleu, cider, coverage, diversity, rouge
from caplore.metrics.bootstrap import Statistics
from caplore.metrics.corpus import (
    Caption,
    CorpusFrequencies,
    Lexicon,
    Padded,
    Ragged,
    Tokenizer,
    encode,
    parts,
    renumbered,
    split_at_white_space,
    tokenizer_name,
)
from caplore.metrics.ngrams import ORDERS, Ngrams, RowCounts, ngrams
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

_WEIGHED = {"cider_d", "cider", "self_cider", "vendi"}  # by document frequencies
_FEW_IMAGES = 500  # below this many, df from the references themselves is a poor estimate


def corpus_frequencies(
    references: Sequence[Sequence[Caption]], *, name: str, tokenize: Tokenizer | None = None
) -> CorpusFrequencies:
    """Document frequencies of a corpus, usually the training captions of each image; `name` goes into signatures."""
    lexicon = Lexicon()
    with _one_thread():
        refs = split_at_white_space(encode(references, lexicon, tokenize), lexicon)
        return CorpusFrequencies.of(refs, lexicon, name)


def text_scores(
    candidates: Sequence[Sequence[Caption]],
    references: Sequence[Sequence[Caption]],
    *,
    metrics: Collection[str] | None = None,
    df: CorpusFrequencies | None = None,
    training: Iterable[Caption] | None = None,
    covered: Covered = "cider_d",
    tokenize: Tokenizer | None = None,
) -> Scores:
    """Score the captions of each input, one or more, against its references.

    Captions are strings, tokenised as coco-caption does or by `tokenize`, or lists of words. `metrics` are names of
    SENTENCE, SET and SAID (None: DEFAULT, as far as they apply). Document frequencies are those of the references,
    as in coco-caption, or of a corpus `df` (`corpus_frequencies`). `training` captions are what `novel` compares
    with; `covered` is the metric whose recall, precision and F1 `coverage` means. Deterministic, on the CPU.
    """
    chosen = _chosen(metrics, candidates, training)
    _refuse_missing(candidates, references)
    with _one_thread():
        return _text_scores(candidates, references, chosen, df, training, covered, tokenize)


@contextmanager
def _one_thread() -> Iterator[None]:
    """The tensors of a part are small: a second thread gains little, and where cores are shared it is waited for."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _text_scores(
    candidates: Sequence[Sequence[Caption]],
    references: Sequence[Sequence[Caption]],
    chosen: frozenset[str],
    df: CorpusFrequencies | None,
    training: Iterable[Caption] | None,
    covered: Covered,
    tokenize: Tokenizer | None,
) -> Scores:
    lexicon = Lexicon(df.lexicon if df else {})
    as_tokenised = encode(candidates, lexicon, tokenize), encode(references, lexicon, tokenize)
    words, refs = (split_at_white_space(side, lexicon) for side in as_tokenised)
    frequencies = df
    if df is None and (chosen & _WEIGHED or ("coverage" in chosen and covered == "cider_d")):
        frequencies = CorpusFrequencies.of(refs, lexicon, "references")
    found = _Found(words)
    sides = (words, refs) if as_tokenised == (words, refs) else (words, refs, *as_tokenised)
    for inputs, padded in parts(*sides, words=len(lexicon)):
        _score_part(_Part.of(inputs, padded, frequencies, len(lexicon)), chosen, covered, found)
    scores = Scores(words.inputs)
    sign = _Signer(tokenizer_name(candidates, tokenize), scores.size, frequencies)
    _report_sentences(scores, found, chosen, sign)
    _report_sets(scores, found, chosen, covered, sign)
    known = (
        None
        if training is None
        else split_at_white_space(encode([list(training)], lexicon, tokenize), lexicon)
    )
    _report_said(scores, words, chosen, known, lexicon, sign)
    return scores


def _chosen(metrics: Collection[str] | None, candidates: Any, training: Any) -> frozenset[str]:
    several = any(len(captions) > 1 for captions in candidates)
    if metrics is None:
        left_out = set() if several else set(SET)
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


def _refuse_missing(candidates: Sequence[Sequence[Any]], references: Sequence[Sequence[Any]]) -> None:
    if len(candidates) != len(references):
        raise InputError(f"captions of {len(candidates)} inputs and references of {len(references)}")
    if not candidates:
        raise InputError("there is not one caption to score")
    for what, groups in (("caption", candidates), ("reference", references)):
        without = [i for i, group in enumerate(groups) if not len(group)]
        if without:
            raise InputError(
                f"{len(without)} of {len(groups)} inputs have no {what} (first: number {without[0] + 1})"
            )


_ROUGE = rouge.RougeL(False, torch.double)


@dataclass(frozen=True, eq=False)
class _Part:
    """Some inputs; what a metric needs of them is made when it is first asked for, and once."""

    inputs: Int[Tensor, " some"]
    captions: Padded
    refs: Padded
    true_ids: Sequence[Padded]
    """Captions and references in ids of the lexicon, where those above are renumbered."""
    as_tokenised: Sequence[Padded]
    """The same with words that hold white space, which ROUGE-L does not split."""
    frequencies: CorpusFrequencies | None

    @classmethod
    def of(
        cls, inputs: Tensor, padded: Sequence[Padded], frequencies: CorpusFrequencies | None, words: int
    ) -> "_Part":
        captions, refs = renumbered(padded[:2], words)
        return cls(inputs, captions, refs, padded[:2], padded[-2:], frequencies)

    @cached_property
    def rouge_references(self) -> rouge.References:
        return _ROUGE.prepare(self.as_tokenised[1].tokens, self.refs.there)

    @cached_property
    def grams(self) -> Ngrams:
        return ngrams(self.captions.tokens, count_eos=False, there=self.captions.there)

    @cached_property
    def ref_grams(self) -> Ngrams:
        return ngrams(self.refs.tokens, count_eos=False, there=self.refs.there)

    @cached_property
    def terms(self) -> cider.Terms:
        return self._terms(self.grams, self.true_ids[0])

    @cached_property
    def bleu_references(self) -> bleu.References:
        return bleu.References(RowCounts.of(self.ref_grams.keys), self.ref_grams.lengths, self.refs.there)

    @cached_property
    def cider_references(self) -> cider.References:
        terms = self._terms(self.ref_grams, self.true_ids[1])
        return cider.prepare_terms(terms, self.refs.there, self.bleu_references.counts)

    def _terms(self, grams: Ngrams, true: Padded) -> cider.Terms:
        assert self.frequencies is not None, "text_scores makes them for the metrics that are _WEIGHED"
        of_corpus = self.frequencies.table.of(true.tokens, grams.lengths)
        return cider.terms(grams, of_corpus, self.frequencies.table.images, torch.double)


class _Found:
    """Values of captions and numbers of inputs, gathered from the parts."""

    def __init__(self, candidates: Ragged) -> None:
        self.of_captions: dict[str, Tensor] = {}
        self.of_inputs: dict[str, Tensor] = {}
        self._captions, self._inputs = len(candidates.captions) - 1, len(candidates.inputs) - 1

    def captions(self, name: str, part: _Part, values: Float[Tensor, "some rows"]) -> None:
        whole = self.of_captions.setdefault(name, torch.zeros(self._captions, dtype=torch.double))
        whole[part.captions.place[part.captions.there]] = values[part.captions.there].double()

    def inputs(self, name: str, part: _Part, rows: Float[Tensor, "some columns"]) -> None:
        if name not in self.of_inputs:
            self.of_inputs[name] = torch.zeros(self._inputs, 0, dtype=torch.double)
        whole = self.of_inputs[name]
        if whole.shape[1] < rows.shape[1]:  # a part with more captions per input than those before
            whole = torch.nn.functional.pad(whole, (0, rows.shape[1] - whole.shape[1]))
            self.of_inputs[name] = whole
        whole[part.inputs, : rows.shape[1]] = rows.double()


def _score_part(part: _Part, chosen: frozenset[str], covered: Covered, found: _Found) -> None:
    there = part.captions.there
    if "bleu" in chosen:
        numbers = bleu.statistics(part.grams, part.bleu_references).double() * there.unsqueeze(-1)
        found.inputs("bleu", part, numbers.sum(1))
        for n, values in enumerate(bleu.bleu(numbers).unbind(-1), start=1):
            found.captions(f"bleu_{n}", part, values)
    if "rouge_l" in chosen:
        found.captions("rouge_l", part, _ROUGE.score(part.as_tokenised[0].tokens, part.rouge_references))
    for name, sigma in (("cider_d", cider.CiderD.sigma), ("cider", None)):
        if name in chosen:
            references = part.cider_references
            likeness = cider.compare(part.terms, references, sigma)
            found.captions(name, part, (likeness * references.share.unsqueeze(1)).sum(-1))
    _score_sets(part, chosen, found)
    if "coverage" in chosen:
        likeness = _likeness(part, covered)
        recall = coverage.recall(likeness, there, part.refs.there)
        precision = coverage.precision(likeness, there, part.refs.there)
        for name, values in (
            ("recall", recall),
            ("precision", precision),
            ("f1", coverage.f1(precision, recall)),
        ):
            found.inputs(name, part, values.unsqueeze(1))


def _score_sets(part: _Part, chosen: frozenset[str], found: _Found) -> None:
    tokens, there = part.captions.tokens, part.captions.there
    if "div" in chosen:
        found.inputs("div", part, diversity.div_n(tokens, there))
    if "mbleu" in chosen:
        numbers = diversity.mbleu_statistics(tokens, there).double()
        found.inputs("mbleu", part, numbers.flatten(1))
        of_captions = bleu.bleu(numbers) * there.unsqueeze(-1)
        found.inputs("mbleu_sentence", part, of_captions.sum(1) / there.sum(1, keepdim=True))
    if "distinct" in chosen:
        different = diversity.distinct_captions(tokens, there)
        found.inputs("distinct", part, torch.stack([different, there.sum(1)], 1).double())
    if chosen & {"self_cider", "vendi"}:
        kernel = cider.compare(part.terms, cider.prepare_terms(part.terms, there), None) / cider.SCALE
        found.inputs("self_cider", part, diversity.self_cider(kernel, there).unsqueeze(1))
        alike = diversity.unit_diagonal(kernel, there)
        found.inputs("vendi", part, diversity.vendi_score(alike, there).unsqueeze(1))


def _likeness(part: _Part, covered: Covered) -> Float[Tensor, "some rows refs"]:
    match covered:
        case "cider_d":
            return cider.compare(part.terms, part.cider_references, cider.CiderD.sigma)
        case "bleu_4":
            numbers = bleu.single_statistics(part.grams, part.bleu_references).double()
            return bleu.bleu(numbers)[..., 3] * part.refs.there.unsqueeze(1)
        case "rouge_l":
            return _ROUGE.similarity(part.as_tokenised[0].tokens, part.rouge_references)


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
        images = _FEW_IMAGES if self.frequencies is None else self.frequencies.table.images
        if images == 1:
            return (
                "0 by definition: of one image's references no n-gram is rarer than another; give another df"
            )
        if images < _FEW_IMAGES:
            return f"document frequencies of {images} images only: compare with nothing but the same images"
        return None


def _report_sentences(scores: Scores, found: _Found, chosen: frozenset[str], sign: _Signer) -> None:
    if "bleu" in chosen:
        for n in range(1, ORDERS + 1):
            corpus = Statistics(found.of_inputs["bleu"], f"bleu_{n}")
            made = sign(f"BLEU-{n}", smooth="coco", ref="closest", eos=False, scale=1)
            scores.add(f"bleu_{n}", found.of_captions[f"bleu_{n}"], made, corpus=corpus)
    if "rouge_l" in chosen:
        made = sign("ROUGE-L", beta=rouge.BETA, eos=False, scale=1)
        scores.add("rouge_l", found.of_captions["rouge_l"], made)
    if "cider_d" in chosen:
        made = sign.with_df("CIDEr-D", cider.SCALE, sigma=cider.CiderD.sigma)
        scores.add("cider_d", found.of_captions["cider_d"], made, note=sign.note)
    if "cider" in chosen:
        scores.add("cider", found.of_captions["cider"], sign.with_df("CIDEr", cider.SCALE), note=sign.note)


def _report_sets(
    scores: Scores, found: _Found, chosen: frozenset[str], covered: Covered, sign: _Signer
) -> None:
    reports: dict[str, Callable[[], None]] = {
        "div": lambda: _report_div(scores, found, sign),
        "mbleu": lambda: _report_mbleu(scores, found, sign),
        "distinct": lambda: scores.put(
            "distinct", Statistics(found.of_inputs["distinct"], "ratio"), sign.of_set("distinct captions")
        ),
        "self_cider": lambda: _report_kernel("self_cider", "self-CIDEr", scores, found, sign),
        "vendi": lambda: _report_kernel("vendi", "Vendi", scores, found, sign),
        "coverage": lambda: _report_coverage(scores, found, covered, sign),
    }
    for name, report in reports.items():
        if name not in chosen:
            continue
        if sign.size == "1" and name in ("mbleu", "self_cider", "vendi"):
            scores.miss(name, sign.of_set(name), "needs several captions of an input")
        else:
            report()


def _report_div(scores: Scores, found: _Found, sign: _Signer) -> None:
    for n in (1, 2):
        rows = found.of_inputs["div"][:, n - 1 : n]
        scores.put(f"div_{n}", Statistics(rows, "mean"), sign.of_set(f"Div-{n}", per="word"))


def _report_mbleu(scores: Scores, found: _Found, sign: _Signer) -> None:
    uneven = (
        "inputs have different numbers of captions, and each slot counts the same"
        if "-" in sign.size
        else None
    )
    for n in range(1, ORDERS + 1):
        made = sign.of_set(f"mBLEU-{n}", level="corpus per slot", smooth="coco")
        scores.put(f"mbleu_{n}", Statistics(found.of_inputs["mbleu"], f"mbleu_{n}"), made, uneven)
    made = sign.of_set("mBLEU-4", level="sentence", smooth="coco")
    scores.put("mbleu_4_sentence", Statistics(found.of_inputs["mbleu_sentence"][:, 3:], "mean"), made)


def _report_kernel(name: str, label: str, scores: Scores, found: _Found, sign: _Signer) -> None:
    made = sign.with_df(label, 1.0, captions=sign.size, kernel="CIDEr")
    scores.put(name, Statistics(found.of_inputs[name], "mean"), made, sign.note)


def _report_coverage(scores: Scores, found: _Found, covered: Covered, sign: _Signer) -> None:
    for name in ("recall", "precision", "f1"):
        if covered == "cider_d":
            made = sign.with_df(f"reference {name}", cider.SCALE, captions=sign.size, sim="CIDEr-D")
        else:
            made = sign.of_set(f"reference {name}", sim=covered, scale=1)
        note = sign.note if covered == "cider_d" else None
        scores.put(f"{name}_{covered}", Statistics(found.of_inputs[name], "mean"), made, note)


def _report_said(
    scores: Scores,
    words: Ragged,
    chosen: frozenset[str],
    training: Ragged | None,
    lexicon: Lexicon,
    sign: _Signer,
) -> None:
    def per_caption(name: str, label: str, values: Tensor) -> None:
        sums = torch.zeros(len(words.inputs) - 1, dtype=torch.double).index_add_(
            0, words.owner(), values.double()
        )
        rows = torch.stack([sums, words.sizes.double()], 1)
        scores.put(name, Statistics(rows, "ratio"), sign(label))

    if "length" in chosen:
        per_caption("length", "words per caption", words.lengths)
    if "bad_endings" in chosen:
        bad = torch.tensor([lexicon.get(word, -1) for word in diversity.BAD_ENDINGS])
        per_caption("bad_endings", "captions ending as if cut off", torch.isin(words.last_words(), bad))
    if "vocabulary" in chosen:
        scores.corpus["vocabulary"] = Score(float(len(words.words.unique())), sign("different words"))
    if "novel" in chosen and training is not None:
        known = set(training.rows())
        new = torch.tensor([row not in known for row in words.rows()])
        per_caption("novel", f"captions not among {len(known)} training captions", new)

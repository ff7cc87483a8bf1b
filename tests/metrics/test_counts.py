"""The compiled counting and the torch engine give the same numbers, and both those of counting by hand."""

import subprocess
import sys
from collections import Counter
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caplore.metrics import counts
from caplore.metrics.corpus import Lexicon, Ragged, encode
from caplore.metrics.counts import NAMES, Compiled, CorpusFrequencies, Engine, Pairs, engine
from caplore.metrics.padded import Padded
from caplore.metrics.scoring import SENTENCE, SET, corpus_frequencies, text_scores
from caplore.native import native

TWIN = native("caplore.metrics._counts")
needs_twin = pytest.mark.skipif(
    TWIN is None, reason="caplore.metrics._counts was not built, or is switched off"
)
CLOSE = 1e-12
Words = list[str]
few = settings(deadline=None, max_examples=60)
plain = st.lists(st.sampled_from("abcde"), max_size=9)
repeated = st.builds(
    lambda words, times: words * times, st.lists(st.sampled_from("ab"), max_size=3), st.integers(0, 9)
)
long = st.lists(st.sampled_from("abcdefgh"), min_size=60, max_size=140)
captions = st.one_of(plain, plain, repeated, st.lists(st.integers(0, 99).map(str), max_size=12), long)
sets = st.lists(captions, min_size=1, max_size=4)
corpora = st.lists(st.tuples(sets, sets), min_size=1, max_size=7)


def ragged(groups: list[list[Words]], lexicon: Lexicon) -> Ragged:
    return encode(groups, lexicon, None)


def both(corpus: list[tuple[list[Words], list[Words]]]) -> tuple[Ragged, Ragged]:
    lexicon = Lexicon()
    return ragged([said for said, _ in corpus], lexicon), ragged([refs for _, refs in corpus], lexicon)


def engines() -> list[Engine]:
    return [Padded()] if TWIN is None else [Padded(), Compiled(TWIN)]


@needs_twin
@few
@given(corpora)
def test_both_engines_count_the_same(corpus: list[tuple[list[Words], list[Words]]]) -> None:
    said, refs = both(corpus)
    found = [by.count(said, refs, NAMES, by.frequencies(refs)) for by in engines()]
    for name in NAMES:
        one, other = (counts[name] for counts in found)
        assert one.shape == other.shape == counts.shape(name, said, refs)
        assert one.dtype == other.dtype
        if one.dtype == np.int32:
            assert np.array_equal(one, other), name
        else:
            assert np.abs(one - other).max(initial=0) < CLOSE, name
    assert np.array_equal(*(by.common(said, refs) for by in engines()))


@needs_twin
@settings(deadline=None, max_examples=25)
@given(corpora, corpora, st.sampled_from(["cider_d", "bleu_4", "rouge_l"]))
def test_both_engines_score_the_same(corpus: list, others: list, covered: str) -> None:
    """Every metric of sets and single captions, with the frequencies of the references and of another corpus."""
    for some, refs in (
        ([said for said, _ in corpus], [refs for _, refs in corpus]),
        ([said[:1] for said, _ in corpus], [refs for _, refs in corpus]),
    ):
        results = []
        for switch in ("1", "0"):
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("CAPLORE_NATIVE", switch)
                df = corpus_frequencies([refs for _, refs in others], name="others")
                for frequencies in (None, df):
                    results.append(
                        text_scores(some, refs, metrics=(*SENTENCE, *SET), df=frequencies, covered=covered)  # type: ignore[arg-type]
                    )
        for one, other in ((results[0], results[2]), (results[1], results[3])):
            assert one.corpus.keys() == other.corpus.keys()
            for name, score in one.corpus.items():
                assert score.signature == other.corpus[name].signature
                value, same = score.value, other.corpus[name].value
                assert (value is None) == (same is None)
                # self-CIDEr has roots of eigenvalues, and of one that should be 0 the root is that of its last digit
                close = 1e-7 if name == "self_cider" else CLOSE
                assert value is None or abs(value - same) < close, name  # type: ignore[operator]
            for name, values in one.captions.items():
                assert np.abs(values - other.captions[name]).max() < CLOSE, name


def ngrams_of(words: Words, n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def lcs(a: Words, b: Words) -> int:
    row = [0] * (len(b) + 1)
    for x in a:
        before = row
        row = [0]
        for j, y in enumerate(b):
            row.append(before[j] + 1 if x == y else max(before[j + 1], row[j]))
    return row[-1]


@pytest.mark.parametrize("by", engines(), ids=lambda by: type(by).__name__)
@settings(deadline=None, max_examples=25)
@given(corpus=corpora)
def test_counts_are_those_made_by_hand(by: Engine, corpus: list[tuple[list[Words], list[Words]]]) -> None:
    said, refs = both(corpus)
    found = by.count(said, refs, ["bleu", "bleu_each", "bleu_others", "ngrams", "captions"], None)
    pairs = [(c, r) for some, others in corpus for c in some for r in others]
    common = [lcs(c, r) if c or r else 1 for c, r in pairs]
    assert by.common(said, refs).tolist() == common
    for i, (some, _) in enumerate(corpus):
        distinct = [len(set(chain(*(ngrams_of(c, n) for c in some)))) for n in (1, 2, 3, 4)]
        assert found["ngrams"][i].tolist() == distinct
        assert found["captions"][i] == len({tuple(c) for c in some})
    for row, (caption, ref) in zip(found["bleu_each"], pairs, strict=True):
        assert row.tolist() == numbers(caption, [ref])
    against = [(c, others) for some, others in corpus for c in some]
    for row, (caption, others) in zip(found["bleu"], against, strict=True):
        assert row.tolist() == numbers(caption, others)
    of_sets = [(c, some[:k] + some[k + 1 :]) for some, _ in corpus for k, c in enumerate(some)]
    for row, (caption, others) in zip(found["bleu_others"], of_sets, strict=True):
        assert row.tolist() == (numbers(caption, others) if others else [0] * 10)


def numbers(caption: Words, others: list[Words]) -> list[int]:
    """BLEU's, from their definition."""
    matches = []
    for n in (1, 2, 3, 4):
        most: Counter[tuple[str, ...]] = Counter()
        for other in others:
            most |= ngrams_of(other, n)
        matches.append(sum((ngrams_of(caption, n) & most).values()))
    totals = [max(0, len(caption) - n) for n in range(4)]
    return [*matches, *totals, len(caption), min(map(len, others), key=lambda r: (abs(r - len(caption)), r))]


@needs_twin
def test_more_words_than_sixteen_bits_hold() -> None:
    """Ids that differ by multiples of 65,536 must not be taken for each other."""
    lexicon = Lexicon({f"w{i}": i + 1 for i in range(200_000)})

    def text(*ids: int) -> Words:
        return [f"w{i}" for i in ids]

    given = [[text(1, 2, 3, 4), text(65_537, 2, 3, 4)], [text(1, 65_538, 131_075, 4)]]
    refs = [[text(1, 65_538, 3, 4)], [text(1, 2, 3, 196_612), text(65_537, 65_538)]]
    said, true = ragged(given, lexicon), ragged(refs, lexicon)
    found = [by.count(said, true, NAMES, by.frequencies(true)) for by in engines()]
    for name in NAMES:
        assert np.abs(found[0][name] - found[1][name]).max() < CLOSE, name
    assert found[1]["bleu"][:, :4].tolist() == [[3, 1, 0, 0], [2, 1, 0, 0], [2, 0, 0, 0]]


@needs_twin
def test_eighty_references_and_threads_that_share_the_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)

    def some(most: int) -> list[Words]:
        return [
            rng.choice(list("abcdefghij"), rng.integers(0, 12)).tolist() for _ in range(rng.integers(1, most))
        ]

    said, refs = both([(some(6), some(81)) for _ in range(50)])
    twin = Compiled(TWIN)  # type: ignore[arg-type]
    wanted = twin.count(said, refs, NAMES, twin.frequencies(refs)), twin.common(said, refs)
    monkeypatch.setattr(counts, "_WORDS_A_THREAD", 100)
    monkeypatch.setattr(counts, "cores", lambda: 7)
    found = twin.count(said, refs, NAMES, twin.frequencies(refs)), twin.common(said, refs)
    assert all(np.array_equal(found[0][name], wanted[0][name]) for name in NAMES)
    assert np.array_equal(found[1], wanted[1])
    by_torch = Padded().count(said, refs, NAMES, Padded().frequencies(refs))
    assert all(np.allclose(by_torch[name], wanted[0][name], atol=CLOSE, rtol=0) for name in NAMES)


def test_pairs_are_in_the_order_of_captions_then_references() -> None:
    said, refs = both([([["a"], ["b"]], [["x"], ["y"], ["z"]]), ([["c"]], [["w"]])])
    pairs = Pairs(said, refs)
    assert pairs.caption.tolist() == [0, 0, 0, 1, 1, 1, 2]
    assert pairs.other.tolist() == [0, 1, 2, 0, 1, 2, 3]
    assert pairs.begins.tolist() == [0, 3, 6]
    assert pairs.of_input.tolist() == [6, 1]
    assert len(pairs) == 7


def test_frequencies_of_words_name_their_corpus_and_who_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    lexicon = Lexicon()
    refs = ragged([[["a", "b"], ["a"]], [["a", "c"]]], lexicon)
    df = CorpusFrequencies.of(refs, lexicon, "train")
    assert df.signature == f"train(2 images, {counts.content_digest(refs, lexicon)})"
    if TWIN is not None:
        assert TWIN.ngrams_known(Compiled(TWIN).frequencies(refs)) == 5
        assert isinstance(engine(), Compiled)
    monkeypatch.setenv("CAPLORE_NATIVE", "0")
    assert isinstance(engine(), Padded)
    known = text_scores([[["a", "b"]]], [[["a", "b"]]], metrics=["cider_d"], df=df)
    assert known.corpus["cider_d"].value == pytest.approx(10 * (1 + 1) / 4)  # of four orders it has two


@needs_twin
def test_what_is_not_captions_is_refused() -> None:
    said, refs = both([([["a", "b"]], [["a"]]), ([["b"]], [["a"]])])
    twin = Compiled(TWIN)  # type: ignore[arg-type]
    for field, wrong in (
        ("words", np.array([1, 0, 1], dtype=np.int32)),
        ("words", np.array([1, 2], dtype=np.int32)),
        ("captions", np.array([0, 4, 3], dtype=np.int64)),
        ("inputs", np.array([0, 1, 3], dtype=np.int64)),
        ("inputs", np.array([0, 2], dtype=np.int64)),
        ("inputs", np.zeros(0, dtype=np.int64)),
        ("words", np.array([1, 2, 2], dtype=np.int64)),
    ):
        bad = Ragged(**{n: getattr(said, n) for n in ("words", "captions", "inputs")} | {field: wrong})
        arrays = (bad.words, bad.captions, bad.inputs)
        with pytest.raises(ValueError, match=r"ids of words|ends of|other inputs|items of 8 bytes"):
            TWIN.common(arrays, (refs.words, refs.captions, refs.inputs), (0, 1), np.zeros(2, np.int32))  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="no such inputs"):
        TWIN.common(*map(counts._arrays, (said, refs)), (0, 3), np.zeros(2, np.int32))  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="right size"):
        TWIN.common(*map(counts._arrays, (said, refs)), (0, 2), np.zeros(3, np.int32))  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="PyCapsule"):
        twin.count(said, refs, ["cider"], None)
    with pytest.raises(TypeError):
        TWIN.encode(["a", 3])  # type: ignore[union-attr]


@needs_twin
def test_the_interpreter_may_go_down_while_a_thread_counts() -> None:
    """Compiled code that comes back to an interpreter that is gone once ended the process by abort()."""
    program = """
import threading, time, numpy  # whose end takes long enough
from caplore.metrics import _counts
line = "a dog on a mat " * 20_000
def count():
    while True:
        _counts.encode([line])
for _ in range(4):
    threading.Thread(target=count, daemon=True).start()
time.sleep(0.3)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")

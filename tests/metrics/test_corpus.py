"""Words to ids and back, by compiled code and without: nothing lost, nothing mixed up."""

from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caplore.metrics import corpus
from caplore.metrics.corpus import Lexicon, Lines, Ragged, content_digest, encode, split_at_white_space
from caplore.native import native

few = settings(deadline=None, max_examples=100)
WORDS = st.text(st.characters(exclude_characters=" "), min_size=1, max_size=5)
SETS = st.lists(st.lists(st.lists(WORDS, max_size=6), min_size=1, max_size=4), min_size=1, max_size=9)


def decoded(ragged: Ragged, lexicon: Lexicon) -> list[list[list[str]]]:
    word_of = {i: word for word, i in lexicon.items()}
    captions = [[word_of[i] for i in ragged.words[a:b].tolist()] for a, b in pairwise(ragged.captions)]
    return [captions[a:b] for a, b in pairwise(ragged.inputs)]


@few
@given(SETS)
def test_lines_and_lists_of_words_become_the_same_ids(captions: list[list[list[str]]]) -> None:
    """Characters of any kind, half ones too, which have no UTF-8."""
    lines = Lines([" ".join(c) for some in captions for c in some], corpus.ends(map(len, captions)))
    by_lines, by_words, by_hand = Lexicon(), Lexicon(), Lexicon()
    found, wanted = encode(lines, by_lines, None), encode(captions, by_words, None)
    assert list(map(by_hand.__getitem__, chain(*chain(*captions)))) == wanted.words.tolist()
    assert list(by_lines.items()) == list(by_words.items()) == list(by_hand.items())
    for name in ("words", "captions", "inputs"):
        one, other = getattr(found, name), getattr(wanted, name)
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)
    assert decoded(found, by_lines) == captions
    assert [len(row) // 4 for row in found.rows()] == [len(c) for some in captions for c in some]
    assert found.last_words().tolist() == [by_hand[c[-1]] if c else 0 for some in captions for c in some]


def test_lines_are_read_without_the_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = Lines(["a b a", "", "\u00e9\u00a0x b"], corpus.ends([2, 1]))
    known = Lexicon({"b": 1})
    wanted = encode(lines, known, None)
    assert wanted.words.tolist() == [2, 1, 2, 3, 1]
    assert wanted.captions.tolist() == [0, 3, 3, 5]
    monkeypatch.setenv("CAPLORE_NATIVE", "0")
    assert native("caplore.metrics._counts") is None
    assert encode(lines, Lexicon({"b": 1}), None).words.tolist() == [2, 1, 2, 3, 1]


def test_words_with_white_space_in_them_are_several() -> None:
    lexicon = Lexicon()
    given = [[["25\u00a01/2", "cups"], ["\u00a0"]], [[], ["cups"]]]
    ragged = encode(given, lexicon, None)
    (split,) = split_at_white_space([ragged], lexicon)
    assert decoded(split, lexicon) == [[["25", "1/2", "cups"], []], [[], ["cups"]]]
    assert split_at_white_space([encode([[["cups"]]], lexicon, None), ragged], lexicon)[0].words.tolist() == [
        2
    ]
    plain = encode([[["cups"]]], Lexicon(), None)
    assert split_at_white_space([plain], Lexicon(cups=1))[0] is plain


def test_strings_are_tokenised_as_the_lines_of_one_file() -> None:
    texts = [["The letter K.", "A dog."], ["the letter k."], ["Is it?", ""]]
    lexicon = Lexicon()
    ragged = encode(texts, lexicon, None)
    assert decoded(ragged, lexicon)[0] == [["the", "letter", "k"], ["a", "dog"]]
    assert np.array_equal(ragged.words, encode(Lines.of(texts), Lexicon(), None).words)
    assert ragged.last_words().tolist()[-1] == 0


def test_a_tokeniser_of_ones_own() -> None:
    lexicon = Lexicon()
    encode([["a-b", "b"]], lexicon, lambda texts: [text.split("-") for text in texts])
    assert lexicon == {"a": 1, "b": 2}
    with pytest.raises(ValueError, match="all strings or all lists"):
        encode([["a b"], [["a", "b"]]], Lexicon(), None)


def test_digest_is_of_the_content_whatever_the_order_and_ids() -> None:
    captions = [[["a", "b"], ["c"]], [["b", "a"], []]]
    turned = [[[], ["b", "a"]], [["c"], ["a", "b"]]]

    def digest(of: list[list[list[str]]]) -> str:
        lexicon = Lexicon()
        return content_digest(encode(of, lexicon, None), lexicon)

    assert digest(captions) == digest(turned)
    others = [
        [[["a", "b"], ["c"]], [["a", "b"], []]],
        [[["a", "b"], ["c"], ["b", "a"]], [[]]],
        [[["a", "b"], ["c"]]],
    ]
    assert len({digest(captions), *map(digest, others)}) == 4

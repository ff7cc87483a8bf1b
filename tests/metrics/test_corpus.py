"""Words to ids to padded parts and back: nothing lost, nothing mixed up."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from caplore.errors import InputError
from caplore.metrics import corpus
from caplore.metrics.corpus import CorpusFrequencies, Lexicon, content_digest, encode, parts, renumbered

few = settings(deadline=None, max_examples=40)
inputs = st.lists(
    st.lists(st.lists(st.sampled_from("abcdef"), max_size=6), min_size=1, max_size=4), min_size=1, max_size=9
)


def decoded(padded: corpus.Padded, lexicon: Lexicon) -> list[list[list[str]]]:
    word_of = {i: word for word, i in lexicon.items()}
    return [
        [[word_of[i] for i in row.tolist() if i] for row in rows[there]]
        for rows, there in zip(padded.tokens, padded.there, strict=True)
    ]


@few
@given(inputs, st.integers(20, 2000))
def test_parts_hold_every_caption_once(captions: list[list[list[str]]], elements: int) -> None:
    lexicon = Lexicon()
    ragged = encode(captions, lexicon, None)
    before, corpus._ELEMENTS = corpus._ELEMENTS, elements
    try:
        found: dict[int, list[list[str]]] = {}
        places: list[int] = []
        for which, (padded,) in parts(ragged, words=len(lexicon)):
            found.update(zip(which.tolist(), decoded(padded, lexicon), strict=True))
            places += padded.place[padded.there].tolist()
    finally:
        corpus._ELEMENTS = before
    assert [found[i] for i in range(len(captions))] == captions
    assert sorted(places) == list(range(sum(map(len, captions))))
    assert [len(row) // 4 for row in ragged.rows()] == [len(c) for some in captions for c in some]


def test_strings_are_tokenised_in_batches_as_if_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [["The letter K.", "A dog."], ["the letter k."], ["Is it?", ""]]
    whole = encode(texts, Lexicon(), None)
    monkeypatch.setattr(corpus, "_BATCH", 1)
    single = encode(texts, Lexicon(), None)
    assert torch.equal(whole.words, single.words)
    assert torch.equal(whole.captions, single.captions)
    assert whole.last_words().tolist()[-1] == 0


def test_a_tokeniser_of_ones_own() -> None:
    lexicon = Lexicon()
    encode([["a-b", "b"]], lexicon, lambda texts: [text.split("-") for text in texts])
    assert lexicon == {"a": 1, "b": 2}
    with pytest.raises(ValueError, match="all strings or all lists"):
        encode([["a b"], [["a", "b"]]], Lexicon(), None)


def test_too_many_words_make_smaller_parts_with_small_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "MOST_WORDS", 8)
    captions = [[[f"w{i}", f"w{i + 1}", "a"]] for i in range(12)]
    lexicon = Lexicon()
    ragged = encode(captions, lexicon, None)
    seen = 0
    for which, padded in parts(ragged, words=len(lexicon)):
        (small,) = renumbered(padded, len(lexicon))
        assert int(small.tokens.max()) < 8
        assert torch.equal(small.tokens == 0, padded[0].tokens == 0)
        ids = torch.stack([small.tokens.flatten(), padded[0].tokens.flatten()])
        assert ids.unique(dim=1).shape[1] == len(padded[0].tokens.unique())  # one to one
        seen += len(which)
    assert seen == 12
    _, rich = next(parts(encode([[list("abcdefgh")]], Lexicon(), None), words=9))
    with pytest.raises(InputError, match="8 different words"):
        renumbered(rich, 9)


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


def test_frequencies_of_words_name_their_corpus() -> None:
    lexicon = Lexicon()
    ragged = encode([[["a", "b"], ["a"]], [["a", "c"]]], lexicon, None)
    df = CorpusFrequencies.of(ragged, lexicon, "train")
    assert df.signature == f"train(2 images, {content_digest(ragged, lexicon)})"
    asked = torch.tensor([[lexicon["a"], lexicon["b"], 99]])
    assert df.table.of(asked, torch.tensor([3]))[0, :2].tolist() == [[2, 1, 0], [1, 0, 0]]

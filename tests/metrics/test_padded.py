"""Ids to padded parts and back, and the frequencies the torch engine makes of them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from caplore.errors import InputError
from caplore.metrics import padded as module
from caplore.metrics.corpus import Lexicon, encode
from caplore.metrics.padded import Padded, Rows, parts, renumbered

few = settings(deadline=None, max_examples=40)
inputs = st.lists(
    st.lists(st.lists(st.sampled_from("abcdef"), max_size=6), min_size=1, max_size=4), min_size=1, max_size=9
)


def decoded(padded: Rows, lexicon: Lexicon) -> list[list[list[str]]]:
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
    before, module._ELEMENTS = module._ELEMENTS, elements
    try:
        found: dict[int, list[list[str]]] = {}
        places: list[int] = []
        for which, (padded,) in parts(ragged, words=len(lexicon)):
            found.update(zip(which.tolist(), decoded(padded, lexicon), strict=True))
            places += padded.place[padded.there].tolist()
    finally:
        module._ELEMENTS = before
    assert [found[i] for i in range(len(captions))] == captions
    assert sorted(places) == list(range(sum(map(len, captions))))


def test_too_many_words_make_smaller_parts_with_small_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WORDS", 8)
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


def test_frequencies_are_of_the_inputs_ngrams() -> None:
    lexicon = Lexicon()
    ragged = encode([[["a", "b"], ["a"]], [["a", "c"]]], lexicon, None)
    asked = torch.tensor([[lexicon["a"], lexicon["b"], 99]])
    assert Padded().frequencies(ragged).of(asked, torch.tensor([3]))[0, :2].tolist() == [[2, 1, 0], [1, 0, 0]]

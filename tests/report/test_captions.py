"""Sets of captions: which words repeat, what is counted."""

from hypothesis import given, settings
from hypothesis import strategies as st

from caplore.report.captions import shown_set
from caplore.report.results import Caption


def test_words_of_earlier_captions_are_repeats_and_a_captions_own_are_not() -> None:
    found = shown_set([Caption("a Red cat and a dog"), Caption("a cat on A red mat")])
    assert [(s.text, s.repeated) for s in found.captions[0].spans] == [("a Red cat and a dog", False)]
    assert [(s.text, s.repeated) for s in found.captions[1].spans] == [
        ("a cat", True),
        ("on", False),
        ("A red", True),
        ("mat", False),
    ]


def test_right_wrong_and_unknown() -> None:
    found = shown_set([Caption("x", correct=True), Caption("y", correct=False), Caption("y")])
    assert [c.verdict for c in found.captions] == ["right", "wrong", "unknown"]
    assert found.summary == "1 of 2 correct, 2 different"
    assert shown_set([Caption("x", cider_d=1.172)]).captions[0].cider == "117"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=6), max_size=5))
def test_new_words_are_counted_once_over_the_set(rows: list[list[str]]) -> None:
    """The words that stay dark are exactly the set's vocabulary, each dark in one caption only."""
    found = shown_set([Caption(" ".join(row)) for row in rows])
    dark = [{w for s in c.spans if not s.repeated for w in s.text.split()} for c in found.captions]
    assert sum(map(len, dark)) == len(set().union(*dark)) == len({w for row in rows for w in row})
    assert [" ".join(s.text for s in c.spans) for c in found.captions] == [" ".join(row) for row in rows]

"""The compiled reader of plain captions against the rules: what it vouches for is what they say."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caplore.native import native
from caplore.text import ptb
from caplore.text.ptb import tokenize_lines, tokenize_many

twin = native("caplore.text._ptb")
pytestmark = pytest.mark.skipif(
    twin is None,
    reason="the compiled tokeniser is not built here: pip install -e . builds it, with a C++ compiler",
)

# What its shapes are made of, and what may stand beside them.
SIGNS = [*"aAkstnoS019", *".,:;!?/-&'\"()<@+#_ ", ". ", " \n", "\t", "\0", "\u00a0", "é", "\ud800"]
WORDS = """a st. Mr. no no. fig U.S. t.v ph.d cannot gonna 's n't 're www com .net html .py 555 1234 1,000 10:30 1/2
'n' either/or red,white street.a t-shirt 747 1950's ... ". ." www.x.org http:// anti- pro- ol' '90s :) ;p A The"""
near_shapes = st.lists(st.sampled_from([*SIGNS, *WORDS.split(), " ", " "]), max_size=12).map("".join)

# One trap each: read in two, as one, with its period, with its neighbour, with the next line ...
TRAPS = """
12 5551234|5 747|12  5551234|(555) 555123|55.5551234|12-25-2012|555-5551234|747"|"747"|1/2|25 1/2|1,000/2|1:2:3|1,2:3
dec.d|dec.d.|ed.d.y,|mich.g|ph.d.|a.b.c.|a.b.,|end.,|x.html.|x.com.|dog.Cat|dog?cat|red,no. 5|no. 5|fig.|K.|a-b.c|. . .5
cannot|gonna.|can,not|red,cannot|st's|o'clock|dog's'|dog's.|dog'S|'s|'s'|'sa|?!|!!|a.!|.5|-5|- 5|--|&c|&&|a/b/c/d|5:p
2nd.3rd|a:D|"|".|".,|""|"'|10:30pm|1,000,000|a_b|<b>|>|mr|mr."|"mr|a|a.
"""
PLAIN = """
A man.|two "red" dogs, one white!|10:30 on the t.v.|cats & dogs, either/or|a,|black-and-white TV..|A 747 in the U.S.
people 's cars . ! "|red,white and blue|1,000 boats - 25 of them|"Stop".|the 1950's
"""


def listed(table: str) -> list[str]:
    return [caption for row in table.strip().splitlines() for caption in row.split("|")]


def by_twin(caption: str) -> str | None:
    """The words, None where the caption is left to Python; as a line and as a list they are the same."""
    assert twin is not None
    [line], left = twin.lines([caption], ptb._RUN_TOGETHER, ptb._ABBREVIATIONS)
    assert left == ([0] if line is None else [])
    words = None if line is None else line.split(" ") if line else []
    assert twin.lists([caption], ptb._RUN_TOGETHER, ptb._ABBREVIATIONS) == ([words], left)
    return line


def by_rules(caption: str) -> str:
    """What the rules say of the whole caption, nothing cut or remembered."""
    text = ptb._LINE_BREAK.sub(" ", caption)
    return " ".join(ptb._words(text + "\nA a\n", len(text)))


@given(near_shapes | st.text())
@settings(max_examples=1000, deadline=None)
def test_what_it_vouches_for_is_what_the_rules_say(caption: str) -> None:
    assert by_twin(caption) in (None, by_rules(caption))


@pytest.mark.parametrize(
    "caption", [*listed(TRAPS), "x" * 64, "x" * 65, "a\tb", "a\0b", "a\u00a0b", "a\x85b", "\ud800"]
)
def test_it_steps_into_no_trap(caption: str) -> None:
    assert by_twin(caption) in (None, by_rules(caption))


@pytest.mark.parametrize("caption", [*listed(PLAIN), "two\nlines\r\nhere\n", "  ", ""])
def test_plain_captions_are_not_left_to_python(caption: str) -> None:
    assert by_twin(caption) == by_rules(caption)


@given(st.lists(near_shapes | st.text(), max_size=6))
@settings(max_examples=300, deadline=None)
def test_lines_and_lists_are_the_same_words_by_either_path(many: list[str]) -> None:
    found = tokenize_many(many)
    assert tokenize_lines(tuple(many)) == [" ".join(words) for words in found]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAPLORE_NATIVE", "0")
        assert tokenize_many(many) == found
        assert [line.split(" ") if line else [] for line in tokenize_lines(many)] == found

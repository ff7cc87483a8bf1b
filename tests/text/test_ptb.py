import json
import random
import string
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caplore.native import native
from caplore.text import ptb
from caplore.text.ptb import PUNCTUATION, tokenize, tokenize_lines, tokenize_many

GOLDEN = json.loads((Path(__file__).parent / "golden_ptb.json").read_text(encoding="utf-8"))

FRAGMENTS = """a A dog st. Mr. no. u.s. K. The it's don't 'n' cannot 5 555 1/2 . , ... -- - ( ) < > " & @ # é 日 ½ 😀"""
fragments = st.sampled_from([*FRAGMENTS.split(), "\n", "\t", "\u00a0"])
captions = st.lists(fragments | st.text(max_size=3), max_size=8).map(" ".join)


@pytest.fixture(scope="module", autouse=True, params=["compiled", "Python"])
def path(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test runs with the compiled twin, and without."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "Python":
            patch.setenv("CAPLORE_NATIVE", "0")
        else:
            patch.delenv("CAPLORE_NATIVE", raising=False)
            if native("caplore.text._ptb") is None:
                pytest.skip(
                    "the compiled tokeniser is not built here: pip install -e . with a C++ compiler builds it"
                )
        yield


@pytest.fixture
def nothing_learned() -> None:
    ptb._known.clear()
    ptb._known[""] = ()


@pytest.mark.parametrize(("caption", "words"), GOLDEN["alone"])
def test_the_words_are_the_programs(caption: str, words: list[str]) -> None:
    assert tokenize(caption) == words
    assert tokenize_lines([caption]) == [" ".join(words)]


def test_lines_are_read_as_the_program_reads_them() -> None:
    captions = [caption for caption, _ in GOLDEN["lines"]]
    assert tokenize_many(captions) == [words for _, words in GOLDEN["lines"]]
    assert tokenize_lines(captions) == [" ".join(words) for _, words in GOLDEN["lines"]]


@pytest.mark.parametrize(
    ("caption", "words"),
    [
        ("", []),
        (" . , ! ? ", []),
        ("A dog.", ["a", "dog"]),
        ("two\nlines\r\nand\u2028more", ["two", "lines", "and", "more"]),
        ("tabs\tand  spaces ", ["tabs", "and", "spaces"]),
        ("a man (left)", ["a", "man", "-lrb-", "left", "-rrb-"]),
    ],
)
def test_a_caption_is_one_list(caption: str, words: list[str]) -> None:
    assert tokenize(caption) == words
    assert tokenize_many([caption]) == [words]
    assert tokenize_lines((caption, "")) == [" ".join(words), ""]


def test_a_letter_keeps_its_period_unless_a_sentence_follows() -> None:
    assert tokenize("the letter K.") == ["the", "letter", "k."]
    assert tokenize_many(["the letter K.", "", "A dog"])[0] == ["the", "letter", "k"]
    assert tokenize_many(["the letter K.", "a dog"])[0] == ["the", "letter", "k."]


@given(st.text() | captions)
@settings(max_examples=300, deadline=None)
def test_any_text_gives_words_that_are_lower_case_and_no_punctuation(caption: str) -> None:
    words = tokenize(caption)
    assert all(word and word not in PUNCTUATION and " " not in word for word in words)
    assert all(word == word.lower() for word in words)


@given(st.lists(captions, max_size=6))
@settings(max_examples=100, deadline=None)
def test_one_list_for_each_caption(many: list[str]) -> None:
    found = tokenize_many(many)
    assert len(found) == len(many)
    assert tokenize_many(many) == found


@given(captions)
@settings(max_examples=200, deadline=None)
def test_what_is_remembered_is_what_the_rules_say(caption: str) -> None:
    line = ptb._LINE_BREAK.sub(" ", caption)
    assert tokenize(caption) == list(ptb._words(line + "\n\n", len(line)))


@given(st.lists(st.text(string.ascii_letters, min_size=2), max_size=12))
def test_plain_words_stay_as_they_are(words: list[str]) -> None:
    lower = [word.lower() for word in words if word.lower() not in ptb._NOT_PLAIN]
    assert tokenize(" ".join(lower)) == lower
    assert tokenize(" ".join(lower) + ".") == lower


def test_a_caption_that_is_no_text_is_a_mistake() -> None:
    with pytest.raises((TypeError, AttributeError), match=r"5, not a text|'int' object has no"):
        tokenize_lines(["a dog", 5])  # type: ignore[list-item]


def test_many_words_are_kept_once_each() -> None:
    rng = random.Random(0)
    words = ["".join(rng.choices(string.ascii_lowercase, k=7)) for _ in range(20_000)]
    found = tokenize_many([*words, " ".join(words)])
    assert found == [*([word] for word in words), words]
    assert all(one is again for [one], again in zip(found, found[-1], strict=False))


def test_one_letter_stands_for_all_only_where_no_rule_knows_better() -> None:
    """No rule may name a letter, digit or mark beyond ASCII: it is not there when the rules are tried."""
    named = {c for rule in ptb._rules() for c in rule.pattern.pattern if not c.isascii()}
    stand_ins = {ptb._A_LETTER, ptb._A_DIGIT, ptb._A_MARK}
    assert {c for c in named if ptb._by_kind(c) != c} == set()
    assert stand_ins <= named
    assert ptb._by_kind("Aé日٣˝½ a") == "Aªª٠˂½ a"


@pytest.mark.usefixtures("nothing_learned")
def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptb, "_KNOWN_LIMIT", 10)
    many = [f"word{chr(97 + i)} and dog{chr(97 + i)}." for i in range(26)]
    assert tokenize_many(many) == [[f"word{chr(97 + i)}", "and", f"dog{chr(97 + i)}"] for i in range(26)]
    assert len(ptb._known) <= 14


@pytest.mark.java
def test_the_program_still_says_so() -> None:
    from bench.bench_text import stanford

    alone = [caption for caption, _ in GOLDEN["alone"]]
    assert stanford([line for caption in alone for line in (caption, "q")])[::2] == [
        tokenize(c) for c in alone
    ]

import _thread
import gzip
import importlib.util
import json
import random
import sys
import threading
import zipfile
from collections.abc import Callable, Sequence
from itertools import chain, combinations, pairwise, permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caplore.errors import InputError, MissingError
from caplore.metrics.meteor import COLUMNS, Meteor, is_set_up, score, tables
from caplore.metrics.meteor.align import Match, align
from caplore.metrics.meteor.normalize import normalize
from caplore.metrics.meteor.stem import _AFTER_PLURAL, _WHOLE, stem
from caplore.metrics.meteor.tables import Tables, build, install_meteor
from caplore.metrics.wheels import Wanted
from caplore.native import native

GOLDEN = json.loads((Path(__file__).parent / "golden_meteor.json").read_text(encoding="utf-8"))
CLOSE = 1e-9  # the same doubles, added in another order

SYNSETS = {
    "dog": "1 2",
    "hound": "2 3",
    "man": "4",
    "guy": "4",
    "big": "5",
    "large": "5",
    "leaf": "6",
    "leave": "7",
}
FORMS = {"leaf": "leaves", "leave": "left leaves"}
FUNCTION_WORDS = ["a", "the", "of", "in", "on", "is"]
PREFIXES = ["# honorifics", "Mr", "vs", "", "No #NUMERIC_ONLY#"]
PARAPHRASES = [
    ("in front of", "before"),
    ("a lot of", "many"),
    ("a lot of", "lots of"),
    ("many", "a lot of"),
    ("in front", "ahead"),
    ("looks at", "watches"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A jar and a paraphrase file with the lists above."""
    folder = tmp_path_factory.mktemp("program")
    with zipfile.ZipFile(folder / "meteor-1.5.jar", "w") as jar:
        jar.writestr(
            "synonym/english.synsets", "".join(f"{word}\n{sets}\n" for word, sets in SYNSETS.items())
        )
        jar.writestr(
            "synonym/english.exceptions", "".join(f"{base}\n{forms}\n" for base, forms in FORMS.items())
        )
        jar.writestr("function/english.words", "\n".join(FUNCTION_WORDS) + "\n")
        jar.writestr("nonbreaking/english.prefixes", "\n".join(PREFIXES) + "\n")
    with gzip.open(folder / "paraphrase-en.gz", "wt", encoding="utf-8") as file:
        file.write("".join(f"0.5\n{one}\n{other}\n" for one, other in PARAPHRASES))
    return folder / "meteor-1.5.jar", folder / "paraphrase-en.gz"


@pytest.fixture(scope="module")
def made_tables(program: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Tables:
    path = tmp_path_factory.mktemp("cache") / "tables.safetensors"
    build(*program, path)
    return Tables.load(path)


@pytest.fixture(scope="module")
def real_tables() -> Tables:
    if not is_set_up():
        pytest.skip(f"METEOR's tables are not set up here: {tables.SETUP}")
    return Tables.load(tables.tables_file())


def in_python(tables: Tables) -> Meteor:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAPLORE_NATIVE", "0")
        return Meteor(tables)


def compiled(tables: Tables) -> Meteor:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CAPLORE_NATIVE", raising=False)
        if native("caplore.metrics.meteor._align") is None:
            pytest.skip("METEOR's compiled twin was not built here: pip install -e . with a C++ compiler")
        return Meteor(tables)


@pytest.fixture(scope="module", params=[in_python, compiled], ids=["python", "compiled"])
def by(request: pytest.FixtureRequest) -> Callable[[Tables], Meteor]:
    """How counts are made: every test of counts runs both ways."""
    return request.param


@pytest.fixture(scope="module")
def made(by: Callable[[Tables], Meteor], made_tables: Tables) -> Meteor:
    return by(made_tables)


@pytest.fixture(scope="module")
def real(by: Callable[[Tables], Meteor], real_tables: Tables) -> Meteor:
    return by(real_tables)


def counts(meteor: Meteor, caption: str, *references: str) -> dict[str, int]:
    found = meteor.statistics(caption.split(), [reference.split() for reference in references])
    return {column: int(n) for column, n in zip(COLUMNS, found, strict=True) if n}


def value(meteor: Meteor, caption: str, *references: str) -> float:
    return float(score(meteor.statistics(caption.split(), [reference.split() for reference in references])))


# --- the program's own numbers ---------------------------------------------------------------------------------------


def test_counts_and_scores_are_the_programs(real: Meteor) -> None:
    cases = GOLDEN["cases"]
    found = real.statistics_many(
        [case["candidate"].split(" ") for case in cases],
        [[reference.split(" ") for reference in case["references"]] for case in cases],
    )
    wrong = [
        case["candidate"] for case, row in zip(cases, found.tolist(), strict=True) if row != case["counts"]
    ]
    assert wrong == []
    np.testing.assert_allclose(score(found), [case["score"] for case in cases], atol=CLOSE)
    assert score(found.sum(0)) == pytest.approx(GOLDEN["corpus"], abs=CLOSE)


def test_scores_of_the_programs_counts_are_its_scores() -> None:
    rows = np.array([case["counts"] for case in GOLDEN["cases"]])
    np.testing.assert_allclose(score(rows), [case["score"] for case in GOLDEN["cases"]], atol=CLOSE)
    assert score(rows.sum(0)) == pytest.approx(GOLDEN["corpus"], abs=CLOSE)


def test_stems_are_the_programs() -> None:
    assert {word: stem(word) for word in GOLDEN["stems"]} == GOLDEN["stems"]


def test_captions_published_with_coco_caption(real: Meteor, shared: Path) -> None:
    """The demonstration captions score .1953 (data/README.md)."""
    from caplore.text.ptb import tokenize_many

    images = json.loads((shared / "data" / "fixtures" / "fakecap.json").read_text(encoding="utf-8"))
    said = tokenize_many([image["candidates"][0] for image in images])
    true = [tokenize_many(image["references"]) for image in images]
    assert score(real.statistics_many(said, true).sum(0)) == pytest.approx(0.1953, abs=5e-5)


# --- how words match -------------------------------------------------------------------------------------------------


def test_each_module_matches_what_it_should(made: Meteor) -> None:
    found = counts(made, "a hound watches men in front of running", "the dog looks at guys before runs")
    assert found == {
        **{"words": 8, "reference_words": 7, "function_words": 3, "reference_function_words": 1},
        **{"stem_content": 1, "stem_reference_content": 1},  # running, runs
        **{"synonym_content": 2, "synonym_reference_content": 2},  # hound, dog; men, guys
        **{"paraphrase_content": 2, "paraphrase_function": 2},  # watches; in front of
        **{"paraphrase_reference_content": 3},  # looks at; before
        "chunks": 1,
    }


def test_irregular_forms_have_the_synonyms_of_all_their_bases(made: Meteor) -> None:
    lexicon = made._lexicon
    assert lexicon.synonym_sets("leaves") == {6, 7}
    assert lexicon.synonym_sets("dogs") == {1, 2}
    assert lexicon.synonym_sets("men") == {4}
    assert lexicon.synonym_sets("nothing") == set()


def test_a_phrase_is_more_than_the_phrase_it_begins_with(made: Meteor) -> None:
    assert counts(made, "x in front of y", "x before y")["paraphrase_function"] == 2
    assert counts(made, "x in front y", "x ahead y")["paraphrase_content"] == 1
    assert "paraphrase_content" not in counts(made, "x lot y", "x many y")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("a man 's t-shirt", ["a", "man", "'", "s", "t", "shirt"]),
        ("do n't", ["do", "n", "'t"]),
        ("-lrb- a/b -rrb-", ["-lrb-", "a", "/", "b", "-rrb-"]),
        ("the u.s. team", ["the", "us", "team"]),
        ("st. louis", ["st.", "louis"]),
        ("at 5 p.m. mr. X no. 5 no. X", ["at", "5", "pm", "mr", ".", "x", "no", ".", "5", "no", ".", "x"]),
        ("vs. X Mr. X No. 5 No. X", ["vs.", "x", "mr.", "x", "no.", "5", "no", ".", "x"]),
        ("1,000 a,b", ["1,000", "a", ",", "b"]),
        ("naïve café &amp; …", ["naïve", "café", "&", "amp", ";", "…"]),
        ("wait... what", ["wait", "...", "what"]),
        ("", []),
        ("\t\n", []),
    ],
)
def test_words_are_set_apart_as_the_program_does(line: str, words: list[str]) -> None:
    assert normalize(line, {"vs": False, "Mr": False, "No": True}) == words


# --- how matches are chosen ------------------------------------------------------------------------------------------


def test_a_caption_that_is_its_reference_scores_one_and_has_no_chunk(made: Meteor) -> None:
    assert value(made, "a big dog", "a big dog") == 1
    assert "chunks" not in counts(made, "a big dog", "a big dog")
    assert value(made, "a big dog", "a big dog runs") < 1


def test_by_hand(made: Meteor) -> None:
    """dog of "the dog" and "a dog": 3/4 content, 1/4 function; one of two words in one chunk."""
    share = 0.75 / (0.75 + 0.25)
    assert value(made, "the dog", "a dog") == pytest.approx(share * (1 - 0.6 * 1.0**0.2))
    synonym = 0.8 * share
    assert value(made, "the hound", "a dog") == pytest.approx(synonym * (1 - 0.6 * 1.0**0.2))
    p, r, chunks, matches = 1.0, 3 / 4, 2, 3
    expected = p * r / (0.85 * p + 0.15 * r) * (1 - 0.6 * (chunks / matches) ** 0.2)
    assert value(made, "x y z", "x w y z") == pytest.approx(expected)


def test_the_best_reference_counts(made: Meteor) -> None:
    assert value(made, "a dog", "the man", "a dog", "x") == 1
    assert counts(made, "q", "x y", "z")["reference_words"] == 2, "all are 0: the first"


@pytest.mark.parametrize(
    ("caption", "reference"), [("", "a dog"), ("a dog", ""), ("", ""), ("x", "y"), ("a", "b")]
)
def test_nothing_in_common_is_zero(made: Meteor, caption: str, reference: str) -> None:
    assert value(made, caption, reference) == 0


def test_a_caption_needs_a_reference(made: Meteor) -> None:
    with pytest.raises(ValueError, match="one reference at least"):
        made.statistics(["a"], [])
    with pytest.raises(ValueError, match="2 captions, but references of 1"):
        made.statistics_many([["a"], ["a"]], [[["a"]]])
    assert made.statistics_many([], []).shape == (0, len(COLUMNS))


WORDS = ["a", "the", "dog", "hound", "man", "men", "running", "runs", "many", "big", "x"]
captions = st.lists(st.sampled_from(WORDS), max_size=9)


def slow_best(caption: Sequence[str], reference: Sequence[str]) -> tuple[int, int]:
    """Most words that can match exactly, and the fewest chunks with as many: by trying every way."""
    options = [(i, j) for i, a in enumerate(caption) for j, b in enumerate(reference) if a == b]
    for size in range(len(options), 0, -1):
        chunks = [
            len(chosen) - sum((i + 1, j + 1) in chosen for i, j in chosen)
            for chosen in map(frozenset, combinations(options, size))
            if len({i for i, _ in chosen}) == size == len({j for _, j in chosen})
        ]
        if chunks:
            return size, min(chunks)
    return 0, 0


@given(
    st.lists(st.sampled_from(["a", "the", "x", "y"]), max_size=5),
    st.permutations(["a", "the", "x", "y", "a"]),
)
@settings(max_examples=60, deadline=None)
def test_exact_matches_are_most_in_fewest_chunks(
    made: Meteor, caption: list[str], reference: list[str]
) -> None:
    found = made.statistics(caption, [reference])
    row = dict(zip(COLUMNS, found.tolist(), strict=True))
    matched, chunks = slow_best(caption, reference)
    assert row["exact_content"] + row["exact_function"] == matched
    assert row["chunks"] == (0 if len(caption) == len(reference) == matched and chunks == 1 else chunks)


@given(captions, captions)
@settings(max_examples=200, deadline=None)
def test_no_word_is_used_twice(made: Meteor, caption: list[str], reference: list[str]) -> None:
    one, other = made._lexicon.sentence(caption), made._lexicon.sentence(reference)
    matches: list[Match] = align(one, other, made._lexicon)
    here = list(chain.from_iterable(range(own, own + n) for _, _, own, n, _ in matches))
    there = list(chain.from_iterable(range(start, start + n) for start, n, *_ in matches))
    assert len(set(here)) == len(here) <= len(caption)
    assert len(set(there)) == len(there) <= len(reference)
    assert there == sorted(there)


@given(captions, st.lists(captions, min_size=1, max_size=4))
@settings(max_examples=100, deadline=None)
def test_the_order_of_references_and_worse_ones_change_nothing(
    made: Meteor, caption: list[str], references: list[list[str]]
) -> None:
    values = [float(score(made.statistics(caption, [reference]))) for reference in references]
    assert float(score(made.statistics(caption, references))) == max(values)
    for order in list(permutations(references))[:3]:
        assert float(score(made.statistics(caption, order))) == max(values)
    assert 0 <= max(values) <= 1


@given(st.lists(st.tuples(captions, st.lists(captions, min_size=1, max_size=3)), max_size=5))
@settings(max_examples=50, deadline=None)
def test_many_are_as_each_alone(made: Meteor, cases: list[tuple[list[str], list[list[str]]]]) -> None:
    together = made.statistics_many(
        [caption for caption, _ in cases], [references for _, references in cases]
    )
    alone = [made.statistics(caption, references).tolist() for caption, references in cases]
    assert together.tolist() == alone


def test_forgetting_changes_nothing(made: Meteor, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [("a big dog runs", "the large hound running"), ("many men", "a lot of guys")] * 3
    before = [value(made, *pair) for pair in pairs]
    monkeypatch.setattr("caplore.metrics.meteor._WORDS_KEPT", 0)
    assert [value(made, *pair) for pair in pairs] == before


def test_parts_of_many_captions_are_the_whole(made: Meteor, monkeypatch: pytest.MonkeyPatch) -> None:
    said, true = ["a dog", "", "many men", "x"], [["a hound"], ["", "a"], ["a lot of guys"], ["x", "x"]]
    whole = made.statistics_lines(said, true).tolist()
    monkeypatch.setattr("caplore.metrics.meteor._AT_ONCE", 3)
    assert made.statistics_lines(said, true).tolist() == whole


# --- the compiled twin gives what the Python gives -------------------------------------------------------------------

ROOTS = [
    "dog",
    "hound",
    "leav",
    "man",
    "runn",
    "gener",
    "happi",
    "hopp",
    "fl",
    "bab",
    "cry",
    "abl",
    "y",
    "t",
    "é",
    "",
]
SUFFIXES = [
    "",
    "s",
    "es",
    "ies",
    "ied",
    "ed",
    "edly",
    "ing",
    "ingly",
    "ly",
    "li",
    "fulness",
    "ational",
    "ization",
]
SUFFIXES += [
    "ousli",
    "ative",
    "ment",
    "ement",
    "ion",
    "ll",
    "e",
    "y",
    "yy",
    "'s",
    "'s'",
    "ss",
    "ches",
    "men",
    "eed",
]
SIGNS = "aBy7.,'`- \t/:&\n_’“é€\ue000\u3000\ud800𝒳"


def salads(
    rng: random.Random, words: Sequence[str], most: int, cases: int
) -> tuple[list[str], list[list[str]]]:
    """Captions and references of few words each, in any order: where most ways of matching compete."""
    said, true = [], []
    for _ in range(cases):
        few = rng.sample(words, min(12, len(words)))
        lines = [" ".join(rng.choices(few, k=rng.randint(0, most))) for _ in range(rng.randint(2, 5))]
        said.append(lines[0])
        true.append([*lines[1:], lines[0]] if rng.random() < 0.1 else lines[1:])
    return said, true


def differences(of: Tables, said: list[str], true: list[list[str]]) -> list[tuple[str, list[str]]]:
    """Of which captions any count differs."""
    twin, python = compiled(of), in_python(of)
    pairs = zip(
        said, true, twin.statistics_lines(said, true), python.statistics_lines(said, true), strict=True
    )
    return [(caption, others) for caption, others, ours, theirs in pairs if (ours != theirs).any()]


@pytest.mark.parametrize("most", [6, 14, 40])
def test_twin_of_salads_of_known_words(made_tables: Tables, most: int) -> None:
    words = [*SYNSETS, *FUNCTION_WORDS, "leaves", "left", "men", "runs", "running", "x"]
    words += [text for pair in PARAPHRASES for text in pair]
    assert differences(made_tables, *salads(random.Random(most), words, most, 200)) == []


def test_twin_makes_the_same_stems(made_tables: Tables) -> None:
    assert compiled(made_tables)._twin is not None
    from caplore.metrics.meteor import _align

    special = [*_WHOLE, *_AFTER_PLURAL, *(word + "s" for word in _AFTER_PLURAL)]
    shaped = [root + one + other for root in ROOTS for one in SUFFIXES for other in SUFFIXES]
    words = [*GOLDEN["stems"], *special, *shaped, "yyy", "ayya", "'y'", "\ud800ying", "𝒳eed"]
    assert [word for word in words if _align.stem(word) != stem(word)] == []


@given(
    st.one_of(
        st.text("abcdegiklnstuyzY'", max_size=12),
        st.text(st.characters(exclude_characters="\n", exclude_categories=()), max_size=8),
    )
)
@settings(max_examples=500, deadline=None)
def test_twin_makes_the_same_stems_of_any_letters(made_tables: Tables, word: str) -> None:
    assert compiled(made_tables)._twin is not None
    from caplore.metrics.meteor import _align

    assert _align.stem(word) == stem(word)


def test_twin_of_words_of_all_shapes(made_tables: Tables) -> None:
    words = [root + suffix for root in ROOTS for suffix in SUFFIXES]
    assert differences(made_tables, *salads(random.Random(0), words, 12, 2000)) == []


@given(
    st.text(SIGNS, max_size=40),
    st.lists(st.one_of(st.text(SIGNS, max_size=40), st.text(max_size=20)), min_size=1, max_size=3),
)
@settings(max_examples=300, deadline=None)
def test_twin_of_any_text(made_tables: Tables, caption: str, references: list[str]) -> None:
    assert differences(made_tables, [caption], [references]) == []
    assert differences(made_tables, references, [[caption]] * len(references)) == []


@pytest.mark.parametrize("seed", range(3))
def test_twin_sets_signs_apart_as_the_python_does(made_tables: Tables, seed: int) -> None:
    """The words themselves, by comparing each line with the words that the Python makes of it."""
    rng = random.Random(seed)
    lines = ["".join(rng.choices("aaBcs57.,'`- \t:\"x", k=rng.randint(1, 30))) for _ in range(2000)]
    words = [" ".join(normalize(line, made_tables.prefixes)) for line in lines]
    assert differences(made_tables, lines, [[line] for line in words]) == []
    assert differences(made_tables, words, [[line] for line in lines]) == []


def test_twin_of_more_words_than_bits(made_tables: Tables) -> None:
    rng = random.Random(1)
    words = [f"w{i}" for i in range(300)]
    captions = [" ".join([*rng.sample(words, 150), *["a", "dog", "in front of"] * 2]) for _ in range(8)]
    assert differences(made_tables, captions, [captions[:3]] * 8) == []
    exact = [" ".join(words[:n]) for n in (31, 32, 33, 63, 64, 65)]
    assert differences(made_tables, exact, [exact] * len(exact)) == []


def test_one_word_many_times_takes_little_memory(made_tables: Tables) -> None:
    """Of all the hypotheses that are made at a place 40 go on, and only those are kept."""
    resource = pytest.importorskip("resource")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    compiled(made_tables).statistics_lines(["dog " * 600], [["dog " * 599]])
    unit = 2**20 if sys.platform == "darwin" else 2**10
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / unit < 60  # all were 120 MiB


def test_twin_of_real_words(real_tables: Tables) -> None:
    rng = random.Random(2)
    synonyms = [word for word in rng.sample(real_tables.lines("synonym_words"), 3000) if "_" not in word]
    forms = [form for line in real_tables.lines("forms")[1::2] for form in line.split()]
    common = [word for case in GOLDEN["cases"] for word in case["candidate"].split(" ")]
    words = [*synonyms, *rng.sample(forms, 1000), *real_tables.words[:2000], *common * 3, *GOLDEN["stems"]]
    assert differences(real_tables, *salads(rng, words, 12, 1000)) == []


def test_twin_of_coco_captions(real_tables: Tables) -> None:
    """500 images: a caption made of two images' halves against the five of the one."""
    from caplore.text.ptb import tokenize_many

    spec = importlib.util.find_spec("pycocoevalcap")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("needs COCO's captions, which lie inside pycocoevalcap")
    with zipfile.ZipFile(Path(spec.submodule_search_locations[0]) / "spice" / "spice-1.0.jar") as jar:
        rows = json.loads(jar.read("coco/annotations/captions_val2014.json"))["annotations"]
    of: dict[int, list[str]] = {}
    for row in rows[:20_000]:
        of.setdefault(row["image_id"], []).append(row["caption"])
    images = [[" ".join(words) for words in tokenize_many(texts)] for texts in of.values()][:501]
    halves = [lines[0].split(" ") for lines in images]
    said = [" ".join([*one[: len(one) // 2], *other[len(other) // 2 :]]) for one, other in pairwise(halves)]
    assert len(said) == 500
    assert differences(real_tables, said, images[:500]) == []


@pytest.mark.parametrize("threads", [2, 5])
def test_threads_change_nothing(made_tables: Tables, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("caplore.metrics.meteor.twin.FEWEST", 1)
    said, true = salads(random.Random(3), WORDS, 10, 500)
    meteor = compiled(made_tables)
    one = meteor.statistics_lines(said, true, threads=1)
    assert (meteor.statistics_lines(said, true, threads=threads) == one).all()


@pytest.mark.parametrize("threads", [1, 2])
def test_the_twin_ends_when_it_is_told_to(made_tables: Tables, threads: int) -> None:
    said = [" ".join(["dog", f"w{i}"] * 100) for i in range(20_000)]  # minutes of work

    def stop() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        compiled(made_tables).statistics_lines(said, [[line[4:]] for line in said], threads, stop)


def test_ctrl_c_reaches_the_twin(made_tables: Tables) -> None:
    said = [" ".join(["dog", f"w{i}"] * 100) for i in range(20_000)]
    timer = threading.Timer(0.5, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        compiled(made_tables).statistics_lines(said, [[line[4:]] for line in said])
    timer.join()


def test_the_twin_is_switched_off(made_tables: Tables) -> None:
    assert in_python(made_tables)._twin is None
    assert compiled(made_tables)._twin is not None


@pytest.mark.parametrize(
    "name", ["trie", "paraphrase_begins", "paraphrase_ends", "paraphrase_words", "words"]
)
@pytest.mark.parametrize("damage", ["half", "nothing", "backwards", "ones"])
def test_the_twin_reads_no_further_than_damaged_tables_go(
    made_tables: Tables, name: str, damage: str
) -> None:
    """Whatever is in them it gives counts or says that they are damaged; AddressSanitizer says the rest."""
    whole = made_tables.arrays[name]
    damaged = {
        "half": whole[: len(whole) // 2],
        "nothing": whole[:0],
        "backwards": memoryview(whole.tobytes()[::-1]).cast("B").cast(whole.format),
        "ones": memoryview(b"\xff" * whole.nbytes).cast("B").cast(whole.format),
    }[damage]
    meteor = compiled(Tables({**made_tables.arrays, name: damaged}))
    said: list[str] = []
    try:
        meteor.statistics_lines(["a big dog in front of men"] * 2, [["a lot of left hounds before guys"]] * 2)
    except ValueError as error:
        said = [str(error)]
    assert said in ([], ["METEOR's tables are damaged"])


def test_what_is_no_text_is_refused(made: Meteor) -> None:
    with pytest.raises(TypeError):
        made.statistics_lines([b"a"], [["a"]])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        made.statistics_lines(["a"], [[1]])  # type: ignore[list-item]


# --- the tables ------------------------------------------------------------------------------------------------------


def test_tables_that_are_not_there_name_the_command(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="not set up") as caught:
        Meteor.load(tmp_path)
    assert "caplore setup meteor" in str(caught.value.fix)
    assert not is_set_up(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{}", b"\x08\0\0\0\0\0\0\0{bad json", b"\x02\0\0\0\0\0\0\0{}"])
def test_another_file_in_their_place_is_said(tmp_path: Path, content: bytes) -> None:
    path = tables.tables_file(tmp_path)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(InputError, match="not a table of METEOR"):
        Meteor.load(tmp_path)


def test_half_of_the_tables_is_said_and_made_again(program: tuple[Path, Path], tmp_path: Path) -> None:
    path = tables.tables_file(tmp_path)
    path.parent.mkdir(parents=True)
    build(*program, path)
    assert tables._is_current(path)
    path.write_bytes(path.read_bytes()[:-10])
    assert not tables._is_current(path)
    with pytest.raises(InputError, match="not a table of METEOR") as caught:
        Meteor.load(tmp_path)
    assert "caplore setup meteor" in str(caught.value.fix)


def test_setting_up_from_files(
    program: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    with pytest.raises(InputError, match="sha256"):
        install_meteor([program[0].parent], said.append, tmp_path)
    jar, paraphrases = (Wanted(path.name, tables.digest_of_file(path)) for path in program)
    monkeypatch.setattr(tables, "JAR", jar)
    monkeypatch.setattr(tables, "PARAPHRASES", paraphrases)
    with pytest.raises(MissingError, match="none of the given places"):
        install_meteor([tmp_path], said.append, tmp_path / "cache")
    path = install_meteor([program[0].parent], said.append, tmp_path / "cache")
    assert is_set_up(tmp_path / "cache")
    assert tables.program_jar(tmp_path / "cache").is_file()
    assert value(Meteor.load(tmp_path / "cache"), "a hound", "a dog") > 0
    written = path.stat().st_mtime_ns
    assert install_meteor([program[0].parent], said.append, tmp_path / "cache") == path
    assert path.stat().st_mtime_ns == written, "what is there is not made again"
    assert said == ["making METEOR's tables (half a minute)"]


def test_phrases_keep_the_order_of_the_file(made: Meteor) -> None:
    phrase = made.tables.phrases
    for word in ["a", "lot", "of"]:
        following = phrase[word]
        assert following is not None
        phrase = following
    assert phrase.paraphrases == {"many": [(0, ["many"])], "lots": [(1, ["lots", "of"])]}
    assert phrase["nothing"] is None

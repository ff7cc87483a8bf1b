"""Tables as data, as Markdown, as plain text: right numbers, right marks, nothing hidden."""

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from caplore.errors import InputError
from caplore.report import tables
from caplore.report.results import Result, parse_result
from caplore.report.runs import load

Make = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def demo_results(demo: Path) -> list[Result]:
    return [run.result for run in load([demo], "test")]


def results_with(result_of: Make, **changes: dict[str, float | None]) -> list[Result]:
    """XE and SLL, one seed, their rs scores replaced: `cider_d={"xe": 1.0, "sll": 2.0}`."""
    out = []
    for objective in ("xe", "sll"):
        value = copy.deepcopy(result_of(objective))
        for key, by_objective in changes.items():
            value["decoders"]["rs"]["scores"][key] = {"value": by_objective[objective], "signature": "s"}
        out.append(parse_result(value, objective))
    return out


def cells(table: tables.Table, column: str, block: int = 0) -> list[tables.Cell]:
    index = [c.key for c in table.columns].index(column)
    return [line.cells[index] for line in table.blocks[block].lines]


def table_named(results: Sequence[Result], name: str) -> tables.Table:
    return next(t for t in tables.build(results) if t.name == name)


def test_numbers_print_on_the_scale_of_the_field(result_of: Make) -> None:
    results = results_with(result_of, cider_d={"xe": 1.172, "sll": 0.5}, div_2={"xe": 0.404, "sll": 0.3})
    table = table_named(results, "sets")
    assert [c.text for c in cells(table, "cider_d")] == ["117.2", "50.0"]
    assert [c.text for c in cells(table, "div_2")] == ["0.40", "0.30"]


def test_the_best_is_marked_whichever_way_is_better_and_ties_share_it(result_of: Make) -> None:
    results = results_with(
        result_of,
        cider_d={"xe": 0.5, "sll": 1.0},
        mbleu_4={"xe": 0.1, "sll": 0.8},
        div_1={"xe": 0.3011, "sll": 0.3009},
        div_2={"xe": None, "sll": 0.2},
    )
    table = table_named(results, "sets")
    marked = {key: [c.best for c in cells(table, key)] for key in ("cider_d", "mbleu_4", "div_1", "div_2")}
    assert marked == {
        "cider_d": [False, True],
        "mbleu_4": [True, False],
        "div_1": [True, True],  # they print alike
        "div_2": [False, False],  # no competition
    }


def test_mean_and_spread_over_seeds(demo_results: list[Result]) -> None:
    table = table_named(demo_results, "sets")
    assert [line.label for line in table.blocks[0].lines] == ["XE", "SLL", "SLL-ME", "SLL-SLE"]
    values = [r.decoders["rs"].scores["cider_d"].value for r in demo_results if r.objective == "sll_sle"]
    mean = sum(v for v in values if v is not None) / 3
    deviation = (sum((v - mean) ** 2 for v in values if v is not None) / 2) ** 0.5
    found = cells(table, "cider_d")[3]
    assert (found.text, found.spread) == (f"{100 * mean:.1f}", f"{100 * deviation:.1f}")
    assert tables.seeds_note([table]) == "Mean ± standard deviation over 3 seeds."


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([0.4, 0.002], "0.002"),
        ([0.0016, 0.0024], "0.0024"),
        ([0.00012], "0.00012"),
        ([1e-9], "0.000000"),
        ([0.0], "0.000"),
    ],
)
def test_a_column_of_small_values_prints_two_digits_that_count(values: list[float], text: str) -> None:
    column = tables.sharpened(tables.Column("precision", "P(Y|x)", digits=3), values)
    assert column.text(values[-1]) == text


@pytest.mark.parametrize(
    ("spread", "text"), [(0.0, "0.00"), (0.02, "0.02"), (0.004, "0.004"), (1e-9, "0.00")]
)
def test_a_spread_that_is_there_does_not_print_as_zero(spread: float, text: str) -> None:
    assert tables.spread_text(tables.Column("div_2", "Div-2"), spread) == text


def test_what_was_not_computed_is_said_with_its_reason(demo_results: list[Result]) -> None:
    table = table_named(demo_results, "precision")
    assert "meteor" not in [c.key for c in table.columns]
    assert "METEOR not computed: METEOR tables are not set up: caplore setup meteor" in table.notes


def test_a_score_that_one_run_lacks_is_a_dash_with_a_note(result_of: Make) -> None:
    results = results_with(result_of, div_2={"xe": None, "sll": 0.2})
    table = table_named(results, "sets")
    assert cells(table, "div_2")[0].text == "–"
    assert any("Div-2 of XE (rs) not computed for 1 of 1 runs" in note for note in table.notes)


def test_scores_beyond_the_paper_are_shown_where_computed_and_not_missed_elsewhere(result_of: Make) -> None:
    plain = table_named(results_with(result_of), "sets")
    assert not any("self-CIDEr" in note for note in plain.notes)
    more = table_named(results_with(result_of, self_cider={"xe": 0.9, "sll": 0.2}), "sets")
    assert [c.text for c in cells(more, "self_cider")] == ["0.90", "0.20"]


def test_numbers_made_in_different_ways_do_not_stand_together_unannounced(result_of: Make) -> None:
    a, b = result_of("xe"), copy.deepcopy(result_of("sll"))
    b["decoders"]["beam"]["scores"]["cider_d"]["signature"] = "cider_d|df:other"
    b["decoders"]["rs"]["settings"]["temperature"] = 0.7
    found = {t.name: t.notes for t in tables.build([parse_result(a, "a"), parse_result(b, "b")])}
    assert any(
        n.startswith("Careful: CIDEr was computed in 2 ways") and "df:other" in n for n in found["precision"]
    )
    assert any(n.startswith("Careful: the runs were decoded with different settings") for n in found["sets"])


def test_the_exact_table_is_for_made_worlds_only(demo_results: list[Result], result_of: Make) -> None:
    assert "200 inputs, 987 correct captions each" in table_named(demo_results, "exact").title
    real = [parse_result(result_of("xe", exact=False), "x")]
    assert [t.name for t in tables.build(real)] == ["precision", "sets"]


@pytest.mark.parametrize(
    ("dataset", "shown"), [("coco", True), ("TGIF", True), ("coco-proxy", False), ("scenes", False)]
)
def test_the_papers_figures_stand_beside_the_papers_data_only(
    result_of: Make, dataset: str, shown: bool
) -> None:
    text = tables.markdown(
        [parse_result(result_of(o, dataset=dataset, exact=False), o) for o in ("xe", "sll_sle")]
    )
    assert ("the paper" in text) is shown
    assert ("117.2" in text) is (dataset == "coco")
    assert ("| 18.8 | 50.8 | 16.6 |" in text) is (dataset == "TGIF")


def test_theirs_never_takes_the_mark_of_the_best(result_of: Make) -> None:
    results = [parse_result(result_of(o, dataset="coco", exact=False), o) for o in ("xe", "sll")]
    for table in tables.build(results):
        assert not any(c.best for b in table.blocks for line in b.lines if line.source for c in line.cells)


def test_markdown_has_rows_of_one_length_and_escapes_its_bars(demo_results: list[Result]) -> None:
    text = tables.markdown(demo_results)
    for part in text.split("\n\n"):
        lines = [line.replace("\\|", "") for line in part.splitlines() if line.startswith("|")]
        assert len({line.count("|") for line in lines}) <= 1
    assert "P(Y\\|x) ↑" in text
    assert "mBLEU-4 ↓" in text
    assert text.count("**") >= 2 * 14


@pytest.mark.parametrize("width", [45, 52, 60, 72, 80, 100, 200])
def test_the_terminal_table_keeps_to_its_width(demo_results: list[Result], width: int) -> None:
    lines = tables.terminal(demo_results, width=width).splitlines()
    assert max(map(len, lines)) <= width


def test_what_a_narrow_terminal_leaves_out_is_named(demo_results: list[Result]) -> None:
    wide, narrow = (tables.terminal(demo_results, width=w) for w in (80, 45))
    assert "left out" not in wide
    assert "(left out to fit: BLEU-1, BLEU-2, BLEU-3)" in narrow
    assert "CIDEr" in narrow.split("\n\n")[0]


def test_colour_changes_nothing_but_colour(demo_results: list[Result]) -> None:
    coloured = tables.terminal(demo_results, colour=True)
    assert "\x1b[1m" in coloured
    assert coloured.replace("\x1b[1m", "").replace("\x1b[0m", "") == tables.terminal(demo_results)


def test_rows_say_their_seeds_where_these_differ(demo_results: list[Result]) -> None:
    fewer = [r for r in demo_results if not (r.objective == "xe" and r.seed)]
    assert "| XE (1 seed) |" in tables.markdown(fewer)
    assert "over 1 to 3 seeds" in tables.markdown(fewer)


def test_tables_of_what_cannot_be_compared_are_refused(result_of: Make) -> None:
    with pytest.raises(InputError, match="different data sets"):
        tables.markdown(
            [parse_result(result_of("xe"), "a"), parse_result(result_of("xe", dataset="coco"), "b")]
        )

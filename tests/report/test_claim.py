"""What is said about exploration follows from the numbers, whichever way they fall."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from caplore.report import claim
from caplore.report.groups import Group, group
from caplore.report.results import parse_result

Make = Callable[..., dict[str, Any]]


def groups_with(
    result_of: Make, cider: dict[str, list[float]], recall: dict[str, list[float]]
) -> list[Group]:
    """Runs whose beam CIDEr and expected recall at 5 are these, a value per seed."""
    results = []
    for objective, values in cider.items():
        for seed, value in enumerate(values):
            made = copy.deepcopy(result_of(objective, seed))
            made["decoders"]["beam"]["scores"]["cider_d"]["value"] = value
            made["exact"]["scores"]["recall_5"]["value"] = recall[objective][seed]
            results.append(parse_result(made, f"{objective}{seed}"))
    return group(results)


@pytest.mark.parametrize(
    ("cider", "recall", "verdict"),
    [
        (1.02, 0.3, "better on both sides at once"),
        (1.00, 0.3, "better in recall, level in precision"),
        (0.98, 0.3, "better in recall, worse in precision"),
        (1.02, 0.1, "better in precision, worse in recall"),
        (0.98, 0.1, "worse on both sides"),
        (1.00, 0.2, "no clear difference on either side"),
        (0.98, 0.2, "worse in precision, level in recall"),
    ],
)
def test_the_verdict_follows_the_numbers(result_of: Make, cider: float, recall: float, verdict: str) -> None:
    groups = groups_with(result_of, {"sll": [1.0], "sll_sle": [cider]}, {"sll": [0.2], "sll_sle": [recall]})
    (finding,) = claim.findings(groups)
    assert finding.verdict == f"SLL-SLE against SLL: {verdict}."
    assert "one seed, so chance is not ruled out" in finding.numbers


def test_a_difference_within_its_spread_over_seeds_is_no_difference(result_of: Make) -> None:
    cider = {"sll": [1.00, 1.00, 1.00], "sll_sle": [1.05, 0.97, 1.01]}
    recall = {"sll": [0.2, 0.3, 0.4], "sll_sle": [0.25, 0.35, 0.45]}  # pairs differ by the same 0.05
    (finding,) = claim.findings(groups_with(result_of, cider, recall))
    assert finding.verdict == "SLL-SLE against SLL: better in recall, level in precision."
    assert "CIDEr at beam search +1.0 ± 4.0" in finding.numbers
    assert "expected recall at 5 +0.050" in finding.numbers
    assert "over 3 seeds" in finding.numbers


def test_different_seeds_are_compared_by_their_means_without_a_spread(result_of: Make) -> None:
    cider = {"sll": [1.0], "sll_sle": [1.1, 1.3]}
    groups = groups_with(result_of, cider, {"sll": [0.2], "sll_sle": [0.3, 0.3]})
    found = claim.difference(groups[1], groups[0], claim.CIDER)
    assert found is not None
    assert found.value == pytest.approx(0.2)
    assert found.spread is None


def test_lower_is_better_for_mbleu(result_of: Make) -> None:
    groups = group([parse_result(result_of(o), o) for o in ("sll", "sll_sle")])
    table = claim.differences_table(groups)
    assert table is not None
    marks = {
        c.title: cell.better for c, cell in zip(table.columns, table.blocks[0].lines[0].cells, strict=True)
    }
    assert marks["mBLEU-4, rs"] is True
    assert table.blocks[0].lines[0].cells[-1].text.startswith("−")


def test_pairs_are_of_one_model_and_need_a_rival(result_of: Make) -> None:
    made = [copy.deepcopy(result_of(o)) for o in ("sll", "sll_sle", "sll_sle")]
    made[2]["run"]["model"] = "updown"
    groups = group([parse_result(value, str(i)) for i, value in enumerate(made)])
    assert [(a.title, b.title) for a, b in claim.pairs(groups)] == [("SLL-SLE · fc", "SLL · fc")]
    assert claim.differences_table(group([parse_result(made[1], "x")])) is None


def test_without_exact_figures_div_2_stands_for_recall(result_of: Make) -> None:
    groups = group([parse_result(result_of(o, exact=False), o) for o in ("sll", "sll_sle")])
    (finding,) = claim.findings(groups)
    assert "Div-2 of sampled sets +0.1" in finding.numbers
    assert "P(Y|x)" not in finding.numbers

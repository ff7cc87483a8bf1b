"""Figures: the right numbers in the right place, each with a sentence on how to read it."""

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from caplore.report import figures
from caplore.report.groups import Group, group
from caplore.report.results import parse_result
from caplore.report.runs import load

Make = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def groups(demo: Path) -> list[Group]:
    return group([run.result for run in load([demo], "test")])


def test_made_worlds_show_the_exact_pair(groups: list[Group]) -> None:
    (figure,) = figures.precision_recall(groups)
    recall = groups[3].summary("exact", "recall_5").mean
    assert f"SLL-SLE: {recall:.3g} across" in figure.svg
    assert figure.svg.count('class="dot"') == 12  # each seed a dot
    assert figure.svg.count('class="mark"') == 4  # each objective a mark
    assert "Small dots are seeds" in figure.reading


def test_real_data_shows_proxies_and_says_so(result_of: Make) -> None:
    made = [parse_result(result_of(o, exact=False), o) for o in ("xe", "sll")]
    shown = figures.precision_recall(group(made))
    assert ["Div-2" in f.svg for f in shown] == [True, False]
    assert "1 − mBLEU-4" in shown[1].svg
    assert all("stands for recall" in f.reading for f in shown)
    assert not any("seeds" in f.reading for f in shown)


def test_recall_of_the_references_is_preferred_where_it_was_computed(result_of: Make) -> None:
    value = copy.deepcopy(result_of("xe", exact=False))
    value["decoders"]["rs"]["scores"]["recall_cider_d"] = {"value": 0.6, "signature": "s"}
    shown = figures.precision_recall(group([parse_result(value, "x")]))
    assert [f.title for f in shown] == [
        "Precision against recall of the references",
        "Precision against diversity",
    ]


def test_the_papers_points_are_on_the_papers_data_only(result_of: Make) -> None:
    for dataset, hollow in (("coco", 4), ("coco-proxy", 0)):
        shown = figures.precision_recall(
            group([parse_result(result_of("xe", exact=False, dataset=dataset), "x")])
        )
        assert shown[0].svg.count('<circle class="paper"') == hollow
        assert ("the paper's own" in shown[0].reading) is bool(hollow)


def test_the_peak_picture_marks_the_effective_number(groups: list[Group]) -> None:
    figure = figures.peak_width(groups)
    assert figure is not None
    assert "no probability at all" not in figure.reading
    for g in groups:
        assert f"{g.label}: {g.summary('exact', 'peak_width').mean:.3g} captions" in figure.svg
    assert figures.peak_width(group([parse_result({**_no_exact(groups)}, "x")])) is None


def test_the_mark_of_the_effective_number_lies_on_its_curve(result_of: Make) -> None:
    value = copy.deepcopy(result_of("xe"))
    value["exact"]["peak"] = {"ranks": [1, 10, 100], "mass": [0.0, 0.9, 1.0]}
    value["exact"]["scores"]["peak_width"]["value"] = 10**0.5  # half way to 10 on the logarithmic axis
    figure = figures.peak_width(group([parse_result(value, "x")]))
    assert figure is not None
    line = re.search(r'class="line" d="M([\d.]+),([\d.]+)L([\d.]+),([\d.]+)', figure.svg)
    mark = re.search(r'class="mark" cx="([\d.]+)" cy="([\d.]+)"', figure.svg)
    assert line is not None
    assert mark is not None
    x0, y0, x1, y1 = map(float, line.groups())
    value["exact"]["peak"]["mass"] = [0.0, 0.6, 0.8]
    cut = figures.peak_width(group([parse_result(value, "x")]))
    assert cut is not None
    assert "no probability at all" in cut.reading
    assert [float(v) for v in mark.groups()] == pytest.approx([(x0 + x1) / 2, (y0 + y1) / 2], abs=0.2)


def test_where_lower_is_better_the_axis_is_turned() -> None:
    assert figures.NOT_MBLEU.place(0.8) == pytest.approx(0.2)
    assert figures.CIDER_RS.place(1.172) == pytest.approx(117.2)
    assert figures.DIV_2.place(None) is None


def _no_exact(groups: list[Group]) -> dict[str, Any]:
    one = groups[0].results[0]
    data = {"name": one.dataset.name}
    run = {"name": "x", "objective": "xe", "model": "fc", "seed": 0, "dataset": data}
    return {
        "format": "caplore-evaluation-1",
        "run": run,
        "split": "test",
        "inputs": 1,
        "references": 5,
        "decoders": {},
    }


def test_curves_are_drawn_by_phase_with_the_runs_that_have_it(demo: Path, groups: list[Group]) -> None:
    logs = {run.result.where: run.log for run in load([demo], "test")}
    word, sequence = figures.training_curves(groups, logs)
    assert [f.title for f in word.figures] == ["validation CIDEr", "loss"]
    assert [f.title for f in sequence.figures] == [
        "reward",
        "validation CIDEr",
        "entropy (nats per word)",
        "distance within a set",
        "words per caption",
    ]
    assert [f.svg.count('class="line"') for f in (word.figures[0], sequence.figures[0])] == [1, 3]
    assert sequence.figures[0].svg.count('class="thin"') == 9
    assert figures.training_curves(groups, {}) == []


def test_mean_of_lines_goes_as_far_as_all_do() -> None:
    short, long = ((0.0, 1.0), (10.0, 3.0)), ((0.0, 3.0), (5.0, 3.0), (20.0, 9.0))
    assert figures._mean_line([short, long]) == ((0.0, 2.0), (10.0, 4.0))
    assert figures._mean_line([long, short]) == ((0.0, 2.0), (5.0, 2.5))


def test_long_logs_are_thinned_without_moving_their_mean() -> None:
    points = tuple((float(i), float(i % 7)) for i in range(600))
    thin = figures._thinned(points, 1.0)
    assert len(thin) == figures.MOST_POINTS
    assert sum(y for _, y in thin) / len(thin) == pytest.approx(sum(y for _, y in points) / 600)


def test_colour_is_the_objectives_and_dash_tells_its_groups_apart(groups: list[Group]) -> None:
    twice = [*groups, groups[3]]
    looks = figures.styles(twice)
    assert [s.slot for s in looks] == [0, 1, 2, 3, 3]
    assert [s.dash for s in looks] == [0, 0, 0, 0, 1]

"""The numbers behind the tables, for programs: each row's mean, spread and seeds, unrounded, beside the paper's."""

from collections.abc import Mapping, Sequence
from typing import Any

from caplore.report import paper
from caplore.report.groups import Group, group, require_comparable
from caplore.report.results import Result

FORMAT = "caplore-tables-1"


def as_json(results: Sequence[Result], tests: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Results that may be compared; `tests` are their significance tests, kept as they come."""
    require_comparable(results)
    first = results[0]
    parts = dict.fromkeys(part for result in results for part in result.decoders)
    theirs = [row for part in parts for row in paper.rows(first.dataset.name, part)]
    return {
        "format": FORMAT,
        "dataset": first.dataset.name,
        "checksum": first.dataset.checksum,
        "split": first.split,
        "inputs": first.inputs,
        "rows": [_row(one) for one in group(results)],
        "tests": list(tests),
        "paper": [{"label": row.label, "part": row.part, "scores": dict(row.scores)} for row in theirs],
    }


def _row(group: Group) -> dict[str, Any]:
    kinds = {part: decoder.scores for r in group.results for part, decoder in r.decoders.items()}
    exact = next((r.exact for r in group.results if r.exact is not None), None)
    if exact is not None:
        kinds["exact"] = exact.scores
    return {
        "label": group.title,
        "model": group.model,
        "objective": group.objective,
        "seeds": [result.seed for result in group.results],
        "runs": [result.path for result in group.results],
        "scores": {part: {key: _score(group, part, key) for key in scores} for part, scores in kinds.items()},
    }


def _score(group: Group, part: str, key: str) -> dict[str, Any]:
    """The mean over the seeds that have it; null where none has, with the reason."""
    found = group.summary(part, key)
    values = group.values(part, key)
    return {"mean": found.mean, "spread": found.spread, "values": values} | (
        {"notes": list(found.notes)} if found.notes else {}
    )

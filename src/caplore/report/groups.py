"""Results that differ only by their seed as one group: what it is called, its mean and spread.

Also what may stand in one table at all: one data set, one split, the same inputs.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from caplore.errors import InputError
from caplore.report.results import DatasetId, Result

OBJECTIVES = {
    "xe": "XE",
    "sll": "SLL",
    "sll_me": "SLL-ME",
    "sll_sle": "SLL-SLE",
    "marginal": "Marginal",
    "max_at_k": "Max@k",
}  # in the order tables list them


@dataclass(frozen=True)
class Summary:
    """One score over the seeds of a group: mean, sample standard deviation, and why there is none."""

    mean: float | None
    spread: float | None
    seeds: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Group:
    """Runs that differ only by their seed."""

    label: str
    detail: str
    results: tuple[Result, ...]

    @property
    def objective(self) -> str:
        return self.results[0].objective

    @property
    def model(self) -> str:
        return self.results[0].model

    @property
    def title(self) -> str:
        return f"{self.label} · {self.detail}" if self.detail else self.label

    def values(self, part: str, key: str) -> list[float]:
        return [v for r in self.results if (v := r.score(part, key).value) is not None]

    def summary(self, part: str, key: str) -> Summary:
        values = self.values(part, key)
        missing = [r.score(part, key).note for r in self.results if r.score(part, key).value is None]
        notes = tuple(dict.fromkeys(note or "no reason given" for note in missing))
        return Summary(
            fmean(values) if values else None,
            stdev(values) if len(values) > 1 else None,
            len(values),
            notes,
        )


def group(results: Sequence[Result]) -> list[Group]:
    """Results that differ by seed alone become one group; models in order of appearance, objectives as listed.

    Two results of one kind and one seed (a copy, or a knob that was not recorded) stand alone, each under its
    name: counting them as two seeds would make the spread smaller than it is.
    """
    kinds: dict[tuple[Any, ...], list[Result]] = {}
    for result in results:
        kinds.setdefault(
            (result.recipe, result.objective, result.model, result.encoder, result.knobs), []
        ).append(result)
    families = [family for kind in kinds.values() for family in _distinct_seeds(kind)]
    models = list(dict.fromkeys(r.model for r in results))
    objectives = list(dict.fromkeys([*OBJECTIVES, *(r.objective for r in results)]))
    families.sort(key=lambda f: (models.index(f[0].model), objectives.index(f[0].objective)))
    return _labelled(families)


def _distinct_seeds(kind: list[Result]) -> Iterator[list[Result]]:
    if len({r.seed for r in kind}) == len(kind):
        yield sorted(kind, key=lambda r: r.seed)
    else:
        yield from ([r] for r in kind)


def _labelled(families: Sequence[list[Result]]) -> list[Group]:
    """Each family under its objective's name, and beside it the least that tells it from the others."""
    several_models = len({f[0].model for f in families}) > 1
    groups = []
    for family in families:
        one = family[0]
        rivals = [f[0] for f in families if f[0].objective == one.objective and f[0].model == one.model]
        detail = [one.model] if several_models else []
        if len(rivals) > 1:
            detail.append(_difference(one, rivals))
        groups.append(Group(objective_label(one.objective), ", ".join(detail), tuple(family)))
    return groups


def _difference(one: Result, rivals: Sequence[Result]) -> str:
    """What tells a result from others of its objective and model: recipe, encoder, knobs, or its name."""
    ways = ((r.recipe, r.encoder, _own_knobs(r, rivals)) for r in rivals)
    telling = [len(set(column)) == len(rivals) for column in zip(*ways, strict=True)]
    for tells, text in zip(telling, (one.recipe, one.encoder, _own_knobs(one, rivals)), strict=True):
        if tells and text:
            return text
    return one.name


def _own_knobs(one: Result, rivals: Sequence[Result]) -> str:
    """The knobs in which rivals differ, as this one has them: `alpha 0.5`."""
    every = [dict(r.knobs) for r in rivals]
    mine = dict(one.knobs)
    names = [name for name in mine if len({knobs.get(name) for knobs in every}) > 1]
    return ", ".join(f"{name.rpartition('.')[2].replace('_', ' ')} {mine[name]}" for name in names)


def objective_label(name: str) -> str:
    return OBJECTIVES.get(name, name.upper().replace("_", "-"))


def require_comparable(results: Sequence[Result]) -> None:
    """One table is about one data set, one split and the same inputs; anything else is refused."""
    if not results:
        raise InputError("there are no results to report", fix="name at least one run folder")
    _require_same(
        results, "data sets", lambda r: _dataset_text(r.dataset), "report them one data set at a time"
    )
    _require_same(results, "splits", lambda r: r.split, "name one with --split, or evaluate the others on it")
    _require_same(
        results,
        "numbers of inputs",
        lambda r: f"{r.inputs} inputs",
        "evaluate them all on the same inputs: caplore evaluate RUN",
    )


def _dataset_text(dataset: DatasetId) -> str:
    checksum = f", captions {dataset.checksum[:8]}" if dataset.checksum else ""
    return f"{dataset.name} (version {dataset.version}{checksum})"


def _require_same(results: Iterable[Result], what: str, key: Any, fix: str) -> None:
    found: dict[str, list[str]] = {}
    for result in results:
        found.setdefault(key(result), []).append(result.path or result.name)
    if len(found) > 1:
        listing = "; ".join(f"{value}: {_first(names)}" for value, names in found.items())
        raise InputError(
            f"these runs have different {what} and cannot stand in one table: {listing}", fix=fix
        )


def _first(names: Sequence[str], limit: int = 3) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more

"""Two results, from what was kept beside them: difference, interval and significance, without scoring anything again.

For each score that both have with the same signature: the difference (first - second) on the inputs both have, its
95 % interval from drawing inputs anew (paired bootstrap), and the p value of paired approximate randomisation: how
often swapping the two systems' captions of random inputs makes at least that difference.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from caplore.errors import InputError
from caplore.evaluation.statistics_io import Kept, read_statistics
from caplore.files import read_json

FORMATS = ("caplore-score-1", "caplore-evaluation-1")
EXACT = 1e-9  # a stored value and the same from its statistics: sums of doubles


@dataclass(frozen=True)
class Stored:
    """A result as it lies on the disk: its scores by full name (`beam/cider_d`), and their statistics."""

    path: Path
    scores: dict[str, dict[str, Any]]
    kept: Kept


@dataclass(frozen=True)
class Difference:
    """One score of two systems. `interval` and `p` are None where there are no statistics, and `note` says why."""

    name: str
    first: float | None
    second: float | None
    difference: float | None
    interval: tuple[float, float] | None = None
    p: float | None = None
    note: str | None = None


@dataclass(frozen=True)
class Comparison:
    """Every score that either result has, and what should be known about the two."""

    first: str
    second: str
    inputs: int
    differences: list[Difference]
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        return {"format": "caplore-comparison-1", **asdict(self)}


def read_result(path: str | Path) -> Stored:
    """A result of `caplore score --json` or of `caplore evaluate`, with the statistics beside it."""
    path = Path(path)
    value = read_json(path, "result")
    if not isinstance(value, dict) or value.get("format") not in FORMATS:
        raise InputError(
            f"{path} is not a result of caplore score or caplore evaluate",
            fix="caplore score CANDIDATES --refs REFS --json A.json",
        )
    try:
        scores = dict(_scores(value))
    except (AttributeError, TypeError, KeyError) as error:
        raise InputError(f"{path} is damaged: its scores cannot be read ({error!r})") from None
    kept = read_statistics(path)
    for name, statistics in kept.scores.items():
        stored = scores.get(name, {}).get("value")
        if stored is not None and abs(statistics.value - stored) > EXACT * max(1.0, abs(stored)):
            raise InputError(
                f"{path} and the statistics beside it are of different runs: {name} is {stored:.6f} in one "
                f"and {statistics.value:.6f} from the other",
                fix="score again with --json",
            )
    return Stored(path, scores, kept)


def _scores(value: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    if value["format"] == "caplore-score-1":
        yield from value["scores"].items()
        return
    for group, decoder in value["decoders"].items():
        for name, score in decoder["scores"].items():
            yield f"{group}/{name}", score


def compare(
    first: str | Path, second: str | Path, *, draws: int = 1000, swaps: int = 10_000, seed: int = 0
) -> Comparison:
    """Compare two results by their files. The same seed gives the same draws for every score."""
    a, b = read_result(first), read_result(second)
    ids, notes = _shared_inputs(a, b)
    pick_a, pick_b = _places(a.kept.ids, ids), _places(b.kept.ids, ids)
    differences = []
    for name in [*a.scores, *(name for name in b.scores if name not in a.scores)]:
        differences.append(_difference(name, a, b, (pick_a, pick_b), draws, swaps, seed))
    if all(d.difference is None for d in differences):
        raise InputError(
            f"{a.path} and {b.path} have no score in common ({', '.join(list(a.scores)[:4])} and "
            f"{', '.join(list(b.scores)[:4])})",
            fix="compare two files of caplore score, or two of caplore evaluate",
        )
    return Comparison(str(first), str(second), len(ids), differences, notes)


def _shared_inputs(a: Stored, b: Stored) -> tuple[list[str], list[str]]:
    there = set(b.kept.ids)
    ids = [name for name in a.kept.ids if name in there]
    if not ids:
        raise InputError(
            f"{a.path} and {b.path} have no input in common (first: {a.kept.ids[0]!r} and {b.kept.ids[0]!r})"
        )
    notes = []
    if not len(ids) == len(a.kept.ids) == len(b.kept.ids):
        notes.append(
            f"compared on the {len(ids):,} inputs both have ({len(a.kept.ids):,} and {len(b.kept.ids):,}); "
            "the values below are of those"
        )
    return ids, notes


def _places(of: list[str], ids: list[str]) -> list[int]:
    place = {name: i for i, name in enumerate(of)}
    return [place[name] for name in ids]


def _difference(
    name: str, a: Stored, b: Stored, picks: tuple[list[int], list[int]], draws: int, swaps: int, seed: int
) -> Difference:
    from caplore.metrics.bootstrap import Statistics, bootstrap_difference, randomization_test

    ours, theirs = a.scores.get(name), b.scores.get(name)
    if ours is None or theirs is None:
        return Difference(name, _value(ours), _value(theirs), None, note="only one of the two has it")
    if _made(ours) != _made(theirs):
        return Difference(
            name, _value(ours), _value(theirs), None, note=f"made differently: {_what_differs(ours, theirs)}"
        )
    if _value(ours) is None or _value(theirs) is None:
        why = (ours if _value(ours) is None else theirs).get("note", "no reason given")
        return Difference(name, _value(ours), _value(theirs), None, note=f"not computed: {why}")
    if name not in a.kept.scores or name not in b.kept.scores:
        first, second = float(ours["value"]), float(theirs["value"])
        return Difference(name, first, second, first - second, note="a property of all captions: no interval")
    mine, other = (
        Statistics(kept.scores[name].rows[pick], kept.scores[name].aggregate)
        for kept, pick in zip((a.kept, b.kept), picks, strict=True)
    )
    if mine.rows.shape != other.rows.shape:
        return Difference(name, mine.value, other.value, None, note="sets of different sizes")
    interval = bootstrap_difference(mine, other, draws=draws, seed=seed)
    p = randomization_test(mine, other, draws=swaps, seed=seed)
    return Difference(
        name, mine.value, other.value, mine.value - other.value, (interval.low, interval.high), p
    )


def _value(score: dict[str, Any] | None) -> float | None:
    return None if score is None or score.get("value") is None else float(score["value"])


def _made(score: dict[str, Any]) -> list[str]:
    """The signature without the version: a release that changes a number changes another part of it too."""
    return [part for part in str(score.get("signature")).split("|") if not part.startswith("caplore:")]


def _what_differs(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    a, b = _made(ours), _made(theirs)
    only_a = [part for part in a if part not in b]
    only_b = [part for part in b if part not in a]
    return f"{' '.join(only_a) or 'nothing'} against {' '.join(only_b) or 'nothing'}"

"""What evaluation wrote, as typed values.

A score is `{"value": number | null, "signature": str, "note": str?}`; null is not computed, the note says why.
Everything read here may come from another machine or an older version: a wrong field is named with its file.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caplore.errors import InputError
from caplore.files import read_json

FORMAT = "caplore-evaluation-1"
NUMBER = (int, float)
AGAIN = "evaluate the run again: caplore evaluate RUN"
NOT_ASKED = "not asked for in this evaluation"


@dataclass(frozen=True)
class Score:
    """One number and what made it; `value` None is not computed, and `note` says why."""

    value: float | None
    signature: str = ""
    note: str = ""


@dataclass(frozen=True)
class Decoder:
    """One way of taking captions from the model, and the scores of what it gave."""

    settings: dict[str, Any]
    scores: dict[str, Score]


@dataclass(frozen=True)
class Caption:
    """One caption of a set; `correct` None is not known (real data)."""

    text: str
    logprob: float | None = None
    cider_d: float | None = None
    correct: bool | None = None


@dataclass(frozen=True)
class Example:
    """One input with what each decoder said about it."""

    id: str
    file: str | None
    references: tuple[str, ...]
    sets: dict[str, tuple[Caption, ...]]


@dataclass(frozen=True)
class Peak:
    """Share of the probability of Y that its `ranks[i]` most probable captions hold, mean over inputs."""

    ranks: tuple[float, ...]
    mass: tuple[float, ...]


@dataclass(frozen=True)
class Exact:
    """Figures against the complete set Y of correct captions: made worlds only."""

    inputs: int
    scores: dict[str, Score]
    peak: Peak | None


@dataclass(frozen=True)
class DatasetId:
    """Which data the numbers are about; two results are comparable where these are equal."""

    name: str
    version: str
    media: str
    checksum: str


@dataclass(frozen=True)
class Result:
    """One `results/<split>.json`."""

    where: str
    name: str
    path: str
    recipe: str
    objective: str
    model: str
    seed: int
    dataset: DatasetId
    encoder: str
    commit: str
    split: str
    inputs: int
    references: float
    decoders: dict[str, Decoder]
    exact: Exact | None
    examples: tuple[Example, ...]
    data: str = ""
    """The data set's folder, as evaluation was given it."""
    knobs: tuple[tuple[str, str], ...] = ()
    """The run's settings apart from seed and paths, where its run.json is at hand."""

    def score(self, part: str, key: str) -> Score:
        """The score `key` of a decoder, or of "exact"; absent is not computed."""
        if part == "exact":
            scores = {} if self.exact is None else self.exact.scores
        else:
            scores = self.decoders[part].scores if part in self.decoders else {}
        return scores.get(key, Score(None, note=NOT_ASKED))


def read_result(path: Path) -> Result:
    return parse_result(read_json(path, "result"), str(path))


def parse_result(value: Any, where: str) -> Result:
    """A result from its JSON; `where` is what messages call it."""
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise InputError(
            f"{where} is not a result of the format {FORMAT}", fix="caplore evaluate RUN writes one"
        )
    run, data = _get(value, "run", dict, where), f"{where}: run"
    return Result(
        where=where,
        name=str(_get(run, "name", str, data)),
        path=str(run.get("path") or ""),
        recipe=str(run.get("recipe") or ""),
        objective=_get(run, "objective", str, data),
        model=_get(run, "model", str, data),
        seed=_get(run, "seed", int, data),
        dataset=_dataset(_get(run, "dataset", dict, data), f"{data}.dataset"),
        encoder=_encoder(run.get("encoder")),
        commit=str(run.get("commit") or ""),
        split=_get(value, "split", str, where),
        inputs=_get(value, "inputs", int, where),
        references=_number(value, "references", where) or 0,
        decoders={
            name: _decoder(decoder, f"{where}: decoders.{name}")
            for name, decoder in _get(value, "decoders", dict, where).items()
        },
        exact=None if value.get("exact") is None else _exact(value["exact"], f"{where}: exact"),
        data=str(run["dataset"].get("path") or ""),
        examples=tuple(
            _example(example, f"{where}: examples[{i}]")
            for i, example in enumerate(_list(value, "examples", where))
        ),
    )


def _get(record: Any, key: str, kind: Any, where: str) -> Any:
    """record[key], which has to be there and of this kind."""
    if not isinstance(record, dict) or key not in record:
        raise InputError(f"{where} has no {key!r}", fix=AGAIN)
    value = record[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        kinds = " or ".join(k.__name__ for k in (kind if isinstance(kind, tuple) else (kind,)))
        raise InputError(f"{where}: {key!r} is {value!r:.60}, not {kinds}", fix=AGAIN)
    return value


def _list(record: dict[str, Any], key: str, where: str) -> list[Any]:
    """record[key] as a list; absent or null is an empty one."""
    return [] if record.get(key) is None else list(_get(record, key, list, where))


def _finite(value: Any) -> bool:
    """Whether this is a number that can be reported; JSON has no nan, but Python's reader would let one in."""
    return isinstance(value, NUMBER) and not isinstance(value, bool) and abs(value) < 1e300


def _number(record: dict[str, Any], key: str, where: str) -> float | None:
    """A finite number or None."""
    value = record.get(key)
    if value is not None and not _finite(value):
        raise InputError(f"{where}: {key!r} is {value!r:.60}, not a number that can be reported", fix=AGAIN)
    return None if value is None else float(value)


def _encoder(value: Any) -> str:
    """The encoder's name, which may come with all that is known about it."""
    return str((value.get("name") if isinstance(value, dict) else value) or "")


def _dataset(record: dict[str, Any], where: str) -> DatasetId:
    return DatasetId(
        _get(record, "name", str, where),
        str(record.get("version") or ""),
        str(record.get("media") or "none"),
        str(record.get("checksum") or ""),
    )


def _scores(record: dict[str, Any], where: str) -> dict[str, Score]:
    found = {}
    for key, score in _get(record, "scores", dict, where).items():
        here = f"{where}.scores.{key}"
        if not isinstance(score, dict) or "value" not in score:
            raise InputError(f"{here} is not a score: it has no 'value'", fix=AGAIN)
        note = str(score.get("note") or "")
        found[key] = Score(_number(score, "value", here), str(score.get("signature") or ""), note)
    return found


def _decoder(record: Any, where: str) -> Decoder:
    return Decoder(_get(record, "settings", dict, where), _scores(record, where))


def _exact(record: Any, where: str) -> Exact:
    peak = record.get("peak") if isinstance(record, dict) else None
    return Exact(
        _get(record, "inputs", int, where),
        _scores(record, where),
        None if peak is None else _peak(peak, f"{where}.peak"),
    )


def _peak(record: Any, where: str) -> Peak:
    ranks, mass = _get(record, "ranks", list, where), _get(record, "mass", list, where)
    if not ranks or len(ranks) != len(mass) or not all(_finite(v) for v in [*ranks, *mass]):
        raise InputError(f"{where}: ranks and mass are not two lists of numbers of one length", fix=AGAIN)
    if any(rank < 1 for rank in ranks) or list(ranks) != sorted(ranks):
        raise InputError(f"{where}: ranks do not go up from 1", fix=AGAIN)
    return Peak(tuple(ranks), tuple(mass))


def _example(record: Any, where: str) -> Example:
    sets = _get(record, "sets", dict, where)
    file = record.get("file")
    return Example(
        str(record.get("id", "")),
        file if isinstance(file, str) else None,
        tuple(str(r) for r in _list(record, "references", where)),
        {name: tuple(_caption(c, f"{where}.sets.{name}") for c in _list(sets, name, where)) for name in sets},
    )


def _caption(record: Any, where: str) -> Caption:
    text = _get(record, "caption", str, where)
    correct = record.get("correct")
    return Caption(
        text,
        _number(record, "logprob", where),
        _number(record, "cider_d", where),
        correct if isinstance(correct, bool) else None,
    )

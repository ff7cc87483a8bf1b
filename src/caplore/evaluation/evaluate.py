"""model + split -> captions -> scores -> one JSON file.

Decodes by beam 5 and by sets of 5 (drawn, and the top of the beam), scores the captions as coco-caption
does, and on made worlds adds the exact figures. METEOR (where it is set up) and SPICE (where it is asked for)
are of the single captions, as in the paper: they take longer than everything else, and for sets nobody reads them.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from caplore.data.dataset import Dataset, Input, open_dataset
from caplore.data.scenes import Truth, load_truths
from caplore.errors import ConfigError, InputError
from caplore.evaluation.captioner import (
    Beam,
    Captioner,
    Decoder,
    Draw,
    Said,
    as_features,
    load_captioner,
    settings,
    texts,
)
from caplore.evaluation.exact import exact_figures
from caplore.evaluation.scoring import COUNTED, Result, score
from caplore.evaluation.statistics_io import write_statistics
from caplore.features.store import FeatureStore, open_store
from caplore.files import write_json, write_jsonl
from caplore.models.protocol import Features
from caplore.training import distributed
from caplore.training.distributed import World
from caplore.training.examples import check_features

FORMAT = "caplore-evaluation-1"
EXAMPLES = 24
WITHOUT_SETUP = tuple(name for name in COUNTED if name != "novel")  # which wants the training captions

DECODERS: dict[str, Decoder] = {"beam": Beam(width=5, n=1), "rs": Draw(n=5), "bs": Beam(width=5, n=5)}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to decode and score; the defaults are the paper's."""

    split: str = "test"
    decoders: Mapping[str, Decoder] = field(default_factory=lambda: dict(DECODERS))
    metrics: Sequence[str] | None = None
    """Of every decoder's captions; None are all that need no set-up, and METEOR and SPICE of single captions."""
    spice: bool = False
    """SPICE of the single captions as well: minutes for a thousand of them."""
    exact: int = 200
    """Test inputs whose complete truth is walked; 0 leaves the exact figures out."""
    limit: int = 0
    """Only the first inputs of the split; 0 is all of them."""
    seed: int = 0
    device: str = "auto"

    def __post_init__(self) -> None:
        if self.exact < 0 or self.limit < 0:
            raise ConfigError("--exact and --limit are 0 or more")


def evaluate(run: Path, plan: Plan, *, data: Path | None = None) -> Path:
    """Write results/<split>.json and <split>.captions.jsonl of a run folder; returns the JSON's path.

    Under torchrun all processes decode and follow the exact figures, and the first one scores and writes.
    """
    if plan.spice:
        _require_spice()
    captioner = load_captioner(run, plan.device)
    world = distributed.join(captioner.device)
    head = captioner.run.head()
    dataset = open_dataset(data) if data else captioner.run.dataset()
    store = open_store(dataset.store_path(head["store"]))
    check_features(store, head["features"])
    inputs = _inputs(dataset, store, plan)
    features = as_features(store.load([item.id for item in inputs]))
    said = {
        name: captioner.caption(features, how, seed=plan.seed, world=world)
        for name, how in plan.decoders.items()
    }
    truths = _truths(dataset, inputs)
    exact = _exact(captioner, features, truths, plan.exact, world)
    path = captioner.run.path / "results" / f"{plan.split}.json"
    if not world.is_first:
        return path
    scored = {
        name: _score(inputs, texts(found), _metrics(plan, plan.decoders[name]))
        for name, found in said.items()
    }
    result = {
        "format": FORMAT,
        "run": _run_facts(captioner, dataset, head),
        "split": plan.split,
        "inputs": len(inputs),
        "references": round(sum(len(item.captions) for item in inputs) / len(inputs), 2),
        "decoders": {
            name: {
                "settings": settings(plan.decoders[name], captioner.max_words),
                "scores": found.scores.to_json(),
            }
            for name, found in scored.items()
        },
        "exact": exact,
        "examples": _examples(inputs, said, scored, truths),
    }
    write_jsonl(path.with_suffix(".captions.jsonl"), _caption_rows(inputs, said))
    statistics = {name: found.scores.statistics for name, found in scored.items()}
    write_statistics(path, [item.id for item in inputs], statistics)
    write_json(path, result)
    return path


def _require_spice() -> None:
    """Say that SPICE is not set up now, rather than after everything was decoded."""
    from caplore.metrics.spice import Spice

    Spice.installed()


def _metrics(plan: Plan, decoder: Decoder) -> Collection[str] | None:
    """What to compute of a decoder's captions; None is all that needs no set-up, and METEOR where it is set up."""
    if plan.metrics is not None:
        return plan.metrics
    if decoder.n > 1:
        return WITHOUT_SETUP
    return (*WITHOUT_SETUP, "meteor", "spice") if plan.spice else None


def _score(inputs: Sequence[Input], captions: Sequence[list[str]], metrics: Collection[str] | None) -> Result:
    ids = [item.id for item in inputs]
    references = {item.id: list(item.captions) for item in inputs}
    return score(dict(zip(ids, captions, strict=True)), references, metrics=metrics)


def _inputs(dataset: Dataset, store: FeatureStore, plan: Plan) -> list[Input]:
    known = set(store.ids)
    found = [item for item in dataset.split(plan.split) if item.captions and item.id in known]
    if not found:
        raise InputError(
            f"split {plan.split!r} of {dataset.path} has no input with captions and features",
            fix=f"caplore features {dataset.path} --encoder {store.path.name}",
        )
    return found[: plan.limit] if plan.limit else found


def _truths(dataset: Dataset, inputs: Sequence[Input]) -> list[Truth] | None:
    if not (dataset.path / "scenes.jsonl").is_file():
        return None
    return load_truths(dataset, [item.id for item in inputs])


def _exact(
    captioner: Captioner, features: Features, truths: list[Truth] | None, count: int, world: World
) -> dict[str, Any] | None:
    if truths is None or count == 0:
        return None
    some = Features(*(None if f is None else f[:count] for f in features))
    return exact_figures(captioner, some, truths[:count], world)


def _run_facts(captioner: Captioner, dataset: Dataset, head: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("recipe", "objective", "model", "seed", "commit", "config", "status")
    return {
        "name": captioner.run.name,
        "path": str(captioner.run.path),
        **{key: head.get(key) for key in kept},
        "encoder": head["encoder"]["name"],
        "dataset": {
            "name": dataset.name,
            "version": dataset.version,
            "media": dataset.media,
            "checksum": dataset.checksum,
            "path": str(dataset.path),
        },
    }


def _examples(
    inputs: Sequence[Input],
    said: Mapping[str, list[list[Said]]],
    scored: Mapping[str, Result],
    truths: list[Truth] | None,
) -> list[dict[str, Any]]:
    """The first inputs with everything that was said of them: the same inputs for every run of a data set."""
    cider = {name: found.scores.of("cider_d") for name, found in scored.items()}
    rows = []
    for i, item in enumerate(inputs[:EXAMPLES]):
        sets = {
            name: [
                {
                    "caption": " ".join(one.words),
                    "logprob": round(one.logprob, 4),
                    "cider_d": round(cider[name][i][j], 4),
                    "correct": truths[i].contains(one.words) if truths else None,
                }
                for j, one in enumerate(found[i])
            ]
            for name, found in said.items()
        }
        rows.append({"id": item.id, "file": item.file, "references": list(item.captions[:5]), "sets": sets})
    return rows


def _caption_rows(inputs: Sequence[Input], said: Mapping[str, list[list[Said]]]) -> list[dict[str, Any]]:
    return [
        {"id": item.id}
        | {
            name: [{"caption": " ".join(one.words), "logprob": round(one.logprob, 4)} for one in found[i]]
            for name, found in said.items()
        }
        for i, item in enumerate(inputs)
    ]


def read_captions(path: Path) -> list[dict[str, Any]]:
    """The captions an evaluation wrote, one row per input."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

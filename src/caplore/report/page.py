"""Runs -> one HTML page that stands alone: style, charts and small pictures are in it, nothing is fetched.

Captions, ids and paths are other people's text: everything but our own SVG is escaped by the template engine.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from caplore import __version__
from caplore.report import charts, claim, figures, paper, tables
from caplore.report.captions import ShownSet, shown_set
from caplore.report.groups import Group, group, objective_label
from caplore.report.results import Example, Result
from caplore.report.runs import Run
from caplore.report.thumbnails import thumbnail

ABOUT = {
    "xe": "Word-level training: imitate the references, word by word.",
    "sll": "Sequence-level learning: sample whole captions, push up those that score well.",
    "sll_me": "SLL with a bonus for an open choice of the next word (maximum entropy).",
    "sll_sle": "SLL with a bonus for captions of one input that differ: sequence-level exploration.",
    "marginal": "SLL with a bonus for what each caption adds to its set; beyond the paper.",
    "max_at_k": "The score of the best of several samples is what counts; beyond the paper.",
}
READINGS = {
    "claim": "The first name minus the second, mean over the seeds both have. ✓ is a change for the better, ✗ for "
    "the worse; there is no mark where it is not larger than its spread over the seeds.",
    "precision": "One caption per input, compared with the references. The best value of a column is marked.",
    "sets": "CIDEr is the mean over the set, oracle its best caption. Div-n is the share of distinct words and "
    "word pairs. mBLEU-4 is how much each caption repeats the others: five copies of one sentence give 1.",
    "exact": "Here every correct caption is known, so nothing is estimated. P(Y|x) is the probability that a "
    "sampled caption is correct; recall@k the expected share of the correct captions, at most k, that k samples "
    "cover; peak width the effective number of correct captions that share the probability.",
}
COLUMN_READINGS = {
    "self_cider": "self-CIDEr is near 1 where the captions of a set have little in common, near 0 where they are one.",
    "recall_cider_d": "ref. recall asks for each reference how near the set's best caption for it comes (CIDEr).",
}
SET_KINDS = {"rs": "random samples", "bs": "top of the beam", "beam": "one caption"}
PART_NAMES = {
    "beam": "beam search",
    "rs": "sets, random sampling",
    "bs": "sets, top of the beam",
    "exact": "exact",
}
NOUNS = {"image": ("picture", "pictures"), "clip": ("clip", "clips")}


@dataclass(frozen=True)
class Member:
    """A group in the legend: its mark in charts, and its names with and without the objective's."""

    key: str
    title: str
    detail: str


@dataclass(frozen=True)
class Role:
    """An objective as it is introduced on the page, and the groups trained with it."""

    label: str
    about: str
    members: tuple[Member, ...]


@dataclass(frozen=True)
class ExampleColumn:
    title: str
    classes: str
    sets: tuple[ShownSet | None, ...]


@dataclass(frozen=True)
class ShownExample:
    id: str
    picture: str | None
    references: tuple[str, ...]
    columns: tuple[ExampleColumn, ...]


def render(runs: Sequence[Run], *, media: Path | None = None, examples: int = 8, command: str = "") -> str:
    """The page. `media` is the data set's folder for thumbnails (found from the runs if it is None)."""
    groups = group([run.result for run in runs])
    logs = {run.result.where: run.log for run in runs}
    folder = media if media is not None else find_media(runs)
    shown = shown_examples(groups, folder, examples)
    cast = _cast(groups)
    built = _tables(groups)
    panels = figures.training_curves(groups, logs)
    drawn = [*figures.precision_recall(groups), *filter(None, [figures.peak_width(groups)])]
    return _environment().get_template("page.html").render(
        version=__version__,
        title=_title(groups),
        several=len(runs) > 1,
        facts=_facts(groups),
        cast=cast,
        named=figures.is_named_in_place(groups),
        notices=_notices(runs),
        contents=_contents(drawn, panels, shown),
        findings=claim.findings(groups),
        seeds=tables.seeds_note([t for t, _ in built]),
        tables=built,
        figures=drawn,
        panels=panels,
        examples=shown,
        examples_reading=_examples_reading(groups, shown),
        pictures_note=_pictures_note(groups[0].results[0], shown, folder),
        set_kinds={kind: SET_KINDS.get(kind, kind) for kind in _kinds(groups)},
        commands=_commands(runs, command),
        signatures=_signatures(groups),
        record_heads=("run", "objective", "model", "recipe", "seed", "encoder", "commit", "folder"),
        record=[_record(run.result) for run in runs],
        citation=paper.CITATION,
    )  # fmt: skip


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("caplore.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["drawn"] = Markup  # our own SVG, escaped where it was made
    return environment


def find_media(runs: Sequence[Run]) -> Path | None:
    """The data set's folder as the runs were given it: from here, from beside a run, or not at all."""
    for run in runs:
        if run.data:
            for base in (Path(), run.path, run.path.parent):
                if (base / run.data / "dataset.json").is_file():
                    return base / run.data
    return None


def _title(groups: Sequence[Group]) -> str:
    names = list(dict.fromkeys(g.label for g in groups))
    told = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{told} on {groups[0].results[0].dataset.name}"


def _facts(groups: Sequence[Group]) -> list[str]:
    one = groups[0].results[0]
    noun = NOUNS.get(one.dataset.media, ("input", "inputs"))[one.inputs != 1]
    models = list(dict.fromkeys(g.model for g in groups))
    seeds = sorted({len(g.results) for g in groups})
    count = str(seeds[-1]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    return [
        f"{one.split} split",
        f"{one.inputs:,} {noun}",
        f"{one.references:g} references each",
        f"model{'s' if len(models) > 1 else ''} {', '.join(models)}",
        *([f"features {one.encoder}"] if one.encoder else []),
        f"{count} seed{'' if seeds[-1] == 1 else 's'}",
    ]


def _cast(groups: Sequence[Group]) -> list[Role]:
    members: dict[str, list[Member]] = {}
    for g, style in zip(groups, figures.styles(groups), strict=True):
        members.setdefault(g.objective, []).append(Member(charts.legend_key(style), g.title, g.detail))
    return [
        Role(objective_label(name), ABOUT.get(name, "An objective of your own."), tuple(found))
        for name, found in members.items()
    ]


def _notices(runs: Sequence[Run]) -> list[str]:
    stopped = [f"{run.result.name} was stopped early: {run.log.stopped}" for run in runs if run.log.stopped]
    kept = (
        "no epoch of its sequence phase was better than the model it began with, which is what was evaluated"
    )
    return stopped + [f"{run.result.name}: {kept}" for run in runs if run.log.unmoved]


def _contents(drawn: Sequence[Any], panels: Sequence[Any], examples: Sequence[Any]) -> list[tuple[str, str]]:
    parts = [
        ("numbers", "The numbers", True),
        ("pictures", "Right, and varied", drawn),
        ("training", "Training", panels),
        ("sets", "What they say", examples),
        ("made", "How it was made", True),
    ]
    return [(anchor, words) for anchor, words, there in parts if there]


def _tables(groups: Sequence[Group]) -> list[tuple[tables.Table, str]]:
    built = (
        claim.differences_table(groups),
        tables.exact_table(groups),
        tables.precision_table(groups),
        tables.sets_table(groups),
    )
    return [(t, _reading(t)) for t in built if t is not None]


def _reading(table: tables.Table) -> str:
    more = [COLUMN_READINGS[c.key] for c in table.columns if c.key in COLUMN_READINGS]
    if table.name == "claim" and not any(cell.spread for cell in table.cells):
        more = ["With one seed that spread is not known: a marked change may be chance."]
    return " ".join([READINGS[table.name], *more])


def _kinds(groups: Sequence[Group]) -> list[str]:
    """Kinds of sets the examples have: sampled ones first."""
    there = {kind: None for g in groups for e in g.results[0].examples for kind in e.sets}
    return [*(k for k in SET_KINDS if k in there), *(k for k in there if k not in SET_KINDS)]


def shown_examples(groups: Sequence[Group], folder: Path | None, most: int) -> list[ShownExample]:
    """The first inputs that every group has examples of (from its first seed), a column per group."""
    by_id = [{e.id: e for e in g.results[0].examples} for g in groups]
    common = [i for i in by_id[0] if all(i in own for own in by_id)][:most]
    looks = figures.styles(groups)
    kinds = _kinds(groups)
    return [
        ShownExample(
            i,
            _picture(by_id[0][i], folder),
            by_id[0][i].references,
            tuple(
                ExampleColumn(g.title, look.classes, tuple(_set(own[i], kind) for kind in kinds))
                for g, look, own in zip(groups, looks, by_id, strict=True)
            ),
        )
        for i in common
    ]


def _picture(example: Example, folder: Path | None) -> str | None:
    return None if folder is None or example.file is None else thumbnail(folder, example.file)


def _set(example: Example, kind: str) -> ShownSet | None:
    return shown_set(example.sets[kind]) if example.sets.get(kind) else None


def _examples_reading(groups: Sequence[Group], examples: Sequence[ShownExample]) -> str:
    known = any(
        c.verdict != "unknown" for e in examples for k in e.columns for s in k.sets if s for c in s.captions
    )
    marks = "✓ stands before a correct caption, ✗ before a wrong one. " if known else ""
    seed = (
        f" Captions are those of seed {groups[0].results[0].seed}."
        if any(len(g.results) > 1 for g in groups)
        else ""
    )
    return (
        f"Each column is the set one run gives for the same input. Words in grey were already said by an earlier "
        f"caption of that set, so what stays dark is what each further caption adds. {marks}The inputs are the first "
        f"{len(examples)} that evaluation kept, not chosen.{seed}"
    )


def _pictures_note(one: Result, examples: Sequence[ShownExample], folder: Path | None) -> str:
    if one.dataset.media == "none" or any(e.picture for e in examples):
        return ""
    if folder is None:
        return "Pictures are not shown: the data set's folder was not found. caplore report ... --data DIR names it."
    return f"Pictures are not shown: none of these inputs has a media file that could be read in {folder}."


def _commands(runs: Sequence[Run], command: str) -> list[str]:
    """What was typed, as far as it is recorded: training, evaluation, this report."""
    train = [_training_command(run) for run in runs]
    evaluate = [f"caplore evaluate {shlex.quote(str(run.path))} --split {run.result.split}" for run in runs]
    return [*dict.fromkeys(train), *evaluate, *([command] if command else [])]


def _training_command(run: Run) -> str:
    recorded = run.record.get("command")
    if isinstance(recorded, list):
        return shlex.join(map(str, recorded))
    config = run.record.get("config")
    places = {key: config.get(key) for key in ("data", "start")} if isinstance(config, dict) else {}
    knobs = {**places, "to": str(run.path), "seed": run.result.seed}
    typed = [part for key, value in knobs.items() if value is not None for part in (f"--{key}", str(value))]
    return f"{shlex.join(['caplore', 'train', run.result.recipe, *typed])}    # settings: {run.path}/run.json"


def _signatures(groups: Sequence[Group]) -> dict[str, list[tuple[str, str]]]:
    """Part -> (score, how it was computed), each way once with its notes; what was not computed says why."""
    found: dict[str, dict[tuple[str, str], list[str]]] = {}
    for result in (r for g in groups for r in g.results):
        parts = {name: decoder.scores for name, decoder in result.decoders.items()}
        for part, scores in {**parts, "exact": result.exact.scores if result.exact else {}}.items():
            for key, score in scores.items():
                how = "not computed" if score.value is None else score.signature or "no signature"
                notes = found.setdefault(PART_NAMES.get(part, part), {}).setdefault((key, how), [])
                if score.note and score.note not in notes:
                    notes.append(score.note)
    return {
        part: [(key, _noted(how, notes)) for (key, how), notes in sorted(rows.items())]
        for part, rows in found.items()
    }


def _noted(how: str, notes: Sequence[str]) -> str:
    """A signature with its note; of notes that differ from run to run, the first and how many more."""
    more = f" (and {len(notes) - 1} like it)" if len(notes) > 1 else ""
    return f"{how}: {notes[0]}{more}" if notes else how


def _record(r: Result) -> tuple[str, ...]:
    return (
        r.name,
        r.objective,
        r.model,
        r.recipe or "–",
        str(r.seed),
        r.encoder or "–",
        r.commit[:12] or "–",
        r.path,
    )

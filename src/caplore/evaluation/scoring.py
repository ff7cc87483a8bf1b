"""Captions against references, every metric, as one call: the Python behind `caplore score`.

    from caplore.evaluation import score
    result = score({"42": "a cat on a mat"}, {"42": ["a cat sits on a mat", "the cat"]})
    result["cider_d"], result.to_json()

What needs no set-up is counted in this process (caplore.metrics.scoring). METEOR joins when its tables are
there, SPICE when it is asked for; what cannot be computed is in the result as null, with the reason, and
never takes the other scores with it. numpy is imported on use only: a mistake in a file is said at once.
"""

import contextlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from caplore import __version__
from caplore.errors import CaploreError, ConfigError
from caplore.evaluation.captions_io import Paired, captions_from, pair
from caplore.files import refuse_special, write_json
from caplore.machine import collector_paused
from caplore.native import native

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from caplore.evaluation.aside import Aside
    from caplore.metrics.corpus import Lines
    from caplore.metrics.counts import CorpusFrequencies
    from caplore.metrics.scores import Scores
    from caplore.metrics.spice import SpiceCounts

FORMAT = "caplore-score-1"
COUNTED = (
    "bleu",
    "rouge_l",
    "cider_d",
    "cider",
    "div",
    "mbleu",
    "self_cider",
    "vendi",
    "coverage",
    "distinct",
    "length",
    "bad_endings",
    "vocabulary",
    "novel",
)
METRICS = (*COUNTED, "meteor", "spice")
OTHER_NAMES = {
    **{f"bleu{n}": "bleu" for n in ("_1", "_2", "_3", "_4", 1, 2, 3, 4)},
    "rouge": "rouge_l",
    "ciderd": "cider_d",
    "recall": "coverage",
    "selfcider": "self_cider",
    **{f"mbleu{n}": "mbleu" for n in ("_4", 4)},
    **{f"div{n}": "div" for n in ("_1", "_2", 1, 2)},
}

Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class SpiceSettings:
    """How SPICE may use this machine."""

    minutes: float | None = None
    """Stop after this long; the next run goes on from there."""
    threads: int | None = None
    memory_gib: float | None = None


@dataclass
class Result:
    """What came out. `scores.corpus` are the numbers, `scores.captions` those of each caption."""

    ids: list[str]
    scores: "Scores"
    notes: list[str]
    """What was odd about the captions, as sentences."""
    made_of: dict[str, dict[str, Any]]
    """Both sides: where they came from, inputs, captions."""
    intervals: dict[str, list[float]] = field(default_factory=dict)
    spice: "SpiceCounts | None" = None
    """The tuples behind SPICE, where it was computed."""

    def __getitem__(self, name: str) -> float | None:
        """A score; None where it could not be computed."""
        return self.scores.corpus[name].value

    def to_json(self) -> dict[str, Any]:
        scores = self.scores.to_json()
        for name, interval in self.intervals.items():
            scores[name]["interval"] = interval
        return {
            "format": FORMAT,
            "caplore": __version__,
            **self.made_of,
            "scores": scores,
            "notes": self.notes,
        }

    def of(self, name: str) -> dict[str, list[float]]:
        """A sentence metric by input: the value of each of its captions."""
        return dict(zip(self.ids, self.scores.of(name), strict=True))

    def save(self, path: str | Path) -> None:
        """The result as JSON, and beside it the numbers that `caplore compare` needs."""
        from caplore.evaluation.statistics_io import naming_unwritable, write_statistics

        with naming_unwritable(path):
            refuse_special(Path(path))
            write_statistics(Path(path), self.ids, {"": self.scores.statistics})
            write_json(Path(path), self.to_json())


@collector_paused()
def score(
    candidates: Any,
    references: Any,
    *,
    metrics: Collection[str] | None = None,
    df: Any = None,
    training: Any = None,
    covered: Literal["cider_d", "bleu_4", "rouge_l"] = "cider_d",
    meteor: Literal["python", "java"] = "python",
    spice: SpiceSettings | None = None,
    bootstrap: int = 0,
    progress: Progress | None = None,
) -> Result:
    """Score captions against references.

    Either side is a path (every format of `caplore.evaluation.caption_formats`), several paths, a mapping from id
    to caption(s), or a list of captions by position; an input may have one caption or many. `metrics` are names of
    METRICS; None means all that need no set-up, and METEOR when it is set up. `df` and `training` are captions in
    the same forms: document frequencies for CIDEr from a corpus instead of these references, and what `novel` is
    measured against. `bootstrap` draws give 95 % intervals. `progress` follows SPICE: captions done, and all.
    """
    wanted = chosen_metrics(metrics)
    sides = captions_from(candidates, "candidates"), captions_from(references, "references")
    paired = pair(*sides)
    said, true = _lines(paired)
    with_meteor = wanted is None or "meteor" in wanted
    with _Meteor(said, true, meteor) if with_meteor else contextlib.nullcontext() as running:
        scores = _counted(said, true, wanted, df, training, covered)
        if running is not None:
            running.add_to(scores)
    counts = None
    if wanted is not None and "spice" in wanted:
        counts = add_spice(scores, said, true, spice or SpiceSettings(), progress)
    made_of = {
        role: {"source": side.source, "inputs": len(paired.ids), "captions": sum(map(len, texts))}
        for role, side, texts in zip(
            ("candidates", "references"), sides, (paired.candidates, paired.references), strict=True
        )
    }
    return Result(paired.ids, scores, paired.notes, made_of, _intervals(scores, bootstrap), counts)


def chosen_metrics(names: Collection[str] | None) -> frozenset[str] | None:
    """Names as people write them (BLEU-4, ROUGE-L, recall) as names of METRICS; an unknown one names the nearest."""
    if names is None:
        return None
    chosen = set()
    for name in names:
        plain = name.strip().lower().replace("-", "_")
        plain = OTHER_NAMES.get(plain, plain)
        if plain not in METRICS:
            import difflib

            near = difflib.get_close_matches(plain, METRICS, n=1)
            hint = f"did you mean {near[0]}? All: " if near else "some of "
            raise ConfigError(f"there is no metric {name!r}", fix=hint + ", ".join(METRICS))
        chosen.add(plain)
    if not chosen:
        raise ConfigError("no metrics were named", fix="some of " + ", ".join(METRICS))
    return frozenset(chosen)


def _lines(paired: Paired) -> "tuple[Lines, Lines]":
    """Both sides tokenised, once for all metrics."""
    from caplore.metrics.corpus import Lines

    return Lines.of(paired.candidates), Lines.of(paired.references)


def _counted(
    said: "Lines",
    true: "Lines",
    wanted: frozenset[str] | None,
    df: Any,
    training: Any,
    covered: Literal["cider_d", "bleu_4", "rouge_l"],
) -> "Scores":
    from caplore.metrics.scoring import text_scores

    known = None if training is None else captions_from(training, "references")
    return text_scores(
        said,
        true,
        metrics=None if wanted is None else wanted & set(COUNTED),
        df=None if df is None else _frequencies(df),
        training=None if known is None else [text for texts in known.of.values() for text in texts],
        covered=covered,
    )


def _frequencies(df: Any) -> "CorpusFrequencies":
    from caplore.metrics.scoring import corpus_frequencies

    corpus = captions_from(df, "references")
    name = Path(corpus.source).name if isinstance(df, str | Path) else "corpus"
    return corpus_frequencies([texts for texts in corpus.of.values() if texts], name=name)


class _Meteor:
    """METEOR of every caption, beside counting where its twin is there, else behind it; a context for that thread."""

    def __init__(self, said: "Lines", true: "Lines", kind: Literal["python", "java"]) -> None:
        self._said, self._true, self._kind = said, true, kind
        self._error: CaploreError | None = None
        self._beside: Aside | None = None
        self._later: Callable[[], NDArray[np.int32]] | None = None

    def __enter__(self) -> Self:
        from caplore.evaluation.aside import Aside
        from caplore.metrics.meteor import Meteor

        if self._kind == "python":
            try:
                meteor = Meteor.load()
            except CaploreError as error:
                self._error = error
                return self
            said, true = self._said.lines, _references(self._said, self._true)

            def work(go_on: Callable[[], object] | None = None) -> "NDArray[np.int32]":
                return meteor.statistics_lines(said, true, go_on=go_on)

            if native("caplore.metrics.meteor._align") is not None:
                self._beside = Aside(work).__enter__()
            else:
                self._later = work
        return self

    def add_to(self, scores: "Scores") -> None:
        from caplore.metrics.bootstrap import Statistics
        from caplore.metrics.meteor import SIGNATURE as signature
        from caplore.metrics.meteor import score

        if self._kind == "java":
            from caplore.metrics.meteor_java import JAVA_SIGNATURE as signature
        try:
            counts = self._found()
        except CaploreError as error:
            scores.miss("meteor", signature, _in_a_line(error))
            return
        scores.add(
            "meteor", score(counts), signature, corpus=Statistics(scores.sum_of_sets(counts), "meteor")
        )

    def _found(self) -> "NDArray[np.int32]":
        if self._error is not None:
            raise self._error
        if self._beside is not None:
            return self._beside.rows()
        if self._later is not None:
            return self._later()
        from caplore.metrics.meteor_java import meteor_by_jar
        from caplore.text.ptb import words_of

        references = [list(map(words_of, lines)) for lines in _references(self._said, self._true)]
        return meteor_by_jar(list(map(words_of, self._said.lines)), references).counts

    def __exit__(self, *_: object) -> None:
        if self._beside is not None:
            self._beside.__exit__()


def _in_a_line(error: CaploreError) -> str:
    return str(error).replace("\n  fix: ", ": ")


def _references(said: "Lines", true: "Lines") -> list[Sequence[str]]:
    """The lines that each caption is compared with; captions of an input share one list."""
    ends, sizes = true.inputs.tolist(), (said.inputs[1:] - said.inputs[:-1]).tolist()
    of_inputs = [true.lines[begin:end] for begin, end in pairwise(ends)]
    return [lines for lines, size in zip(of_inputs, sizes, strict=True) for _ in range(size)]


def add_spice(
    scores: "Scores",
    said: "Lines",
    true: "Lines",
    settings: SpiceSettings,
    progress: Progress | None = None,
) -> "SpiceCounts | None":
    """SPICE of every caption, and its parts; ctrl-C here ends SPICE only."""
    from caplore.metrics.spice import SIGNATURE, Pair, Spice, SpiceCounts

    given = {"threads": settings.threads, "heap_gib": settings.memory_gib}
    options: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    try:
        spice = Spice.installed(
            seconds=None if settings.minutes is None else 60 * settings.minutes, **options
        )
        references = map(tuple, _references(said, true))
        pairs = [Pair(line, refs) for line, refs in zip(said.lines, references, strict=True)]
        counts = spice.counts(pairs, progress)
    except CaploreError as error:
        scores.miss("spice", SIGNATURE, _in_a_line(error))
        return None
    except KeyboardInterrupt:
        scores.miss("spice", SIGNATURE, "it was interrupted; the same command goes on from there")
        return None
    _put_spice(scores, counts)
    return SpiceCounts(counts)


def _put_spice(scores: "Scores", counts: Any) -> None:
    import numpy as np

    from caplore.metrics.bootstrap import Statistics
    from caplore.metrics.spice import KINDS, SIGNATURE, f_scores

    f = f_scores(counts)
    scores.add("spice", f[:, 0], SIGNATURE)
    for kind, values in zip(KINDS[1:], f.T[1:], strict=True):
        there = ~np.isnan(values)
        rows = scores.sum_of_sets(np.stack([np.nan_to_num(values), there], 1))
        if there.any():
            made = SIGNATURE.replace("SPICE", f"SPICE-{kind.lower()}", 1)
            scores.put(f"spice_{kind.lower()}", Statistics(rows, "ratio"), made)


def _intervals(scores: "Scores", draws: int) -> dict[str, list[float]]:
    """95 % bootstrap intervals of every score that has statistics."""
    if draws <= 0:
        return {}
    from caplore.metrics.bootstrap import bootstrap_all

    found = bootstrap_all(scores.statistics, draws=draws)
    return {name: [interval.low, interval.high] for name, interval in found.items()}

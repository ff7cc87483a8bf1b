"""Captions against references, every metric, as one call: the Python behind `caplore score`.

    from caplore.evaluation import score
    result = score({"42": "a cat on a mat"}, {"42": ["a cat sits on a mat", "the cat"]})
    result["cider_d"], result.to_json()

What needs no set-up is computed in this process (caplore.metrics.scoring). METEOR joins when its tables are
there, SPICE when it is asked for; what cannot be computed is in the result as null, with the reason, and
never takes the other scores with it. torch is imported on use only: a mistake in a file is said at once.
"""

import contextlib
import difflib
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from caplore import __version__
from caplore.errors import CaploreError, ConfigError
from caplore.evaluation.aside import Aside
from caplore.evaluation.captions_io import Paired, captions_from, pair
from caplore.files import write_json

if TYPE_CHECKING:
    from caplore.metrics.corpus import CorpusFrequencies
    from caplore.metrics.scores import Scores
    from caplore.metrics.spice import SpiceCounts

FORMAT = "caplore-score-1"
IN_TORCH = (
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
METRICS = (*IN_TORCH, "meteor", "spice")
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
            write_statistics(Path(path), self.ids, {"": self.scores.statistics})
            write_json(Path(path), self.to_json())


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
    with_meteor = wanted is None or "meteor" in wanted
    with _Meteor(paired, meteor) if with_meteor else contextlib.nullcontext() as running:
        scores = _in_torch(paired, wanted, df, training, covered)
        if running is not None:
            running.add_to(scores)
    counts = None
    if wanted is not None and "spice" in wanted:
        counts = add_spice(scores, paired, spice or SpiceSettings(), progress)
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
            near = difflib.get_close_matches(plain, METRICS, n=1)
            hint = f"did you mean {near[0]}? All: " if near else "some of "
            raise ConfigError(f"there is no metric {name!r}", fix=hint + ", ".join(METRICS))
        chosen.add(plain)
    if not chosen:
        raise ConfigError("no metrics were named", fix="some of " + ", ".join(METRICS))
    return frozenset(chosen)


def _in_torch(
    paired: Paired,
    wanted: frozenset[str] | None,
    df: Any,
    training: Any,
    covered: Literal["cider_d", "bleu_4", "rouge_l"],
) -> "Scores":
    from caplore.metrics.scoring import text_scores

    known = None if training is None else captions_from(training, "references")
    return text_scores(
        paired.candidates,
        paired.references,
        metrics=None if wanted is None else wanted & set(IN_TORCH),
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
    """METEOR of every caption, begun before torch is imported; a context, as processes may be at it."""

    def __init__(self, paired: Paired, kind: Literal["python", "java"]) -> None:
        self._paired, self._kind = paired, kind
        self._error: CaploreError | None = None
        self._counts: Aside | None = None

    def __enter__(self) -> Self:
        from caplore.metrics.meteor import COLUMNS, Meteor

        if self._kind == "python":
            try:
                meteor = Meteor.load()
            except CaploreError as error:
                self._error = error
                return self
            said, true = _tokens(self._paired)
            work = Aside(
                lambda some: meteor.statistics_many(said[some], true[some]), len(said), columns=len(COLUMNS)
            )
            self._counts = work.__enter__()
        return self

    def add_to(self, scores: "Scores") -> None:
        import torch

        from caplore.metrics.bootstrap import Statistics
        from caplore.metrics.meteor import SIGNATURE, score
        from caplore.metrics.meteor_java import JAVA_SIGNATURE, meteor_by_jar

        signature = SIGNATURE if self._kind == "python" else JAVA_SIGNATURE
        try:
            if self._error is not None:
                raise self._error
            counts = (
                meteor_by_jar(*_tokens(self._paired)).counts if self._counts is None else self._counts.rows()
            )
        except CaploreError as error:
            scores.miss("meteor", signature, _in_a_line(error))
            return
        owner = torch.repeat_interleave(torch.arange(len(scores.inputs) - 1), scores.inputs.diff())
        rows = torch.zeros(len(scores.inputs) - 1, counts.shape[1], dtype=torch.double)
        rows.index_add_(0, owner, torch.from_numpy(counts.astype("f8")))
        scores.add("meteor", torch.from_numpy(score(counts)), signature, corpus=Statistics(rows, "meteor"))

    def __exit__(self, *_: object) -> None:
        if self._counts is not None:
            self._counts.__exit__()


def _in_a_line(error: CaploreError) -> str:
    return str(error).replace("\n  fix: ", ": ")


def _tokens(paired: Paired) -> tuple[list[list[str]], list[list[list[str]]]]:
    """The words of every caption, and of the references it is compared with."""
    from caplore.text.ptb import tokenize_many

    said = tokenize_many([text for texts in paired.candidates for text in texts])
    true = iter(tokenize_many([text for texts in paired.references for text in texts]))
    of_inputs = [[next(true) for _ in texts] for texts in paired.references]
    return said, [refs for refs, texts in zip(of_inputs, paired.candidates, strict=True) for _ in texts]


def add_spice(
    scores: "Scores", paired: Paired, settings: SpiceSettings, progress: Progress | None = None
) -> "SpiceCounts | None":
    """SPICE of every caption, and its parts; ctrl-C here ends SPICE only."""
    from caplore.metrics.spice import SIGNATURE, Spice, SpiceCounts

    given = {"threads": settings.threads, "heap_gib": settings.memory_gib}
    options: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    try:
        spice = Spice.installed(
            seconds=None if settings.minutes is None else 60 * settings.minutes, **options
        )
        counts = spice.counts(_spice_pairs(paired), progress)
    except CaploreError as error:
        scores.miss("spice", SIGNATURE, _in_a_line(error))
        return None
    except KeyboardInterrupt:
        scores.miss("spice", SIGNATURE, "it was interrupted; the same command goes on from there")
        return None
    _put_spice(scores, counts)
    return SpiceCounts(counts)


def _spice_pairs(paired: Paired) -> list[Any]:
    from caplore.metrics.spice import Pair

    joined: dict[int, tuple[str, ...]] = {}
    pairs = []
    for words, refs in zip(*_tokens(paired), strict=True):
        if id(refs) not in joined:
            joined[id(refs)] = tuple(" ".join(ref) for ref in refs)
        pairs.append(Pair(" ".join(words), joined[id(refs)]))
    return pairs


def _put_spice(scores: "Scores", counts: Any) -> None:
    import torch

    from caplore.metrics.bootstrap import Statistics
    from caplore.metrics.spice import KINDS, SIGNATURE, f_scores

    f = torch.from_numpy(f_scores(counts))
    scores.add("spice", f[:, 0], SIGNATURE)
    owner = torch.repeat_interleave(torch.arange(len(scores.inputs) - 1), scores.inputs.diff())
    for kind, values in zip(KINDS[1:], f.T[1:], strict=True):
        there = ~values.isnan()
        rows = torch.zeros(len(scores.inputs) - 1, 2, dtype=torch.double)
        rows.index_add_(0, owner, torch.stack([values.nan_to_num(0), there.double()], 1))
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

"""Captions against references, every metric, as one call: the Python behind `caplore score`.

    from caplore.evaluation import score
    result = score({"42": "a cat on a mat"}, {"42": ["a cat sits on a mat", "the cat"]})
    result["cider_d"], result.to_json()

What needs no set-up is computed in this process (caplore.metrics.scoring). METEOR joins when its tables are
there, SPICE when it is asked for; what cannot be computed is in the result as null, with the reason, and
never takes the other scores with it. torch is imported on use only: a mistake in a file is said at once.
"""

import difflib
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from caplore import __version__
from caplore.errors import CaploreError, ConfigError
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
METEOR_MISSING = "its tables are not set up: caplore setup meteor"

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
        from caplore.evaluation.statistics_io import write_statistics

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
    scores = _in_torch(paired, wanted, df, training, covered)
    if wanted is None or "meteor" in wanted:
        add_meteor(scores, paired, meteor, asked=wanted is not None)
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
        scores.miss("spice", SIGNATURE, str(error).replace("\n  fix: ", ": "))
        return None
    except KeyboardInterrupt:
        scores.miss("spice", SIGNATURE, "it was interrupted; the same command goes on from there")
        return None
    _put_spice(scores, counts)
    return SpiceCounts(counts)


def _spice_pairs(paired: Paired) -> list[Any]:
    from caplore.metrics.spice import Pair
    from caplore.text.ptb import tokenize_many

    said = (" ".join(words) for words in tokenize_many([c for texts in paired.candidates for c in texts]))
    true = iter(tokenize_many([c for texts in paired.references for c in texts]))
    pairs = []
    for texts, refs in zip(paired.candidates, paired.references, strict=True):
        joined = tuple(" ".join(next(true)) for _ in refs)
        pairs += [Pair(next(said), joined) for _ in texts]
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


def add_meteor(scores: "Scores", paired: Paired, kind: Literal["python", "java"], *, asked: bool) -> None:
    if asked:
        scores.miss("meteor", "METEOR", METEOR_MISSING)

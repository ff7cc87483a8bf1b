"""Every knob of a run, as frozen dataclasses. The docstring under a field is its --help.

A variant is a type: `alpha` exists in SllSle and nowhere else. Config stops at the door of training
and evaluation: below, everything takes plain arguments.
"""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from caplore.errors import ConfigError


def _check(flag: str, value: Any, holds: bool, needs: str) -> None:
    if not holds:
        raise ConfigError(
            f"{flag} is {value}, but it needs to be {needs}", fix=f"give --{flag} another value"
        )


@dataclass(frozen=True, kw_only=True)
class Sll:
    """Sequence-level learning: expected score of a sampled caption, which is precision alone."""

    name: ClassVar[str] = "sll"
    samples: int = 5
    """Captions drawn per input and step."""
    baseline: Literal["greedy", "rest"] = "greedy"
    """What a sample's score is compared with: the greedy caption's, or the mean of the other samples."""

    def __post_init__(self) -> None:
        _check("sequence.objective.samples", self.samples, self.samples >= 2, "at least 2")


@dataclass(frozen=True, kw_only=True)
class SllMe(Sll):
    """Sequence-level learning plus the entropy of the next word."""

    name: ClassVar[str] = "sll_me"
    entropy_weight: float = 1e-2
    """Weight of the mean entropy, in nats; too much and the words run away, so tune it per data set."""


@dataclass(frozen=True, kw_only=True)
class SllSle(Sll):
    """Sequence-level exploration: score, plus the expected distance between sampled captions."""

    name: ClassVar[str] = "sll_sle"
    alpha: float = 0.75
    """Weight of the score against the distance; 1 is the score alone."""
    estimator: Literal["paper", "unbiased", "authors"] = "paper"
    """How the distance is turned into advantages; see docs/objectives.md."""
    distance: Literal["bleu", "edit"] = "bleu"
    """Distance between two captions: 1 - (BLEU-3 + BLEU-4)/2 both ways, or normalised edit distance."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check("sequence.objective.alpha", self.alpha, 0 <= self.alpha <= 1, "between 0 and 1")
        enough = self.samples >= 3 or self.estimator == "paper"
        _check(
            "sequence.objective.samples", self.samples, enough, f"at least 3 for estimator {self.estimator}"
        )


@dataclass(frozen=True, kw_only=True)
class Marginal(Sll):
    """Score, plus what each sample adds to a function of the set (beyond the paper)."""

    name: ClassVar[str] = "marginal"
    of: Literal["recall", "self_cider", "vendi", "log_det"] = "recall"
    """recall of the references by the set, self-CIDEr, Vendi score or log-det of the samples' similarity."""
    weight: float = 1.0
    """Weight of the marginal term beside the score."""


@dataclass(frozen=True, kw_only=True)
class MaxAtK:
    """The expected best score among k samples (beyond the paper): optimises the oracle."""

    name: ClassVar[str] = "max_at_k"
    samples: int = 5
    """Captions drawn per input and step."""
    k: int = 3
    """How many tries the best is taken of; 1 is the score alone."""
    precision: float = 0.0
    """Weight of the plain score beside it."""

    def __post_init__(self) -> None:
        _check(
            "sequence.objective.k",
            self.k,
            1 <= self.k <= self.samples,
            f"between 1 and samples ({self.samples})",
        )


SequenceObjective = Sll | SllMe | SllSle | Marginal | MaxAtK
Schedule = Literal["constant", "linear", "cosine"]
Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class Xe:
    """The first phase of Algorithm 1: word-level cross-entropy."""

    epochs: int = 25
    """Passes over the inputs; each shows `captions` of every input's references."""
    lr: float = 5e-4
    """Learning rate at the start."""
    schedule: Schedule = "cosine"
    """How the learning rate goes to its end."""
    batch: int = 64
    """Inputs per step, over all processes."""
    captions: int = 5
    """References of each input shown per pass."""
    label_smoothing: float = 0.0
    """Mass given to all other words."""

    def __post_init__(self) -> None:
        _check("xe.epochs", self.epochs, self.epochs >= 0, "0 or more")
        _check("xe.lr", self.lr, self.lr > 0, "above 0")
        _check("xe.batch", self.batch, self.batch >= 1, "at least 1")
        _check("xe.captions", self.captions, self.captions >= 1, "at least 1")
        _check("xe.label-smoothing", self.label_smoothing, 0 <= self.label_smoothing < 1, "from 0 to below 1")


@dataclass(frozen=True, kw_only=True)
class Sequence:
    """The second phase of Algorithm 1: sample captions, score them, push up the good ones."""

    objective: SequenceObjective = field(default_factory=SllSle)
    epochs: int = 30
    """Passes over the inputs."""
    lr: float = 1e-4
    """Learning rate at the start."""
    schedule: Schedule = "linear"
    """How the learning rate goes to its end."""
    batch: int = 64
    """Inputs per step, over all processes."""
    reduction: Literal["tokens", "captions"] = "tokens"
    """Loss as a mean over tokens, or over captions (sums of their tokens)."""
    xe_weight: float = 0.0
    """Weight of cross-entropy on the references, mixed in; 0 is the paper."""
    dropout: bool = False
    """Keep the model's dropout in the gradient pass; sampling never has it."""

    def __post_init__(self) -> None:
        _check("sequence.epochs", self.epochs, self.epochs >= 0, "0 or more")
        _check("sequence.lr", self.lr, self.lr > 0, "above 0")
        _check("sequence.batch", self.batch, self.batch >= 1, "at least 1")
        _check("sequence.xe-weight", self.xe_weight, 0 <= self.xe_weight < 1, "from 0 to below 1")


@dataclass(frozen=True, kw_only=True)
class Model:
    """Which captioner, and how wide."""

    name: Literal["fc", "att2in", "updown", "transformer"] = "fc"
    """fc is the paper's; the others attend over region features."""
    hidden: int = 512
    """Width of the decoder."""
    dropout: float = 0.5
    """Dropout on the decoder's inputs and outputs while training."""

    def __post_init__(self) -> None:
        _check("model.hidden", self.hidden, self.hidden >= 1, "at least 1")
        _check("model.dropout", self.dropout, 0 <= self.dropout < 1, "from 0 to below 1")

    @property
    def sizes(self) -> dict[str, Any]:
        """What `models.build` takes: words and attention are as wide as the decoder."""
        wide = {"fc": ("embed",), "att2in": ("embed", "attention"), "updown": ("embed", "attention")}
        same = dict.fromkeys(wide.get(self.name, ()), self.hidden)
        return {"hidden": self.hidden, "dropout": self.dropout, **same}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One training run: data, model, the two phases of Algorithm 1."""

    data: Path = Path("data/scenes")
    """Folder of the data set."""
    to: Path = Path("runs/run")
    """Run folder to write; it must not hold a run already (see --resume)."""
    encoder: str = ""
    """Which of the data set's feature stores; empty is the only one there."""
    start: Path | None = None
    """A run whose best model to start from; its cross-entropy phase is then not repeated."""
    model: Model = field(default_factory=Model)
    xe: Xe = field(default_factory=Xe)
    sequence: Sequence | None = None
    min_count: int = 1
    """Words seen less often in the training captions are unknown."""
    max_words: int = 20
    """The longest caption, in words; longer references are cut."""
    selection_beam: int = 1
    """Beam width when validation CIDEr chooses the best epoch; 1 is greedy."""
    validate_every: int = 1
    """Epochs between validations."""
    log_every: int = 20
    """Steps between log lines."""
    save_minutes: float = 5.0
    """A checkpoint after this many minutes, besides the one of every epoch; what a killed run repeats at most."""
    clip: float = 5.0
    """Largest norm of the gradient; 0 leaves it as it is."""
    seed: int = 0
    """Seed of weights, order and samples."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    resident_gb: float | Literal["auto"] = "auto"
    """Gigabytes of features kept on the device; more is read from disk beside the steps. auto: half its free memory."""
    tensorboard: bool = False
    """Write the log to the run's tensorboard folder as well."""
    precision: Precision = "float32"
    """Of matrix products in plain steps: bfloat16 halves the time of a CPU that has it (AVX512-BF16, AMX)."""
    fast: bool = True
    """On a GPU, run steps as one CUDA graph of fused kernels in bf16 where that is possible (docs/performance.md)."""

    def __post_init__(self) -> None:
        _check("max-words", self.max_words, self.max_words >= 1, "at least 1")
        _check("min-count", self.min_count, self.min_count >= 1, "at least 1")
        _check("selection-beam", self.selection_beam, self.selection_beam >= 1, "at least 1")
        _check("validate-every", self.validate_every, self.validate_every >= 1, "at least 1")
        _check("log-every", self.log_every, self.log_every >= 1, "at least 1")
        _check("save-minutes", self.save_minutes, self.save_minutes >= 0, "0 or more")
        _check("clip", self.clip, self.clip >= 0, "0 or more")
        enough = self.resident_gb == "auto" or self.resident_gb >= 0
        _check("resident-gb", self.resident_gb, enough, "0 or more, or auto")

    @property
    def objective(self) -> str:
        """The name of what the run ends in."""
        return "xe" if self.sequence is None else self.sequence.objective.name


OBJECTIVES: dict[str, type[SequenceObjective]] = {c.name: c for c in (Sll, SllMe, SllSle, Marginal, MaxAtK)}


def to_json(recipe: Recipe) -> dict[str, Any]:
    """The recipe as plain JSON, objectives tagged with their name."""
    value = dataclasses.asdict(recipe)
    for key in ("data", "to", "start"):
        value[key] = None if value[key] is None else str(value[key])
    if recipe.sequence is not None:
        value["sequence"]["objective"]["name"] = recipe.sequence.objective.name
    return value


def from_json(value: dict[str, Any]) -> Recipe:
    """The inverse of `to_json`; a key this version does not know is an error."""
    try:
        fields = dict(value)
        fields["model"], fields["xe"] = Model(**fields["model"]), Xe(**fields["xe"])
        if fields["sequence"] is not None:
            objective = dict(fields["sequence"]["objective"])
            kind = OBJECTIVES[objective.pop("name")]
            fields["sequence"] = Sequence(**{**fields["sequence"], "objective": kind(**objective)})
        for key in ("data", "to", "start"):
            fields[key] = None if fields[key] is None else Path(fields[key])
        return Recipe(**fields)
    except (KeyError, TypeError) as error:
        raise ConfigError(f"the run's recipe was written by another version of caplore ({error})") from None

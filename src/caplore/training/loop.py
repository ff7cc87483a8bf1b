"""The loop: for every phase, epoch and batch: step, log, validate, keep.

Reads top to bottom; all state that resuming needs is in one record, `Place`.
"""

import dataclasses
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from caplore import models
from caplore.data.dataset import Dataset, open_dataset
from caplore.decoding.beam import beam
from caplore.errors import InputError, TrainingStopped
from caplore.features.store import FeatureStore
from caplore.metrics.cider import CiderD
from caplore.metrics.ngrams import DocumentFrequencies
from caplore.models import Model
from caplore.models.entry import fit_entries
from caplore.text.vocabulary import Vocabulary
from caplore.training import checkpoint as checkpoints
from caplore.training import distributed, examples
from caplore.training.checkpoint import Checkpoint
from caplore.training.config import Recipe, Sequence, Xe
from caplore.training.distributed import World
from caplore.training.examples import Examples
from caplore.training.progress import Progress
from caplore.training.reward import CiderReward, select
from caplore.training.run import Run, create_run, open_run
from caplore.training.schedule import batches, rate, steps_per_epoch
from caplore.training.step import Update, sequence_step, xe_step
from caplore.training.watch import Watch


class Interrupted(KeyboardInterrupt):
    """SIGTERM or Ctrl-C: the run was saved where it stood."""


@dataclass
class Place:
    """Where the run is: what a checkpoint keeps beside tensors, and all that the loop changes."""

    phase: str = "xe"
    epoch: int = 0
    batch: int = 0  # of this epoch, the next to do
    step: int = 0  # of the whole run
    best: float = -math.inf  # validation CIDEr-D of this phase's best epoch
    log_lines: int = 0
    seconds: float = 0.0
    sums: dict[str, float] = field(default_factory=dict)  # of the open log window
    window: int = 0  # steps in it
    watch: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Material:
    """What the run trains on: made once, the same in every phase."""

    train: Examples
    val: Examples
    vocabulary: Vocabulary
    reward: CiderReward
    validation: Callable[[Model], float]


def train(recipe: Recipe, name: str, *, quiet: bool = False) -> Run:
    """Run a recipe from the start; returns its run folder."""
    device = distributed.pick_device(recipe.device)
    world = distributed.join(device)
    dataset = open_dataset(recipe.data)
    store = examples.choose_store(dataset, recipe.encoder)
    torch.manual_seed(recipe.seed)
    if recipe.start is not None:
        vocabulary = open_run(recipe.start).vocabulary()
    else:
        words = (c for caption in examples.tokenised(dataset, "train") for c in caption)
        vocabulary = Vocabulary.from_captions(words, min_count=recipe.min_count)
    material = gather(recipe, dataset, store, vocabulary, device)
    model = _new_model(recipe, store, vocabulary).to(device)
    fit_entries(model, material.train.features)
    place = Place()
    if recipe.start is not None:
        _start_from(open_run(recipe.start), model)
        place.phase = "sequence"
    if world.is_first:
        create_run(
            recipe,
            name,
            vocabulary,
            dataset={
                "name": dataset.name,
                "version": dataset.version,
                "media": dataset.media,
                "checksum": dataset.checksum,
            },
            store=store.path.name,
            encoder=dict(store.encoder),
            features={kind: list(shape) for kind, shape in store.shapes.items()},
            architecture=model.config,
            parameters=sum(p.numel() for p in model.parameters()),
            reward=material.reward.signature,
            device=str(device),
            processes=world.size,
        )
    world.barrier()
    return _run(recipe, Run(recipe.to), model, material, place, None, world, device, quiet)


def resume(path: Path, *, quiet: bool = False) -> Run:
    """Go on with a run from its last checkpoint, as if it had not been interrupted."""
    run = open_run(path)
    recipe = dataclasses.replace(run.recipe(), to=Path(path))
    if run.head()["status"] == "done":
        raise InputError(f"run {path} is done already", fix=f"caplore evaluate {path}")
    device = distributed.pick_device(recipe.device)
    world = distributed.join(device)
    dataset = open_dataset(recipe.data)
    if run.head()["dataset"]["checksum"] != dataset.checksum:
        raise InputError(
            f"{recipe.data} is not the data set run {path} was started on: its captions differ",
            fix="bring the data set back, or start a new run with --to another folder",
        )
    store = examples.choose_store(dataset, recipe.encoder)
    vocabulary = run.vocabulary()
    torch.manual_seed(recipe.seed)
    material = gather(recipe, dataset, store, vocabulary, device)
    model = _new_model(recipe, store, vocabulary).to(device)
    place, saved = Place(), None
    if run.last.is_file():
        saved = checkpoints.load(run.last)
        place = Place(**saved.state)
        checkpoints.load_model(model, saved, run.last)
    elif recipe.start is not None:
        _start_from(open_run(recipe.start), model)
        place.phase = "sequence"
    if world.is_first:
        run.rewind_log(place.log_lines)
    world.barrier()
    return _run(recipe, run, model, material, place, saved, world, device, quiet)


def gather(
    recipe: Recipe, dataset: Dataset, store: FeatureStore, vocabulary: Vocabulary, device: torch.device
) -> Material:
    """Tokenise, look up features, count document frequencies: everything a phase needs, on the device."""
    tokens = {split: examples.tokenised(dataset, split) for split in ("train", "val")}
    words = examples.extended(vocabulary, *tokens.values())
    train_set, val_set = (
        examples.load_examples(
            dataset, split, tokens[split], words, store=store, max_words=recipe.max_words, device=device
        )
        for split in ("train", "val")
    )
    return Material(
        train_set,
        val_set,
        vocabulary,
        CiderReward(train_set, vocab=len(words)),
        _validation(val_set, len(words), width=recipe.selection_beam, max_words=recipe.max_words),
    )


def _validation(val: Examples, vocab: int, *, width: int, max_words: int) -> Callable[[Model], float]:
    """CIDEr-D of the validation split as coco-caption would say (df from these references, no end counted)."""
    df = DocumentFrequencies.from_references(val.references, val.there, vocab=vocab, count_eos=False)
    metric = CiderD(df)
    references = metric.prepare(val.references, val.there)

    def cider(model: Model) -> float:
        model.eval()
        scores = []
        for index in torch.arange(len(val), device=val.references.device).split(500):
            found = beam(model, val.features_of(index), width=width, max_words=max_words)
            scores.append(metric.score(found.tokens, select(references, index)))
        return float(torch.cat(scores).mean())

    return cider


def _new_model(recipe: Recipe, store: FeatureStore, vocabulary: Vocabulary) -> Model:
    pooled, regions = store.shapes.get("pooled"), store.shapes.get("regions")
    return models.build(
        recipe.model.name,
        vocab=len(vocabulary),
        pooled_dim=pooled[0] if pooled else None,
        regions=(regions[0], regions[1]) if regions else None,
        **recipe.model.sizes,
    )


def _start_from(run: Run, model: Model) -> None:
    path = run.best_of("xe")
    checkpoints.load_model(model, checkpoints.load(path), path)


def _run(
    recipe: Recipe,
    run: Run,
    model: Model,
    material: Material,
    place: Place,
    saved: Checkpoint | None,
    world: World,
    device: torch.device,
    quiet: bool,
) -> Run:
    """Algorithm 1: cross-entropy, then the sequence-level phase from the best cross-entropy model."""
    with _stop_signals() as stop, Progress(quiet or not world.is_first) as progress:
        for name, phase in _phases(recipe):
            if name != place.phase:
                continue
            session = Session(recipe, run, model, material, name, phase, place, world, device, stop, progress)
            try:
                session.train(saved)
            except TrainingStopped as error:
                run.log(event="stopped", phase=name, step=place.step, why=error.what)
                run.update(status="stopped", stopped=error.what)
                raise
            saved = None
            if name == "xe" and recipe.sequence is not None:
                place = dataclasses.replace(Place(), phase="sequence", step=place.step, seconds=place.seconds)
                _start_from(run, model)
    if world.is_first:
        run.update(status="done", seconds=round(place.seconds, 1))
    world.barrier()
    return run


def _phases(recipe: Recipe) -> Iterator[tuple[str, Xe | Sequence]]:
    if recipe.start is None:
        yield "xe", recipe.xe
    if recipe.sequence is not None:
        yield "sequence", recipe.sequence


@dataclass
class Session:
    """One phase being trained."""

    recipe: Recipe
    run: Run
    model: Model
    material: Material
    name: str
    phase: Xe | Sequence
    place: Place
    world: World
    device: torch.device
    stop: threading.Event
    progress: Progress

    def train(self, saved: Checkpoint | None) -> None:
        phase, place = self.phase, self.place
        inputs = len(self.material.train)
        per_epoch = steps_per_epoch(inputs, phase.batch)
        steps = per_epoch * phase.epochs
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=phase.lr, fused=True)
        self.update = Update(self.model, self.optimizer, self.recipe.clip, self.world)
        self.watch = Watch(self.name, self.material.train.mean_length)
        if saved is not None:
            checkpoints.load_optimizer(self.optimizer, saved)
            checkpoints.load_random(saved, self.device)
            self.watch.restore(place.watch)
        self.progress.phase(self.name, steps, done=place.epoch * per_epoch + place.batch)
        if place.best == -math.inf:
            self._validate()
            self._save()
        began = time.monotonic() - place.seconds
        while place.epoch < phase.epochs:
            seed = self.recipe.seed * 2 + (self.name == "sequence")
            for index in batches(inputs, phase.batch, seed=seed, epoch=place.epoch, start=place.batch):
                done = place.epoch * per_epoch + place.batch
                for group in self.optimizer.param_groups:
                    group["lr"] = rate(phase.schedule, phase.lr, done, steps)
                self._count(self._step(index))
                place.batch += 1
                place.step += 1
                place.seconds = time.monotonic() - began
                self.progress.advance()
                if place.step % self.recipe.log_every == 0:
                    self._log()
                if self.stop.is_set():
                    self._save()
                    raise Interrupted
            place.epoch, place.batch = place.epoch + 1, 0
            if place.epoch % self.recipe.validate_every == 0 or place.epoch == phase.epochs:
                self._validate()
            place.seconds = time.monotonic() - began
            self._save()
        self.progress.finish()

    def _step(self, index: Tensor) -> dict[str, Tensor]:
        train, recipe = self.material.train, self.recipe
        mine = self.world.share(index).to(self.device)
        features = train.features_of(mine)
        match self.phase:
            case Xe() as xe:
                tokens = self._said(mine, xe.captions)
                return xe_step(
                    self.model, features, tokens, label_smoothing=xe.label_smoothing, update=self.update
                )
            case Sequence() as phase:
                said = self._said(mine, 5) if phase.xe_weight > 0 else None
                return sequence_step(
                    self.model,
                    features,
                    mine,
                    self.material.reward,
                    phase,
                    max_words=recipe.max_words,
                    update=self.update,
                    references=said,
                )

    def _said(self, index: Tensor, captions: int) -> Tensor:
        train = self.material.train
        seed = self.recipe.seed * 1_000_003 + self.place.step
        chosen = examples.choose_references(train.references[index], train.there[index], captions, seed=seed)
        return examples.as_said(chosen, len(self.material.vocabulary))

    def _count(self, stats: dict[str, Tensor]) -> None:
        """Add this step to the open window; on a GPU the sums stay there until the window closes."""
        if self.place.window == 0 or not hasattr(self, "_sums"):
            self._sums = {
                k: torch.as_tensor(self.place.sums.get(k, 0.0), dtype=torch.float64, device=self.device)
                for k in stats
            }
        for name, value in stats.items():
            self._sums[name] += value
        self.place.window += 1

    def _log(self) -> None:
        place = self.place
        stats = {k: float(v) / place.window for k, v in self._sums.items()}
        first = place.step - place.window + 1
        place.sums, place.window = {}, 0
        self.watch.check(stats, (first, place.step))
        if self.world.is_first:
            lr = self.optimizer.param_groups[0]["lr"]
            line = {k: round(v, 6) for k, v in stats.items()}
            self.run.log(
                phase=self.name,
                epoch=place.epoch,
                step=place.step,
                seconds=round(place.seconds, 2),
                lr=lr,
                **line,
            )
            place.log_lines = self.run.log_length()
        self.progress.show(stats)

    def _validate(self) -> None:
        """Validation CIDEr-D; the best model of the phase so far is kept."""
        place = self.place
        score = self.material.validation(self.model)
        better = score > place.best
        place.best = max(place.best, score)
        if self.world.is_first:
            if better:
                checkpoints.save(
                    self.run.best_of(self.name),
                    Checkpoint(
                        checkpoints.model_tensors(self.model),
                        {"phase": self.name, "epoch": place.epoch, "step": place.step, "cider_d": score},
                    ),
                )
            self.run.log(
                event="validation",
                phase=self.name,
                epoch=place.epoch,
                step=place.step,
                seconds=round(place.seconds, 2),
                cider_d=round(score, 6),
                best=better,
            )
            place.log_lines = self.run.log_length()
        self.progress.validated(place.epoch, score, better)

    def _save(self) -> None:
        place = self.place
        if place.window:
            place.sums = {k: float(v) for k, v in self._sums.items()}
        place.watch = self.watch.state()
        if self.world.is_first:
            tensors = (
                checkpoints.model_tensors(self.model)
                | checkpoints.optimizer_tensors(self.optimizer)
                | checkpoints.random_tensors(self.device)
            )
            checkpoints.save(self.run.last, Checkpoint(tensors, dataclasses.asdict(place)))


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM and Ctrl-C set; a second Ctrl-C stops at once."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

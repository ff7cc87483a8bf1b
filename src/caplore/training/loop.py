"""The loop: for every phase, epoch and batch: step, log, validate, keep.

Reads top to bottom; all state that resuming needs is in one record, `Place`. Many processes run this side
by side: each takes its share of every batch, all decide the same (what they look at is summed over all of
them first), and the first one writes.
"""

import dataclasses
import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from caplore import models
from caplore.data.dataset import Dataset, open_dataset
from caplore.decoding.beam import beam
from caplore.decoding.captions import Captions
from caplore.decoding.sampling import Uniforms
from caplore.errors import FullDiskError, InputError, TrainingStopped
from caplore.features.store import FeatureStore
from caplore.metrics.cider import CiderD
from caplore.metrics.ngrams import DocumentFrequencies
from caplore.models import Model
from caplore.models.entry import fit_entries
from caplore.models.protocol import Features
from caplore.text.vocabulary import Vocabulary
from caplore.training import checkpoint as checkpoints
from caplore.training import distributed, examples, streaming
from caplore.training.checkpoint import Checkpoint
from caplore.training.config import Recipe, Sequence, Xe
from caplore.training.curves import Curves, require_tensorboard
from caplore.training.distributed import World
from caplore.training.examples import Examples
from caplore.training.fast import FastStep, fast_step
from caplore.training.progress import Progress
from caplore.training.reward import CiderReward, select
from caplore.training.run import Run, create_run, open_run
from caplore.training.schedule import batches, rate, seed_of, steps_per_epoch
from caplore.training.step import Update, products, sequence_step, xe_step
from caplore.training.streaming import Look
from caplore.training.watch import Watch


class Interrupted(KeyboardInterrupt):
    """SIGTERM or Ctrl-C: the run was saved where it stood."""

    def __init__(self, number: int, run: Path, step: int) -> None:
        super().__init__(number)
        self.number, self.run, self.step = number, run, step


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
    validation: Callable[[Callable[[Features], Captions]], float]


def train(recipe: Recipe, name: str, *, quiet: bool = False) -> Run:
    """Run a recipe from the start; returns its run folder.

    Under a launcher that starts the same command again, a folder that holds this very run is gone on with.
    """
    world = _world(recipe)
    if distributed.is_launched() and world.from_first(_is_again(recipe)):
        return _again(recipe.to, quiet=quiet)
    dataset = open_dataset(recipe.data)
    store = examples.choose_store(dataset, recipe.encoder)
    if recipe.start is not None:
        vocabulary = open_run(recipe.start).vocabulary()
    else:
        words = (c for caption in examples.tokenised(dataset, "train") for c in caption)
        vocabulary = Vocabulary.from_captions(words, min_count=recipe.min_count)
    world.check_same("data set", dataset.checksum, vocabulary.digest)
    material = gather(recipe, dataset, store, vocabulary, world)
    model, place = _beginning(recipe, store, material, world)
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
            device=str(world.device),
            resident=material.train.is_resident,
            processes=world.size,
        )
    world.barrier()
    with _alone(Run(recipe.to)) as run:
        return _run(recipe, run, model, material, place, None, world, quiet)


def _world(recipe: Recipe) -> World:
    """Where it runs; what cannot be had there is said before anything is read."""
    if recipe.tensorboard:
        require_tensorboard()
    world = distributed.join(distributed.pick_device(recipe.device))
    for knob, phase in _phases(recipe):
        world.check_divides(f"{knob}.batch", phase.batch)
    return world


def _is_again(recipe: Recipe) -> bool:
    return (recipe.to / "run.json").is_file() and open_run(recipe.to).recipe() == recipe


def _again(path: Path, *, quiet: bool) -> Run:
    """The same command once more: what is done stays done, what was stopped on purpose stays stopped."""
    run = open_run(path)
    head = run.head()
    if head["status"] == "stopped":
        raise TrainingStopped(head["stopped"], fix=_what_stays(run))
    return run if head["status"] == "done" else resume(path, quiet=quiet)


def resume(path: Path, *, quiet: bool = False) -> Run:
    """Go on with a run from its last checkpoint, as if it had not been interrupted."""
    with _alone(open_run(path)) as run:
        if run.head()["status"] == "done":
            raise InputError(f"run {path} is done already", fix=f"caplore evaluate {path}")
        return _resume(run, quiet)


def _alone(run: Run) -> AbstractContextManager[Run]:
    """Nobody else trains this run.

    The processes of one run share it, and a launcher sees to it: it starts again before the lock of a lost machine
    is given up.
    """
    shared = distributed.processes() > 1 or distributed.is_launched()
    return nullcontext(run) if shared else run.held()


def _resume(run: Run, quiet: bool) -> Run:
    path = run.path
    world = _world(run.recipe())
    dataset = run.dataset()
    recipe = dataclasses.replace(run.recipe(), to=path, data=dataset.path)
    if run.head()["dataset"]["checksum"] != dataset.checksum:
        raise InputError(
            f"{recipe.data} is not the data set run {path} was started on: its captions differ",
            fix="bring the data set back, or start a new run with --to another folder",
        )
    store = examples.choose_store(dataset, recipe.encoder)
    vocabulary = run.vocabulary()
    saved = checkpoints.load(run.last) if run.last.is_file() else None
    world.check_same("data set", dataset.checksum, vocabulary.digest)
    world.check_same("checkpoint", json.dumps(saved and saved.state))
    material = gather(recipe, dataset, store, vocabulary, world)
    model, place = _beginning(recipe, store, material, world, saved)
    if saved is not None:
        place = Place(**saved.state)
        checkpoints.load_model(model, saved, run.last)
    if world.is_first:
        run.rewind(place.log_lines)
    world.barrier()
    return _run(recipe, run, model, material, place, saved, world, quiet)


def gather(
    recipe: Recipe, dataset: Dataset, store: FeatureStore, vocabulary: Vocabulary, world: World
) -> Material:
    """Tokenise, look up features, count document frequencies: everything a phase needs, on the device."""
    tokens = {split: examples.tokenised(dataset, split) for split in ("train", "val")}
    words = examples.extended(vocabulary, *tokens.values())
    size = store.bytes_of(sum(map(len, tokens.values())))
    train_set, val_set = (
        examples.load_examples(
            dataset,
            split,
            tokens[split],
            words,
            store=store,
            max_words=recipe.max_words,
            device=world.device,
            resident=streaming.fits(size, world.device, recipe.resident_gb),
        )
        for split in ("train", "val")
    )
    return Material(
        train_set,
        val_set,
        vocabulary,
        CiderReward(train_set, vocab=len(words)),
        _validation(val_set, len(words), world),
    )


def _validation(val: Examples, vocab: int, world: World) -> Callable[[Callable[[Features], Captions]], float]:
    """CIDEr-D of the validation split as coco-caption would say (df from these references, no end counted).

    Every process decodes its share of the split.
    """
    df = DocumentFrequencies.from_references(val.references, val.there, vocab=vocab, count_eos=False)
    metric = CiderD(df)
    references = metric.prepare(val.references, val.there)

    def cider(decode: Callable[[Features], Captions]) -> float:
        total = torch.zeros((), dtype=torch.float64, device=world.device)
        mine = torch.arange(len(val))[world.rank :: world.size]
        with val.along(mine.split(500)) as batches:
            for index, look in batches:
                found = decode(look())
                total += metric.score(found.tokens, select(references, index.to(world.device))).sum()
        return float(world.sum_(total)) / len(val)

    return cider


def _beginning(
    recipe: Recipe, store: FeatureStore, material: Material, world: World, saved: Checkpoint | None = None
) -> tuple[Model, Place]:
    """The model before its first step, and where that step is: all of it follows from recipe and data.

    Only who has no other source of weights looks at all features (`_run` lets the others take the first one's).
    """
    pooled, regions = store.shapes.get("pooled"), store.shapes.get("regions")
    torch.manual_seed(recipe.seed)
    model = models.build(
        recipe.model.name,
        vocab=len(material.vocabulary),
        pooled_dim=pooled[0] if pooled else None,
        regions=(regions[0], regions[1]) if regions else None,
        **recipe.model.sizes,
    ).to(world.device)
    if recipe.start is None:
        if saved is None and world.is_first:
            with material.train.along(material.train.parts) as batches:
                fit_entries(model, (look() for _, look in batches))
        return model, Place()
    _start_from(open_run(recipe.start), model)
    return model, Place(phase="sequence")


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
    quiet: bool,
) -> Run:
    """Algorithm 1: cross-entropy, then the sequence-level phase from the best cross-entropy model."""
    world.take_first_(model.state_dict().values())  # processors may round a beginning differently
    with _resumable(run), _stop_signals() as asked, Progress(quiet or not world.is_first) as progress:
        for name, phase in _phases(recipe):
            if name != place.phase:
                continue
            session = Session(recipe, run, model, material, name, phase, place, world, asked, progress)
            try:
                session.train(saved)
            except TrainingStopped as error:
                if world.is_first:
                    run.log(event="stopped", phase=name, step=place.step, why=error.what)
                    run.update(status="stopped", stopped=error.what)
                raise TrainingStopped(error.what, fix=f"{error.fix}\n  {_what_stays(run)}") from None
            saved = None
            if name == "xe" and recipe.sequence is not None:
                place = dataclasses.replace(Place(), phase="sequence", step=place.step, seconds=place.seconds)
                if world.is_first:  # another machine may see the file later
                    _start_from(run, model)
                world.take_first_(model.state_dict().values())
    if world.is_first:
        run.update(status="done", seconds=round(place.seconds, 1))
    world.barrier()
    return run


@contextmanager
def _resumable(run: Run) -> Iterator[None]:
    """What a full disk ends is gone on with, not begun again."""
    try:
        yield
    except FullDiskError as error:
        raise FullDiskError(
            error.what, fix=f"free some space there, then caplore train --resume {run.path}"
        ) from error


def _what_stays(run: Run) -> str:
    again = ""
    if run.best_of("sequence").is_file() and run.best_of("xe").is_file():
        again = f"; --start {run.path} --to OTHER begins again after cross-entropy"
    return f"{run.path} keeps its last good checkpoint (caplore evaluate {run.path}){again}"


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
    asked: "Asked"
    progress: Progress

    def train(self, saved: Checkpoint | None) -> None:
        phase, place = self.phase, self.place
        inputs = len(self.material.train)
        per_epoch = steps_per_epoch(inputs, phase.batch)
        steps = per_epoch * phase.epochs
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=phase.lr, fused=True)
        self.update = Update(self.model, self.optimizer, self.recipe.clip, self.world)
        self.watch = Watch(self.name, self.material.train.mean_length)
        self._sums = {
            k: torch.tensor(v, dtype=torch.float64, device=self.world.device) for k, v in place.sums.items()
        }
        if saved is not None:
            checkpoints.load_optimizer(self.optimizer, saved)
            self.watch.restore(place.watch)
        wanted = self.recipe.tensorboard and self.world.is_first
        self.curves = Curves(self.run.path / "tensorboard", place.step) if wanted else None
        self.fast = self._captured()
        self.progress.phase(self.name, steps, done=place.epoch * per_epoch + place.batch)
        if place.best == -math.inf:
            self._validate()
            self._save()
        began, self._saved = time.monotonic() - place.seconds, time.monotonic()
        while place.epoch < phase.epochs:
            seed = self.recipe.seed * 2 + (self.name == "sequence")
            order = batches(inputs, phase.batch, seed=seed, epoch=place.epoch, start=place.batch)
            with self.material.train.along(map(self.world.share, order)) as shares:
                for mine, look in shares:
                    done = place.epoch * per_epoch + place.batch
                    for group in self.optimizer.param_groups:
                        group["lr"] = rate(phase.schedule, phase.lr, done, steps)
                    self._advance(mine, look, self.optimizer.param_groups[0]["lr"])
                    place.batch += 1
                    place.step += 1
                    place.seconds = time.monotonic() - began
                    self.progress.advance()
                    closed = place.step % self.recipe.log_every == 0
                    if closed:
                        self._log()
                    self._save_if_asked(closed)
            place.epoch, place.batch = place.epoch + 1, 0
            if place.epoch % self.recipe.validate_every == 0 or place.epoch == phase.epochs:
                self._validate()
            place.seconds = time.monotonic() - began
            self._save()
            self._stop_if_asked()
        self.progress.finish()

    def _save_if_asked(self, closed: bool) -> None:
        """Between two steps: save when the time has come, or when somebody wants us to stop.

        To hear of a signal that another process got is to wait for it: on a GPU only where a log window
        closes, which is a wait already.
        """
        if self.world.size > 1 and self.world.device.type != "cpu" and not closed:
            return
        if self.world.most(self.asked.number):
            self._save()
            self._stop_if_asked()
        if closed and self.world.most(time.monotonic() - self._saved) > 60 * self.recipe.save_minutes:
            self._save()

    def _stop_if_asked(self) -> None:
        number = int(self.world.most(self.asked.number))
        if number:
            raise Interrupted(number, self.run.path, self.place.step)

    def _captured(self) -> FastStep | None:
        """The step as one CUDA graph, where that is possible; run.json then says so, or why not."""
        recipe = self.recipe
        if self.world.device.type == "cpu":
            return None
        step, how = None, "plain: as asked for"
        if recipe.fast:
            step, how = fast_step(
                self.model,
                self.optimizer,
                self.phase,
                self.material.train,
                self.material.reward,
                images=self.phase.batch // self.world.size,
                vocab=len(self.material.vocabulary),
                max_words=recipe.max_words,
                clip=recipe.clip,
                world=self.world,
            )
        if self.world.is_first:
            self.run.update(steps={**self.run.head().get("steps", {}), self.name: how})
        if step is not None:
            step.restart(self.place.sums)
            self._sums = step.sums
        return step

    def _advance(self, mine: Tensor, look: Look, lr: float) -> None:
        """One step with our share of a batch; what it saw goes into the open window."""
        chance = self._seed("own chance", self.world.rank)
        distributed.generator_of(self.world.device).manual_seed(chance)
        if self.fast is None:
            self._count(self._step(mine.to(self.world.device), look()))
            return
        if self.place.window == 0:
            self.fast.restart({})
        noise = self._noise(len(mine)) if self.fast.shows_references else None
        self.fast(mine, lr, seed=chance, noise=noise, look=look)
        self.place.window += 1

    def _step(self, mine: Tensor, features: Features) -> dict[str, Tensor]:
        recipe = self.recipe
        match self.phase:
            case Xe() as xe:
                tokens = self._said(mine, xe.captions)
                return xe_step(
                    self.model,
                    features,
                    tokens,
                    label_smoothing=xe.label_smoothing,
                    update=self.update,
                    precision=recipe.precision,
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
                    precision=recipe.precision,
                    references=said,
                    uniforms=self._uniforms("samples") if self.world.device.type == "cpu" else None,
                )

    def _said(self, index: Tensor, captions: int) -> Tensor:
        references, there = self.material.train.references[index], self.material.train.there[index]
        noise = self._noise(len(index)).to(self.world.device)
        chosen = examples.choose_references(references, there, captions, noise=noise)
        return examples.as_said(chosen, len(self.material.vocabulary))

    def _noise(self, images: int) -> Tensor:
        """What decides which references of each of our inputs this step shows."""
        refs = self.material.train.there.shape[1]
        return self._uniforms("references")(images * refs).view(images, refs)

    def _seed(self, *what: str | int) -> int:
        return seed_of(self.recipe.seed, self.place.step, *what)

    def _uniforms(self, what: str) -> Uniforms:
        """Chance of our rows in this step: drawn for the whole batch, so that it matters to no row who computes it."""
        rng = torch.Generator().manual_seed(self._seed(what))
        return lambda rows: self.world.share(torch.rand(rows * self.world.size, generator=rng))

    def _count(self, stats: dict[str, Tensor]) -> None:
        """Add this step to the open window; on a GPU the sums stay there until the window closes."""
        if self.place.window == 0:
            self._sums = {k: torch.zeros((), dtype=torch.float64, device=self.world.device) for k in stats}
        for name, value in stats.items():
            self._sums[name] += value
        self.place.window += 1

    def _window(self) -> dict[str, float]:
        """Sums over the open window, as the mean of all processes; nothing that is not finite gets past here."""
        place = self.place
        sums = {}
        if place.window:
            both = self.world.sum_(torch.stack(list(self._sums.values()))) / self.world.size
            sums = dict(zip(self._sums, both.tolist(), strict=True))
        steps = (place.step - place.window + 1, place.step)
        means = {k: v / place.window for k, v in sums.items()}
        self.watch.check_finite(means, steps)
        self.watch.check_finite(self._weights(), steps, beside=means)
        return sums

    def _weights(self) -> dict[str, float]:
        """The norm of every weight: a step can be too long for them though its gradient was finite."""
        named = {f"weight {name}": p.detach() for name, p in self.model.named_parameters()}
        norms = torch.stack(torch._foreach_norm(list(named.values())))
        return dict(zip(named, norms.tolist(), strict=True))

    def _log(self) -> None:
        place = self.place
        stats = {k: v / place.window for k, v in self._window().items()}
        first = place.step - place.window + 1
        place.sums, place.window = {}, 0
        self.watch.check(stats, (first, place.step))
        if self.world.is_first:
            lr = self.optimizer.param_groups[0]["lr"]
            line = {k: round(v, 6) for k, v in stats.items()}
            self._note(
                epoch=place.epoch,
                step=place.step,
                seconds=round(place.seconds, 2),
                lr=lr,
                **line,
            )
        self.progress.show(stats)

    def _note(self, **line: Any) -> None:
        """A line of the log, which the next checkpoint counts."""
        line = {"phase": self.name, **line}
        self.run.log(**line)
        self.place.log_lines = self.run.log_length()
        if self.curves is not None:
            self.curves.add(line)

    def _validate(self) -> None:
        """Validation CIDEr-D; the best model of the phase so far is kept."""
        place = self.place
        self._window()
        score = self.material.validation(self._decode)
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
            self._note(
                event="validation",
                epoch=place.epoch,
                step=place.step,
                seconds=round(place.seconds, 2),
                cider_d=round(score, 6),
                best=better,
            )
        self.progress.validated(place.epoch, score, better)

    def _decode(self, features: Features) -> Captions:
        """The captions that validation scores."""
        knobs = {"width": self.recipe.selection_beam, "max_words": self.recipe.max_words}
        if self.fast is not None:
            return self.fast.decoder.beam(features, **knobs)
        self.model.eval()
        with products(self.recipe.precision, self.world.device):
            return beam(self.model, features, **knobs)

    def _save(self) -> None:
        place = self.place
        place.sums, place.watch = self._window(), self.watch.state()
        if self.world.is_first:
            tensors = checkpoints.model_tensors(self.model) | checkpoints.optimizer_tensors(self.optimizer)
            checkpoints.save(self.run.last, Checkpoint(tensors, dataclasses.asdict(place)))
        self._saved = time.monotonic()


@dataclass
class Asked:
    """The signal that asked us to stop, if one did."""

    number: int = 0
    at: float = 0.0


@contextmanager
def _stop_signals() -> Iterator[Asked]:
    """SIGTERM and Ctrl-C are noted, for the loop to stop where it stands; a second Ctrl-C stops at once.

    A launcher passes on the signal that its terminal has sent to everyone, so a second one within a second
    of the first is the same one.
    """
    asked = Asked()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def ask(number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if asked.number and number == signal.SIGINT and now - asked.at > 1:
            raise KeyboardInterrupt
        if not asked.number:
            asked.number, asked.at = number, now

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""Whole runs on a tiny data set: they learn, resume bit for bit, and stop when they should."""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from caplore.cli.main import main
from caplore.errors import ConfigError, InputError, MissingError, TrainingStopped
from caplore.training import checkpoint, config, loop
from caplore.training.config import Marginal, MaxAtK, Model, Recipe, Sequence, Sll, SllMe, SllSle, Xe
from caplore.training.run import open_run
from caplore.training.watch import Watch

Make = Callable[..., Recipe]


def weights(path: Path) -> dict[str, torch.Tensor]:
    return checkpoint.load(path).group("model")


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_cross_entropy_learns_the_captions_and_a_sequence_phase_does_not_forget(recipe: Make) -> None:
    run = loop.train(recipe(xe=Xe(epochs=20, lr=2e-2, batch=8, captions=3)), "tiny", quiet=True)
    scores = {p: checkpoint.load(run.best_of(p)).state["cider_d"] for p in ("xe", "sequence")}
    assert scores["xe"] > 2.0  # CIDEr-D 0..10; an untrained model has about 0
    assert scores["sequence"] >= scores["xe"]  # the best epoch counts from the start of the phase
    assert run.head()["status"] == "done"


@pytest.mark.parametrize("model", ["fc", "att2in", "updown", "transformer"])
@pytest.mark.parametrize(
    "objective",
    [Sll(), Sll(baseline="rest"), SllMe(), SllSle(estimator="unbiased"), Marginal(of="vendi"), MaxAtK()],
    ids=lambda o: o.name,
)
def test_every_model_takes_every_objective(recipe: Make, model: str, objective: Sll) -> None:
    phase = Sequence(objective=objective, epochs=1, batch=12)
    run = loop.train(
        recipe(model=Model(name=model, hidden=16), xe=Xe(epochs=1, batch=12), sequence=phase),
        "tiny",
        quiet=True,
    )
    last = [line for line in run.lines() if line.get("phase") == "sequence" and "reward" in line][-1]
    seen = {"reward", "baseline", "advantage", "entropy", "length", "distance", "ended", "gradient", "loss"}
    assert seen <= last.keys()
    assert last["gradient"] > 0


def test_the_same_seed_gives_the_same_run_and_another_seed_another(recipe: Make, tmp_path: Path) -> None:
    runs = [
        loop.train(recipe(to=tmp_path / f"{i}", seed=seed), "tiny", quiet=True)
        for i, seed in enumerate((0, 0, 1))
    ]
    first, again, other = (weights(run.last) for run in runs)
    assert same(first, again)
    assert not same(first, other)


@pytest.mark.parametrize("stop_at", [1, 5, 8, 11])
def test_resume_equals_uninterrupted_bit_for_bit(
    recipe: Make, tmp_path: Path, stop_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM in the middle of an epoch, of either phase; then --resume."""
    whole = loop.train(recipe(to=tmp_path / "whole"), "tiny", quiet=True)
    steps = 0
    step = loop.Session._step

    def stopping(self: loop.Session, *batch: Any) -> dict[str, torch.Tensor]:
        nonlocal steps
        steps += 1
        if steps == stop_at:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(self, *batch)

    with monkeypatch.context() as patched:
        patched.setattr(loop.Session, "_step", stopping)
        with pytest.raises(loop.Interrupted):
            loop.train(recipe(to=tmp_path / "cut"), "tiny", quiet=True)
    cut = loop.resume(tmp_path / "cut", quiet=True)
    assert same(weights(whole.last), weights(cut.last))
    assert same(weights(whole.best), weights(cut.best))

    def timeless(run: object) -> list[dict[str, object]]:
        return [{k: v for k, v in line.items() if k != "seconds"} for line in run.lines()]  # type: ignore[attr-defined]

    assert timeless(whole) == timeless(cut)


def test_a_run_is_never_written_over(recipe: Make) -> None:
    loop.train(recipe(sequence=None), "tiny", quiet=True)
    with pytest.raises(InputError, match="holds a run already"):
        loop.train(recipe(sequence=None), "tiny", quiet=True)
    with pytest.raises(InputError, match="is done already"):
        loop.resume(recipe().to, quiet=True)


def test_another_data_set_cannot_be_resumed_on(recipe: Make, tiny: object, tmp_path: Path) -> None:
    run = loop.train(recipe(sequence=None), "tiny", quiet=True)
    run.update(status="started", dataset={"checksum": "another"})
    with pytest.raises(InputError, match="its captions differ"):
        loop.resume(run.path, quiet=True)


def test_a_nan_stops_the_run_and_names_the_quantity(recipe: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    step = loop.sequence_step
    monkeypatch.setattr(
        loop, "sequence_step", lambda *a, **k: step(*a, **k) | {"reward": torch.tensor(float("nan"))}
    )
    with pytest.raises(
        TrainingStopped, match=r"reward became nan between steps \d+ and \d+ of phase sequence"
    ):
        loop.train(recipe(), "tiny", quiet=True)
    run = open_run(recipe().to)
    assert run.head()["status"] == "stopped"
    assert run.best.is_file()
    assert [line for line in run.lines() if line.get("event") == "stopped"]


def test_a_sequence_phase_can_start_from_a_run(recipe: Make, tmp_path: Path) -> None:
    xe = loop.train(recipe(sequence=None, to=tmp_path / "xe"), "tiny", quiet=True)
    after = loop.train(
        recipe(start=xe.path, to=tmp_path / "after", sequence=Sequence(epochs=0)), "tiny", quiet=True
    )
    assert same(weights(xe.best_of("xe")), weights(after.best))
    assert after.vocabulary() == xe.vocabulary()


class TestWatch:
    sane: ClassVar = {"reward": 1.0, "entropy": 2.0, "length": 10.0, "ended": 1.0, "loss": 0.1}

    def windows(self, *changes: dict[str, float]) -> None:
        watch = Watch("sequence", reference_length=10.0)
        for i, change in enumerate(changes):
            watch.check(self.sane | change, (i, i + 1))

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"length": 2.0}, r"captions have 2\.0 words"),
            ({"ended": 0.1}, "only 10% of the captions end"),
            ({"reward": 0.2}, r"the reward fell from 1\.000 to 0\.200"),
            ({"entropy": 5.0}, r"entropy of the next word ran from 2\.00 to 5\.00"),
        ],
    )
    def test_three_bad_windows_in_a_row_are_a_collapse(self, change: dict[str, float], message: str) -> None:
        self.windows({}, change, change, {}, change, change)  # never three in a row
        with pytest.raises(TrainingStopped, match=message):
            self.windows({}, change, change, change)

    def test_a_phase_that_gets_better_is_left_alone(self) -> None:
        self.windows({}, *[{"reward": 2.0, "entropy": 0.1, "length": 9.0}] * 9)


def test_recipes_go_through_json(recipe: Make) -> None:
    for objective in (Sll(), SllMe(entropy_weight=0.1), SllSle(alpha=0.5), Marginal(of="vendi"), MaxAtK(k=2)):
        one = recipe(sequence=Sequence(objective=objective), start=Path("runs/xe"))
        assert config.from_json(json.loads(json.dumps(config.to_json(one)))) == one


@pytest.mark.parametrize(
    "bad",
    [
        lambda: SllSle(alpha=1.5),
        lambda: SllSle(samples=2, estimator="unbiased"),
        lambda: MaxAtK(k=9),
        lambda: Xe(lr=0),
        lambda: Sequence(batch=0),
        lambda: Model(dropout=1.0),
        lambda: Recipe(max_words=0),
    ],
)
def test_impossible_knobs_are_refused_by_name(bad: Callable[[], object]) -> None:
    with pytest.raises(ConfigError, match="but it needs to be"):
        bad()


def test_a_sequence_phase_that_gains_nothing_is_said(
    recipe: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start, to = recipe(sequence=None, xe=Xe(epochs=15, lr=2e-2, batch=8, captions=3)), tmp_path / "to"
    loop.train(start, "tiny", quiet=True)
    where = ["--data", str(start.data), "--start", str(start.to), "--to", str(to), "--model.hidden", "32"]
    knobs = ["--sequence.epochs", "1", "--sequence.lr", "10", "--max-words", "8", "--device", "cpu"]
    assert main(["train", "own-sll", *where, *knobs]) == 0
    assert "no epoch of the sequence phase was better than the model it began with" in capsys.readouterr().err
    (to / "log.jsonl").write_text((to / "log.jsonl").read_text().replace('"best": false', '"best": true'))
    assert not open_run(to).is_unmoved()


def test_tensorboard_reads_what_the_log_says(recipe: Make) -> None:
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = loop.train(recipe(tensorboard=True), "tiny", quiet=True)
    events = reading.EventAccumulator(str(run.path / "tensorboard")).Reload()
    for tag in ("xe/cider_d", "xe/loss", "sequence/cider_d", "sequence/reward"):
        phase, name = tag.split("/")
        said = [(x["step"], x[name]) for x in run.lines() if x.get("phase") == phase and name in x]
        assert [e.step for e in events.Scalars(tag)] == [step for step, _ in said]
        assert [e.value for e in events.Scalars(tag)] == pytest.approx([value for _, value in said])


def test_without_tensorboard_it_is_said_before_anything_is_made(
    recipe: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingError, match="pip install 'tensorboard"):
        loop.train(recipe(tensorboard=True), "tiny", quiet=True)
    assert not recipe().to.exists()

"""Signals, kill -9, a full disk, numbers that are not finite: what stays, what is said, and how it goes on."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError

from caplore.cli.main import main
from caplore.errors import InputError, TrainingStopped
from caplore.training import checkpoint, config, loop, step
from caplore.training.config import Recipe, Sequence, Xe
from caplore.training.run import Run, open_run

Make = Callable[..., Recipe]


def weights(path: Path) -> dict[str, torch.Tensor]:
    return checkpoint.load(path).group("model")


def same(a: Path, b: Path) -> bool:
    first, second = weights(a), weights(b)
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


def timeless(run: Run) -> list[dict[str, Any]]:
    return [{k: v for k, v in line.items() if k != "seconds"} for line in run.lines()]


@contextlib.contextmanager
def at_step(number: int, do: Callable[[], object]) -> Iterator[None]:
    """`do` something in the middle of this step."""
    steps, before = 0, step.Update.__call__

    def update(self: step.Update, loss: torch.Tensor) -> torch.Tensor:
        nonlocal steps
        steps += 1
        if steps == number:
            do()
        return before(self, loss)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(step.Update, "__call__", update)
        yield


def command(recipe: Recipe) -> list[str]:
    knobs = (
        "--model.hidden 16 --xe.epochs 2 --xe.batch 8 --sequence.epochs 1 --sequence.batch 8 --max-words 8"
    )
    where = ["--data", str(recipe.data), "--to", str(recipe.to), "--device", "cpu"]
    return ["train", "scenes-sle", *where, *knobs.split(), "--quiet"]


class TestSignals:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_the_command_saves_says_how_to_go_on_and_exits_by_the_signal(
        self, recipe: Make, number: signal.Signals, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with at_step(4, lambda: os.kill(os.getpid(), number)):
            assert main(command(recipe())) == 128 + number
        said = capsys.readouterr().err
        assert f"{number.name}: saved after step 4" in said
        line = next(line for line in said.splitlines() if "caplore train --resume" in line)
        assert checkpoint.load(open_run(recipe().to).last).state["step"] == 4
        assert main([*line.split()[3:], "--quiet"]) == 0  # go on: caplore train --resume RUN
        assert open_run(recipe().to).head()["status"] == "done"

    def test_the_same_signal_passed_on_by_a_launcher_is_one_signal(self, recipe: Make) -> None:
        def both() -> None:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

        with at_step(2, both), pytest.raises(loop.Interrupted):
            loop.train(recipe(), "tiny", quiet=True)

    def test_a_second_ctrl_c_stops_at_once(self, recipe: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = iter(range(0, 1000, 10))  # ten seconds between any two looks at it

        def impatient() -> None:
            monkeypatch.setattr(loop.time, "monotonic", lambda: next(clock))
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

        with at_step(2, impatient), pytest.raises(KeyboardInterrupt) as stop:
            loop.train(recipe(), "tiny", quiet=True)
        monkeypatch.undo()
        assert not isinstance(stop.value, loop.Interrupted)
        assert loop.resume(recipe().to, quiet=True).head()["status"] == "done"

    def test_two_processes_do_not_train_one_run(
        self, recipe: Make, capsys: pytest.CaptureFixture[str]
    ) -> None:
        seen: list[int] = []
        resumed = ["train", "--resume", str(recipe().to), "--quiet"]
        with at_step(2, lambda: seen.append(main(resumed))):
            assert main(command(recipe())) == 0
        assert seen == [2]
        assert "another process is training run" in capsys.readouterr().err

    def test_a_run_killed_before_its_first_checkpoint_begins_again(
        self, recipe: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole = loop.train(recipe(to=tmp_path / "whole"), "tiny", quiet=True)

        class Killed(Exception):
            pass

        def killed(*args: object) -> None:
            raise Killed

        with monkeypatch.context() as patched:
            patched.setattr(loop, "_run", killed)
            with pytest.raises(Killed):
                loop.train(recipe(), "tiny", quiet=True)
        assert not open_run(recipe().to).last.exists()
        assert same(loop.resume(recipe().to, quiet=True).last, whole.last)


def test_a_checkpoint_is_made_when_the_time_has_come(recipe: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = []
    save = checkpoint.save
    monkeypatch.setattr(
        checkpoint,
        "save",
        lambda path, what: saved.append((path.name, what.state["step"])) or save(path, what),
    )
    one_epoch = recipe(xe=Xe(epochs=1, batch=2), sequence=None, log_every=3)
    loop.train(replace(one_epoch, save_minutes=0.0), "tiny", quiet=True)
    last = [at for name, at in saved if name == "last.safetensors"]
    assert last == [0, 3, 6, 9, 12, 12]
    saved.clear()
    loop.train(replace(one_epoch, to=recipe().to.with_name("seldom")), "tiny", quiet=True)
    assert [at for name, at in saved if name == "last.safetensors"] == [0, 12]


# A process that has everything imported, and forks a child to train for a random time, again and again: from its
# start in one life, which often ends it before the first step, from its first checkpoint in the next; in every
# third life it waits for the writing of a checkpoint.
KILLER = """
import json, os, random, signal, sys, time
from pathlib import Path
import torch._dynamo  # what an optimiser imports when it is first made: seconds, in every life
from caplore.training import checkpoint, config, loop

recipe = config.from_json(json.loads(Path(sys.argv[1]).read_text()))
kills, longest = int(sys.argv[2]), float(sys.argv[3])
chance, steps, torn, life = random.Random(0), [], 0, 0
checkpoints = recipe.to / "checkpoints"
last = checkpoints / "last.safetensors"
while True:
    before = last.stat().st_mtime_ns if last.exists() else 0
    child = os.fork()
    if child == 0:
        there = (recipe.to / "run.json").exists()
        loop.resume(recipe.to, quiet=True) if there else loop.train(recipe, "tiny", quiet=True)
        os._exit(0)
    life += 1
    left, status = 0, 0
    while life % 2 and not left and (last.stat().st_mtime_ns if last.exists() else 0) == before:
        left, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.001)
    until = time.monotonic() + longest * chance.random()
    time.sleep(until - time.monotonic())
    while life % 3 == 0 and time.monotonic() < until + longest and not any(checkpoints.glob(".*.tmp")):
        pass
    if not left and life <= kills:
        os.kill(child, signal.SIGKILL)
    if not left:
        left, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        assert os.waitstatus_to_exitcode(status) == 0
        break
    torn += any(checkpoints.glob(".*.tmp"))
    if last.exists():  # whole, whenever it was
        steps.append(checkpoint.load(last).state["step"])
print(json.dumps({"steps": steps, "torn": torn, "kills": life - 1}))
"""


def test_killed_thirty_times_it_still_ends_the_same(recipe: Make, tmp_path: Path) -> None:
    """kill -9 at random moments, with a checkpoint at every step, so that many fall into the writing of one."""
    long = recipe(to=tmp_path / "whole", sequence=Sequence(epochs=16, batch=8), log_every=1, save_minutes=0.0)
    whole = loop.train(long, "tiny", quiet=True)
    cut = replace(long, to=tmp_path / "cut")
    (tmp_path / "recipe.json").write_text(json.dumps(config.to_json(cut)))
    took = whole.head()["seconds"]
    killer = subprocess.run(
        [sys.executable, "-c", KILLER, str(tmp_path / "recipe.json"), "30", str(took / 16)],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert killer.returncode == 0, killer.stderr
    seen = json.loads(killer.stdout)
    print(took, seen)
    assert seen["torn"] > 0, "no kill fell into the writing of a checkpoint"
    assert seen["steps"] == sorted(seen["steps"])
    assert len(set(seen["steps"])) > 3, "the kills did not fall into different parts of the run"
    run = open_run(cut.to)
    assert run.head()["status"] == "done"
    assert same(run.last, whole.last)
    assert same(run.best, whole.best)
    assert timeless(run) == timeless(whole)
    assert not list(run.last.parent.glob(".*.tmp"))


class TestDiskFull:
    """What the operating system and safetensors' writer say of a full disk, at each of the three files of a run."""

    def test_at_a_checkpoint(self, recipe: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        saves, save_file = 0, checkpoint.save_file

        def full(tensors: object, path: Path, **kwargs: object) -> None:
            nonlocal saves
            saves += 1
            if saves == 6:
                path.write_bytes(b"half of it")
                # The words of safetensors 0.8 on a full tmpfs: test_on_a_real_disk.
                raise SafetensorError(
                    "Error while serializing: I/O error: No space left on device (os error 28)"
                )
            save_file(tensors, path, **kwargs)  # type: ignore[arg-type]

        monkeypatch.setattr(checkpoint, "save_file", full)
        self.stops_with_a_message_and_goes_on(recipe, monkeypatch)

    def test_at_the_log(self, recipe: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        lines, dumps = 0, json.dumps

        def full(line: object, **kwargs: Any) -> str:
            nonlocal lines
            lines += not kwargs  # run.json and the vocabulary are written with some
            if lines == 9:
                raise OSError(28, "No space left on device")
            return dumps(line, **kwargs)

        monkeypatch.setattr("caplore.training.run.json.dumps", full)
        self.stops_with_a_message_and_goes_on(recipe, monkeypatch)

    def test_at_run_json_when_all_is_done(self, recipe: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        write_text = Path.write_text

        def full(self: Path, text: str, **kwargs: Any) -> int:
            if self.name.startswith(".run.json") and '"done"' in text:
                raise OSError(28, "No space left on device")
            return write_text(self, text, **kwargs)

        monkeypatch.setattr(Path, "write_text", full)
        self.stops_with_a_message_and_goes_on(recipe, monkeypatch)

    def stops_with_a_message_and_goes_on(self, recipe: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context():
            with pytest.raises(InputError, match=r"the disk is full: .* was not written"):
                loop.train(recipe(), "tiny", quiet=True)
            monkeypatch.undo()
        run = open_run(recipe().to)
        assert run.head()["status"] == "started"
        assert checkpoint.load(run.last).state["step"] > 0
        assert loop.resume(run.path, quiet=True).head()["status"] == "done"
        whole = loop.train(recipe(to=run.path.with_name("whole")), "tiny", quiet=True)
        assert same(run.last, whole.last)
        assert timeless(run) == timeless(whole)

    def test_on_a_real_disk(self, recipe: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """A file system of 256 KB, which a ballast fills up while the run goes on."""
        disk = tmp_path / "disk"
        disk.mkdir()
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], capture_output=True
        )
        if mounted.returncode != 0:
            pytest.skip("needs the right to mount a small file system")
        ballast = disk / "ballast"

        def fill() -> None:
            with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as out:
                while out.write(b"x" * 512):
                    pass

        try:
            argv = command(recipe(to=disk / "run"))
            with at_step(5, fill):
                assert main(argv) == 2
            said = capsys.readouterr().err
            assert said.startswith("error: the disk is full: ")
            assert said.endswith(f"then caplore train --resume {disk / 'run'}\n")
            assert len(said.splitlines()) == 2
            ballast.unlink()
            assert main(["train", "--resume", str(disk / "run"), "--quiet"]) == 0
            assert open_run(disk / "run").head()["status"] == "done"
        finally:
            subprocess.run(["umount", str(disk)], check=True)


class TestNotFinite:
    """An epoch of three steps and a log window of a thousand: only the look before saving can see it."""

    @pytest.mark.parametrize("at", [2, 3, 14, 15], ids=lambda at: f"step {at}")
    def test_a_gradient_that_is_not_finite_never_reaches_a_checkpoint(
        self, recipe: Make, tmp_path: Path, at: int
    ) -> None:
        once = recipe(log_every=1000)
        model: list[torch.nn.Module] = []
        begin = loop._beginning

        def noted(*args: Any) -> Any:
            made = begin(*args)
            model.append(made[0])
            return made

        def poison() -> None:
            weight = next(model[0].parameters())
            handle = weight.register_hook(lambda g: (handle.remove(), g * float("inf"))[1])

        with pytest.MonkeyPatch.context() as patched, at_step(at, poison):
            patched.setattr(loop, "_beginning", noted)
            with pytest.raises(
                TrainingStopped, match=r"(loss|gradient) became (nan|inf) .* of phase \w+"
            ) as stopped:
                loop.train(once, "tiny", quiet=True)
        assert not all(p.isfinite().all() for p in model[0].parameters())
        run = open_run(once.to)
        for path in run.last.parent.iterdir():
            assert all(value.isfinite().all() for value in checkpoint.load(path).tensors.values()), path
        assert checkpoint.load(run.last).state["step"] == (at - 1) // 3 * 3
        assert ("--xe.lr" if at < 12 else "--sequence.lr") in str(stopped.value)
        assert str(run.path) in str(stopped.value)
        # Chance bits are not to blame the second time: the run goes on from there and ends as it would have.
        whole = loop.train(replace(once, to=tmp_path / "whole"), "tiny", quiet=True)
        assert same(loop.resume(run.path, quiet=True).last, whole.last)

    def test_a_step_too_long_for_float32_is_named_by_the_weight(self, recipe: Make) -> None:
        far = recipe(xe=Xe(epochs=1, batch=24, lr=1e38, schedule="constant"), log_every=1000)
        with pytest.raises(
            TrainingStopped, match=r"weight \w+(\.\w+)* became inf at step 1 of phase xe \(loss"
        ):
            loop.train(far, "tiny", quiet=True)
        assert all(w.isfinite().all() for w in weights(open_run(far.to).last).values())

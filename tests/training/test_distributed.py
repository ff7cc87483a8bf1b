"""Two processes on one CPU do what one does: weights, logs, decisions, evaluations; and a lost one is replaced.

Dropout is 0 here: its masks are each process's own, and so cannot be the same for another number of them.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file

from caplore.data.dataset import Dataset, write_dataset
from caplore.errors import CaploreError, ConfigError
from caplore.evaluation.captioner import Captioner
from caplore.evaluation.evaluate import Plan, evaluate
from caplore.training import checkpoint, config, distributed, loop
from caplore.training.config import Model, Recipe, Sequence, SllMe, SllSle, Xe
from caplore.training.distributed import ALONE, World
from caplore.training.run import Run, open_run

Make = Callable[..., Recipe]

# Float32 sums in another order, through eighteen steps of Adam: 1.6e-7 was seen, on weights that move by 3e-2.
ANOTHER_ORDER = 2e-6

# What each of the two processes runs: a list of jobs, and what became of each goes to a file.
WORKER = """
import json, os, signal, sys
from pathlib import Path
from caplore.cli.main import main
from caplore.evaluation.captioner import Captioner
from caplore.evaluation.evaluate import Plan, evaluate
from caplore.training import config, distributed, loop

rank, plan, out = int(os.environ["RANK"]), json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
steps = {name: getattr(loop, name) for name in ("xe_step", "sequence_step")}
done = 0

def counted(name, job):
    def step(*args, **kwargs):
        global done
        done += 1
        stats = steps[name](*args, **kwargs)
        if rank == 1 and done == job.get("sigterm"):
            os.kill(os.getpid(), signal.SIGTERM)
        if rank == 1 and done == job.get("nan"):
            stats["reward"] = stats["loss"] * float("nan")
        return stats
    return step

def work(job):
    if "cli" in job:
        return main(job["cli"])
    if "evaluate" in job:
        Captioner.caption.__kwdefaults__["batch"] = job["batch"]
        return str(evaluate(Path(job["evaluate"]), Plan(device="cpu")))
    if job.get("other data") and rank == 1:
        job["recipe"]["data"] = job["other data"]
    return str(loop.train(config.from_json(job["recipe"]), "tiny", quiet=True).path)

seen = []
for job in plan:
    done = 0
    for name in steps:
        setattr(loop, name, counted(name, job))
    try:
        seen.append({"came": work(job)})
    except BaseException as error:
        seen.append({"error": type(error).__name__, "says": str(error), "step": getattr(error, "step", None)})
out.with_suffix(f".{rank}").write_text(json.dumps(seen))
distributed.leave()
os._exit(0)  # torch's own threads abort, once in a hundred, while the interpreter goes down
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def two_processes(plan: dict[str, dict[str, Any]], folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Each job's outcome, in the first and in the second process."""
    (folder / "plan.json").write_text(json.dumps(list(plan.values())))
    command = [sys.executable, "-c", WORKER, str(folder / "plan.json"), str(folder / "seen")]
    world = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    pair = [
        subprocess.Popen(command, env={**os.environ, **world, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in (0, 1)
    ]
    try:
        assert [process.wait(240) for process in pair] == [0, 0]
    finally:
        for process in pair:
            process.kill()
    seen = [json.loads((folder / f"seen.{rank}").read_text()) for rank in (0, 1)]
    return {name: [one, other] for name, one, other in zip(plan, *seen, strict=True)}


def still(**changes: object) -> dict[str, object]:
    return {"model": Model(hidden=32, dropout=0.0), **changes}


VARIANTS: dict[str, dict[str, object]] = {
    "sll_sle": still(),
    "sll_me": still(
        model=Model(name="att2in", hidden=16, dropout=0.0),
        sequence=Sequence(objective=SllMe(), epochs=2, batch=8, reduction="captions", xe_weight=0.2),
        selection_beam=2,
    ),
}


class Pair:
    """What two processes did with all the jobs of this file, and where."""

    def __init__(self, tiny: Dataset, folder: Path) -> None:
        self.tiny, self.folder = tiny, folder
        alone = loop.train(self.recipe("alone", **still()), "tiny", quiet=True)
        shards = shutil.copytree(alone.path, folder / "shards")
        first, *rest = tiny.inputs
        changed = [replace(first, captions=("a red cat", "something else")), *rest]
        other = write_dataset(folder / "other", name="tiny", media="none", inputs=changed)
        shutil.copytree(tiny.path / "features", other.path / "features")
        self.alone = alone
        plan: dict[str, dict[str, Any]] = {
            name: {"recipe": config.to_json(self.recipe(name, **changes))}
            for name, changes in VARIANTS.items()
        }
        plan["streamed"] = {"recipe": config.to_json(self.recipe("streamed", **still(resident_gb=0)))}
        plan["sigterm"] = {"recipe": config.to_json(self.recipe("sigterm", **still())), "sigterm": 5}
        plan["nan"] = {"recipe": config.to_json(self.recipe("nan", **still())), "nan": 15}
        odd = self.recipe("odd", **still(xe=Xe(batch=9)))
        plan["odd"] = {"recipe": config.to_json(odd)}
        differ = config.to_json(self.recipe("differ", **still()))
        plan["differ"] = {"recipe": differ, "other data": str(other.path)}
        plan["evaluate"] = {"evaluate": str(shards), "batch": 5}
        plan["uninterrupted"] = {"cli": self.command("uninterrupted")}
        self.seen = two_processes(plan, folder)

    def recipe(self, name: str, **changes: object) -> Recipe:
        fields: dict[str, object] = {
            "data": self.tiny.path,
            "to": self.folder / name,
            "xe": Xe(epochs=4, lr=5e-3, batch=8, captions=3),
            "sequence": Sequence(objective=SllSle(), epochs=2, lr=1e-3, batch=8),
            "max_words": 8,
            "log_every": 2,
            "device": "cpu",
        }
        return Recipe(**{**fields, **changes})  # type: ignore[arg-type]

    def command(self, name: str) -> list[str]:
        knobs = "--model.hidden 32 --xe.epochs 4 --xe.batch 8 --sequence.epochs 24 --sequence.batch 8 --log-every 2"
        where = ["--data", str(self.tiny.path), "--to", str(self.folder / name), "--device", "cpu"]
        return ["train", "scenes-sle", *where, *knobs.split(), "--max-words", "8", "--quiet"]


@pytest.fixture(scope="module")
def pair(tiny: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(tiny, tmp_path_factory.mktemp("pair"))


def weights(run: Run) -> dict[str, torch.Tensor]:
    return checkpoint.load(run.last).group("model")


def timeless(run: Run) -> list[dict[str, Any]]:
    return [{k: v for k, v in line.items() if k != "seconds"} for line in run.lines()]


@pytest.mark.parametrize("variant", VARIANTS)
def test_two_processes_train_the_weights_that_one_does(pair: Pair, variant: str) -> None:
    one = loop.train(pair.recipe(f"{variant}-one", **VARIANTS[variant]), "tiny", quiet=True)
    two = open_run(pair.folder / variant)
    assert two.head()["processes"] == 2
    begun = loop.train(
        pair.recipe(f"{variant}-begun", **VARIANTS[variant] | {"xe": Xe(epochs=0), "sequence": None}),
        "tiny",
        quiet=True,
    )
    moved = max(float((w - weights(begun)[k]).abs().max()) for k, w in weights(one).items())
    assert moved > 1000 * ANOTHER_ORDER
    for name, weight in weights(one).items():
        torch.testing.assert_close(weights(two)[name], weight, rtol=0, atol=ANOTHER_ORDER, msg=name)


def test_the_log_is_that_of_the_whole_batch(pair: Pair) -> None:
    one, two = timeless(pair.alone), timeless(open_run(pair.folder / "sll_sle"))
    assert len(one) == len(two) > 10
    for a, b in zip(one, two, strict=True):
        assert a == pytest.approx(b, abs=5e-6)


def test_two_processes_that_read_their_rows_beside_the_steps_do_the_same(pair: Pair) -> None:
    resident, streamed = (open_run(pair.folder / name) for name in ("sll_sle", "streamed"))
    assert (resident.head()["resident"], streamed.head()["resident"]) == (True, False)
    assert all(torch.equal(weights(streamed)[name], weight) for name, weight in weights(resident).items())
    assert timeless(streamed) == timeless(resident)


def test_a_signal_to_one_process_stops_both_at_the_same_step_and_one_alone_can_go_on(pair: Pair) -> None:
    first, second = pair.seen["sigterm"]
    assert first == second
    assert first["error"] == "Interrupted"
    assert first["step"] in (5, 6)  # the other process may hear of it a step later
    done = loop.resume(pair.folder / "sigterm", quiet=True)
    assert done.head()["status"] == "done"
    for name, weight in weights(pair.alone).items():
        torch.testing.assert_close(weights(done)[name], weight, rtol=0, atol=ANOTHER_ORDER, msg=name)


def test_a_nan_in_one_process_stops_both_and_says_where(pair: Pair) -> None:
    first, second = pair.seen["nan"]
    assert first["error"] == second["error"] == "TrainingStopped"
    assert first["says"] == second["says"]
    assert "reward became nan at step 15 of phase sequence" in first["says"]
    assert "--sequence.lr" in first["says"]
    run = open_run(pair.folder / "nan")
    assert run.head()["status"] == "stopped"
    assert [line["event"] for line in run.lines() if "event" in line].count("stopped") == 1
    assert all(w.isfinite().all() for w in weights(run).values())


def test_a_batch_that_cannot_be_shared_is_refused_before_anything_is_written(pair: Pair) -> None:
    assert pair.seen["odd"][0]["error"] == "ConfigError"
    assert "xe.batch is 9, but 2 processes" in pair.seen["odd"][0]["says"]
    assert not (pair.folder / "odd").exists()


def test_processes_that_read_different_data_are_told_so(pair: Pair) -> None:
    for seen in pair.seen["differ"]:
        assert seen["error"] == "InputError"
        assert "do not read the same data set" in seen["says"]
    assert not (pair.folder / "differ").exists()


def test_shards_of_an_evaluation_make_the_same_files(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Captioner.caption, "__kwdefaults__", {"seed": 0, "batch": 5, "world": ALONE})
    here = evaluate(pair.alone.path, Plan(device="cpu")).parent
    there = pair.folder / "shards" / "results"
    names = sorted(path.name for path in here.iterdir())
    assert names == sorted(path.name for path in there.iterdir())
    assert "test.json" in names
    for name in names:
        if name.endswith(".safetensors"):  # whose header has no order
            ours, alone = load_file(there / name), load_file(here / name)
            assert ours.keys() == alone.keys()
            assert all(torch.equal(ours[k], alone[k]) for k in alone)
            continue
        ours = (there / name).read_bytes().replace(b"shards", b"alone")
        assert ours == (here / name).read_bytes(), name


def children_of(pid: int) -> list[int]:
    return [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="finds the workers in Linux's /proc")
def test_torchrun_goes_on_from_the_last_checkpoint_after_a_worker_was_killed(pair: Pair) -> None:
    run, launcher = (
        Run(pair.folder / "killed"),
        ["--standalone", "--nproc-per-node", "2", "--max-restarts", "3"],
    )
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        *launcher,
        "-m",
        "caplore",
        *pair.command("killed"),
    ]
    agent = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 120
        while not (run.last.is_file() and run.log_length() > 12) and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(children_of(agent.pid)[-1], signal.SIGKILL)
        kept = checkpoint.load(run.last).state["log_lines"]
        before = (run.path / "log.jsonl").read_bytes().split(b"\n")[:kept]
        assert run.head()["status"] == "started"
        said = agent.communicate(timeout=600)[1]
    finally:
        agent.kill()
    assert agent.returncode == 0, said
    assert run.head()["status"] == "done"
    # With their times: a run that began anew would have other ones.
    assert (run.path / "log.jsonl").read_bytes().split(b"\n")[:kept] == before
    whole = Run(pair.folder / "uninterrupted")
    assert timeless(run) == timeless(whole)
    assert all(torch.equal(w, weights(whole)[k]) for k, w in weights(run).items())


def test_the_store_of_a_launcher_that_starts_again_is_used_anew() -> None:
    """Every start, in whatever order its processes come, agrees on a part of the store without older keys."""
    store, named = dist.HashStore(), set()
    for start in range(6):
        with ThreadPoolExecutor(3) as pool:
            parts = []
            for rank in ((0, 1, 2), (2, 1, 0), (1, 2, 0))[start % 3]:
                parts.append(pool.submit(distributed._unused, store, rank, 3))
                time.sleep(0.05)
            first, *others = [part.result(timeout=20) for part in parts]
        assert not first.check(["address"])
        first.set("address", str(start))
        assert all(other.get("address") == str(start).encode() for other in others)
        named.add(store.get("caplore/roll"))
    assert len(named) == 6


class TestTheSameCommandAgain:
    """As a launcher would start it: what is there is gone on with, if it is this very run."""

    @pytest.fixture
    def launched(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", "test")

    def test_a_run_that_is_done_stays_done(self, pair: Pair, launched: None) -> None:
        before = (pair.alone.path / "log.jsonl").read_bytes()
        again = loop.train(pair.recipe("alone", **still()), "tiny", quiet=True)
        assert again == pair.alone
        assert (again.path / "log.jsonl").read_bytes() == before

    def test_a_run_that_was_stopped_on_purpose_stays_stopped(self, pair: Pair, launched: None) -> None:
        with pytest.raises(CaploreError, match="reward became nan at step 15"):
            loop.train(pair.recipe("nan", **still()), "tiny", quiet=True)

    def test_another_run_is_not_written_over(self, pair: Pair, launched: None) -> None:
        with pytest.raises(CaploreError, match="holds a run already"):
            loop.train(pair.recipe("alone", **still(seed=1)), "tiny", quiet=True)

    def test_without_a_launcher_nothing_is_gone_on_with(self, pair: Pair) -> None:
        with pytest.raises(CaploreError, match="holds a run already"):
            loop.train(pair.recipe("alone", **still()), "tiny", quiet=True)


class TestDevices:
    def test_a_name_torch_does_not_know_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="'gpu' is not one torch knows"):
            distributed.pick_device("gpu")

    def test_a_gpu_is_not_made_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
        with pytest.raises(ConfigError, match="torch sees no GPU"):
            distributed.pick_device("cuda")

    @pytest.mark.parametrize(("seen", "local", "chosen"), [(4, "3", "cuda:3"), (1, "3", "cuda:0")])
    def test_every_process_takes_the_gpu_of_its_number_or_the_only_one_it_is_shown(
        self, monkeypatch: pytest.MonkeyPatch, seen: int, local: str, chosen: str
    ) -> None:
        monkeypatch.setattr(torch.cuda, "device_count", lambda: seen)
        monkeypatch.setenv("LOCAL_RANK", local)
        assert str(distributed.pick_device("cuda")) == chosen

    def test_more_processes_than_gpus_are_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
        monkeypatch.setenv("LOCAL_RANK", "2")
        with pytest.raises(CaploreError, match="torch sees 2"):
            distributed.pick_device("cuda")


@pytest.mark.gpu
def test_the_sum_of_gradients_is_captured_in_a_cuda_graph() -> None:
    """NCCL with a group of one, which a single GPU allows: a sum over it changes nothing, but is launched."""
    device = torch.device("cuda", 0)
    dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{free_port()}", rank=0, world_size=1)
    try:
        world = World(rank=0, size=2, device=device)  # two, so that nothing is left out
        weight = torch.nn.Parameter(torch.ones(1000, 10, device=device))
        weight.grad = torch.zeros_like(weight)
        world.sum_gradients([weight])  # the first message makes the connections
        graph, total = torch.cuda.CUDAGraph(), torch.ones((), device=device)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            weight.grad.copy_(3 * weight)
            world.sum_gradients([weight])
            world.sum_(total)
        with torch.no_grad():
            weight.fill_(2.0)
        graph.replay()
        torch.cuda.synchronize()
        assert bool((weight.grad == 6).all())
        assert float(total) == 1
    finally:
        distributed.leave()

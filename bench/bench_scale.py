"""What many processes cost: a step and its sum of gradients by one process and by two, at the same global batch.

On a machine with several GPUs the processes take one each, and talk NCCL; else they share the CPU's cores over gloo.
`torchrun --nproc-per-node N -m bench.bench_scale` prints the figures of any number of them, and of many machines;
`python -m bench.bench_scale expected 4.0` computes what to expect of others from the milliseconds of a step.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import torch

from bench import Row, fastest
from caplore import models
from caplore.models import Model
from caplore.models.protocol import Features
from caplore.training import distributed
from caplore.training.config import Sequence
from caplore.training.distributed import World
from caplore.training.examples import Examples
from caplore.training.reward import CiderReward
from caplore.training.step import Update, sequence_step, xe_step

# GB/s that one process can send, as the makers say, and the microseconds of a message to the next one, as usual.
LINKS = {
    "NVLink 4 (one machine)": (450.0, 5.0),
    "InfiniBand NDR, 400 Gb/s": (50.0, 10.0),
    "Ethernet, 25 Gb/s": (3.1, 50.0),
}
VOCAB, HIDDEN, WORDS, DIM = 9_487, 512, 16, 2_048


def rows() -> Iterator[Row]:
    gpus = torch.cuda.device_count()
    many = gpus if gpus > 1 else 2
    one, all_ = measured(1), measured(many)
    where = f"{many} GPUs (NCCL)" if gpus > 1 else f"{many} processes (gloo)"
    for what, key in (("XE step", "xe"), ("SLL-SLE step", "sle")):
        alike = gpus == 0 or key == "xe"  # on GPUs each process draws its own samples
        off = abs(one[f"{key} loss"] - all_[f"{key} loss"]) if alike else None
        yield Row(f"{what}, {one['images']} images, {where}", all_[key], one[key], difference=off)
    size = f"{one['parameters'] / 1e6:.1f} M gradients"
    yield Row(f"sum of {size}, {where}", all_["sum"])


def measured(processes: int) -> dict[str, Any]:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    worker = ["-m", "bench.bench_scale"]
    command = [sys.executable, *(launcher if processes > 1 else []), *worker]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def worker() -> dict[str, Any]:
    """This process's part: the same made-up inputs in every process, its share of each batch."""
    device = distributed.pick_device("auto")
    world = distributed.join(device)
    images = 256 if device.type == "cuda" else 8
    rng = torch.Generator().manual_seed(0)
    references = torch.randint(3, VOCAB, (images, 5, WORDS), generator=rng).to(device)
    pooled = torch.rand(images, DIM, generator=rng).to(device)
    there = torch.ones(images, 5, dtype=torch.bool, device=device)
    examples = Examples(tuple(map(str, range(images))), Features(pooled, None), references, there)
    reward = CiderReward(examples, vocab=VOCAB)
    mine = world.share(torch.arange(images)).to(device)
    said = references[mine]
    sequence = Sequence()

    def uniforms(rows: int) -> torch.Tensor:
        return world.share(torch.rand(rows * world.size, generator=rng))

    chance = uniforms if device.type == "cpu" else None  # as the loop does

    def xe() -> float:
        features = examples.features_of(mine)
        return mean(xe_step(model, features, said, label_smoothing=0.0, update=update)["loss"])

    def sle() -> float:
        features = examples.features_of(mine)
        stats = sequence_step(
            model, features, mine, reward, sequence, max_words=WORDS, update=update, uniforms=chance
        )
        return mean(stats["loss"])

    def mean(value: torch.Tensor) -> float:  # waits for the device, as a log window does
        return float(world.sum_(value.clone())) / world.size

    def sum_gradients() -> None:
        world.sum_gradients(model.parameters())
        world.barrier()

    model, update = fresh(world)
    losses = {"xe loss": xe()}
    model, update = fresh(world)
    rng.manual_seed(0)
    losses["sle loss"] = sle()
    return {
        "images": images,
        "processes": world.size,
        "parameters": sum(p.numel() for p in model.parameters()),
        **losses,
        "xe": fastest(xe, 3),
        "sle": fastest(sle, 3),
        "sum": fastest(sum_gradients, 5),
    }


def fresh(world: World) -> tuple[Model, Update]:
    torch.manual_seed(0)
    model = models.build(
        "fc", vocab=VOCAB, pooled_dim=DIM, regions=None, hidden=HIDDEN, embed=HIDDEN, dropout=0.0
    )
    model.to(world.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4, fused=True)
    return model, Update(model, optimizer, 5.0, world)


def sum_ms(parameters: int, processes: int, rate: float, latency: float) -> float:
    """A ring: everyone sends 2 (N-1)/N of the gradient's bytes, in 2 (N-1) messages."""
    turns = 2 * (processes - 1)
    return 4 * parameters * turns / processes / (1e6 * rate) + 1e-3 * latency * turns


def expected(step_ms: float, parameters: int) -> None:
    """The share of perfect scaling that is left, when each process keeps its batch and nothing overlaps."""
    print(
        f"{4e-6 * parameters:.1f} MB of gradients, a step of {step_ms} ms: sum in ms, share of perfect scaling"
    )
    for name, (rate, latency) in LINKS.items():
        for processes in (2, 8, 16, 64):
            if processes <= 8 or "one machine" not in name:
                cost = sum_ms(parameters, processes, rate, latency)
                print(f"{name:26}{processes:4}{cost:8.2f}{step_ms / (step_ms + cost):8.0%}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["expected"]:
        expected(float(sys.argv[2]), sum(p.numel() for p in fresh(distributed.ALONE)[0].parameters()))
        sys.exit()
    found = worker()
    if distributed.speaks():
        print(json.dumps(found))
    distributed.leave()
    sys.stdout.flush()

"""Training and decoding on one GPU, beside the standard toolkit in the same run, and how near the machine's limits.

Sizes: vocabulary 9,487, width 512, 16 words, 5 samples and 5 references per image, document frequencies of 20,000
images, 36 regions of 2,048 numbers for the models that attend. A step is timed as the loop calls it: the next batch is
sent while the last one is worked on. `floor` is the time of its operations at the rate of a large product of bf16, or
of the bytes it has to move at the rate of a large copy, whichever is longer; both rates are measured first.

    CAPLORE_TOOLKIT=... python -m bench gpu                 the toolkit beside it: see bench/toolkit.py
    python -m bench.bench_gpu floors                        what an H200 cannot do faster, from its maker's rates
    TRITON_INTERPRET=1 python -m bench.bench_gpu kernels    how many kernels a step launches; needs Triton, but no GPU
"""

import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from bench import Row, attempted, toolkit
from caplore import models
from caplore.decoding.beam import beam
from caplore.decoding.captions import Captions
from caplore.models import Model
from caplore.models.protocol import Features
from caplore.objectives.policy import gather_logprob
from caplore.training import step as plain
from caplore.training.config import Sequence, SllSle, Xe
from caplore.training.distributed import World
from caplore.training.examples import Examples, as_said, choose_references
from caplore.training.reward import CiderReward

VOCAB, WIDTH, TIME, SAMPLES, REFS, INPUTS = 9_487, 512, 16, 5, 5, 20_000
POOLED, REGIONS = 2_048, (36, 2_048)
ATTENDING = ("transformer", "updown", "att2in")


def obstacle() -> str | None:
    """Why these rows cannot be made here."""
    return None if torch.cuda.is_available() else "there is no GPU"


@dataclass(frozen=True)
class Size:
    """How large everything is; tests make it small."""

    vocab: int = VOCAB
    width: int = WIDTH
    inputs: int = INPUTS
    regions: tuple[int, int] = REGIONS
    pooled: int = POOLED
    device: str = "cuda"
    batches: tuple[int, ...] = (10, 50, 256)
    usual: int = 50
    decoded: tuple[int, ...] = (50, 500)
    repeats: int = 60


def rows(size: Size = Size()) -> Iterator[Row]:
    """Everything for the paper's model, then the models that attend."""
    limits = Limits.measured(size)
    yield Row("products of bf16", limits.rate / 1e12, unit="TFLOP/s", note="8,192 x 8,192 x 8,192")
    yield Row("copies", limits.bandwidth / 1e12, unit="TB/s", note="read and written")
    for name in ("fc", *ATTENDING):
        yield from attempted(name, model_rows(name, limits, size))


def model_rows(name: str, limits: "Limits", size: Size) -> Iterator[Row]:
    """Steps and decoding of one model; each row that fails says why, and the next one is tried."""
    data, theirs = made(name, size), their(name, size)
    for images in size.batches if name == "fc" else (size.usual,):
        yield from attempted(
            f"{name}: SLL-SLE step, {images} images",
            sequence_rows(name, data, images, theirs, limits, size),
        )
    yield from attempted(f"{name}: XE step", xe_rows(name, data, theirs, limits, size))
    yield from attempted(f"{name}: decoding", decoding_rows(name, data, theirs, size))


# What is worked on.


@dataclass(frozen=True)
class Made:
    examples: Examples
    reward: CiderReward
    model: Model


@cache
def references_of(size: Size) -> Tensor:
    """Captions whose words are as frequent as in language: the k-th most frequent one 1/k as often as the first."""
    rng = torch.Generator().manual_seed(0)
    mass = 1 / torch.arange(1, size.vocab - 2)
    drawn = torch.multinomial(mass, size.inputs * REFS * TIME, replacement=True, generator=rng) + 3
    lengths = torch.randint(TIME // 2, TIME, (size.inputs, REFS, 1), generator=rng)
    return (drawn.view(size.inputs, REFS, TIME) * (torch.arange(TIME) < lengths)).to(size.device)


def features_of(name: str, size: Size) -> Features:
    rng = torch.Generator(size.device).manual_seed(0)
    inputs = size.inputs if name == "fc" else min(size.inputs, 2_000)
    draw = partial(torch.rand, generator=rng, device=size.device, dtype=torch.float16)
    return Features(draw(inputs, size.pooled), None if name == "fc" else draw(inputs, *size.regions))


def made(name: str, size: Size) -> Made:
    features, references = features_of(name, size), references_of(size)
    there = torch.ones(references.shape[:2], dtype=torch.bool, device=references.device)
    whole = Examples(tuple(map(str, range(size.inputs))), Features(None, None), references, there)
    reward = CiderReward(whole, vocab=size.vocab)
    examples = Examples(whole.ids[: features.rows], features, references, there)
    torch.manual_seed(0)
    regions = None if name == "fc" else size.regions
    model = models.build(
        name, vocab=size.vocab, pooled_dim=size.pooled, regions=regions, hidden=size.width, dropout=0.0
    ).to(size.device)
    with torch.no_grad():  # far enough from uniform for captions to differ and to end
        model.out.weight.mul_(4)  # type: ignore[operator, union-attr]
        model.out.bias[0] += 1  # type: ignore[operator, union-attr, index]
    return Made(examples, reward, model)


@cache
def frequencies(size: Size) -> dict[Any, float]:
    return toolkit.document_frequencies(references_of(size))


def their(name: str, size: Size) -> toolkit.Toolkit | None:
    if toolkit.folder() is None:
        return None
    return toolkit.Toolkit(
        name,
        vocab=size.vocab,
        features=features_of(name, size),
        references=references_of(size),
        frequencies=frequencies(size),
    )


# What the machine can do.


@dataclass(frozen=True)
class Limits:
    """Operations and bytes per second, as two large simple pieces of work reach them."""

    rate: float
    bandwidth: float

    @classmethod
    def measured(cls, size: Size) -> "Limits":
        many = 8_192 if size.device == "cuda" else 256
        a = torch.randn(many, many, device=size.device, dtype=torch.bfloat16)
        big = torch.rand(many * many * 8, device=size.device)
        out = torch.empty_like(big)
        return cls(
            2 * many**3 / seconds(lambda: a @ a, size), 2 * big.nbytes / seconds(lambda: out.copy_(big), size)
        )

    def floor(self, operations: float, moved: float) -> float:
        return max(operations / self.rate, moved / self.bandwidth)


def work_of(model: Model, captions: int, images: int, *, sampled: bool) -> tuple[float, float]:
    """(operations, bytes) that a step cannot do without, from the sizes of the weights.

    Every weight meets every word once in a run over the captions, twice more on the way back; samples cost another
    run. What depends on the image alone is counted per image. Adam reads and writes weights and two moments, and
    reads the gradient and writes the copy to compute with.
    """
    weights = {name: p for name, p in model.named_parameters()}
    per_image = ("image", "regions", "encoder.", "memory", "pooled", "entry", "project", "mean", "key")
    words = sum(
        p.numel() for n, p in weights.items() if p.ndim == 2 and not n.startswith((*per_image, "embedding"))
    )
    others = sum(p.numel() for n, p in weights.items() if p.ndim == 2 and n.startswith(per_image))
    runs = 4 if sampled else 3
    regions = 36 if any(n.startswith(("regions", "encoder.")) for n in weights) else 1
    operations = 2.0 * runs * (captions * TIME * words + images * regions * others)
    return operations, 30.0 * sum(p.numel() for p in weights.values())


MAKERS = Limits(rate=989e12, bandwidth=4.8e12)  # of an H200: dense bf16, HBM3e


def floors(size: Size = Size()) -> Iterator[str]:
    """From the maker's rates, which nothing reaches: needs no GPU."""
    for name in ("fc", *ATTENDING):
        with torch.device("meta"):
            regions = None if name == "fc" else size.regions
            model = models.build(
                name, vocab=size.vocab, pooled_dim=size.pooled, regions=regions, hidden=size.width
            )
        kinds = {f"SLL-SLE, {images} images": (images, True) for images in size.batches}
        kinds[f"XE, {size.usual} x {REFS} captions"] = (size.usual, False)
        for what, (images, sampled) in kinds.items():
            operations, moved = work_of(model, images * SAMPLES, images, sampled=sampled)
            times = operations / MAKERS.rate, moved / MAKERS.bandwidth
            yield (
                f"{name}: {what}: {operations / 1e12:.3f} T operations, {times[0] * 1e3:.2f} ms; "
                f"{moved / 1e9:.2f} GB, {times[1] * 1e3:.2f} ms"
            )


# How many kernels, from a step in Triton's interpreter: the number does not depend on sizes other than TIME.


class Launches(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts operations of torch that are no views, but not those the interpreter itself needs for a kernel."""

    VIEWS = (
        "view", "reshape", "expand", "slice", "select.", "transpose", "t.", "unbind", "split", "permute", "unsqueeze",
        "squeeze", "alias", "detach", "as_strided", "empty", "new_empty", "_unsafe_view",
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.ours: Counter[str] = Counter()
        self.torchs: Counter[str] = Counter()
        self._inside = False

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = op.__name__
        if not self._inside and not name.startswith(self.VIEWS):
            self.torchs[name.split(".")[0]] += 1
        return op(*args, **(kwargs or {}))

    def __enter__(self) -> "Launches":
        from triton.runtime.interpreter import GridExecutor

        real = GridExecutor.__call__

        def launch(executor: Any, *args: Any, **kwargs: Any) -> None:
            self.ours[executor.fn.__name__] += 1
            self._inside = True
            real(executor, *args, **kwargs)
            self._inside = False

        self._patch = mock.patch.object(GridExecutor, "__call__", launch)
        self._patch.start()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._patch.stop()


def kernels() -> Iterator[str]:
    small = Size(200, 32, 40, (5, 16), 16, "cpu", (4,), 4, (4,), 1)
    phases: dict[str, Xe | Sequence] = {"SLL-SLE": Sequence(objective=SllSle(samples=SAMPLES)), "XE": Xe()}
    data = made("fc", small)
    for what, phase in phases.items():
        step = fast_step(data, phase, small.usual, small)
        step(torch.arange(small.usual), 0.0, seed=1, noise=torch.rand(small.usual, REFS))
        with Launches() as seen:
            step._body()
        counts = seen.ours.total(), seen.torchs.total()
        yield f"fc: {what} step: {counts[0]} kernels of ours {dict(seen.ours)}"
        yield f"fc: {what} step: {counts[1]} of torch {dict(seen.torchs)}"


# Steps.


def sequence_rows(
    name: str, data: Made, images: int, theirs: toolkit.Toolkit | None, limits: Limits, size: Size
) -> Iterator[Row]:
    from caplore.training.fast import steps

    phase = Sequence(objective=SllSle(samples=SAMPLES))
    rolled: list[Any] = []
    real = steps.roll

    def spy(*args: Any, **kwargs: Any) -> Any:
        rolled[:] = [real(*args, **kwargs)]
        return rolled[0]

    with mock.patch.object(steps, "roll", spy):
        step = fast_step(data, phase, images, size)
        index = batches(data, images, size)
        step(index[0], 0.0, seed=1)
        apart = gradient_apart(step, data, phase, index[0], size, rolled[0])
    ours = per_step(lambda i: step(i, 0.0, seed=int(i[0])), index, size)
    reference, note = against(theirs, lambda t: t.sequence_step, images, size)
    operations, moved = work_of(data.model, images * SAMPLES, images, sampled=True)
    floor = limits.floor(operations, moved)
    bound = f"floor {floor * 1e3:.2f} ms ({100 * floor / ours:.0f} % of the roofline)"
    yield Row(
        f"{name}: SLL-SLE step, {images} images", ours, reference, difference=apart, note=f"{bound} {note}"
    )
    yield from part_rows(step, rolled[0], index[0], images, size)


def part_rows(step: Any, rollout: Any, index: Tensor, images: int, size: Size) -> Iterator[Row]:
    """Drawing, scoring and the optimiser each as a graph of its own; the rest is loss, gradients and gaps."""
    from caplore.training.fast.rollout import roll
    from caplore.training.fast.scores import bleu_distance, cider_d

    device = step.feed.index.device
    features = Features(*(None if f is None else f[index.to(f.device)] for f in step.train.features))
    seed = torch.tensor(3, device=device)
    captions = rollout.captions.clone()
    on = index.to(device)
    half = step.half

    def drawing() -> None:
        roll(half, features, samples=SAMPLES, max_words=TIME, seed=seed)

    def scoring() -> None:
        cider_d(captions, on, step.tables)
        bleu_distance(captions[:, :-1])

    parts: dict[str, Callable[[], None]] = {
        "drawing": drawing, "reward and distance": scoring, "Adam": lambda: step.adam(step._slopes)
    }  # fmt: skip
    for what, body in parts.items():
        yield Row(f"  of it {what}", graph_seconds(body, size), note=f"{images} images")


def xe_rows(
    name: str, data: Made, theirs: toolkit.Toolkit | None, limits: Limits, size: Size
) -> Iterator[Row]:
    images = size.usual
    step = fast_step(data, Xe(), images, size)
    index = batches(data, images, size)
    noise = torch.rand(images, REFS)
    step(index[0], 0.0, seed=1, noise=noise)
    apart = gradient_apart(step, data, Xe(), index[0], size, noise=noise)
    ours = per_step(lambda i: step(i, 0.0, seed=1, noise=noise), index, size)
    reference, note = against(theirs, lambda t: t.xe_step, images, size)
    floor = limits.floor(*work_of(data.model, images * REFS, images, sampled=False))
    bound = f"floor {floor * 1e3:.2f} ms ({100 * floor / ours:.0f} % of the roofline)"
    yield Row(
        f"{name}: XE step, {images} x {REFS} captions",
        ours,
        reference,
        difference=apart,
        note=f"{bound} {note}",
    )


def fast_step(data: Made, phase: Xe | Sequence, images: int, size: Size) -> Any:
    from caplore.training.fast import steps

    return steps.FastStep(
        data.model, torch.optim.Adam(data.model.parameters(), lr=0.0), phase, data.examples, data.reward,
        images=images, vocab=size.vocab, max_words=TIME, clip=5.0, world=World(),
        dtype=torch.bfloat16 if size.device == "cuda" else torch.float32,
    )  # fmt: skip


def batches(data: Made, images: int, size: Size) -> list[Tensor]:
    rng = torch.Generator().manual_seed(1)
    inputs = data.examples.features.rows
    return [torch.randperm(inputs, generator=rng)[:images] for _ in range(size.repeats)]


def gradient_apart(
    step: Any,
    data: Made,
    phase: Xe | Sequence,
    index: Tensor,
    size: Size,
    rollout: Any = None,
    noise: Tensor | None = None,
) -> float:
    """|ours - plain| / |plain| of the whole gradient: the plain step in float32, given the same captions."""
    model, on = data.model, index.to(size.device)
    update = plain.Update(model, torch.optim.SGD(model.parameters(), lr=0.0), 0.0, World())
    features = data.examples.features_of(on)
    if isinstance(phase, Xe):
        assert noise is not None
        kept = data.examples.references[on], data.examples.there[on]
        said = as_said(choose_references(*kept, phase.captions, noise=noise.to(size.device)), size.vocab)
        plain.xe_step(model, features, said, label_smoothing=0.0, update=update)
    else:
        logprob = rollout.said.token_logprob
        drawn = Captions(rollout.captions[:, :-1], logprob[: rollout.drawn].view(len(on), SAMPLES, TIME))
        greedy = Captions(rollout.captions[:, -1:], logprob[rollout.drawn :, None])
        with mock.patch.object(plain, "sample", return_value=(drawn, greedy)):
            plain.sequence_step(model, features, on, data.reward, phase, max_words=TIME, update=update)
    ours = torch.cat([s.detach().flatten().double() for s in step._slopes])
    wanted = torch.cat([p.grad.flatten().double() for p in model.parameters() if p.grad is not None])
    return float(((ours - wanted).norm() / wanted.norm()).detach())


# Decoding.


def decoding_rows(name: str, data: Made, theirs: toolkit.Toolkit | None, size: Size) -> Iterator[Row]:
    from caplore.training.fast.decoding import Decoder
    from caplore.training.fast.half import HalfCopy
    from caplore.training.fast.rollout import roll

    half = HalfCopy(data.model, torch.bfloat16 if size.device == "cuda" else torch.float32)
    decoder = Decoder(half)
    for images in size.decoded:
        index = torch.arange(images, device=size.device)
        features = data.examples.features_of(index)
        found = decoder.beam(features, width=5, max_words=TIME)
        data.model.eval()
        wanted = beam(data.model, features, width=5, max_words=TIME)
        same = (found.tokens == wanted.tokens).all(-1)
        apart = (
            (found.logprob - wanted.logprob)[same].abs().max()
            if bool(same.any())
            else torch.tensor(float("nan"))
        )
        ours = images / seconds(lambda f=features: decoder.beam(f, width=5, max_words=TIME), size)  # type: ignore[misc]
        reference, note = against(theirs, lambda t: partial(t.beam, width=5), images, size, some=3)
        yield Row(
            f"{name}: beam 5, {images} images", ours, None if reference is None else images / reference,
            unit="images/s", difference=float(apart),
            note=f"{100 * float(same.float().mean()):.0f} % the captions of float32 {note}",
        )  # fmt: skip
    images = size.decoded[-1]
    features = data.examples.features_of(torch.arange(images, device=size.device))
    seed = torch.tensor(3, device=size.device)
    drawn: list[Any] = []

    def drawing() -> None:
        drawn[:] = [roll(half, features, samples=SAMPLES, max_words=TIME, seed=seed, with_greedy=False)]

    took = graph_seconds(drawing, size)
    said = drawn[0].said
    with torch.no_grad():
        some = said.tokens[: 50 * SAMPLES]
        first = Features(*(None if f is None else f[:50] for f in features))
        exact = gather_logprob(data.model(first, some), some)
    mine = said.token_logprob[: len(some)]
    apart = ((mine - exact) * (mine != 0)).abs().max()
    yield Row(
        f"{name}: sampling, {images} x {SAMPLES}",
        images * SAMPLES / took,
        unit="captions/s",
        difference=float(apart),
    )


# Time.


def seconds(work: Callable[[], Any], size: Size) -> float:
    """Median of repeats, each waited for."""
    for _ in range(3):
        work()
    took = []
    for _ in range(max(5, size.repeats // 4)):
        wait(size)
        begun = time.perf_counter()
        work()
        wait(size)
        took.append(time.perf_counter() - begun)
    return statistics.median(took)


def per_step(work: Callable[[Tensor], Any], index: list[Tensor], size: Size) -> float:
    """Steps in a row, as in training: median over five rounds."""
    took = []
    for _ in range(6):
        wait(size)
        begun = time.perf_counter()
        toolkit.each(work, index)
        wait(size)
        took.append((time.perf_counter() - begun) / len(index))
    return statistics.median(took[1:])


def graph_seconds(body: Callable[[], None], size: Size) -> float:
    from caplore.training.fast.capture import captured

    if size.device != "cuda":
        return seconds(body, size)
    return seconds(captured(body, [], torch.device(size.device)), size)


def wait(size: Size) -> None:
    if size.device == "cuda":
        torch.cuda.synchronize()


def against(
    theirs: toolkit.Toolkit | None,
    what: Callable[[toolkit.Toolkit], Callable[[Tensor], Any]],
    images: int,
    size: Size,
    some: int = 5,
) -> tuple[float | None, str]:
    """Seconds of the toolkit's way: the median of a few after one that is not counted."""
    if theirs is None:
        return None, toolkit.MISSING
    work = what(theirs)
    took = []
    for turn in range(some + 1):
        index = (torch.arange(images) + turn * images) % theirs.features.rows
        wait(size)
        begun = time.perf_counter()
        work(index.to(size.device))
        wait(size)
        took.append(time.perf_counter() - begun)
    return statistics.median(took[1:]), ""


if __name__ == "__main__":
    for told in {"floors": floors, "kernels": kernels}[sys.argv[1]]():
        print(told)

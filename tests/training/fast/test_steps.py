"""The captured steps against the plain ones, given the same draws; and what does without them."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

# Kernels cannot be imported where there is no Triton.
pytest.importorskip("triton", reason="the kernels need Triton: it comes with CUDA builds of torch")

from triton.runtime.errors import OutOfResources

from caplore.decoding.beam import beam
from caplore.decoding.captions import Captions
from caplore.features.store import write_store
from caplore.models.protocol import Features
from caplore.training import fast
from caplore.training import step as plain
from caplore.training.config import Marginal, MaxAtK, Sequence, Sll, SllMe, SllSle, Xe
from caplore.training.distributed import World
from caplore.training.examples import Examples, as_said, choose_references
from caplore.training.fast import steps
from caplore.training.fast.decoding import Decoder
from caplore.training.fast.half import HalfCopy
from caplore.training.reward import CiderReward
from caplore.training.streaming import Streamed

VOCAB, TIME, REFS, INPUTS = 40, 6, 4, 12  # as in conftest.py
PHASES = {
    "xe": Xe(label_smoothing=0.1),
    "sle": Sequence(objective=SllSle()),
    "sle-unbiased-dropout": Sequence(objective=SllSle(estimator="unbiased"), dropout=True),
    "sll-me": Sequence(objective=SllMe(entropy_weight=0.1)),
    "marginal": Sequence(objective=Marginal()),
    "max-at-k": Sequence(objective=MaxAtK()),
    "sll-me-rest-mixed": Sequence(
        objective=SllMe(entropy_weight=0.1, baseline="rest"), xe_weight=0.3, reduction="captions"
    ),
}
INDEX = torch.tensor([3, 0, 7, 11])


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    """How far two tensors are apart, as a share of the second."""
    a, b = a.detach().double(), b.detach().double()
    return float((a - b).norm() / b.norm())


def plain_step(
    model: torch.nn.Module,
    phase: Xe | Sequence,
    data: Examples,
    reward: CiderReward,
    noise: torch.Tensor,
    drawn: tuple,
) -> tuple[plain.Stats, list[torch.Tensor]]:
    """What the plain step sees, and its gradients; the optimiser does not move."""
    update = plain.Update(model, torch.optim.Adam(model.parameters(), lr=0.0), 0.0, World())
    index = INDEX.to(data.references.device)
    features = data.features_of(index)

    def said(count: int) -> torch.Tensor:
        chosen = choose_references(
            data.references[index], data.there[index], count, noise=noise.to(index.device)
        )
        return as_said(chosen, VOCAB)

    if isinstance(phase, Xe):
        stats = plain.xe_step(model, features, said(5), label_smoothing=phase.label_smoothing, update=update)
    else:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(plain, "sample", lambda *a, **k: drawn)
            mixed = said(5) if phase.xe_weight else None
            stats = plain.sequence_step(
                model, features, index, reward, phase, max_words=TIME, update=update, references=mixed
            )
    return stats, [p.grad for p in model.parameters()]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fc", "att2in", "updown", "transformer"])
@pytest.mark.parametrize("phase", PHASES.values(), ids=PHASES)
def test_a_step_is_the_plain_step(
    place: Any, examples: Examples, reward: CiderReward, make_model, name, phase, monkeypatch
) -> None:
    rolled: dict[str, steps.Rollout] = {}

    def spy(*args, **kwargs) -> steps.Rollout:
        rolled["out"] = real(*args, **kwargs)
        return rolled["out"]

    real = steps.roll
    monkeypatch.setattr(steps, "roll", spy)
    model = make_model(name)
    twin = copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    step = steps.FastStep(
        model, optimizer, phase, examples, reward,
        images=len(INDEX), vocab=VOCAB, max_words=TIME, clip=5.0, world=World(), dtype=place.dtype,
    )  # fmt: skip
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))
    noise = torch.rand(len(INDEX), REFS)
    step.restart({})
    step(INDEX, 0.01, seed=5, noise=noise)
    drawn = ()
    if isinstance(phase, Sequence):
        out = rolled["out"]
        logprob = out.said.token_logprob
        samples = Captions(out.captions[:, :-1], logprob[: out.drawn].view(out.images, out.samples, TIME))
        drawn = samples, Captions(out.captions[:, -1:], logprob[out.drawn :, None])
    stats, slopes = plain_step(twin, phase, examples, reward, noise, drawn)
    rough = 0.02 if place.dtype == torch.bfloat16 else 1e-4
    for key, value in stats.items():
        assert float(step.sums[key]) == pytest.approx(float(value), rel=rough, abs=rough), key
    found = step.half.slopes
    together = relative(
        torch.cat([s.flatten().float() for s in found]), torch.cat([s.flatten() for s in slopes])
    )
    assert together < (0.05 if place.dtype == torch.bfloat16 else 1e-4)
    moved = [(a - b).abs().max() for a, b in zip(model.parameters(), twin.parameters(), strict=True)]
    assert min(moved) > 1e-4  # Adam's first step is the rate wherever there is a gradient
    for weight, half in zip(step.half.weights, step.half.copies, strict=True):
        assert (weight - half.float()).abs().max() <= 2**-7 * weight.abs().max()


@pytest.mark.gpu
def test_replays_draw_anew_and_the_same_seed_draws_the_same(
    place: Any, examples: Examples, reward: CiderReward, make_model: Any
) -> None:
    model = make_model("fc")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0)
    step = steps.FastStep(
        model, optimizer, Sequence(objective=SllSle()), examples, reward,
        images=4, vocab=VOCAB, max_words=TIME, clip=5.0, world=World(), dtype=place.dtype,
    )  # fmt: skip
    seen = []
    for seed in (1, 2, 1):
        step.restart({})
        step(INDEX, 0.0, seed=seed)
        seen.append(float(step.sums["entropy"]))
    assert seen[0] == seen[2] != seen[1]


@pytest.mark.parametrize("phase", ["xe", "sle"])
def test_streamed_features_make_the_same_steps(
    place: Any, examples: Examples, reward: CiderReward, make_model: Any, tmp_path: Path, phase: str
) -> None:
    """The graph reads a copy of a batch that came by the thread, instead of picking from features on the device."""
    kinds = {"pooled": examples.features.pooled.cpu(), "regions": examples.features.regions.cpu()}
    store = write_store(tmp_path / "made", examples.ids, iter([kinds]), encoder={"name": "made"})
    loaded = store.load(examples.ids)
    resident = Features(loaded["pooled"].to(place.device), loaded["regions"].to(place.device))
    streamed = Streamed(store.reader(examples.ids), place.device)
    rng = torch.Generator().manual_seed(3)
    order = [
        torch.randperm(INPUTS, generator=rng)[:4] for _ in range(3 if place.device.type == "cpu" else 30)
    ]
    noise = torch.rand(4, REFS, generator=rng)
    ends = []
    for features in (resident, streamed):
        data, model = replace(examples, features=features), make_model("fc")
        step = steps.FastStep(
            model, torch.optim.Adam(model.parameters(), lr=0.01), PHASES[phase], data, reward,
            images=4, vocab=VOCAB, max_words=TIME, clip=5.0, world=World(), dtype=place.dtype,
        )  # fmt: skip
        with data.along(order) as batches:
            for seed, (index, look) in enumerate(batches):
                step(index, 0.01 if seed < 3 else 0.0, seed=seed, noise=noise, look=look)
        ends.append((torch.cat([w.detach().flatten() for w in model.parameters()]), float(step.sums["loss"])))
    off = 0.0 if place.device.type == "cpu" else 0.02  # sums on a GPU have no fixed order
    torch.testing.assert_close(ends[0][0], ends[1][0], rtol=0, atol=off)
    assert ends[0][1] == pytest.approx(ends[1][1], rel=off, abs=off)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("name", ["fc", "updown"])
def test_beam_search_finds_the_same_captions(place: Any, make_model: Any, name: str, n: int) -> None:
    model = make_model(name, vocab=150).eval()
    features = Features(torch.randn(3, 10, device=place.device), torch.randn(3, 3, 8, device=place.device))
    decoder = Decoder(HalfCopy(model, place.dtype))
    decoder.half.model.eval()
    reference = model if place.dtype == torch.float32 else decoder.half.model  # bf16 finds what bf16 finds
    expected = beam(reference, features, width=3, n=n, max_words=TIME)
    found = beam(decoder, features, width=3, n=n, max_words=TIME)
    if n == 1:
        assert torch.equal(decoder.beam(features, width=3, max_words=TIME).tokens, found.tokens)
    same = (found.tokens == expected.tokens).all(-1)
    assert same.float().mean() >= (1.0 if place.dtype == torch.float32 else 0.6)
    torch.testing.assert_close(found.logprob[same], expected.logprob[same], rtol=0.01, atol=1e-4)


def test_what_the_captured_step_cannot_do_is_said(
    examples: Examples, reward: CiderReward, make_model: Any, monkeypatch
) -> None:
    model = make_model("fc")
    assert "no GPU" in (fast.obstacle(model, Xe(), examples, reward, max_words=20) or "no GPU")
    monkeypatch.setattr(fast, "_of_machine", lambda train: None)

    def why(phase: Xe | Sequence = Xe(), model: torch.nn.Module = model, max_words: int = 20) -> str | None:  # noqa: B008
        return fast.obstacle(model, phase, examples, reward, max_words=max_words)

    assert why() is None
    assert why(Sequence(objective=Sll())) is None
    assert "eigenvalues" in why(Sequence(objective=Marginal(of="vendi")))
    assert "longer than 64" in why(max_words=65)
    assert "width, 33," in why(model=make_model("fc", hidden=33, embed=32))
    assert "32,768" in why(model=make_model("fc", vocab=40_000))
    assert "more than 256 regions" in why(model=make_model("att2in", regions=(300, 8)))
    assert why(model=make_model("transformer", regions=(300, 8))) is None  # which has no such kernel


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("CUDA out of memory\nand more"), "(CUDA out of memory)"),
        (OutOfResources(300_000, 232_448, "shared memory"), "shared memory"),
        (FileNotFoundError(2, "No such file or directory", "gcc"), "gcc"),
        (RuntimeError(), "(RuntimeError)"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_step_that_cannot_be_captured_leaves_the_optimiser_as_it_was(
    examples: Examples, reward: CiderReward, make_model: Any, monkeypatch, error: Exception, said: str
) -> None:
    """The plain step goes on with it: counts of steps that the fused one shares would be counted once a weight."""
    monkeypatch.setattr(fast, "_of_machine", lambda train: None)

    def refuse(*args: object) -> None:
        raise error

    monkeypatch.setattr(steps, "Feed", refuse)
    model = make_model("fc")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    options = {"images": 4, "vocab": VOCAB, "max_words": TIME, "clip": 5.0, "world": World()}
    for begun in (0, 1):
        for _ in range(begun):
            model.out.weight.grad = torch.ones_like(model.out.weight)
            optimizer.step()
        before = copy.deepcopy(optimizer.state_dict()["state"])
        step, how = fast.fast_step(model, optimizer, Xe(), examples, reward, **options)
        assert step is None
        assert how.startswith("plain: the step could not be captured (")
        assert said in how
        after = optimizer.state_dict()["state"]
        assert before.keys() == after.keys()
        assert all(torch.equal(before[i][k], after[i][k]) for i in before for k in before[i])

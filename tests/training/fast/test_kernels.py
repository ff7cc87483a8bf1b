"""Each kernel against plain torch."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

# Kernels cannot be imported where there is no Triton.
pytest.importorskip("triton", reason="the kernels need Triton: it comes with CUDA builds of torch")

from caplore.metrics import bleu
from caplore.metrics.cider import CiderD
from caplore.metrics.ngrams import DocumentFrequencies
from caplore.models.attention import Additive, Dot, MaxoutCell
from caplore.training import fast
from caplore.training.distributed import World
from caplore.training.fast import adam, attend, half, head, recurrent, scores
from caplore.training.reward import select

FLOAT32_SCORES = 2e-6  # CIDEr-D is 0 .. 10; a few dozen terms, summed in another order
LOGPROB = 1e-5  # float32 log-softmax of a few hundred words


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    """How far two tensors are apart, as a share of the second."""
    a, b = a.detach().double(), b.detach().double()
    return float((a - b).norm() / b.norm())


def captions(*shape: int, time: int, device: torch.device, vocab: int = 7) -> torch.Tensor:
    """Few words, so that n-grams repeat within and between captions."""
    rng = torch.Generator().manual_seed(sum(shape))
    words = torch.randint(3, 3 + vocab, (*shape, time), generator=rng)
    lengths = torch.randint(0, time + 1, (*shape, 1), generator=rng)
    return (words * (torch.arange(time) < lengths)).to(device)


@pytest.mark.parametrize("eos", [True, False])
def test_cider_d(place: Any, eos: bool) -> None:
    refs = captions(30, 4, time=12, device=place.device)
    there = torch.rand(30, 4, generator=torch.Generator().manual_seed(0)).to(place.device) > 0.2
    there[:, 0] = True
    refs = refs * there[..., None]
    metric = CiderD(DocumentFrequencies.from_references(refs, there, vocab=20, count_eos=eos))
    prepared = metric.prepare(refs, there)
    index = torch.tensor([3, 7, 7, 20], device=place.device)
    said = captions(4, 3, time=10, device=place.device)
    found = scores.cider_d(said, index, scores.CiderTables.of(metric, refs, prepared))
    expected = metric.score(said, select(prepared, index))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=FLOAT32_SCORES)
    assert expected.max() > 0.1


def test_bleu_distance(place: Any) -> None:
    said = captions(5, 4, time=9, device=place.device)
    said[0, 1] = said[0, 0]
    expected = bleu.bleu_distance(said)
    torch.testing.assert_close(scores.bleu_distance(said), expected, rtol=1e-5, atol=FLOAT32_SCORES)
    assert expected.std() > 0.05


@pytest.fixture
def layer(place: Any, make_model: Any) -> Callable[..., head.Output]:
    """An output layer as the kernels take it."""
    return lambda vocab=203: half.HalfCopy(make_model("fc", vocab=vocab), place.dtype).output


def said_for(rows: int, time: int, place: Any) -> head.Said:
    zeros = torch.zeros(rows, time, device=place.device)
    last = torch.zeros(rows, dtype=torch.long, device=place.device)
    return head.Said(
        zeros.long(), zeros, zeros.T.contiguous(), last, torch.zeros_like(last, dtype=torch.int8)
    )


def log_softmax(hidden: torch.Tensor, output: head.Output) -> torch.Tensor:
    weight, bias = output.weight[: output.vocab].double(), output.bias[: output.vocab].double()
    return (hidden.double() @ weight.T + bias).log_softmax(-1)


def test_draw_inverts_the_distribution_and_greedy_rows_take_the_best_word(place: Any, layer: Any) -> None:
    rows, drawn, output = 70, 60, layer()
    hidden = torch.randn(rows, 32, device=place.device).to(place.dtype)
    uniform = torch.rand(2, rows, device=place.device)
    said = said_for(rows, 4, place)
    said.ended[5] = 1
    head.draw(hidden, output, uniform, said, 1, drawn=drawn)
    logprob = log_softmax(hidden, output)
    words = 64  # of a tile, for so few rows
    for row in [r for r in range(drawn) if r != 5]:
        mass = nn.functional.pad(logprob[row].exp(), (0, -output.vocab % words)).view(-1, words)
        tile = int((mass.sum(1).cumsum(0) <= uniform[0, row]).sum())
        within = mass[tile].cumsum(0)
        assert said.last[row] == tile * words + int((within <= uniform[1, row] * within[-1]).sum())
    assert torch.equal(said.last[drawn:], logprob[drawn:].argmax(-1))
    own = torch.arange(rows, device=place.device) != 5
    expected = logprob.gather(1, said.last[:, None]).squeeze(1).float()
    torch.testing.assert_close(said.token_logprob[own, 1], expected[own], rtol=0, atol=LOGPROB)
    assert said.tokens[5].eq(0).all()
    assert said.token_logprob[5].eq(0).all()
    assert torch.equal(said.ended != 0, (said.last == 0))


def test_the_largest_random_number_draws_a_word_and_not_what_fills_up_the_layer(
    place: Any, layer: Any
) -> None:
    """Running sums are made in parallel on a GPU: one beyond the last word may be smaller than the one before it."""
    rows, output = 2048 if place.device.type == "cuda" else 64, layer()
    hidden = torch.randn(rows, 32, device=place.device).to(place.dtype)
    for uniform in (0.0, 1 - 2**-24, 1 - 2**-23, 1 - 2**-22):
        said = said_for(rows, 1, place)
        head.draw(hidden, output, torch.full((2, rows), uniform, device=place.device), said, 0, drawn=rows)
        assert said.last.max() < output.vocab
        assert said.token_logprob.min() > -50


def test_draws_have_the_models_frequencies(place: Any, layer: Any) -> None:
    """Chi-square of draws from one distribution: its mean is 1 per degree of freedom."""
    rows, output = 4096 if place.device.type == "cuda" else 1024, layer(vocab=50)
    hidden = torch.randn(1, 32, device=place.device).to(place.dtype).expand(rows, -1).contiguous()
    said = said_for(rows, 1, place)
    head.draw(hidden, output, torch.rand(2, rows, device=place.device), said, 0, drawn=rows)
    p = log_softmax(hidden[:1], output)[0].exp()
    counts = torch.bincount(said.last, minlength=output.vocab)
    often = p * rows > 5
    per_degree = ((counts - p * rows) ** 2 / (p * rows))[often].sum() / often.sum()
    assert 0.4 < per_degree < 1.9  # 20 to 50 degrees: six standard deviations


@pytest.mark.parametrize(
    "vocab", [203, 300, 512]
)  # a row of logits is read in two blocks: one, both, one and no more
@pytest.mark.parametrize("entropy", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_push_is_the_gradient_of_its_loss(
    place: Any, layer: Any, smoothing: float, entropy: bool, vocab: int
) -> None:
    rows, output = 70, layer(vocab)
    hidden = torch.randn(rows, 32, device=place.device).to(place.dtype)
    tokens = torch.randint(0, output.vocab, (rows,), device=place.device)
    weight, own = torch.randn(rows, device=place.device), torch.rand(rows, device=place.device) > 0.3
    bonus = torch.rand(rows, device=place.device) if entropy else None
    packed = head.pack(hidden, own, rows)
    slope, seen = head.push(packed, output, tokens, weight, smoothing=smoothing, entropy_weight=bonus)

    leaves = [t.double().requires_grad_() for t in (hidden, *(o[: output.vocab] for o in output[:2]))]
    logprob = (leaves[0] @ leaves[1].T + leaves[2]).log_softmax(-1)
    chosen = logprob.gather(1, tokens[:, None]).squeeze(1)
    spread = -(logprob.exp() * logprob).sum(-1)
    loss = -weight * ((1 - smoothing) * chosen + smoothing * logprob.mean(-1))
    loss = loss if bonus is None else loss - bonus * spread
    loss[own].sum().backward()
    found = (slope.of_hidden(packed, output), *slope.of_output(packed, output))
    assert max(relative(a, b.grad) for a, b in zip(found, leaves, strict=True)) < place.tolerance
    torch.testing.assert_close(seen.logprob, (chosen * own).float(), rtol=0, atol=LOGPROB)
    if smoothing:
        torch.testing.assert_close(seen.mean_logprob, (logprob.mean(-1) * own).float(), rtol=0, atol=LOGPROB)
    if entropy:
        torch.testing.assert_close(seen.entropy, (spread * own).float(), rtol=0, atol=LOGPROB)


def test_push_of_drawn_words_is_the_same(place: Any, layer: Any) -> None:
    rows, kept, output = 70, 60, layer()
    hidden = torch.randn(rows, 32, device=place.device).to(place.dtype)
    tokens = torch.randint(0, output.vocab, (rows,), device=place.device)
    weight, own = torch.randn(rows, device=place.device), torch.rand(rows, device=place.device) > 0.5
    own[kept - 10 :] = False
    packed = head.pack(hidden, own, kept)
    logits = hidden.double() @ output.weight.double().T + output.bias.double()
    found = head.push_drawn(packed, output, tokens, weight, logits.logsumexp(-1).float())
    expected, _ = head.push(packed, output, tokens, weight)
    assert relative(found.of_logits, expected.of_logits) < place.tolerance
    assert found.of_hidden(packed, output)[~own].eq(0).all()


def test_own_rows_come_first_in_their_order(place: Any) -> None:
    own = torch.rand(300, device=place.device) > 0.5
    order, count = head.own_first(own)
    assert int(count) == int(own.sum())
    assert torch.equal(order[: int(count)], own.nonzero().squeeze(1))
    assert torch.equal(order.sort().values, torch.arange(300, device=place.device))


def test_recurrence_is_torchs_lstm(place: Any) -> None:
    time, rows, embed, dim = 5, 37, 32, 48
    lstm = nn.LSTM(embed, dim).to(place.device)
    inputs = [torch.randn(time, rows, embed), torch.randn(rows, dim), torch.randn(rows, dim)]
    leaves = [t.to(place.device, place.dtype).float().requires_grad_() for t in inputs]
    with torch.no_grad():
        for weight in lstm.parameters():
            weight.copy_(weight.to(place.dtype))
    expected, _ = lstm(leaves[0], (leaves[1][None], leaves[2][None]))
    slope = torch.randn_like(expected).to(place.dtype)
    expected.backward(slope.float())
    ours = [t.detach().to(place.dtype).requires_grad_() for t in (*leaves, *lstm.parameters())]
    found = recurrent.Recurrence.apply(*ours)
    found.backward(slope)
    assert relative(found, expected) < place.tolerance
    grads = [t.grad for t in (*leaves, *lstm.parameters())]
    assert max(relative(a.grad, b) for a, b in zip(ours, grads, strict=True)) < place.tolerance


def compare_modules(
    place: Any, ours: nn.Module, theirs: nn.Module, *shapes: tuple[int, ...], turns: int = 1
) -> None:
    """Outputs and all gradients of two modules; with `turns`, the first input differs from call to call."""
    torch.manual_seed(0)
    firsts = [torch.randn(shapes[0], device=place.device).to(place.dtype) for _ in range(turns)]
    rest = [torch.randn(s, device=place.device).to(place.dtype) for s in shapes[1:]]
    found = []
    for module, dtype in ((ours, place.dtype), (theirs, torch.float64)):
        module.to(dtype).zero_grad()
        leaves = [t.detach().to(dtype, copy=True).requires_grad_() for t in (*firsts, *rest)]
        outs = []
        for first in leaves[:turns]:
            out = module(first, *leaves[turns:])
            outs += list(out) if isinstance(out, tuple) else [out]
        sum((o.double() * (i + 1)).square().sum() for i, o in enumerate(outs)).backward()
        found.append([*outs, *(t.grad for t in leaves), *(p.grad for p in module.parameters())])
    worst = max(relative(a, b) for a, b in zip(*found, strict=True))
    assert worst < 2 * place.tolerance


def test_additive_attention_asked_several_times(place: Any) -> None:
    theirs = Additive(24).to(place.device, place.dtype)
    ours = attend.FusedAdditive(Additive(24).to(place.device))
    ours.inside.load_state_dict(theirs.state_dict())
    compare_modules(place, ours, theirs, (7, 24), (7, 5, 24), (7, 5, 40), turns=3)


def test_maxout_cell(place: Any) -> None:
    compare_modules(place, attend.FusedMaxoutCell(), MaxoutCell(), (7, 80), (7, 80), (7, 32), (7, 16))


@pytest.mark.parametrize("dim", [16, 12])
def test_one_words_dot_attention(place: Any, dim: int) -> None:
    query, keys, values = (torch.randn(3, 2, n, dim, device=place.device).to(place.dtype) for n in (1, 5, 5))
    with torch.no_grad():
        found = attend.FusedDot()(query, keys, values)
    expected = Dot()(query.double(), keys.double(), values.double())
    assert relative(found, expected) < place.tolerance


@pytest.mark.parametrize("processes", [1, 2])
def test_adam_is_torchs(place: Any, processes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "sum_", lambda self, value: value)  # the other one has only zeros
    shapes = [(70, 100), (9000,), (3,)]
    mine, theirs = ([nn.Parameter(torch.ones(s, device=place.device)) for s in shapes] for _ in range(2))
    copies = [p.detach().to(place.dtype) for p in mine]
    ours, reference = torch.optim.Adam(mine, lr=0.01), torch.optim.Adam(theirs, lr=0.01)
    fused = adam.FusedAdam(ours, mine, copies, clip=1.0, world=World(0, processes))
    for _ in range(3):
        slopes = [torch.randn_like(c) for c in copies]
        slopes[1] = slopes[1].float()  # either precision
        for weight, slope in zip(theirs, slopes, strict=True):
            weight.grad = slope.float()
        fused.point(slopes)
        norm = fused(slopes)
        expected = nn.utils.clip_grad_norm_(theirs, 1.0)
        reference.step()
        torch.testing.assert_close(norm, expected, rtol=1e-3, atol=0)
    for weight, copy, other in zip(mine, copies, theirs, strict=True):
        torch.testing.assert_close(weight, other, rtol=0, atol=1e-5)
        assert (weight - copy.float()).abs().max() <= 2**-7
    state = ours.state_dict()["state"][0]
    assert float(state["step"]) == 3
    assert math.isclose(
        float(state["exp_avg"].norm()), float(reference.state[theirs[0]]["exp_avg"].norm()), rel_tol=1e-3
    )


def test_rows_are_added_where_their_tokens_say(place: Any) -> None:
    total = torch.zeros(9, 24, device=place.device)
    tokens = torch.randint(0, 9, (4, 6), device=place.device)
    rows = torch.randn(4, 6, 24, device=place.device).to(place.dtype)
    rows[:, 3:] = 0
    half.add_rows(total, tokens, rows)
    expected = torch.zeros_like(total).index_add_(0, tokens.flatten(), rows.float().flatten(0, 1))
    torch.testing.assert_close(total, expected, rtol=1e-5, atol=1e-5)


def test_limits_said_are_the_kernels() -> None:
    assert (fast.MOST_WORDS, fast.LONGEST) == (head.MOST_WORDS, scores.LONGEST)
    assert fast.MOST_REGIONS == attend.MOST_REGIONS

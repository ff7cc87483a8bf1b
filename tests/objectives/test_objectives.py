"""The estimators against the exact gradient: every draw of a small policy is listed, so there is no noise."""

import itertools
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from caplore.objectives.beyond import marginal_advantage, max_at_k_advantage, mean_distance, reference_recall
from caplore.objectives.policy import gather_logprob, own_tokens, policy_loss
from caplore.objectives.sle import authors_diversity_advantage, diversity_advantage, sle_advantage
from caplore.objectives.sll import rest_mean, sll_advantage
from caplore.objectives.sll_me import entropy_bonus, token_entropy
from caplore.objectives.xe import xe_loss

CAPTIONS = 3
seeds = st.integers(0, 2**32 - 1)
EXACT = {"rtol": 1e-9, "atol": 1e-11}  # float64, a few hundred terms


def toy(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Logits of a policy over a handful of captions, their scores, their symmetric distances."""
    rng = torch.Generator().manual_seed(seed)
    logits = torch.randn(CAPTIONS, generator=rng, dtype=torch.float64).requires_grad_()
    score = torch.rand(CAPTIONS, generator=rng, dtype=torch.float64)
    distance = torch.rand(CAPTIONS, CAPTIONS, generator=rng, dtype=torch.float64)
    return logits, score, (distance + distance.T).fill_diagonal_(0)


def expected_gradient(logits: Tensor, samples: int, advantage: Callable[[Tensor], Tensor]) -> Tensor:
    """E over all draws of the gradient of the shipped loss with these advantages, negated: an ascent direction."""
    logp = logits.log_softmax(0)
    p = logp.exp()
    total = torch.zeros((), dtype=torch.float64)
    for draw in itertools.product(range(CAPTIONS), repeat=samples):
        c = torch.tensor(draw)
        loss = policy_loss(
            logp[c].view(1, samples, 1),
            torch.ones(1, samples, 1, dtype=torch.bool),
            advantage(c).view(1, samples),
            reduction="captions",
        )
        total = total + p[c].prod().detach() * loss
    return -torch.autograd.grad(total, logits, retain_graph=True)[0]


@given(seed=seeds, samples=st.integers(2, 4))
@settings(max_examples=15, deadline=None)
def test_sll_is_unbiased_with_either_baseline(seed: int, samples: int) -> None:
    logits, score, _ = toy(seed)
    p = logits.softmax(0)
    (exact,) = torch.autograd.grad(p @ score, logits)
    rest = expected_gradient(logits, samples, lambda c: sll_advantage(score[c][None]))
    greedy = expected_gradient(
        logits, samples, lambda c: sll_advantage(score[c][None], score[logits.argmax()].detach()[None])
    )
    torch.testing.assert_close(rest, exact, **EXACT)
    torch.testing.assert_close(greedy, exact, **EXACT)


@given(seed=seeds, samples=st.integers(3, 5), alpha=st.floats(0, 1))
@settings(max_examples=10, deadline=None)
def test_sle_unbiased_is_unbiased(seed: int, samples: int, alpha: float) -> None:
    logits, score, distance = toy(seed)
    p = logits.softmax(0)
    (exact,) = torch.autograd.grad(alpha * p @ score + (1 - alpha) * p @ distance @ p, logits)

    def advantage(c: Tensor) -> Tensor:
        different = diversity_advantage(distance[c][:, c][None], estimator="unbiased")
        return sle_advantage(sll_advantage(score[c][None]), different, alpha=alpha)

    torch.testing.assert_close(expected_gradient(logits, samples, advantage), exact, **EXACT)


@given(seed=seeds, samples=st.integers(2, 5))
@settings(max_examples=10, deadline=None)
def test_the_papers_estimator_shrinks_the_diversity_gradient(seed: int, samples: int) -> None:
    """By (1 - 1/s)(1 - 2/s): the direction is right, at s = 2 there is nothing left of it."""
    logits, _, distance = toy(seed)
    p = logits.softmax(0)
    (exact,) = torch.autograd.grad(p @ distance @ p, logits)
    found = expected_gradient(
        logits, samples, lambda c: diversity_advantage(distance[c][:, c][None], estimator="paper")
    )
    torch.testing.assert_close(found, (1 - 1 / samples) * (1 - 2 / samples) * exact, **EXACT)


@given(seed=seeds, samples=st.integers(2, 4), data=st.data())
@settings(max_examples=15, deadline=None)
def test_max_at_k_is_unbiased(seed: int, samples: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, samples))
    logits, score, _ = toy(seed)
    p = logits.softmax(0)
    value = sum(
        (
            p[list(draw)].prod() * score[list(draw)].max()
            for draw in itertools.product(range(CAPTIONS), repeat=k)
        ),
        start=torch.zeros((), dtype=torch.float64),
    )
    (exact,) = torch.autograd.grad(value, logits, retain_graph=True)
    found = expected_gradient(logits, samples, lambda c: max_at_k_advantage(score[c][None], k=k))
    torch.testing.assert_close(found, exact, **EXACT)


@given(seed=seeds)
@settings(max_examples=10, deadline=None)
def test_the_marginal_of_recall_is_its_gradient(seed: int) -> None:
    """s times E[F(Y)]'s gradient per sample: F(Y without j) is a baseline that does not depend on j."""
    samples, refs = 3, 2
    logits, _, _ = toy(seed)
    similarity = torch.rand(
        CAPTIONS, refs, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    p = logits.softmax(0)
    value = sum(
        (
            p[list(draw)].prod() * reference_recall(similarity[list(draw)][None])[0]
            for draw in itertools.product(range(CAPTIONS), repeat=samples)
        ),
        start=torch.zeros((), dtype=torch.float64),
    )
    (exact,) = torch.autograd.grad(value, logits, retain_graph=True)
    found = expected_gradient(
        logits, samples, lambda c: marginal_advantage(similarity[c][None], reference_recall, square=False)
    )
    torch.testing.assert_close(samples * found, exact, **EXACT)


def test_the_marginal_of_a_square_leaves_both_axes() -> None:
    distance = torch.rand(2, 4, 4, dtype=torch.float64)
    found = marginal_advantage(distance, mean_distance, square=True)
    for j in range(4):
        keep = [k for k in range(4) if k != j]
        without = distance[:, keep][:, :, keep]
        torch.testing.assert_close(found[:, j], mean_distance(distance) - mean_distance(without))


def test_references_that_are_not_there_do_not_count() -> None:
    similarity = torch.tensor([[[0.2, float("-inf")], [0.6, float("-inf")]]])
    assert reference_recall(similarity).item() == pytest.approx(0.6)
    assert reference_recall(torch.full((1, 2, 2), float("-inf"))).item() == 0.0


@given(seed=seeds)
@settings(max_examples=20, deadline=None)
def test_a_centred_set_has_nothing_to_push_and_a_collapsed_one_is_pushed_apart(seed: int) -> None:
    joint = torch.rand(3, 5, generator=torch.Generator().manual_seed(seed)) * 0.5  # mean below 0.5: varied
    torch.testing.assert_close(authors_diversity_advantage(joint).sum(1), torch.zeros(3), atol=1e-5, rtol=0)
    assert (authors_diversity_advantage(torch.ones(1, 5)) == -1.0).all()  # 2 x (-1 + 0.5)


def test_own_tokens_are_the_words_and_the_first_end() -> None:
    tokens = torch.tensor([[5, 6, 0, 0], [0, 0, 0, 0], [5, 6, 7, 8], [5, 0, 6, 0]])
    expected = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1], [1, 1, 0, 0]]
    assert own_tokens(tokens).int().tolist() == expected


@given(
    length=st.integers(1, 6),
    junk=st.sampled_from([0.0, -1e9, float("-inf"), float("nan")]),
    reduction=st.sampled_from(["tokens", "captions"]),
)
def test_padding_is_invisible(length: int, junk: float, reduction: str) -> None:
    logprob = torch.full((1, 2, 6), -0.5)
    logprob[..., length:] = junk
    mask = (torch.arange(6) < length).expand(1, 2, 6)
    loss = policy_loss(logprob, mask, torch.tensor([[1.0, 3.0]]), reduction=reduction)  # type: ignore[arg-type]
    each = 0.5 * length
    assert loss.item() == pytest.approx(4 * each / (2 * length) if reduction == "tokens" else 4 * each / 2)


@given(seed=seeds)
@settings(max_examples=20, deadline=None)
def test_images_do_not_see_each_other(seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    score, distance = torch.rand(4, 5, generator=rng), torch.rand(4, 5, 5, generator=rng)
    distance = distance + distance.transpose(1, 2)
    order = torch.randperm(4, generator=rng)
    for f in (rest_mean, sll_advantage, lambda x: max_at_k_advantage(x, k=3)):
        torch.testing.assert_close(f(score)[order], f(score[order]))
    torch.testing.assert_close(diversity_advantage(distance)[order], diversity_advantage(distance[order]))


def test_cross_entropy_is_the_mean_over_own_tokens() -> None:
    logits = torch.randn(2, 4, 7)
    tokens = torch.tensor([[3, 4, 0, 0], [5, 0, 0, 0]])
    mask = own_tokens(tokens)
    chosen = logits.log_softmax(-1).gather(-1, tokens[..., None]).squeeze(-1)
    by_hand = -chosen[mask].mean()
    torch.testing.assert_close(xe_loss(logits, tokens, mask), by_hand)
    logits[0, 3] = float("nan")  # padding
    torch.testing.assert_close(xe_loss(logits, tokens, mask), by_hand)


def test_entropy_bonus_of_a_uniform_policy_is_log_vocab() -> None:
    mask = torch.ones(2, 3, dtype=torch.bool)
    bonus = entropy_bonus(token_entropy(torch.zeros(2, 3, 8)), mask)
    assert bonus.item() == pytest.approx(torch.tensor(8.0).log().item())


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 3 samples per image, got 2"):
        diversity_advantage(torch.zeros(1, 2, 2), estimator="unbiased")
    with pytest.raises(ValueError, match="at least 2 samples per image, got 1"):
        sll_advantage(torch.zeros(1, 1))
    with pytest.raises(ValueError, match="1 <= k <= samples"):
        max_at_k_advantage(torch.zeros(1, 3), k=4)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_the_logprob_of_chosen_words_and_its_gradient_are_those_of_log_softmax(kind: torch.dtype) -> None:
    """More rows than are taken at a time, some of them certain, some pushed nowhere."""
    rng = torch.Generator().manual_seed(0)
    logits = torch.randn(70, 5, 4000, generator=rng).mul_(3).to(kind)
    logits[3, 1, 7:] = -torch.inf
    tokens = torch.randint(7, (70, 5), generator=rng)
    push = torch.randn(70, 5, generator=rng) * (torch.rand(70, 5, generator=rng) < 0.9)
    ours, plain = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    found = gather_logprob(ours, tokens)
    wanted = plain.float().log_softmax(-1).gather(-1, tokens[..., None]).squeeze(-1)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, wanted, rtol=0, atol=2e-5)
    (found * push).sum().backward()
    (wanted * push).sum().backward()
    assert ours.grad is not None
    assert plain.grad is not None
    assert ours.grad.dtype == kind
    torch.testing.assert_close(
        ours.grad, plain.grad, rtol=1e-2 if kind == torch.bfloat16 else 1e-4, atol=1e-6
    )

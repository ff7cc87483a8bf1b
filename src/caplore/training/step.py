"""One step of training, as sentences: draw, score, compare, push.

Everything stays on the device; a step returns what it saw, as tensors, and the loop looks at them once
per log window. Among many processes the mean over all of them is what the whole batch was like, so that
nothing but gradients and counts travels in a step. Axes: images, samples, time.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from caplore.decoding.captions import Captions
from caplore.decoding.sampling import Uniforms, sample
from caplore.metrics.bleu import bleu, bleu_distance
from caplore.metrics.diversity import log_det, mbleu_statistics, self_cider, vendi_score
from caplore.metrics.edit import edit_distance
from caplore.models import Model
from caplore.models.protocol import Features
from caplore.objectives import beyond
from caplore.objectives.policy import denominator, gather_logprob, own_tokens, policy_loss
from caplore.objectives.sle import authors_diversity_advantage, diversity_advantage, sle_advantage
from caplore.objectives.sll import sll_advantage
from caplore.objectives.sll_me import entropy_bonus, token_entropy
from caplore.objectives.xe import xe_loss
from caplore.training.config import Marginal, MaxAtK, Precision, Sequence, Sll, SllMe, SllSle
from caplore.training.distributed import World
from caplore.training.forced import force
from caplore.training.reward import Reward

Stats = dict[str, Float[Tensor, ""]]


def products(precision: Precision, device: torch.device) -> AbstractContextManager[None]:
    """The precision of matrix products within; sums, log-probabilities, weights and moments stay float32.

    Sampling and the gradient pass each get one of their own: casts of weights are kept until it ends, and one that
    was made where no gradient is wanted must not be met where one is.
    """
    return torch.autocast(device.type, torch.bfloat16) if precision == "bfloat16" else nullcontext()


@dataclass(frozen=True)
class Update:
    """The end of every step: gradients of all processes, clipped, applied."""

    model: Model
    optimizer: torch.optim.Optimizer
    clip: float
    world: World

    def __call__(self, loss: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """Returns the norm of the gradient before clipping."""
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.world.sum_gradients(self.model.parameters())
        limit = self.clip if self.clip > 0 else float("inf")
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        self.optimizer.step()
        return norm


def xe_step(
    model: Model,
    features: Features,
    tokens: Int[Tensor, "images captions time"],
    *,
    label_smoothing: float,
    update: Update,
    precision: Precision = "float32",
) -> Stats:
    """Cross-entropy on some references of each image."""
    model.train()
    with products(precision, tokens.device):
        loss = _xe(model, features, tokens, label_smoothing, update.world)
    norm = update(loss)
    return {"loss": loss.detach() * update.world.size, "gradient": norm}


def _xe(
    model: Model,
    features: Features,
    tokens: Int[Tensor, "images captions time"],
    label_smoothing: float,
    world: World,
) -> Float[Tensor, ""]:
    said = force(model, features, tokens)
    logits, words, mask = (part[None] for part in (said.logits, said.tokens, said.mask))
    count = world.sum_(mask.sum().float())
    return xe_loss(logits, words, mask, label_smoothing=label_smoothing, count=count)


def sequence_step(
    model: Model,
    features: Features,
    index: Int[Tensor, " images"],
    reward: Reward,
    phase: Sequence,
    *,
    max_words: int,
    update: Update,
    precision: Precision = "float32",
    references: Int[Tensor, "images captions time"] | None = None,
    uniforms: Uniforms | None = None,
) -> Stats:
    """Sample without gradient, score the samples, then push them in one teacher-forced pass.

    `references` are needed for `xe_weight` alone; `uniforms` decide what is drawn (see `sample`).
    """
    objective = phase.objective
    model.eval()  # samples come from the policy itself, never from a damaged copy of it
    with products(precision, index.device):
        samples, greedy = sample(
            model,
            features,
            samples=objective.samples,
            max_words=max_words,
            with_greedy=True,
            uniforms=uniforms,
        )
    score = reward.score(torch.cat([samples.tokens, greedy.tokens], dim=1), index)
    score, greedy_score = score[:, :-1], score[:, -1]
    length = shortened(samples.tokens).shape[-1]
    samples = Captions(samples.tokens[..., :length], samples.token_logprob[..., :length])
    distance = bleu_distance(samples.tokens)
    advantage = advantages(objective, samples, score, greedy_score, distance, reward, index)

    model.train(phase.dropout)
    with products(precision, index.device):
        said = force(model, features, samples.tokens)
        mask = said.own
        count = update.world.sum_(denominator(mask, phase.reduction))
        logprob = said.at_home(gather_logprob(said.logits, said.tokens))
        loss = policy_loss(logprob, mask, advantage, reduction=phase.reduction, count=count)
        if isinstance(objective, SllMe):
            entropy = said.at_home(token_entropy(said.logits))
            loss = loss - objective.entropy_weight * entropy_bonus(entropy, mask, count=count)
        if references is not None:
            xe = _xe(model, features, references, 0.0, update.world)
            loss = (1 - phase.xe_weight) * loss + phase.xe_weight * xe
    norm = update(loss)
    world = update.world
    words = count if phase.reduction == "tokens" else world.sum_(mask.sum().float())
    seen = _seen(samples, mask, score, greedy_score, advantage, distance, words / world.size)
    return {"loss": loss.detach() * world.size, "gradient": norm} | seen


def shortened(tokens: Int[Tensor, "*rows time"]) -> Int[Tensor, "*rows time"]:
    """Without the columns in which every row is padding. On a GPU as it is: to ask would be to wait."""
    if tokens.device.type != "cpu":
        return tokens
    used = own_tokens(tokens).flatten(0, -2).any(0)
    return tokens[..., : int(used.sum())]


def _seen(
    samples: Captions,
    mask: Tensor,
    score: Tensor,
    greedy_score: Tensor,
    advantage: Tensor,
    distance: Tensor,
    words: Tensor,
) -> Stats:
    """What the log says of a step. The entropy is the mean of -log p of what was drawn: unbiased, and free.

    `words` is how many each process drew, on average.
    """
    count = distance.shape[1]
    pairs = distance.sum((-1, -2)) - distance.diagonal(dim1=-2, dim2=-1).sum(-1)
    ends = (samples.tokens == 0).any(-1)
    return {
        "reward": score.mean(),
        "baseline": greedy_score.mean(),
        "advantage": advantage.abs().mean(),
        "entropy": -samples.token_logprob.sum() / words,
        "length": mask.sum(-1).sub(ends.int()).float().mean(),
        "distance": pairs.mean() / max(count * (count - 1), 1),
        "ended": ends.float().mean(),
    }


def advantages(
    objective: Sll | SllMe | SllSle | Marginal | MaxAtK,
    samples: Captions,
    score: Float[Tensor, "images samples"],
    greedy_score: Float[Tensor, " images"],
    distance: Float[Tensor, "images samples samples"],
    reward: Reward,
    index: Int[Tensor, " images"],
) -> Float[Tensor, "images samples"]:
    """What each sample gained over what was to be expected, by objective."""
    if isinstance(objective, MaxAtK):
        best = beyond.max_at_k_advantage(score, k=objective.k)
        return best if objective.precision == 0 else best + objective.precision * sll_advantage(score)
    precision = sll_advantage(score, greedy_score if objective.baseline == "greedy" else None)
    match objective:
        case SllSle():
            return sle_advantage(precision, _diversity(objective, samples, distance), alpha=objective.alpha)
        case Marginal():
            return precision + objective.weight * _marginal(objective.of, samples, reward, index)
        case _:
            return precision


def _diversity(
    objective: SllSle, samples: Captions, distance: Float[Tensor, "images samples samples"]
) -> Float[Tensor, "images samples"]:
    if objective.estimator == "authors":
        joint = bleu(mbleu_statistics(samples.tokens))[..., [2, 3]].mean(-1)
        return authors_diversity_advantage(joint)
    if objective.distance == "edit":
        distance = edit_distance(samples.tokens)
    return diversity_advantage(distance, estimator=objective.estimator)


def _marginal(
    of: Literal["recall", "self_cider", "vendi", "log_det"],
    samples: Captions,
    reward: Reward,
    index: Int[Tensor, " images"],
) -> Float[Tensor, "images samples"]:
    """What each sample adds to its set: recall on the reward's scale, the others on their own."""
    if of == "recall":
        similarity = reward.to_references(samples.tokens, index)
        return beyond.marginal_advantage(similarity, beyond.reference_recall, square=False)
    value = {"self_cider": self_cider, "vendi": vendi_score, "log_det": log_det}[of]
    return beyond.marginal_advantage(reward.among(samples.tokens), value, square=True)

"""Beam search, for all images at once, with the n best captions of each.

The search is a tree. A node is (step, slot): a token, the slot of its parent one step before, and the log-probability
of the path so far. Each step expands the live nodes of an image and keeps its `width` best children. Children that
end are leaves: kept for good, with their final score, and not expanded. After the last step live nodes are leaves as
well (captions cut by the limit). The n best leaves of the whole tree are the answer, read back along the parents.

Nothing is copied per step but the model's state, and nothing is asked of the host on CUDA.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from caplore.decoding.captions import BOS, EOS, Captions
from caplore.models.protocol import Captioner, Features, select_state


class Nodes(NamedTuple):
    """One step of the tree."""

    token: Int[Tensor, "images width"]
    parent: Int[Tensor, "images width"]
    token_logprob: Float[Tensor, "images width"]
    total: Float[Tensor, "images width"]  # log p of the path; -inf where there is no such path


def beam(
    model: Captioner,
    features: Features,
    *,
    width: int,
    n: int = 1,
    max_words: int,
    length_penalty: float = 0.0,
) -> Captions:
    """The `n` best captions of each image, best first (the samples axis), found with a beam of `width`.

    The score that ranks finished captions is log p(y|x) / length^length_penalty, length counting the end. 0 is
    log p itself (what the search looks for, and the coco toolkits' choice); 1 is the mean per token (the paper's
    first author's public code), which favours longer captions. Width 1 is greedy search for any penalty. If an image has
    fewer than `n` captions within the limit, the rest are empty with log-probability -inf.
    """
    if not 1 <= n <= width:
        raise ValueError(f"beam returns between 1 and width captions; n is {n}, width {width}")
    if max_words < 1:
        raise ValueError(f"max_words is {max_words}, but must be at least 1")
    with torch.no_grad():
        state = model.begin(features)
        images, device = len(state[0]), state[0].device
        token = torch.full((images, 1), BOS, device=device)
        live = torch.zeros(images, 1, device=device)
        first_row = torch.arange(images, device=device)[:, None]
        tree: list[Nodes] = []
        scores: list[Float[Tensor, "images width"]] = []
        for time in range(max_words):
            logits, state = model.step(token.flatten(), state)
            nodes = expand(logits.float(), live, width)
            state = select_state(state, (first_row * live.shape[1] + nodes.parent).flatten())
            token = nodes.token
            leaf = torch.ones_like(token, dtype=torch.bool) if time == max_words - 1 else token == EOS
            score = nodes.total / (time + 1) ** length_penalty
            tree.append(nodes)
            scores.append(score.masked_fill(~leaf, -torch.inf))
            live = nodes.total.masked_fill(leaf, -torch.inf)
            if device.type == "cpu" and _settled(scores, live / max_words**length_penalty, n):
                break
        return read_back(tree, torch.stack(scores, dim=1), n, max_words)


def expand(logits: Float[Tensor, "rows vocab"], live: Float[Tensor, "images beams"], width: int) -> Nodes:
    """The `width` best children of each image's live nodes (rows are images x beams)."""
    images, beams = live.shape
    # The best `width` children of an image are among the best `width` of each node: no sort over beams x vocab.
    best, words = logits.topk(min(width, logits.shape[-1]), dim=-1)
    logprob = (best - logits.logsumexp(dim=-1, keepdim=True)).view(images, -1)  # images (beams * words)
    total = (logprob.view(images, beams, -1) + live[..., None]).view(images, -1)
    words = words.view(images, -1)
    missing = max(0, width - total.shape[1])
    if missing:  # fewer words than slots
        total = F.pad(total, (0, missing), value=-torch.inf)
        logprob, words = F.pad(logprob, (0, missing)), F.pad(words, (0, missing), value=EOS)
    total, chosen = total.topk(width, dim=-1)
    parent = (chosen // best.shape[-1]).clamp_(max=beams - 1)
    return Nodes(words.gather(1, chosen), parent, logprob.gather(1, chosen), total)


def read_back(
    tree: list[Nodes], scores: Float[Tensor, "images time width"], n: int, max_words: int
) -> Captions:
    """The captions that end in the `n` best leaves."""
    images, _, width = scores.shape
    score, leaf = scores.flatten(1).topk(n, dim=-1)
    end, slot = leaf // width, leaf % width
    tokens = torch.full((images, n, max_words), EOS, device=scores.device)
    logprobs = torch.zeros(images, n, max_words, device=scores.device)
    for time in reversed(range(len(tree))):
        nodes, past_end = tree[time], time > end
        tokens[..., time] = nodes.token.gather(1, slot).masked_fill(past_end, EOS)
        logprobs[..., time] = nodes.token_logprob.gather(1, slot).masked_fill(past_end, 0.0)
        slot = torch.where(past_end, slot, nodes.parent.gather(1, slot))
    there = score[..., None] > -torch.inf
    tokens = tokens.masked_fill(~there, EOS)
    logprobs = logprobs.masked_fill(~there, 0.0)
    logprobs[..., 0] = logprobs[..., 0].masked_fill(~there[..., 0], -torch.inf)
    return Captions(tokens, logprobs)


def _settled(
    scores: list[Float[Tensor, "images width"]], attainable: Float[Tensor, "images width"], n: int
) -> bool:
    """No live node can still beat the n-th best leaf of its image: log p only falls."""
    leaves = torch.cat(scores, dim=1)
    return bool((leaves.topk(n, dim=1).values[:, -1] >= attainable.amax(dim=1)).all())

"""Beam search for all images at once, with the n best captions of each; and diverse beam search.

A search is a tree. A node is a token, the slot of its parent one step before, and the log-probability of
the path so far. Each step expands the live nodes of a search and keeps its `width` best children. Children
that end are leaves: kept for good, with their final score, and not expanded. After the last step all nodes
are leaves (captions cut by the limit). The n best leaves of the whole tree are the answer, read back along
the parents.

Nothing is copied from step to step but the model's state, and nothing is asked of the host on CUDA.
Axes: searches is images x groups, flat (a plain beam has one group).
"""

from typing import NamedTuple, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from caplore.decoding.captions import Captions
from caplore.models.protocol import BOS, EOS, Captioner, Features, State, repeat_state


class Nodes(NamedTuple):
    """One step of the tree."""

    token: Int[Tensor, "searches width"]
    parent: Int[Tensor, "searches width"]
    token_logprob: Float[Tensor, "searches width"]
    total: Float[Tensor, "searches width"]  # log p of the path; -inf where there is no such path


@runtime_checkable
class Expanding(Captioner, Protocol):
    """A captioner that finds the best children of live nodes itself, as `expand` does, and shows no logits."""

    def expand(
        self,
        tokens: Int[Tensor, " rows"],
        state: State,
        live: Float[Tensor, "searches beams"],
        width: int,
    ) -> tuple[Nodes, State]: ...


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

    What ranks finished captions is log p(y|x) / length^length_penalty, length counting the end: 0 ranks by
    log p itself (what the search looks for, and the COCO toolkits' choice), 1 by the mean per token (the
    choice of the public code of the paper's first author), which favours longer captions. Width 1 is greedy
    search whatever the penalty. Where an image has fewer than `n` captions within the limit, the rest are
    empty, with log-probability -inf.
    """
    _check(width=width, groups=1, n=n, max_words=max_words)
    captions, _ = _search(model, features, width, 1, 0.0, n, max_words, length_penalty)
    return captions


def diverse_beam(
    model: Captioner,
    features: Features,
    *,
    width: int,
    groups: int,
    n: int,
    max_words: int,
    strength: float = 0.5,
    length_penalty: float = 0.0,
) -> Captions:
    """Beam search in `groups` that avoid each other's words (Vijayakumar et al., AAAI 2018).

    Every group is a beam of width / groups. At each step a word costs `strength` nats for every node of an
    earlier group that has just taken it (Hamming distance). The penalty decides which nodes a step keeps;
    scores and log-probabilities stay the model's own. Each group gives its n / groups best captions,
    and they come sorted by score; two groups may find the same caption.
    """
    _check(width=width, groups=groups, n=n, max_words=max_words)
    per_group = width // groups, groups, strength, n // groups
    captions, score = _search(model, features, *per_group, max_words, length_penalty)
    images = len(captions.tokens) // groups
    merged = Captions(
        captions.tokens.view(images, n, max_words), captions.token_logprob.view(images, n, max_words)
    )
    return merged.select(score.view(images, n).argsort(dim=1, descending=True, stable=True))


def _search(
    model: Captioner,
    features: Features,
    width: int,
    groups: int,
    strength: float,
    n: int,
    max_words: int,
    length_penalty: float,
) -> tuple[Captions, Float[Tensor, "searches n"]]:
    """The n best leaves of every search, with their scores. `width` and `n` are those of one group."""
    with torch.no_grad():
        state = model.begin(features)
        if groups > 1:
            state = repeat_state(state, groups)
        searches, device = len(state[0]), state[0].device
        same = [True] * len(state)  # parts of the state that are still as `begin` made them
        live = torch.zeros(searches, 1, device=device)
        token = torch.full_like(live, BOS, dtype=torch.long)
        tree: list[Nodes] = []
        scores: list[Float[Tensor, "searches width"]] = []
        for time in range(max_words):
            if groups == 1 and isinstance(model, Expanding):
                nodes, after = model.expand(token.flatten(), state, live, width)
            else:
                logits, after = model.step(token.flatten(), state)
                nodes = _expand_groups(logits.float(), live, width, groups, strength)
            same = [s and a is b for s, a, b in zip(same, after, state, strict=True)]
            state = _follow(after, same, nodes.parent, beams=live.shape[1])
            token = nodes.token
            leaf = torch.ones_like(token, dtype=torch.bool) if time == max_words - 1 else token == EOS
            tree.append(nodes)
            scores.append((nodes.total / (time + 1) ** length_penalty).masked_fill(~leaf, -torch.inf))
            live = nodes.total.masked_fill(leaf, -torch.inf)
            if device.type == "cpu" and _settled(scores, live / max_words**length_penalty, n):
                break
        return _read_back(tree, torch.stack(scores, dim=1), n, max_words)


def expand(
    logits: Float[Tensor, "rows vocab"],
    live: Float[Tensor, "searches beams"],
    width: int,
    penalty: Float[Tensor, "rows vocab"] | None = None,
) -> Nodes:
    """The `width` best children of each search's live nodes (rows are searches x beams).

    The best children of a search are among the best `width` of each of its nodes, so nothing is sorted over
    beams x vocab. `penalty` counts in the choice only.
    """
    searches, beams = live.shape
    words_each = min(width, logits.shape[-1])
    shown = logits if penalty is None else logits - penalty
    best, words = shown.topk(words_each, dim=-1)  # rows words_each
    norm = logits.logsumexp(dim=-1, keepdim=True)
    logprob = (best if penalty is None else logits.gather(-1, words)) - norm
    preference = live.reshape(-1, 1) + (best - norm)
    children = (searches, beams * words_each)
    preference, logprob, words = preference.view(children), logprob.view(children), words.view(children)
    missing = max(0, width - children[1])
    if missing:  # fewer words than slots: fill with nodes that are not there
        preference = F.pad(preference, (0, missing), value=-torch.inf)
        logprob, words = F.pad(logprob, (0, missing)), F.pad(words, (0, missing), value=EOS)
    _, chosen = preference.topk(width, dim=-1)
    parent = (chosen // words_each).clamp(max=beams - 1)
    token_logprob = logprob.gather(1, chosen)
    total = live.gather(1, parent) + token_logprob
    if missing:
        total = total.masked_fill(chosen >= children[1], -torch.inf)
    return Nodes(words.gather(1, chosen), parent, token_logprob, total)


def _expand_groups(
    logits: Float[Tensor, "rows vocab"],
    live: Float[Tensor, "searches beams"],
    width: int,
    groups: int,
    strength: float,
) -> Nodes:
    """`expand`, one group of each image after the other: a group sees what the earlier ones have taken."""
    if groups == 1:
        return expand(logits, live, width)
    beams, vocab = live.shape[1], logits.shape[-1]
    by_group = logits.view(len(live) // groups, groups, beams, vocab)
    live_by_group = live.view(len(live) // groups, groups, beams)
    taken = logits.new_zeros(len(by_group), vocab)
    found = []
    for group in range(groups):
        penalty = (strength * taken).repeat_interleave(beams, dim=0)
        nodes = expand(by_group[:, group].flatten(0, 1), live_by_group[:, group], width, penalty)
        taken.scatter_add_(1, nodes.token, (nodes.total > -torch.inf).to(taken.dtype))
        found.append(nodes)
    return Nodes(*(torch.stack(parts, dim=1).flatten(0, 1) for parts in zip(*found, strict=True)))


def _follow(state: State, same: list[bool], parent: Int[Tensor, "searches width"], beams: int) -> State:
    """Each node's state is its parent's. A part that no step has touched is equal in all rows of a search:
    once there is a row for each slot it stays where it is (the regions an attention reads are large)."""
    searches, width = parent.shape
    rows = (torch.arange(searches, device=parent.device)[:, None] * beams + parent).flatten()
    return tuple(
        part if untouched and beams == width else part.index_select(0, rows)
        for part, untouched in zip(state, same, strict=True)
    )


def _read_back(
    tree: list[Nodes], scores: Float[Tensor, "searches time width"], n: int, max_words: int
) -> tuple[Captions, Float[Tensor, "searches n"]]:
    """The captions that end in the `n` best leaves, and the leaves' scores."""
    searches, _, width = scores.shape
    score, leaf = scores.flatten(1).topk(n, dim=-1)
    end, slot = leaf // width, leaf % width
    tokens = torch.full((searches, n, max_words), EOS, device=scores.device)
    logprobs = torch.zeros(searches, n, max_words, device=scores.device)
    for time in reversed(range(len(tree))):
        nodes, past_end = tree[time], time > end
        tokens[..., time] = nodes.token.gather(1, slot).masked_fill(past_end, EOS)
        logprobs[..., time] = nodes.token_logprob.gather(1, slot).masked_fill(past_end, 0.0)
        slot = torch.where(past_end, slot, nodes.parent.gather(1, slot))
    missing = score == -torch.inf
    tokens = tokens.masked_fill(missing[..., None], EOS)
    logprobs = logprobs.masked_fill(missing[..., None], 0.0)
    logprobs[..., 0] = logprobs[..., 0].masked_fill(missing, -torch.inf)
    return Captions(tokens, logprobs), score


def _settled(
    scores: list[Float[Tensor, "searches width"]], attainable: Float[Tensor, "searches width"], n: int
) -> bool:
    """No live node can still beat the n-th best leaf of its search: log p only falls."""
    leaves = torch.cat(scores, dim=1)
    return bool((leaves.topk(n, dim=1).values[:, -1] >= attainable.amax(dim=1)).all())


def _check(*, width: int, groups: int, n: int, max_words: int) -> None:
    if max_words < 1:
        raise ValueError(f"max_words is {max_words}, but must be at least 1")
    if groups < 1 or width % groups or n % groups:
        raise ValueError(f"groups ({groups}) must divide width ({width}) and n ({n})")
    if not 1 <= n <= width:
        raise ValueError(f"n is {n}, but must be between 1 and the beam's width, {width}")

"""log p(y|x) of many captions of one input, sharing what they have in common.

The complete set of correct captions of a made picture has thousands of members, but they are
variations of each other: as a tree of prefixes they are a fraction of the words. The model walks
that tree level by level, each distinct prefix once. A prefix less probable than a threshold is not
followed, and what it could have held at most is added up, so the answer comes with its error bound.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from caplore.models.protocol import BOS, EOS, Captioner, Features, select_state


class Likelihoods(NamedTuple):
    """For each input, log p of its captions in the order given; -inf for those below the threshold."""

    logprob: list[Float[Tensor, " captions"]]
    missed: Float[Tensor, " inputs"]  # at most this much probability was not followed


class _Level(NamedTuple):
    """The distinct prefixes of one length: which prefix each extends, and by what word."""

    parent: Int[Tensor, " prefixes"]
    token: Int[Tensor, " prefixes"]


def caption_likelihoods(
    model: Captioner,
    features: Features,
    captions: Sequence[Int[Tensor, "captions time"]],
    *,
    threshold: float = 1e-7,
) -> Likelihoods:
    """log p(y|x) of `captions[i]` (rows of ids, each with its end) under input i, within `missed[i]`.

    The captions of an input are distinct. A row without an end is a prefix: its log p is that of the words.
    """
    device = model.begin(features)[0].device
    levels, leaf = _prefix_tree(captions)
    logprob = torch.full((len(leaf),), -torch.inf, device=device)
    missed = torch.zeros(len(captions), device=device)
    with torch.no_grad():
        state = model.begin(features)
        token = torch.full((len(captions),), BOS, device=device)
        total = torch.zeros(len(captions), device=device)  # log p of each live prefix
        owner = torch.arange(len(captions), device=device)  # the input each live prefix belongs to
        row_of = torch.arange(
            len(captions), device=device
        )  # where each prefix of the level above stands, -1: dropped
        for depth, level in enumerate(levels):
            logits, state = model.step(token, state)
            parent = row_of[level.parent.to(device)]
            followed = parent >= 0
            parent, word = parent[followed], level.token.to(device)[followed]
            normaliser = logits.float().logsumexp(-1)
            reached = total[parent] + logits[parent, word].float() - normaliser[parent]
            ends = (word == EOS) | (depth + 1 == len(levels))
            at = torch.full((len(followed),), -1, device=device)
            at[followed] = torch.arange(len(word), device=device)
            here = leaf[:, 0] == depth  # captions whose last token is on this level
            place = at[leaf[here, 1].to(device)]
            logprob[here.to(device)] = (
                torch.where(place >= 0, reached[place.clamp_min(0)], -torch.inf) if len(word) else -torch.inf
            )
            faint = ~ends & (reached.exp() < threshold)
            missed.index_add_(0, owner[parent[faint]], reached[faint].exp())
            going = ~ends & ~faint
            row_of = torch.full((len(followed),), -1, device=device)
            row_of[followed.nonzero().squeeze(1)[going]] = torch.arange(int(going.sum()), device=device)
            if not going.any():
                break
            state = select_state(state, parent[going])
            token, total, owner = word[going], reached[going], owner[parent[going]]
    return Likelihoods(list(logprob.split([len(c) for c in captions])), missed)


def _prefix_tree(
    captions: Sequence[Int[Tensor, "captions time"]],
) -> tuple[list[_Level], Int[Tensor, "captions 2"]]:
    """Levels of distinct prefixes over all inputs, and for each caption (level, prefix) of its last token."""
    time = max(c.shape[1] for c in captions)
    rows = torch.cat([torch.nn.functional.pad(c.cpu(), (0, time - c.shape[1]), value=EOS) for c in captions])
    owner = torch.cat([torch.full((len(c),), i) for i, c in enumerate(captions)])
    whole = torch.cat([owner[:, None], rows], dim=1)
    order = _lexicographic(whole)
    whole = whole[order]
    # A row begins a new prefix of length t where it differs from the row before in any of the first t columns.
    new = torch.ones_like(whole, dtype=torch.bool)
    new[1:] = (whole[1:] != whole[:-1]).cummax(dim=1).values
    prefix = new.cumsum(0) - 1  # [caption, t]: number of the prefix of length t (t = 0: the input itself)
    ended = (whole[:, 1:] == EOS).cumsum(1)
    alive = ended - (whole[:, 1:] == EOS).long() == 0  # positions up to and including the first end
    levels, last = [], torch.zeros(len(whole), 2, dtype=torch.long)
    number = prefix[:, 0]
    for depth in range(time):
        inside = alive[:, depth]
        if not inside.any():
            break
        begins = new[:, depth + 1] & inside
        mine = (begins.cumsum(0) - 1).masked_fill(~inside, -1)
        levels.append(_Level(number[begins], whole[begins, depth + 1]))
        closing = inside & ((whole[:, depth + 1] == EOS) | (torch.tensor(depth == time - 1)))
        last[closing, 0], last[closing, 1] = depth, mine[closing]
        number = mine
    back = torch.empty_like(last)
    back[order] = last
    return levels, back


def _lexicographic(rows: Int[Tensor, "rows columns"]) -> Int[Tensor, " rows"]:
    """The order that sorts rows by their first column, then the second, and so on."""
    order = torch.arange(len(rows))
    for column in reversed(range(rows.shape[1])):
        order = order[rows[order, column].argsort(stable=True)]
    return order

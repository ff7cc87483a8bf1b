"""Exact figures on made worlds: the model's probability of every correct caption of an input.

What real data can never give: precision is P(Y|x), recall is what k draws are expected to cover of
Y, and the peak width says how many correct captions share the probability.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from caplore.data.scenes import Truth
from caplore.evaluation.captioner import Captioner
from caplore.evaluation.likelihood import caption_likelihoods
from caplore.metrics import exact
from caplore.models.protocol import Features
from caplore.text.vocabulary import UNK, pack
from caplore.training.distributed import ALONE, World

RECALL_AT = (5, 20)
TOGETHER = 32  # inputs whose prefix trees are walked side by side
RANKS = (1, 2, 3, 5, 8, 13, 20, 32, 50, 80, 130, 200, 320, 500, 800, 1300, 2000, 5000)


def exact_figures(
    captioner: Captioner, features: Features, truths: Sequence[Truth], world: World = ALONE
) -> dict[str, Any]:
    """The `exact` part of a result: scores with signatures, and the mass by rank for the peak picture.

    The processes of a world take turns at groups of inputs, and all get all figures.
    """
    inputs, names = len(truths), ("precision", "peak_width", "truths", *(f"recall_{k}" for k in RECALL_AT))
    rows = torch.zeros(inputs, len(names) + 1 + len(RANKS), dtype=torch.float64, device=world.device)
    for start in range(0, inputs, TOGETHER)[world.rank :: world.size]:
        group = slice(start, start + TOGETHER)
        part = Features(*(None if f is None else f[group] for f in features))
        found = [_figures(*one) for one in _of_all_captions(captioner, part, truths[group])]
        rows[group] = torch.stack(found).to(rows)
    columns = world.sum_(rows).cpu().T
    each = {name: column.tolist() for name, column in zip(names, columns, strict=False)}
    missed, mass = float(columns[len(names)].sum()), columns[len(names) + 1 :].sum(1)
    note = f"probability not followed: at most {missed / max(inputs, 1):.1e} per input"
    return {
        "inputs": inputs,
        "scores": {
            key: {
                "value": sum(values) / inputs,
                "signature": f"{SIGNATURES.get(key, key)}|inputs:{inputs}|all of Y by teacher forcing",
                "note": note,
            }
            for key, values in each.items()
        },
        "peak": {"ranks": list(RANKS), "mass": (mass / inputs).tolist()},
        "each": {key: [round(v, 6) for v in values] for key, values in each.items()},
    }


SIGNATURES = {
    "precision": "P(Y|x)",
    "peak_width": "exp(H(p restricted to Y))",
    "truths": "|Y|",
    "recall_5": "E[distinct correct of 5]/min(5,|Y|)",
    "recall_20": "E[distinct correct of 20]/min(20,|Y|)",
}


def _figures(logprob: Float[Tensor, " captions"], count: int, missed: float) -> Float[Tensor, " figures"]:
    """One input: the named figures, the probability not followed, the mass by rank."""
    recalls = (float(exact.expected_recall(logprob, k=k)) for k in RECALL_AT)
    named = (float(exact.precision(logprob)), float(exact.peak_width(logprob)), float(count), *recalls)
    by_rank = exact.mass_by_rank(logprob)
    mass = (float(by_rank[min(rank, len(by_rank)) - 1]) for rank in RANKS)
    return torch.tensor((*named, missed, *mass), dtype=torch.float64)


def _of_all_captions(
    captioner: Captioner, features: Features, truths: Sequence[Truth]
) -> list[tuple[Float[Tensor, " captions"], int, float]]:
    """For each input: log p of each correct caption, how many there are, and the probability not followed.

    A correct caption with a word the model never saw, or longer than its limit, has probability 0.
    """
    sayable, counts = [], []
    for truth in truths:
        captions = truth.captions()
        ids = [captioner.vocabulary.encode(words) for words in captions]
        kept = [row for row in ids if UNK not in row and len(row) < captioner.max_words]
        sayable.append(pack(kept, captioner.max_words))
        counts.append(len(captions))
    part = Features(*(None if f is None else f.to(captioner.device).float() for f in features))
    found = caption_likelihoods(captioner.model, part, sayable)
    whole = [
        torch.nn.functional.pad(logprob.cpu(), (0, count - len(logprob)), value=-torch.inf)
        for logprob, count in zip(found.logprob, counts, strict=True)
    ]
    return list(zip(whole, counts, found.missed.tolist(), strict=True))

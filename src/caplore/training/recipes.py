"""Named recipes: what each is, how long it takes, what comes out. A new experiment is a new line here.

A family is a data set's settings and one recipe per objective: `<data>-xe`, `-sll`, `-sll-me`, `-sle` and, beyond
the paper, `-marginal` and `-max-at-k`. All objectives of a family share everything but the objective.
"""

import dataclasses
from pathlib import Path
from typing import Literal

from caplore.training.config import (
    Marginal,
    MaxAtK,
    Model,
    Recipe,
    Sequence,
    SequenceObjective,
    Sll,
    SllMe,
    SllSle,
    Xe,
)

Family = dict[str, tuple[str, Recipe]]


def _family(
    prefix: str,
    what: str,
    base: Recipe,
    phase: Sequence,
    *,
    entropy_weight: float,
    alpha: float = 0.75,
    baseline: Literal["greedy", "rest"] = "greedy",
) -> Family:
    """One recipe per objective; the weight of the entropy is tuned per data set, as in the paper."""
    objectives: dict[str, tuple[str, SequenceObjective]] = {
        "sll": ("expected score", Sll(baseline=baseline)),
        "sll-me": ("the same plus word entropy", SllMe(baseline=baseline, entropy_weight=entropy_weight)),
        "sle": ("the same plus distance between samples", SllSle(baseline=baseline, alpha=alpha)),
        "marginal": ("the same plus what each sample adds to recall", Marginal(baseline=baseline)),
        "max-at-k": ("expected best of k samples", MaxAtK()),
    }

    def recipe(name: str, sequence: Sequence | None) -> Recipe:
        return dataclasses.replace(base, to=Path("runs") / f"{prefix}-{name}", sequence=sequence)

    family = {f"{prefix}-xe": (f"{what}: cross-entropy alone", recipe("xe", None))}
    for name, (goal, objective) in objectives.items():
        sequence = dataclasses.replace(phase, objective=objective)
        family[f"{prefix}-{name}"] = (f"{what}: cross-entropy, then {goal}", recipe(name, sequence))
    return family


# The made world, 4,000 pictures. On 2 CPU cores: half a minute of XE, half a minute of each other phase. Expect
# validation CIDEr-D of about 255 (XE) and 285 (sequence-level): small on purpose, `--model.hidden 256` gains 15.
SCENES = _family(
    "scenes",
    "made world",
    Recipe(
        data=Path("data/scenes"),
        model=Model(hidden=128, dropout=0.1),
        xe=Xe(epochs=10, lr=4e-3, batch=64),
        max_words=20,
        selection_beam=3,
    ),
    Sequence(epochs=8, lr=1e-3, batch=64),
    entropy_weight=1e-2,
)

# Flickr8k, 6,000 pictures. The other samples are the baseline, as for MSVD. Dev CIDEr, beam 3, one seed: 49 (XE), 50
# (SLL), 51 (SLL-SLE), still rising; the first six epochs of a sequence phase are below cross-entropy (docs/results.md).
# On 2 CPU cores with `--precision bfloat16` a quarter of an hour of XE and as much of each other phase.
FLICKR8K = _family(
    "flickr8k",
    "Flickr8k",
    Recipe(
        data=Path("data/flickr8k"),
        min_count=5,
        max_words=18,
        xe=Xe(epochs=25, lr=1e-3, batch=64),
        selection_beam=3,
    ),
    Sequence(epochs=14, lr=1e-4, batch=64),
    entropy_weight=1e-3,
    baseline="rest",
)

# MSVD, 1,200 clips with about 40 captions each. Drawn captions score a third of the greedy one, so the other samples
# are the baseline: with the greedy caption as the baseline no epoch is better than cross-entropy, and a rate of 1e-4 is
# too high (docs/results.md). Validation CIDEr, beam 5, three seeds: 72 (XE), 75 (SLL), 74 (SLL-SLE), each +- 2; on 2
# CPU cores with `--precision bfloat16` 10 minutes of XE and one of each other phase.
MSVD = _family(
    "msvd",
    "MSVD",
    Recipe(
        data=Path("data/msvd"),
        min_count=3,
        max_words=16,
        xe=Xe(epochs=30, lr=1e-3, batch=32, captions=10),
        selection_beam=3,
    ),
    Sequence(epochs=6, lr=3e-5, batch=32),
    entropy_weight=1e-3,
    baseline="rest",
)

# COCO captions with a text embedding in place of pixels: real statistics at real scale, not captioning.
COCO_PROXY = _family(
    "coco-proxy",
    "COCO captions from text embeddings (not pictures)",
    Recipe(
        data=Path("data/coco-proxy"),
        min_count=5,
        max_words=18,
        model=Model(dropout=0.3),
        xe=Xe(epochs=30, lr=5e-4, batch=256),
        selection_beam=3,
    ),
    Sequence(epochs=30, lr=2e-4, batch=256),
    entropy_weight=1e-3,
)

# The paper's own settings, for whoever has the pictures: ResNet-152 pooled to 2,048, LSTM of 512, ADAM, 5 samples,
# alpha .75. The paper reports, beam 5: COCO CIDEr 115.0 (SLL) and 117.2 (SLL-SLE); TGIF 45.9 and 50.8. Not run here:
# the pictures are not at hand. Expected on one H200, at the 4 ms a step of a prototype: COCO 10 minutes, TGIF 8.
COCO = _family(
    "coco",
    "COCO, the paper's settings",
    Recipe(data=Path("data/coco"), min_count=5, max_words=20, xe=Xe(epochs=30, batch=64), selection_beam=5),
    Sequence(epochs=50, lr=1e-5, schedule="constant", batch=64),
    entropy_weight=1e-2,
)
TGIF = _family(
    "tgif",
    "TGIF, the paper's settings",
    Recipe(
        data=Path("data/tgif"),
        min_count=5,
        max_words=20,
        xe=Xe(epochs=30, batch=64, captions=1),
        selection_beam=5,
    ),
    Sequence(epochs=50, lr=1e-5, schedule="constant", batch=64),
    entropy_weight=1e-2,
)

# Your own few hundred pictures: small vocabulary counts, strong dropout, and batches of 8, as a few pictures make few
# steps. 40, 100 and 300 pictures of Flickr8k: test CIDEr 12.9, 23.0, 28.1 (2.8, 13.0, 16.9 with 20 epochs of batches
# of 32); docs/your-own-data.md has the commands.
OWN = _family(
    "own",
    "your own data",
    Recipe(data=Path("data/own"), max_words=20, model=Model(hidden=256), xe=Xe(epochs=40, lr=1e-3, batch=8)),
    Sequence(epochs=10, lr=1e-4, batch=8),
    entropy_weight=1e-3,
)

RECIPES: Family = {**SCENES, **FLICKR8K, **MSVD, **COCO_PROXY, **COCO, **TGIF, **OWN}

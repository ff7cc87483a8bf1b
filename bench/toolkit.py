"""The field's standard toolkit in the same run as ours: its models, its self-critical step, its beam search.

CAPLORE_TOOLKIT names a temporary folder that holds, from github.com/ruotianluo, `captioning/` of
ImageCaptioning.pytorch and `cider/pyciderevalcap/` of cider (and `coco-caption/pycocoevalcap/`, as pip installs it).
Nothing of it is kept here.
"""

import contextlib
import os
import sys
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from math import log
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from caplore.models.protocol import Features

NAMES = {"fc": "newfc", "att2in": "att2in2", "updown": "updown", "transformer": "transformer"}
MISSING = "set CAPLORE_TOOLKIT to run it: see bench/toolkit.py"


def folder() -> Path | None:
    """Where the toolkit lies, if it was brought."""
    named = os.environ.get("CAPLORE_TOOLKIT")
    return Path(named).absolute() if named else None


class Toolkit:
    """One of its models with its optimiser and its reward, for the ids and features that ours gets."""

    def __init__(
        self,
        name: str,
        *,
        vocab: int,
        features: Features,
        references: Tensor,
        sampled: int = 5,
        frequencies: dict[Any, float] | None = None,
    ) -> None:
        place = folder()
        assert place is not None, MISSING
        with _inside(place):
            from captioning import models  # type: ignore[import-not-found]
            from captioning.modules.loss_wrapper import LossWrapper  # type: ignore[import-not-found]
            from captioning.utils import rewards  # type: ignore[import-not-found]

            self.options = _options(name, vocab, features, references.shape[-1], sampled)
            self.model = models.setup(self.options).to(references.device)
            self.loss = LossWrapper(self.model, self.options)
            rewards.init_scorer("corpus")
        scorer = rewards.CiderD_scorer.cider_scorer
        scorer.df_mode, scorer.ref_len = "given", log(len(references))
        scorer.document_frequency = (
            frequencies if frequencies is not None else document_frequencies(references)
        )
        self.features, self.references = features, references
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-5)
        self._numbers = references.cpu().numpy()

    def sequence_step(self, index: Tensor) -> None:
        """Greedy decoding, sampling with gradient, reward in Python, REINFORCE, clip, Adam: its `tools/train.py`."""
        gts = [self._numbers[i] for i in index.tolist()]
        self._step(index, gts=gts, gt_indices=torch.arange(len(index)), sc=True)

    def xe_step(self, index: Tensor) -> None:
        """Cross-entropy of five references of each image."""
        self._step(index, gts=None, gt_indices=None, sc=False)

    def _step(self, index: Tensor, *, gts: Any, gt_indices: Any, sc: bool) -> None:
        labels = torch.nn.functional.pad(self.references[index], (1, 1))
        mask = torch.ones_like(labels, dtype=torch.float32)
        self.optimizer.zero_grad()
        with _silent():
            out = self.loss(*self._features(index), labels, mask, None, gts, gt_indices, sc, False, False)
        loss = out["loss"].mean()
        loss.backward()
        torch.nn.utils.clip_grad_value_(self.model.parameters(), 0.1)
        self.optimizer.step()
        loss.item()  # as its loop does, to print it

    def beam(self, index: Tensor, width: int) -> None:
        self.model.eval()
        with torch.no_grad(), _silent():
            self.model(*self._features(index), None, opt={"beam_size": width, "sample_n": 1}, mode="sample")

    def _features(self, index: Tensor) -> tuple[Tensor, Tensor]:
        pooled, regions = (None if f is None else f[index].float() for f in self.features)
        assert pooled is not None
        return pooled, pooled[:, None] if regions is None else regions


def document_frequencies(references: Tensor) -> dict[Any, float]:
    """In how many images each n-gram of ids stands, the end counted, keyed as its scorer looks them up."""
    found: dict[Any, float] = defaultdict(float)
    for captions in references.tolist():
        grams = set()
        for caption in captions:
            words = [str(w) for w in (caption[: caption.index(0) + 1] if 0 in caption else caption)]
            grams |= {tuple(words[i : i + n]) for n in range(1, 5) for i in range(len(words) - n + 1)}
        for gram in grams:
            found[gram] += 1
    return found


def _options(name: str, vocab: int, features: Features, time: int, sampled: int) -> Namespace:
    assert features.pooled is not None
    regions = features.regions if features.regions is not None else features.pooled
    return Namespace(
        caption_model=NAMES[name], vocab_size=vocab - 1, vocab={}, input_encoding_size=512, rnn_type="lstm",
        rnn_size=2048 if name == "transformer" else 512, num_layers=3 if name == "transformer" else 1,
        drop_prob_lm=0.5, seq_length=time, max_length=time, fc_feat_size=features.pooled.shape[-1],
        att_feat_size=regions.shape[-1], att_hid_size=512, label_smoothing=0, structure_loss_type="new_self_critical",
        entropy_reward_weight=0, cider_reward_weight=1, bleu_reward_weight=0, use_ppo=0, sc_sample_method="greedy",
        sc_beam_size=1, train_sample_method="sample", train_beam_size=1, train_sample_n=sampled,
    )  # fmt: skip


@contextlib.contextmanager
def _inside(place: Path) -> Iterator[None]:
    """It finds its parts by paths from its own folder."""
    before = os.getcwd()
    os.chdir(place)
    sys.path[:0] = [str(place), str(place / "cider"), str(place / "coco-caption")]
    try:
        with _silent():
            yield
    finally:
        os.chdir(before)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def each(work: Callable[[Tensor], None], batches: Sequence[Tensor]) -> None:
    for index in batches:
        work(index)

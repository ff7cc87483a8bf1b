"""A trained run, ready to caption: its model, its words, the features it needs; and the decoders by name."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

from caplore import models
from caplore.decoding import Captions, beam, sample
from caplore.models import Model
from caplore.models.protocol import Features
from caplore.text.vocabulary import Vocabulary
from caplore.training import checkpoint
from caplore.training.distributed import ALONE, World, pick_device
from caplore.training.run import Run, open_run


@dataclass(frozen=True, kw_only=True)
class Beam:
    """The n best captions of a beam search."""

    kind: ClassVar[str] = "beam"
    width: int = 5
    n: int = 1
    length_penalty: float = 0.0

    def __call__(self, model: Model, features: Features, max_words: int, rng: torch.Generator) -> Captions:
        return beam(
            model,
            features,
            width=self.width,
            n=self.n,
            max_words=max_words,
            length_penalty=self.length_penalty,
        )


@dataclass(frozen=True, kw_only=True)
class Draw:
    """n captions drawn from p(y|x), or from what temperature, top-k and top-p leave of it."""

    kind: ClassVar[str] = "sample"
    n: int = 5
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __call__(self, model: Model, features: Features, max_words: int, rng: torch.Generator) -> Captions:
        return sample(
            model,
            features,
            samples=self.n,
            max_words=max_words,
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            generator=rng,
        )


Decoder = Beam | Draw


def settings(decoder: Decoder, max_words: int) -> dict[str, Any]:
    """What a result says about how its captions were made."""
    return {"kind": decoder.kind, **asdict(decoder), "max_words": max_words}


@dataclass(frozen=True)
class Said:
    """One caption of an input, as words, with its log-probability under the decoder's distribution."""

    words: tuple[str, ...]
    logprob: float


@dataclass(frozen=True)
class Captioner:
    """A run's best model and everything that decoding needs."""

    run: Run
    model: Model
    vocabulary: Vocabulary
    max_words: int
    device: torch.device

    def caption(
        self,
        features: Features,
        decoder: Decoder,
        *,
        seed: int = 0,
        batch: int = 256,
        world: World = ALONE,
    ) -> list[list[Said]]:
        """Captions of each input, the decoder's best first; `seed` fixes what is drawn.

        The processes of a world take turns at the batches, and all get all captions. A batch has chance of
        its own, so that its captions are the same whoever decodes it.
        """
        shape = (features.rows, decoder.n, self.max_words)
        tokens = torch.zeros(shape, dtype=torch.long, device=self.device)
        logprob = torch.zeros(shape, device=self.device)
        starts = range(0, features.rows, batch)
        for start in starts[world.rank :: world.size]:
            rows = slice(start, start + batch)
            part = Features(*(None if f is None else f[rows].to(self.device).float() for f in features))
            rng = torch.Generator(device=self.device).manual_seed(seed * 1_000_003 + start)
            tokens[rows], logprob[rows] = decoder(self.model, part, self.max_words, rng)
        return self._words(Captions(world.sum_(tokens), world.sum_(logprob)))

    def _words(self, captions: Captions) -> list[list[Said]]:
        tokens, logprob = captions.tokens.tolist(), captions.logprob.tolist()
        return [
            [Said(tuple(self.vocabulary.decode(row)), p) for row, p in zip(rows, ps, strict=True)]
            for rows, ps in zip(tokens, logprob, strict=True)
        ]


def load_captioner(path: Path, device: str = "auto") -> Captioner:
    """The best model of a run folder, in evaluation mode; a run folder is all this needs."""
    run = open_run(path)
    where = pick_device(device)
    model = models.build(**run.head()["architecture"])
    checkpoint.load_model(model, checkpoint.load(run.best), run.best)
    model.to(where).eval()
    return Captioner(run, model, run.vocabulary(), run.recipe().max_words, where)


def as_features(found: dict[str, torch.Tensor]) -> Features:
    """What a feature store gives, as what a model takes."""
    return Features(found.get("pooled"), found.get("regions"))


def texts(said: Sequence[Sequence[Said]]) -> list[list[str]]:
    return [[" ".join(one.words) for one in some] for some in said]

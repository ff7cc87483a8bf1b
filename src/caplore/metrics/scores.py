"""What scoring gives: corpus scores with signatures, the value of each caption, and the numbers behind them."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from caplore.metrics.bootstrap import Statistics
from caplore.metrics.signature import Score


@dataclass
class Scores:
    """What was found, by name of the score (`cider_d`, `bleu_4`, `oracle_cider_d`, `div_1`, ...)."""

    inputs: Int[Tensor, " inputs_plus_1"]
    """Where the captions of each input begin among all captions, and the end."""
    corpus: dict[str, Score] = field(default_factory=dict)
    captions: dict[str, Float[Tensor, " captions"]] = field(default_factory=dict)
    """Of sentence metrics, the value of each caption, in the order they were given."""
    statistics: dict[str, Statistics] = field(default_factory=dict)
    """Of every score that is a function of sums over inputs, the numbers of each input."""

    def add(
        self,
        name: str,
        values: Float[Tensor, " captions"],
        signature: str,
        *,
        corpus: Statistics | None = None,
        note: str | None = None,
    ) -> None:
        """A sentence metric: its corpus score, and for sets of captions the mean and the best of each set.

        The corpus score is the mean over inputs of the mean of an input's captions, unless `corpus` says otherwise.
        """
        self.captions[name] = values
        mean = Statistics(self._mean_of_sets(values).unsqueeze(1), "mean")
        self.put(name, mean if corpus is None else corpus, signature, note)
        if self.size == "1":
            return
        if corpus is not None:
            self.put(f"mean_{name}", mean, f"mean-of-{self.size}|{signature}", note)
        best = torch.full((len(self.inputs) - 1,), -torch.inf, dtype=values.dtype)
        best = best.scatter_reduce(0, self._owner, values, "amax")
        self.put(
            f"oracle_{name}", Statistics(best.unsqueeze(1), "mean"), f"best-of-{self.size}|{signature}", note
        )

    def put(self, name: str, statistics: Statistics, signature: str, note: str | None = None) -> None:
        """A score that is a function of sums over inputs."""
        self.statistics[name] = statistics
        self.corpus[name] = Score(statistics.value, signature, note)

    def miss(self, name: str, signature: str, why: str) -> None:
        """A score that was asked for and could not be computed."""
        self.corpus[name] = Score(None, signature, why)

    def of(self, name: str) -> list[list[float]]:
        """The values of the captions of each input."""
        return [part.tolist() for part in self.captions[name].split(self.inputs.diff().tolist())]

    @cached_property
    def size(self) -> str:
        """How many captions the inputs have: "5", or "3-5" where not all have as many."""
        sizes = self.inputs.diff()
        low, high = int(sizes.min()), int(sizes.max())
        return str(low) if low == high else f"{low}-{high}"

    def to_json(self) -> dict[str, Any]:
        return {name: score.to_json() for name, score in self.corpus.items()}

    @cached_property
    def _owner(self) -> Int[Tensor, " captions"]:
        sizes = self.inputs.diff()
        return torch.repeat_interleave(torch.arange(len(sizes)), sizes)

    def _mean_of_sets(self, values: Float[Tensor, " captions"]) -> Float[Tensor, " inputs"]:
        sums = torch.zeros(len(self.inputs) - 1, dtype=values.dtype).index_add_(0, self._owner, values)
        return sums / self.inputs.diff()

"""What scoring gives: corpus scores with signatures, the value of each caption, and the numbers behind them."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caplore.metrics.bootstrap import Statistics
from caplore.metrics.signature import Score


@dataclass
class Scores:
    """What was found, by name of the score (`cider_d`, `bleu_4`, `oracle_cider_d`, `div_1`, ...)."""

    inputs: NDArray[np.int64]
    """Where the captions of each input begin among all captions, and the end; an input has one at least."""
    corpus: dict[str, Score] = field(default_factory=dict)
    captions: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    """Of sentence metrics, the value of each caption, in the order they were given."""
    statistics: dict[str, Statistics] = field(default_factory=dict)
    """Of every score that is a function of sums over inputs, the numbers of each input."""

    def add(
        self,
        name: str,
        values: NDArray[np.float64],
        signature: str,
        *,
        corpus: Statistics | None = None,
        note: str | None = None,
    ) -> None:
        """A sentence metric: its corpus score, and for sets of captions the mean and the best of each set.

        The corpus score is the mean over inputs of the mean of an input's captions, unless `corpus` says otherwise.
        """
        self.captions[name] = values
        mean = Statistics(self.sum_of_sets(values[:, None]) / self.sizes[:, None], "mean")
        self.put(name, mean if corpus is None else corpus, signature, note)
        if self.size == "1":
            return
        if corpus is not None:
            self.put(f"mean_{name}", mean, f"mean-of-{self.size}|{signature}", note)
        best = Statistics(np.maximum.reduceat(values, self.inputs[:-1])[:, None], "mean")
        self.put(f"oracle_{name}", best, f"best-of-{self.size}|{signature}", note)

    def put(self, name: str, statistics: Statistics, signature: str, note: str | None = None) -> None:
        """A score that is a function of sums over inputs."""
        self.statistics[name] = statistics
        self.corpus[name] = Score(statistics.value, signature, note)

    def miss(self, name: str, signature: str, why: str) -> None:
        """A score that was asked for and could not be computed."""
        self.corpus[name] = Score(None, signature, why)

    def of(self, name: str) -> list[list[float]]:
        """The values of the captions of each input."""
        return [part.tolist() for part in np.split(self.captions[name], self.inputs[1:-1])]

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Captions of each input."""
        return np.diff(self.inputs)

    @cached_property
    def size(self) -> str:
        """How many captions the inputs have: "5", or "3-5" where not all have as many."""
        low, high = int(self.sizes.min()), int(self.sizes.max())
        return str(low) if low == high else f"{low}-{high}"

    def sum_of_sets(self, rows: NDArray[np.generic]) -> NDArray[np.float64]:
        """The sum of the captions of each input: [captions, columns] -> [inputs, columns]."""
        return np.add.reduceat(rows, self.inputs[:-1], axis=0, dtype=np.float64)

    def to_json(self) -> dict[str, Any]:
        return {name: score.to_json() for name, score in self.corpus.items()}

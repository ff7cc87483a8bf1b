"""Is the run still sane? Non-finite numbers and collapses, each named with its window and what to try."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from caplore.errors import TrainingStopped

PATIENCE = 3  # windows in a row: one bad window is noise, three are a trend


@dataclass
class Watch:
    """Compares each log window of a sequence-level phase with the phase's first one.

    The limits are wide on purpose. They come from the collapses that were measured (docs/objectives.md):
    one-word captions, entropy that runs away under SLL-ME, captions that never end.
    """

    phase: str
    reference_length: float
    first: dict[str, float] = field(default_factory=dict)
    strikes: dict[str, int] = field(default_factory=dict)

    def check_finite(
        self, stats: Mapping[str, float], steps: tuple[int, int], *, beside: Mapping[str, float] | None = None
    ) -> None:
        """Raise TrainingStopped when a quantity is not finite; `beside` is what else the message shows."""
        for name, value in stats.items():
            if not math.isfinite(value):
                listing = _listing(stats if beside is None else beside, but=name)
                raise TrainingStopped(
                    f"{name} became {value} {_when(steps)} of phase {self.phase} ({listing})",
                    fix=f"try a smaller --{self.phase}.lr, or a smaller --clip",
                )

    def check(self, stats: Mapping[str, float], steps: tuple[int, int]) -> None:
        """Raise TrainingStopped when a quantity has been out of bounds for three log windows."""
        if "reward" not in stats:
            return
        if not self.first:
            self.first = dict(stats)
            return
        for name, bad, why, advice in self._limits(stats):
            self.strikes[name] = self.strikes.get(name, 0) + 1 if bad else 0
            if self.strikes[name] >= PATIENCE:
                raise TrainingStopped(
                    f"phase {self.phase} collapsed by step {steps[1]}: {why}, {PATIENCE} log windows in a row, "
                    f"the last from step {steps[0]} on ({_listing(stats)})",
                    fix=f"try {advice}",
                )

    def _limits(self, now: Mapping[str, float]) -> list[tuple[str, bool, str, str]]:
        first, length = self.first, self.reference_length
        return [
            (
                "short",
                now["length"] < 0.4 * length,
                f"captions have {now['length']:.1f} words, the references {length:.1f}",
                "more weight on the score (a larger --sequence.objective.alpha), or a smaller --sequence.lr",
            ),
            (
                "endless",
                now["ended"] < 0.5 and now["ended"] < first["ended"] - 0.2,
                f"only {now['ended']:.0%} of the captions end within the limit",
                "a smaller --sequence.lr, or less weight on the entropy",
            ),
            (
                "reward",
                now["reward"] < 0.5 * first["reward"],
                f"the reward fell from {first['reward']:.3f} to {now['reward']:.3f}",
                "more weight on the score (a larger --sequence.objective.alpha), or a smaller --sequence.lr",
            ),
            (
                "entropy",
                now["entropy"] > 1.5 * first["entropy"] + 0.5,
                f"the entropy of the next word ran from {first['entropy']:.2f} to {now['entropy']:.2f} nats",
                "a smaller --sequence.objective.entropy-weight",
            ),
        ]

    def state(self) -> dict[str, Any]:
        return {"first": self.first, "strikes": self.strikes}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.first, self.strikes = dict(state["first"]), dict(state["strikes"])


def _when(steps: tuple[int, int]) -> str:
    first, last = steps
    return f"between steps {first} and {last}" if first < last else f"at step {last}"


def _listing(stats: Mapping[str, float], but: str = "") -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in stats.items() if name != but)

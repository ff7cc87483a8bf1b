"""Splits by a hash of the ids: the same every time, on every machine, and unchanged by inputs that are added later."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from caplore.errors import ConfigError


@dataclass(frozen=True)
class ByHash:
    """Which share of the inputs is validated and tested on; another seed, another split."""

    val: float = 0.1
    test: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.val < 0 or self.test < 0 or not self.val + self.test < 1:
            raise ConfigError(
                f"--val {self.val} and --test {self.test} leave nothing to train on",
                fix="--val 0.1 --test 0.1",
            )

    def of(self, name: str) -> str:
        """The split of an id: sha256 of it as a number in [0, 1), test below `test`, val in the next `val`."""
        digest = hashlib.sha256(f"{self.seed}:{name}".encode()).digest()
        share = int.from_bytes(digest[:8], "big") / 2**64
        return "test" if share < self.test else "val" if share < self.test + self.val else "train"

    def settled(self, names: Sequence[str]) -> dict[str, str]:
        """The split of each; one that chance left empty gets an input of the largest, by hash as well."""
        by_split: dict[str, list[str]] = {"train": [], "val": [], "test": []}
        for name in names:
            by_split[self.of(name)].append(name)
        for split, share in (("train", 1.0), ("val", self.val), ("test", self.test)):
            largest = max(by_split.values(), key=len)
            if share > 0 and not by_split[split] and len(largest) > 1:
                moved = min(largest, key=lambda name: self._order(split, name))
                largest.remove(moved)
                by_split[split].append(moved)
        return {name: split for split, some in by_split.items() for name in some}

    def _order(self, split: str, name: str) -> bytes:
        return hashlib.sha256(f"{self.seed}:{split}:{name}".encode()).digest()

"""What made a number: every score carries its settings, as sacreBLEU's do.

    CIDEr-D|tok:ptb|n:4|sigma:6|df:references(5000 images, 1f0c...)|eos:no|scale:10|caplore:0.1.0

Two numbers may be compared when their signatures are equal.
"""

from dataclasses import dataclass
from typing import Any

from caplore import __version__


def signature(metric: str, **settings: object) -> str:
    """`metric|key:value|...|caplore:version`, in the order given; a setting that is None is left out."""
    parts = [metric] + [f"{key}:{_short(value)}" for key, value in settings.items() if value is not None]
    return "|".join([*parts, f"caplore:{__version__}"])


def _short(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case _:
            return str(value)


@dataclass(frozen=True)
class Score:
    """A number, what made it, and what a reader should know before quoting it."""

    value: float | None
    """None: not computed, and `note` says why."""
    signature: str
    note: str | None = None

    def to_json(self) -> dict[str, Any]:
        note = {} if self.note is None else {"note": self.note}
        return {"value": self.value, "signature": self.signature, **note}

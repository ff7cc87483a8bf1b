"""The figures of Chen and Jin, "Better Captioning with Sequence-Level Exploration" (CVPR 2020), as printed.

They are shown beside ours only where the data set is the paper's own: other data would compare nothing.
The rows it marks with * (attention over bottom-up region features) are named (regions) here.
Stored as results are: CIDEr, METEOR and SPICE a hundredth of what is printed, set metrics as they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass

CITATION = "Chen and Jin, CVPR 2020"


@dataclass(frozen=True)
class Row:
    """One line of the paper's tables; `part` is the decoder: beam, rs or bs."""

    label: str
    part: str
    scores: Mapping[str, float]


def _beam(label: str, meteor: float, cider: float, spice: float | None = None) -> Row:
    scores = {"meteor": meteor / 100, "cider_d": cider / 100}
    return Row(label, "beam", scores if spice is None else {**scores, "spice": spice / 100})


def _set(label: str, part: str, cider: float | None, *div: float) -> Row:
    scores = {} if cider is None else {"cider_d": cider / 100}
    return Row(label, part, {**scores, **dict(zip(("div_1", "div_2", "mbleu_4"), div, strict=False))})


COCO = (
    _beam("NIC", 23.7, 85.5),
    _beam("Adaptive attention", 26.6, 108.5),
    _beam("SCST:FC", 25.5, 106.3),
    _beam("SCST:Att2in", 26.3, 111.4),
    _beam("Top-Down XE", 26.1, 105.4, 19.2),
    _beam("Top-Down SLL", 26.5, 111.1, 20.2),
    _beam("SLL", 26.8, 115.0, 20.0),
    _beam("SLL-ME", 26.8, 115.6, 20.1),
    _beam("SLL-SLE", 27.0, 117.2, 20.3),
    _beam("SLL (regions)", 26.6, 117.2, 19.4),
    _beam("SLL-ME (regions)", 26.7, 117.9, 19.5),
    _beam("SLL-SLE (regions)", 27.0, 119.6, 19.9),
    _set("XE", "rs", 74.2, 0.57, 0.78, 0.06),
    _set("SLL", "rs", 114.6, 0.25, 0.32, 0.81),
    _set("SLL-ME", "rs", 115.1, 0.25, 0.33, 0.80),
    _set("SLL-SLE", "rs", 115.9, 0.29, 0.40, 0.68),
    _set("GAN", "rs", None, 0.41, 0.55, 0.51),
    _set("XE", "bs", 102.5, 0.27, 0.35, 0.80),
    _set("SLL", "bs", 115.0, 0.26, 0.35, 0.78),
    _set("SLL-ME", "bs", 115.6, 0.26, 0.34, 0.79),
    _set("SLL-SLE", "bs", 117.2, 0.27, 0.36, 0.76),
    _set("GAN", "bs", None, 0.34, 0.44, 0.70),
    _set("VAE", "bs", 100.0),
)
TGIF = (
    _beam("TGIF official (XE)", 16.7, 31.6),
    _beam("Show-adapt", 16.2, 29.8),
    _beam("SLL", 17.8, 45.9, 15.9),
    _beam("SLL-ME", 18.2, 48.1, 16.0),
    _beam("SLL-SLE", 18.8, 50.8, 16.6),
)


def rows(dataset: str, part: str) -> tuple[Row, ...]:
    """The paper's lines for one decoder, where this is the paper's data set; otherwise none."""
    known = {"coco": COCO, "tgif": TGIF}.get(dataset.lower(), ())
    return tuple(row for row in known if row.part == part)

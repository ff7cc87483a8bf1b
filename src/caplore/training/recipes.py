"""Named recipes: each says what it is, how long it takes and what comes out."""

from pathlib import Path

from caplore.training.config import Model, Recipe, Sequence, Sll, SllMe, SllSle, Xe

_SCENES = Recipe(
    data=Path("data/scenes"),
    model=Model(hidden=256, dropout=0.3),
    xe=Xe(epochs=12, lr=2e-3, batch=64),
    max_words=20,
)


def _scenes(name: str, sequence: Sequence | None) -> Recipe:
    import dataclasses

    return dataclasses.replace(_SCENES, to=Path("runs") / name, sequence=sequence)


def _tuned(objective: Sll) -> Sequence:
    return Sequence(objective=objective, epochs=10, lr=5e-4, batch=64)


RECIPES: dict[str, tuple[str, Recipe]] = {
    "scenes-xe": ("made world, cross-entropy alone", _scenes("scenes-xe", None)),
    "scenes-sll": ("made world, cross-entropy then expected score", _scenes("scenes-sll", _tuned(Sll()))),
    "scenes-sll-me": ("made world, the same plus word entropy", _scenes("scenes-sll-me", _tuned(SllMe()))),
    "scenes-sle": (
        "made world, the same plus distance between samples",
        _scenes("scenes-sle", _tuned(SllSle())),
    ),
}

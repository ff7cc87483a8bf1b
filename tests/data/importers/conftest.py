"""Media folders with small, distinct pictures, and a source to check."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from PIL import Image


@pytest.fixture
def draw(tmp_path: Path) -> Callable[[str, Sequence[str]], Path]:
    """draw(folder, names): one picture (or moving GIF) per name, all different."""

    def make(folder: str, names: Sequence[str]) -> Path:
        for number, name in enumerate(names):
            path = tmp_path / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            image = Image.new("RGB", (8 + number, 8), (10 * number % 256, 40, 90))
            if path.suffix == ".gif":
                image.save(
                    path, save_all=True, append_images=[Image.new("RGB", image.size, "red")], duration=100
                )
            else:
                image.save(path)
        return tmp_path / folder

    return make

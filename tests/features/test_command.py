"""`caplore features` as a user types it."""

from pathlib import Path

import pytest
from PIL import Image

from caplore.cli.main import main
from caplore.data.dataset import Input, open_dataset, write_dataset
from caplore.features.store import open_store


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Twelve pictures; number 4 is cut in half."""
    folder = tmp_path / "data"
    (folder / "media").mkdir(parents=True)
    for i in range(12):
        Image.effect_noise((40, 30), 10 * i + 10).save(folder / f"media/{i}.jpg")
    whole = (folder / "media/4.jpg").read_bytes()
    (folder / "media/4.jpg").write_bytes(whole[: len(whole) // 2])
    inputs = [Input(str(i), "train", f"media/{i}.jpg", ("noise",)) for i in range(12)]
    write_dataset(folder, name="noise", media="image", inputs=inputs)
    return folder


def test_pictures(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["features", str(data), "--encoder", "patches"]) == 0
    said = capsys.readouterr().out
    assert "11 inputs" in said
    assert "4: it ends too early: cut off, or damaged" in said
    assert len(open_store(data / "features/patches").ids) == 11
    assert open_dataset(data).encoders == ["patches"]


def test_clips(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "media").mkdir(parents=True)
    frames = [Image.new("RGB", (16, 16), (20 * i, 0, 0)) for i in range(8)]
    frames[0].save(folder / "media/a.gif", save_all=True, append_images=frames[1:], duration=100)
    write_dataset(folder, name="clips", media="clip", inputs=[Input("a", "train", "media/a.gif", ("red",))])
    argv = [
        "features",
        str(folder),
        "--encoder",
        "patches",
        "--frames",
        "8",
        "--segments",
        "4",
        "--name",
        "mine",
    ]
    assert main(argv) == 0
    store = open_store(folder / "features/mine")
    assert store.shapes["regions"] == (4, store.shapes["pooled"][0])
    assert store.encoder["clip"] == {"frames": 8, "segments": 4}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["nowhere"], "not a caplore data set"),
        (["data", "--encoder", "no_such:thing"], "cannot be imported"),
        (["data", "--encoder", "patches", "--workers", "0"], "--workers is 0"),
        (["data", "--encoder", "patches", "--batch", "-1"], "--batch is -1"),
        (["data", "--encoder", "patches", "--device", "abacus"], "'abacus' cannot be used"),
        (["text", "--encoder", "patches"], "no media files"),
    ],
)
def test_a_mistake_is_one_message_and_exit_2(
    argv: list[str],
    message: str,
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(data.parent)
    write_dataset(Path("text"), name="t", media="none", inputs=[Input("a", "train", None, ("words",))])
    assert main(["features", *argv]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said

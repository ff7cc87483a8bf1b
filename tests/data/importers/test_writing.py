"""A checked source on disk: linked or copied, named safely, never over another data set."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caplore.data.dataset import open_dataset
from caplore.data.importers.checking import Checked, Usable
from caplore.data.importers.source import Finding
from caplore.data.importers.writing import REPORT, media_names, write
from caplore.errors import InputError


def checked(folder: Path, ids: list[str]) -> Checked:
    folder.mkdir(exist_ok=True)
    inputs = []
    for number, name in enumerate(ids):
        file = folder / f"{number}.JPG"
        file.write_bytes(name.encode())
        inputs.append(Usable(name, "train", file, ("a caption",)))
    return Checked(
        "mine", "image", inputs, [Finding("missing-file", "gone", "gone.jpg")], {"source": "a test"}
    )


@pytest.mark.parametrize("copy", [False, True])
def test_media_is_linked_or_copied(copy: bool, tmp_path: Path) -> None:
    dataset = write(checked(tmp_path / "from", ["one", "two"]), tmp_path / "to", copy=copy)
    path = dataset.media_path(dataset.inputs[1])
    assert path == tmp_path / "to/media/two.jpg"
    assert path.read_bytes() == b"two"
    assert path.is_symlink() != copy
    assert json.loads((tmp_path / "to" / REPORT).read_text())["found"]["missing-file"]["count"] == 1
    assert json.loads((tmp_path / "to/dataset.json").read_text())["source"] == "a test"
    assert open_dataset(tmp_path / "to").inputs == dataset.inputs


@given(ids=st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=12, unique=True))
@settings(deadline=None)
def test_any_id_becomes_a_name_of_its_own_inside_media(ids: list[str]) -> None:
    names = media_names([Usable(name, "train", Path("x.png"), ()) for name in ids])
    files = [Path(str(names[name])) for name in ids]
    assert len({str(file).lower() for file in files}) == len(ids)
    assert all(file.parent == Path("media") and not file.name.startswith(".") for file in files)
    assert all("\0" not in file.name and len(file.name.encode()) < 255 for file in files)


def test_an_input_without_a_file_has_none(tmp_path: Path) -> None:
    one = Usable("a", "train", None, ("a caption",))
    dataset = write(Checked("mine", "none", [one], []), tmp_path / "to")
    assert dataset.inputs[0].file is None
    assert not (tmp_path / "to/media").exists()


def test_another_data_set_is_not_written_over(tmp_path: Path) -> None:
    write(checked(tmp_path / "from", ["one"]), tmp_path / "to")
    with pytest.raises(InputError, match="already holds a data set"):
        write(checked(tmp_path / "from", ["two"]), tmp_path / "to")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        write(checked(tmp_path / "from", ["two"]), tmp_path / "file")


def test_an_import_that_was_interrupted_can_be_done_again(tmp_path: Path) -> None:
    (tmp_path / "to/media").mkdir(parents=True)
    (tmp_path / "to/media/one.jpg").write_text("half of it")
    dataset = write(checked(tmp_path / "from", ["one"]), tmp_path / "to")
    assert dataset.media_path(dataset.inputs[0]).read_bytes() == b"one"


def test_nothing_usable_is_an_error_and_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no input of mine can be used"):
        write(Checked("mine", "image", [], []), tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_a_full_disk_is_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfile", full)
    with pytest.raises(InputError, match="the disk is full"):
        write(checked(tmp_path / "from", ["one"]), tmp_path / "to", copy=True)
    assert not (tmp_path / "to/dataset.json").exists()

"""Files are replaced whole; what is no file is left as it is."""

import os
import stat
from pathlib import Path

import pytest

from caplore.errors import InputError
from caplore.files import write_text


def test_what_is_there_is_replaced_and_a_new_folder_made(tmp_path: Path) -> None:
    for text in ("one", "two"):
        write_text(tmp_path / "new" / "a.txt", text)
    assert [(file.name, file.read_text()) for file in (tmp_path / "new").iterdir()] == [("a.txt", "two")]


def test_a_pipe_stays_a_pipe(tmp_path: Path) -> None:
    """Whoever may write to /dev once replaced /dev/null by a file of scores."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="pipe is no file"):
        write_text(tmp_path / "pipe", "text")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert [file.name for file in tmp_path.iterdir()] == ["pipe"]


def test_a_link_to_what_is_open_stays_one(tmp_path: Path) -> None:
    """As /dev/stdout is: also where it leads to a file."""
    (tmp_path / "out").symlink_to("/proc/self/fd/1")
    with pytest.raises(InputError, match="out is no file"):
        write_text(tmp_path / "out", "text")
    assert (tmp_path / "out").is_symlink()

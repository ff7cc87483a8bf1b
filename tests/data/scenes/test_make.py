"""A whole made world on disk: the same whatever the workers, whole or not there, never over anything else."""

import errno
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from caplore.data.dataset import open_dataset
from caplore.data.scenes import make
from caplore.data.scenes.make import Plan, make_scenes
from caplore.errors import CaploreError, ConfigError, InputError

SMALL = Plan(4, 2, 2)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_the_result_does_not_depend_on_the_workers(tmp_path: Path) -> None:
    plan = Plan(make.CHUNK + 1, 2, 2, seed=3)
    make_scenes(tmp_path / "one", plan, workers=1)
    make_scenes(tmp_path / "two", plan, workers=2)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_a_data_set_is_the_beginning_of_a_larger_one_and_another_seed_is_another(tmp_path: Path) -> None:
    small = make_scenes(tmp_path / "small", SMALL, workers=1).dataset
    large = make_scenes(tmp_path / "large", Plan(6, 2, 3), workers=1).dataset
    other = make_scenes(tmp_path / "other", Plan(4, 2, 2, seed=1), workers=1).dataset
    assert [i for i in large.inputs if i.id in {j.id for j in small.inputs}] == list(small.inputs)
    for item in small.inputs:
        assert small.media_path(item).read_bytes() == large.media_path(item).read_bytes()
    assert not {i.captions for i in small.inputs} & {i.captions for i in other.inputs}


def test_the_splits_are_drawn_apart(tmp_path: Path) -> None:
    dataset = make_scenes(tmp_path / "world", Plan(3, 3, 3), workers=1).dataset
    assert len({dataset.media_path(item).read_bytes() for item in dataset.inputs}) == 9


@pytest.mark.parametrize(
    ("clips", "name", "suffix"), [(False, "scenes", ".png"), (True, "scenes-clips", ".gif")]
)
def test_what_is_there(tmp_path: Path, clips: bool, name: str, suffix: str) -> None:
    told: list[int] = []
    made = make_scenes(
        tmp_path / "new" / "world", Plan(4, 2, 2, clips=clips), workers=1, progress=told.append
    )
    dataset = made.dataset
    assert made.drawn
    assert sum(told) == 8
    assert (dataset.name, dataset.version, dataset.media) == (name, "1", "clip" if clips else "image")
    assert dataset.counts == {"train": 4, "val": 2, "test": 2}
    for item in dataset.inputs:
        assert len(set(item.captions)) == 5
        assert dataset.media_path(item).is_file()
        assert dataset.media_path(item).suffix == suffix
    assert len(contents(dataset.path)) == 8 + 3
    assert os.listdir(dataset.path.parent) == ["world"]


def test_the_same_again_is_left_alone(tmp_path: Path) -> None:
    make_scenes(tmp_path / "world", SMALL, workers=1)
    (tmp_path / "world" / "features").mkdir()
    again = make_scenes(tmp_path / "world", SMALL, workers=1)
    assert not again.drawn
    assert (tmp_path / "world" / "features").is_dir()


def test_other_settings_need_replace_which_takes_the_features_along(tmp_path: Path) -> None:
    folder = tmp_path / "world"
    make_scenes(folder, SMALL, workers=1)
    (folder / "features").mkdir()
    before = contents(folder)
    with pytest.raises(
        InputError, match=r"other settings \(train 4, val 2, test 2, clips False, seed 0\)(.|\n)*--replace"
    ):
        make_scenes(folder, Plan(4, 2, 3), workers=1)
    assert contents(folder) == before
    made = make_scenes(folder, Plan(4, 2, 3), workers=1, replace=True)
    assert made.dataset.counts["test"] == 3
    assert not (folder / "features").exists()
    assert os.listdir(tmp_path) == ["world"]


def test_a_world_with_a_picture_missing_is_not_taken_for_whole(tmp_path: Path) -> None:
    dataset = make_scenes(tmp_path / "world", SMALL, workers=1).dataset
    dataset.media_path(dataset.inputs[0]).unlink()
    with pytest.raises(
        InputError, match=r"lacks 1 of its files \(first: media/train-00000.png\)(.|\n)*--replace"
    ):
        make_scenes(tmp_path / "world", SMALL, workers=1)
    assert make_scenes(tmp_path / "world", SMALL, workers=1, replace=True).drawn


@pytest.mark.parametrize("replace", [False, True])
def test_what_is_not_a_made_world_is_never_touched(tmp_path: Path, replace: bool) -> None:
    (tmp_path / "thesis.txt").write_text("ten years")
    with pytest.raises(InputError, match="not empty and is not a made world"):
        make_scenes(tmp_path, SMALL, replace=replace, workers=1)
    (tmp_path / "dataset.json").write_text(json.dumps({"format": "caplore-dataset-1", "name": "coco"}))
    with pytest.raises(InputError, match="not empty and is not a made world"):
        make_scenes(tmp_path, SMALL, replace=replace, workers=1)
    assert (tmp_path / "thesis.txt").read_text() == "ten years"
    with pytest.raises(InputError, match=r"thesis.txt is a file, not a folder"):
        make_scenes(tmp_path / "thesis.txt", SMALL, replace=replace, workers=1)
    with pytest.raises(InputError, match=r"thesis.txt is a file, not a folder"):
        make_scenes(tmp_path / "thesis.txt" / "world", SMALL, replace=replace, workers=1)


@pytest.mark.parametrize("over", [False, True])
def test_a_full_disk_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, over: bool
) -> None:
    if over:
        make_scenes(tmp_path / "world", SMALL, workers=1)
    before = contents(tmp_path)
    drawn = []

    def full(path: Path, *rest: object) -> None:
        drawn.append(path)
        if len(drawn) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        path.write_bytes(b"")

    monkeypatch.setattr(make, "save_picture", full)
    with pytest.raises(
        InputError, match="could not be written: No space left on device; what was there before"
    ):
        make_scenes(tmp_path / "world", Plan(5, 2, 2), replace=over, workers=1)
    assert contents(tmp_path) == before
    assert len(os.listdir(tmp_path)) == over


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that nobody may write: /proc")
def test_a_place_nobody_may_write() -> None:
    with pytest.raises(
        InputError, match=r"/proc/world could not be written: (.|\n)*check the path, your rights"
    ):
        make_scenes(Path("/proc/world"), SMALL, workers=1)


def test_a_killed_worker_is_reported(tmp_path: Path) -> None:
    def kill_one(drawn: int) -> None:
        for worker in multiprocessing.active_children()[:1]:
            worker.kill()

    with pytest.raises(CaploreError, match="a process that draws was killed"):
        make_scenes(tmp_path / "world", Plan(make.CHUNK * 30, 1, 1), workers=2, progress=kill_one)
    assert os.listdir(tmp_path) == []


def test_impossible_plans() -> None:
    for wrong in (0, -5, 10**9):
        with pytest.raises(ConfigError, match=f"--val is {wrong}, not 1 to 1,000,000"):
            Plan(1, wrong, 1)
    with pytest.raises(ConfigError, match="--workers is 0"):
        make_scenes(Path("nowhere"), SMALL, workers=0)


def _heed_interrupts() -> None:
    """Shells start what runs in the background with SIGINT ignored, others block it, and children inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


@pytest.mark.parametrize("wait_for", [".world.*/media", ".world.*/media/*"])
def test_an_interruption_leaves_nothing_behind(tmp_path: Path, wait_for: str) -> None:
    command = [
        sys.executable,
        "-m",
        "caplore",
        "data",
        "scenes",
        "--to",
        str(tmp_path / "world"),
        "--train",
        "100000",
    ]
    process = subprocess.Popen(
        [*command, "--workers", "2"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=_heed_interrupts,
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(wait_for)) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers, too
    try:
        _, said = process.communicate(timeout=120)
    finally:
        if group_lives(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130
    assert "interrupted" in said
    assert "Traceback" not in said
    assert os.listdir(tmp_path) == []


def test_open_dataset_accepts_it(tmp_path: Path) -> None:
    made = make_scenes(tmp_path / "world", SMALL, workers=1).dataset
    assert open_dataset(tmp_path / "world") == made


def test_workers_do_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "caplore", "data", "scenes", "--to", str(tmp_path / "world")]
    process = subprocess.Popen(
        [*command, "--train", "100000", "--workers", "2"], stderr=subprocess.DEVNULL, start_new_session=True
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".world.*/media/*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.wait()
    while group_lives(process.pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not group_lives(process.pid)


def group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True

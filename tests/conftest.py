"""Fixtures every room may use."""

from pathlib import Path

import pytest

SHARED = Path(__file__).parent.parent.parent / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data beside the project; tests that need it skip where it is not."""
    if not (SHARED / "data").is_dir():
        pytest.skip(f"needs the development data at {SHARED}, which is not here")
    return SHARED

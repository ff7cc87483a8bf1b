"""Every kernel becomes machine code of an A100 and an H200, which Triton can make where there is no GPU.

The interpreter does not know what a GPU cannot do: ranges that are no powers of two, too much shared memory.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the kernels need Triton: it comes with CUDA builds of torch")

COMPILER = Path(__file__).parent / "compiler.py"


@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90])
def test_every_kernel_compiles(capability: int, tmp_path: Path) -> None:
    """In a process of its own: here, kernels are the interpreter's."""
    found = importlib.util.find_spec("triton")
    assert found is not None
    assert found.origin is not None
    paths = [str(Path(found.origin).parent.parent), os.environ.get("PYTHONPATH", "")]
    clean = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, str(COMPILER), str(capability)],
        env=clean | {"TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]

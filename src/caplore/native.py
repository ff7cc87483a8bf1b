"""The compiled twins of three hot loops: the tokeniser, counting n-grams, METEOR's alignment.

Each is one C++ file beside the Python that defines what it must give, and is tested to give the same. Where no
compiler was at hand when caplore was installed, or with CAPLORE_NATIVE=0, the Python runs: same numbers, slower.
"""

import importlib
import os
from types import ModuleType

MODULES = ("caplore.text._ptb", "caplore.metrics._counts", "caplore.metrics.meteor._align")


def native(name: str) -> ModuleType | None:
    """The compiled module of this name; None where it was not built or is switched off."""
    if os.environ.get("CAPLORE_NATIVE") == "0":
        return None
    try:
        return importlib.import_module(name)
    except ImportError:
        return None

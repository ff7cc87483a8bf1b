"""The compiled twins of three hot loops: the tokeniser, counting n-grams, METEOR's alignment.

Each is one C++ file beside the Python that defines what it must give, and is tested to give the same. Where no
compiler was at hand when caplore was installed, where it was built from other sources (a `git pull` since), or with
CAPLORE_NATIVE=0, the Python runs: same numbers, slower. `caplore doctor` says which it is.
"""

import importlib
import os
from types import ModuleType

MODULES = ("caplore.text._ptb", "caplore.metrics._counts", "caplore.metrics.meteor._align")
INTERFACE = 1  # as in native.hpp


def native(name: str) -> ModuleType | None:
    """The compiled module of this name; None where it was not built, or from other sources, or is switched off."""
    if os.environ.get("CAPLORE_NATIVE") == "0":
        return None
    try:
        found = importlib.import_module(name)
    except ImportError:
        return None
    return found if getattr(found, "INTERFACE", None) == INTERFACE else None

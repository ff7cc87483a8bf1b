"""What caplore raises when the reader can do something about it.

    CaploreError            base: say what happened and where, then how to fix it
    ├── InputError          a file, a line or a picture you gave is wrong
    │   └── FullDiskError   a file could not be written; what was there before is whole
    ├── ConfigError         a knob has an impossible value
    ├── MissingError        something is not installed; the fix is the command that adds it
    └── TrainingStopped     a run collapsed or became nan; the last good checkpoint is kept

The command line prints these without a traceback and exits 2 (`--debug` shows the traceback).
A caller's mistake in Python is a ValueError; our own invariants are asserts.
"""


class CaploreError(Exception):
    """Something the user can mend: `what` names the value and the place, `fix` what to type."""

    def __init__(self, what: str, *, fix: str | None = None) -> None:
        super().__init__(what if fix is None else f"{what}\n  fix: {fix}")
        self.what = what
        self.fix = fix


class InputError(CaploreError):
    """A file, a line, a picture or a folder that was given is not what it should be."""


class FullDiskError(InputError):
    """The disk is full; whoever writes many files says how to go on."""


class ConfigError(CaploreError):
    """A knob was given a value it cannot have."""


class MissingError(CaploreError):
    """A program, package or table is not installed; `fix` is the command that installs it."""


class TrainingStopped(CaploreError):
    """Training was stopped on purpose: a collapse or a non-finite number was seen."""

"""How wide a page of text may be."""

import shutil

WIDEST, NARROWEST = 80, 40


def page_width() -> int:
    """80 columns, or as many as the terminal (or COLUMNS) has where those are fewer; never below 40."""
    return max(NARROWEST, min(WIDEST, shutil.get_terminal_size((WIDEST, 24)).columns))

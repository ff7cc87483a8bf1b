"""The compiled twin of ptb.py (ptb.cpp): both give what they make of each caption, None where it is not for the
twin to say, and the places of those captions. The two texts are words with white space between."""

def lines(
    captions: list[str], run_together: str, abbreviations: str, /
) -> tuple[list[str | None], list[int]]: ...
def lists(
    captions: list[str], run_together: str, abbreviations: str, /
) -> tuple[list[list[str] | None], list[int]]: ...

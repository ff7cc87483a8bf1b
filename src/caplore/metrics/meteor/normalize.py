"""Words as METEOR 1.5 sees them with `-norm`: hyphens, apostrophes, commas and other signs set apart, lower case.

Captions come PTB-tokenised, so most pass unchanged; the program normalises them all the same, and takes `t-shirt`
and `'s` apart. Replacements run in its order, each over the whole line, as each sees what the last one left.
"""

import re
from collections.abc import Mapping

_DOT = "\ue000"  # a dot of an ellipsis, while dots at word ends are looked at
_ALPHA = f"A-Za-zŠŽšžŸÀ-ÖØ-öø-žЀ-ԧꙀ-ꙮ꙾-ꚗᴀ-ᵿ{_DOT}"
_PLAIN = re.compile("[0-9A-Za-z ]*")
_LETTER = re.compile(f"[{_ALPHA}]")
_SIGN = re.compile(rf"([^0-9{_ALPHA} \t\n\x0b\f\r.'`,\-‘’])")
_ELLIPSIS = re.compile(r"\.{2,}")
_REPLACEMENTS = tuple(
    (re.compile(pattern), by)
    for pattern, by in (
        ("([^0-9]),([^0-9])", r"\1 , \2"),
        ("([0-9]),([^0-9])", r"\1 , \2"),
        ("([^0-9]),([0-9])", r"\1 , \2"),
        ("[`‘’]", "'"),
        ("[“”]|''", ' " '),
        ("–|--", "-"),
        (f"([0-9{_ALPHA}.])-([0-9{_ALPHA}])", r"\1 \2"),
        (f"([^{_ALPHA}])'([^{_ALPHA}])", r"\1 ' \2"),
        (f"([^{_ALPHA}0-9])'([{_ALPHA}])", r"\1 ' \2"),
        (f"([{_ALPHA}])'([^{_ALPHA}])", r"\1 ' \2"),
        (f"([{_ALPHA}])'([{_ALPHA}])", r"\1 '\2"),
        ("([0-9])'(s)", r"\1 '\2"),
    )
)
_SPACES = re.compile("[ \u00a0\u2000-\u200a\u202f\u205f\u3000]+")
_FIELD = re.compile(r"[^ \t\n\r\f]+")

Prefixes = Mapping[str, bool]
"""Words whose period ends no sentence; True where only before a number."""


def normalize(line: str, prefixes: Prefixes) -> list[str]:
    """The words that are matched."""
    if _PLAIN.fullmatch(line):
        return line.lower().split()
    line = _SIGN.sub(r" \1 ", f" {line} ")
    line = _ELLIPSIS.sub(lambda dots: f" {_DOT * len(dots[0])} ", line)
    for pattern, by in _REPLACEMENTS:
        line = pattern.sub(by, line)
    line = _without_final_periods(_FIELD.findall(line), prefixes).replace(_DOT, ".")
    return _FIELD.findall(_SPACES.sub(" ", line).lower())


def _without_final_periods(words: list[str], prefixes: Prefixes) -> str:
    """Acronyms lose their dots (`u.s.` is us); other words only where a sentence may end."""
    kept = []
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if len(word) == 1 or not word.endswith("."):
            kept.append(word)
            continue
        base = word[:-1]
        if "." in base and _LETTER.search(base):
            kept.append(word.replace(".", ""))
        elif _belongs(prefixes.get(base), following):
            kept.append(word)
        else:
            kept.append(base + " .")
    return " ".join(kept)


def _belongs(only_before_numbers: bool | None, following: str) -> bool:
    first = following[:1]
    if only_before_numbers is False or "a" <= first <= "z":
        return True
    return only_before_numbers is True and "0" <= first <= "9"

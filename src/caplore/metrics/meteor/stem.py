"""English stems as METEOR 1.5 makes them: the Snowball stemmer "English" (Porter2) as it was in 2010.

Later versions of Snowball stem `evening`, `emergency` or `biologist` otherwise, so today's libraries give other scores.
R1 is what follows the first non-vowel after a vowel, R2 the same within R1; a suffix goes if it lies in its region.
"""

import re
from functools import lru_cache

_VOWELS = frozenset("aeiouy")
_FIRST_REGION = re.compile(r"(?:gener|commun|arsen)|[^aeiouy]*[aeiouy]+[^aeiouy]")
_SECOND_REGION = re.compile(r"[^aeiouy]*[aeiouy]+[^aeiouy]")
_HAS_VOWEL = re.compile(r"[aeiouy]")
_CONSONANT_Y = re.compile(r"(^|[aeiouy])y")
_SHORT_SYLLABLE = re.compile(r"(?:[^aeiouy][aeiouy][^aeiouywxY]|^[aeiouy][^aeiouy])$")

_WHOLE = {
    **{"skis": "ski", "skies": "sky", "dying": "die", "lying": "lie", "tying": "tie", "idly": "idl"},
    **{"gently": "gentl", "ugly": "ugli", "early": "earli", "only": "onli", "singly": "singl"},
    **{word: word for word in ("sky", "news", "howe", "atlas", "cosmos", "bias", "andes")},
}
_AFTER_PLURAL = frozenset(
    ["inning", "outing", "canning", "herring", "earring", "proceed", "exceed", "succeed"]
)

_STEP_2 = {
    **{"tional": "tion", "enci": "ence", "anci": "ance", "abli": "able", "entli": "ent", "izer": "ize"},
    **{"ization": "ize", "ational": "ate", "ation": "ate", "ator": "ate", "alism": "al", "aliti": "al"},
    **{"alli": "al", "fulness": "ful", "ousli": "ous", "ousness": "ous", "iveness": "ive", "iviti": "ive"},
    **{"biliti": "ble", "bli": "ble", "fulli": "ful", "lessli": "less", "ogi": "og", "li": ""},
}
_STEP_3 = {
    **{"tional": "tion", "ational": "ate", "alize": "al", "icate": "ic", "iciti": "ic", "ical": "ic"},
    **{"ful": "", "ness": "", "ative": ""},
}
_STEP_4_SUFFIXES = "al ance ence er ic able ible ant ement ment ent ism ate iti ous ive ize ion"
_STEP_4 = {suffix: "" for suffix in _STEP_4_SUFFIXES.split()}


@lru_cache(maxsize=100_000)
def stem(word: str) -> str:
    """The stem of a lower-case word."""
    if word in _WHOLE:
        return _WHOLE[word]
    if len(word) <= 2:
        return word
    word = word.removeprefix("'")
    if "y" in word:
        word = _CONSONANT_Y.sub(r"\1Y", word)
    r1, r2 = _regions(word)
    word = _plural(_possessive(word))
    if word in _AFTER_PLURAL:
        return word
    word = _y_to_i(_past_and_gerund(word, r1))
    word = _replace(word, _STEP_2, r1, r2)
    word = _replace(word, _STEP_3, r1, r2)
    word = _replace(word, _STEP_4, r2, r2)
    return _final_letter(word, r1, r2).replace("Y", "y")


def _regions(word: str) -> tuple[int, int]:
    """Where R1 and R2 begin: the length of the word where there is none."""
    first = _FIRST_REGION.match(word)
    if first is None:
        return len(word), len(word)
    second = _SECOND_REGION.match(word, first.end())
    return first.end(), second.end() if second else len(word)


def _possessive(word: str) -> str:
    for suffix in ("'s'", "'s", "'"):
        if word.endswith(suffix):
            return word.removesuffix(suffix)
    return word


def _plural(word: str) -> str:
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith(("ied", "ies")):
        return word[:-2] if len(word) > 4 else word[:-1]
    if word.endswith("s") and not word.endswith(("us", "ss")) and _HAS_VOWEL.search(word, 0, len(word) - 2):
        return word[:-1]
    return word


def _past_and_gerund(word: str, r1: int) -> str:
    for suffix in ("eedly", "eed"):
        if word.endswith(suffix):
            return word.removesuffix(suffix) + "ee" if len(word) - len(suffix) >= r1 else word
    for suffix in ("ingly", "edly", "ing", "ed"):
        if word.endswith(suffix):
            rest = word.removesuffix(suffix)
            return _restored(rest, r1) if _HAS_VOWEL.search(rest) else word
    return word


def _restored(rest: str, r1: int) -> str:
    """`hoping` is hope, `hopping` is hop."""
    if rest.endswith(("at", "bl", "iz")):
        return rest + "e"
    if rest.endswith(("bb", "dd", "ff", "gg", "mm", "nn", "pp", "rr", "tt")):
        return rest[:-1]
    return rest + "e" if len(rest) <= r1 and _SHORT_SYLLABLE.search(rest) else rest


def _y_to_i(word: str) -> str:
    return word[:-1] + "i" if len(word) > 2 and word[-1] in "yY" and word[-2] not in _VOWELS else word


def _replace(word: str, suffixes: dict[str, str], region: int, r2: int) -> str:
    """Of the longest suffix that the word has: nothing shorter is tried when that one may not go."""
    for length in range(min(7, len(word)), 1, -1):
        suffix = word[-length:]
        if suffix in suffixes:
            begin = len(word) - length
            allowed = begin >= region and _fits(suffix, word[:begin], begin >= r2)
            return word[:begin] + suffixes[suffix] if allowed else word
    return word


def _fits(suffix: str, before: str, in_r2: bool) -> bool:
    match suffix:
        case "li":
            return before.endswith(tuple("cdeghkmnrt"))
        case "ogi":
            return before.endswith("l")
        case "ion":
            return before.endswith(("s", "t"))
        case "ative":
            return in_r2
        case _:
            return True


def _final_letter(word: str, r1: int, r2: int) -> str:
    last = len(word) - 1
    if word.endswith("e") and (last >= r2 or (last >= r1 and not _SHORT_SYLLABLE.search(word[:-1]))):
        return word[:-1]
    if word.endswith("ll") and last >= r2:
        return word[:-1]
    return word

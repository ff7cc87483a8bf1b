"""Which words match which: the same, of one stem, or of one WordNet synonym set.

Words are learned as captions bring them; each keeps a table of the words known so far that match it, so that two
captions are compared by intersecting few small sets instead of all pairs of their words.
"""

from collections import defaultdict
from dataclasses import dataclass

from caplore.metrics.meteor.stem import stem
from caplore.metrics.meteor.tables import Paraphrases, Tables

EXACT, STEM, SYNONYM, PARAPHRASE = range(4)

# How irregular plurals and the like lead to a base word: the first of these that makes a word WordNet has.
_ENDINGS = (
    *(("s", ""), ("ses", "s"), ("xes", "x"), ("zes", "z"), ("ches", "ch"), ("shes", "sh"), ("men", "man")),
    *(("ies", "y"), ("s", ""), ("ies", "y"), ("es", "e"), ("es", ""), ("ed", "e"), ("ed", "")),
    *(("ing", "e"), ("ing", ""), ("er", ""), ("est", ""), ("er", "e"), ("est", "e")),
)


@dataclass(frozen=True, eq=False, slots=True)
class Sentence:
    """A caption as its words, where each of them stands, and the phrases in it that have paraphrases."""

    words: list[str]
    places: dict[str, list[int]]
    is_function: list[bool]
    phrases: list[tuple[int, int, Paraphrases]]
    """Where each begins, how long it is, and its paraphrases; by place, then by length."""


class Lexicon:
    """The words met so far, and for each the words that match it: how, the exact match first."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.matches: dict[str, dict[str, tuple[int, ...]]] = {}
        self._of_stem: defaultdict[str, list[str]] = defaultdict(list)
        self._of_set: defaultdict[int, list[str]] = defaultdict(list)

    def sentence(self, words: list[str]) -> Sentence:
        places: dict[str, list[int]] = {}
        for place, word in enumerate(words):
            if word in places:
                places[word].append(place)
                continue
            if word not in self.matches:
                self._learn(word)
            places[word] = [place]
        functions = self.tables.function_words
        return Sentence(words, places, [word in functions for word in words], self._phrases(words))

    def _learn(self, word: str) -> None:
        of_stem = self._of_stem[stem(word)]
        modules: dict[str, tuple[int, ...]] = {word: (EXACT,), **dict.fromkeys(of_stem, (STEM,))}
        for number in self.synonym_sets(word):
            of_set = self._of_set[number]
            for other in of_set:
                modules[other] = (*((STEM,) if other in of_stem else ()), SYNONYM)
            of_set.append(word)
        of_stem.append(word)
        self.matches[word] = modules
        for other, how in modules.items():
            self.matches[other][word] = how

    def synonym_sets(self, word: str) -> set[int]:
        """The synonym sets of a word and of the words it may be a form of."""
        sets = self.tables.synonym_sets(word)
        for base in self.tables.bases.get(word) or [self._base(word)]:
            sets |= self.tables.synonym_sets(base)
        return sets

    def _base(self, word: str) -> str:
        if word.endswith("ss") or len(word) <= 2:
            return word
        for ending, instead in _ENDINGS:
            if word.endswith(ending):
                base = word.removesuffix(ending) + instead
                if base in self.tables.synonym_ids:
                    return base
        return ""

    def _phrases(self, words: list[str]) -> list[tuple[int, int, Paraphrases]]:
        found = []
        first_words, count = self.tables.phrases, len(words)
        for place, word in enumerate(words):
            phrase, end = first_words[word], place
            while phrase is not None:
                end += 1
                if paraphrases := phrase.paraphrases:
                    found.append((place, end - place, paraphrases))
                if end == count:
                    break
                phrase = phrase[words[end]]
        return found

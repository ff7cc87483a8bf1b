"""One caption against one reference: every way words and phrases may match, and the best set of matches.

A match joins `length` words of the reference from `start` with `own_length` words of the caption from `own_start`. Of
all sets in which no word is used twice, METEOR wants the one that covers most words, then the one with fewest chunks
(runs of matches that lie side by side in both sentences), then the one whose matches move least; it looks for it with a
beam of 40 from the left of the reference to its right. We follow the program where it departs from that text:

- a match that is not exact covers half its words in that count, rounded down: a single synonym none at all
- the distance of a match is added to the hypothesis it was made from, not to the one that has it
- the same match found twice is twice there: it takes two places in the beam, and is never settled in advance
"""

from collections.abc import Iterator
from typing import NamedTuple

from caplore.metrics.meteor.words import EXACT, PARAPHRASE, Lexicon, Sentence

BEAM = 40


class Match(NamedTuple):
    start: int
    length: int
    own_start: int
    own_length: int
    module: int


class Chain(NamedTuple):
    """The matches of a hypothesis, the last first."""

    match: Match
    before: "Chain | None"


def align(caption: Sentence, reference: Sentence, lexicon: Lexicon) -> list[Match]:
    """The matches of the best alignment, from left to right in the reference."""
    options = _options(caption, reference, lexicon)
    settled = _settled(options, len(caption.words))
    if all(found is not None or not some for found, some in zip(settled, options, strict=True)):
        return [match for match in settled if match is not None]
    return _search(options, settled)


def _options(caption: Sentence, reference: Sentence, lexicon: Lexicon) -> list[list[Match]]:
    """All matches, by where they begin in the reference, in the order in which the program finds them."""
    options: list[list[Match]] = [[] for _ in reference.words]
    same = caption.words == reference.words
    places = caption.places
    for start, word in enumerate(reference.words):
        near = lexicon.matches[word]
        found = near.keys() & places.keys()
        if found:
            ways = [
                (module, own)
                for other in found
                for module in near[other]
                if module == EXACT or not same
                for own in places[other]
            ]
            options[start] = [Match(start, 1, own, 1, module) for module, own in sorted(ways)]
    if not same:
        for start, length, own, own_length in _paraphrases(reference, caption):
            options[start].append(Match(start, length, own, own_length, PARAPHRASE))
        for own, own_length, start, length in _paraphrases(caption, reference):
            options[start].append(Match(start, length, own, own_length, PARAPHRASE))
    return options


def _paraphrases(sentence: Sentence, other: Sentence) -> Iterator[tuple[int, int, int, int]]:
    """Phrases of the one whose paraphrases stand in the other: place and length in the one, then in the other."""
    for place, length, phrase in sentence.phrases:
        firsts = phrase.paraphrases.keys() & other.places.keys()
        if firsts:
            found = [
                (rank, there, len(words))
                for first in firsts
                for rank, words in phrase.paraphrases[first]
                for there in other.places[first]
                if len(words) == 1 or other.words[there : there + len(words)] == words
            ]
            for _, there, there_length in sorted(found):
                yield place, length, there, there_length


def _settled(options: list[list[Match]], own_words: int) -> list[Match | None]:
    """Matches that nothing competes with: the only one for each word on both sides."""
    covered = [0] * len(options)
    own_covered = [0] * own_words
    for some in options:
        for match in some:
            for place in range(match.start, match.start + match.length):
                covered[place] += 1
            for place in range(match.own_start, match.own_start + match.own_length):
                own_covered[place] += 1
    settled: list[Match | None] = [None] * len(options)
    for place, some in enumerate(options):
        if len(some) == 1:
            start, length, own, own_length, _ = some[0]
            if all(n == 1 for n in covered[start : start + length]) and all(
                n == 1 for n in own_covered[own : own + own_length]
            ):
                settled[place] = some[0]
    return settled


# A hypothesis is ranked by words covered (more first), chunks, distance (less first): one number, least first.
_COVERED, _CHUNK = 1 << 40, 1 << 20
_Hypothesis = tuple[int, int, int, int, int, "Chain | None"]
"""Rank, where its chunk ends in the caption (-1: none is open), words used there and here (as bits), next place, matches."""


def _search(options: list[list[Match]], settled: list[Match | None]) -> list[Match]:
    used = own_used = 0
    for match in settled:
        if match is not None:
            used |= _bits(match.start, match.length)
            own_used |= _bits(match.own_start, match.own_length)
    beam: list[_Hypothesis] = [(0, -1, used, own_used, 0, None)]
    for place, some in enumerate(options):
        beam.sort(key=_rank)
        following: list[_Hypothesis] = []
        for hypothesis in beam[:BEAM]:
            rank, end, used, own_used, following_place, chain = hypothesis
            if not used >> place & 1:
                for match in some:
                    if not (used & _bits(match.start, match.length) or own_used & _bits(match.own_start, match.own_length)):
                        following.append(_extended((rank, *hypothesis[1:]), match))
                        rank += abs(match.start - match.own_start)
                if end != -1:
                    rank += _CHUNK
                following.append((rank, -1, used, own_used, place + 1, chain))
            elif place < following_place:
                following.append(hypothesis)
            elif (match := settled[place]) is not None:
                moved = abs(match.start - match.own_start)
                extended = _extended(hypothesis, match)
                following.append((extended[0] + moved, *extended[1:]))
        beam = following or beam[:1]
    beam.sort(key=_rank)
    closed = [(rank + (_CHUNK if end != -1 else 0), chain) for rank, end, *_, chain in beam[:BEAM]]
    return _unchained(min(closed, key=lambda ended: ended[0])[1])


def _rank(hypothesis: _Hypothesis) -> int:
    return hypothesis[0]


def _bits(start: int, length: int) -> int:
    return ((1 << length) - 1) << start


def _extended(hypothesis: _Hypothesis, match: Match) -> _Hypothesis:
    rank, end, used, own_used, _, chain = hypothesis
    start, length, own, own_length, module = match
    rank -= _COVERED * (length + own_length if module == EXACT else length // 2 + own_length // 2)
    if end not in (-1, own):
        rank += _CHUNK
    return (
        rank,
        own + own_length,
        used | _bits(start, length),
        own_used | _bits(own, own_length),
        start + length,
        Chain(match, chain),
    )


def _unchained(chain: Chain | None) -> list[Match]:
    matches = []
    while chain is not None:
        matches.append(chain.match)
        chain = chain.before
    return matches[::-1]

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
from operator import itemgetter
from typing import NamedTuple

from caplore.metrics.meteor.words import EXACT, PARAPHRASE, Lexicon, Sentence

BEAM = 40


Match = tuple[int, int, int, int, int]
"""start, length, own_start, own_length, and which module found it: plain tuples, as there are many."""


def align(caption: Sentence, reference: Sentence, lexicon: Lexicon) -> list[Match]:
    """The matches of the best alignment, from left to right in the reference."""
    options = _options(caption, reference, lexicon)
    settled = _settled(options, len(caption.words))
    if all(found is not None or not some for found, some in zip(settled, options, strict=True)):
        return [match for match in settled if match is not None]
    return _search(options, settled)


def _options(caption: Sentence, reference: Sentence, lexicon: Lexicon) -> list[list[Match]]:
    """All matches, by where they begin in the reference, in the order in which the program finds them."""
    options: list[list[Match]] = []
    places, same = caption.places, caption.words == reference.words
    own_words = places.keys()
    for start, word in enumerate(reference.words):
        near = lexicon.matches[word]
        if near.keys().isdisjoint(own_words):
            options.append([])
            continue
        some = [(start, 1, own, 1, EXACT) for own in places[word]] if word in places else []
        if len(near) > 1 and not same:
            others = (near.keys() & own_words) - {word}
            ways = sorted((how, own) for other in others for how in near[other] for own in places[other])
            some += [(start, 1, own, 1, how) for how, own in ways]
        options.append(some)
    if not same:
        for start, length, own, own_length in _paraphrases(reference, caption):
            options[start].append((start, length, own, own_length, PARAPHRASE))
        for own, own_length, start, length in _paraphrases(caption, reference):
            options[start].append((start, length, own, own_length, PARAPHRASE))
    return options


def _paraphrases(sentence: Sentence, other: Sentence) -> Iterator[tuple[int, int, int, int]]:
    """Phrases of the one whose paraphrases stand in the other: place and length in the one, then in the other."""
    places, all_words = other.places.keys(), other.words
    for place, length, by_first in sentence.phrases:
        if by_first.keys().isdisjoint(places):
            continue
        found = [
            (rank, there, len(words))
            for first in by_first.keys() & places
            for rank, words in by_first[first]
            for there in other.places[first]
            if all_words[there : there + len(words)] == words
        ]
        for _, there, there_length in sorted(found):
            yield place, length, there, there_length


def _settled(options: list[list[Match]], own_words: int) -> list[Match | None]:
    """Matches that nothing competes with: the only one for each word on both sides."""
    covered = [0] * len(options)
    own_covered = [0] * own_words
    for some in options:
        for start, length, own, own_length, _ in some:
            for place in range(start, start + length):
                covered[place] += 1
            for place in range(own, own + own_length):
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
_rank = itemgetter(0)

_Chain = tuple[Match, "_Chain"] | None
_Hypothesis = tuple[int, int, int, int, _Chain]
"""Rank, where its open chunk ends in the caption (-1: none is open), words used (bits), next place, matches so far."""


class _Move(NamedTuple):
    """What taking a match does to a hypothesis."""

    match: Match
    words: int
    """Those it uses, as bits: of the reference, then of the caption."""
    gain: int
    moved: int
    own_end: int
    next_place: int

    @classmethod
    def by(cls, match: Match, places: int) -> "_Move":
        start, length, own, own_length, module = match
        words = ((1 << length) - 1) << start | ((1 << own_length) - 1) << own + places
        covered = length + own_length if module == EXACT else length // 2 + own_length // 2
        return cls(match, words, -_COVERED * covered, abs(start - own), own + own_length, start + length)


def _search(options: list[list[Match]], settled: list[Match | None]) -> list[Match]:
    places = len(options)
    fixed = [None if match is None else _Move.by(match, places) for match in settled]
    used = sum(move.words for move in fixed if move is not None)
    beam: list[_Hypothesis] = [(0, -1, used, 0, None)]
    for place, some in enumerate(options):
        beam.sort(key=_rank)
        moves = [] if fixed[place] is not None else [_Move.by(match, places) for match in some]
        following: list[_Hypothesis] = []
        for hypothesis in beam[:BEAM]:
            if not hypothesis[2] >> place & 1:
                _branch(hypothesis, moves, place, following)
            elif place < hypothesis[3]:
                following.append(hypothesis)
            elif (move := fixed[place]) is not None:
                rank, end, used, _, chain = hypothesis
                rank += move.gain + move.moved + (_CHUNK if end not in (-1, move.match[2]) else 0)
                following.append((rank, move.own_end, used, move.next_place, (move.match, chain)))
        beam = following or beam[:1]
    beam.sort(key=_rank)
    closed = [
        (hypothesis[0] + (_CHUNK if hypothesis[1] != -1 else 0), hypothesis[4]) for hypothesis in beam[:BEAM]
    ]
    return _unchained(min(closed, key=_rank)[1])


def _branch(hypothesis: _Hypothesis, moves: list[_Move], place: int, following: list[_Hypothesis]) -> None:
    """The hypotheses that take one of the moves, and the one that takes none."""
    rank, end, used, _, chain = hypothesis
    for match, words, gain, moved, own_end, next_place in moves:
        if not used & words:
            chunk = 0 if end in (-1, match[2]) else _CHUNK
            following.append((rank + gain + chunk, own_end, used | words, next_place, (match, chain)))
            rank += moved  # the program's slip: what comes after pays for this match, not the one that has it
    following.append((rank if end == -1 else rank + _CHUNK, -1, used, place + 1, chain))


def _unchained(chain: _Chain) -> list[Match]:
    matches = []
    while chain is not None:
        match, chain = chain
        matches.append(match)
    return matches[::-1]

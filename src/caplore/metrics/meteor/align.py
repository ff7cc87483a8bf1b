"""One caption against one reference: every way words and phrases may match, and the best set of matches.

A match joins `length` words of the reference from `start` with `own_length` words of the caption from `own_start`. Of
all sets in which no word is used twice, METEOR wants the one that covers most words, then the one with fewest chunks
(runs of matches that lie side by side in both sentences), then the one whose matches move least; it looks for it with a
beam of 40 from the left of the reference to its right. We follow the program where it departs from that text:

- a match that is not exact covers half its words in that count, rounded down: a single synonym none at all
- the distance of a match is added to the hypothesis it was made from, not to the one that has it
- the same match found twice is twice there: it takes two places in the beam, and is never settled in advance
"""

from collections.abc import Iterator, Sequence
from operator import itemgetter

from caplore.metrics.meteor.tables import Paraphrases
from caplore.metrics.meteor.words import EXACT, PARAPHRASE, Lexicon, Sentence

BEAM = 40


Match = tuple[int, int, int, int, int]
"""start, length, own_start, own_length, and which module found it: plain tuples, as there are many."""


def align(caption: Sentence, reference: Sentence, lexicon: Lexicon) -> list[Match]:
    """The matches of the best alignment, from left to right in the reference."""
    return next(align_each(caption, [reference], lexicon))


def align_each(caption: Sentence, references: Sequence[Sentence], lexicon: Lexicon) -> Iterator[list[Match]]:
    """The same for each reference; what concerns the caption and all of them is looked up once."""
    words = {word for reference in references for word in reference.places}
    reached, echoes = _reached(caption, words, lexicon), _echoes(caption, words)
    heard: dict[int, list[tuple[int, int]]] = {}
    for reference in references:
        options = _word_options(reference, reached, only_exact=caption.words == reference.words)
        if caption.words != reference.words:
            _add_paraphrases(options, caption, reference, echoes, heard)
        settled = _settled(options, len(caption.words))
        if all(found is not None or not some for found, some in zip(settled, options, strict=True)):
            yield [match for match in settled if match is not None]
        else:
            yield _search(options, settled)


def _reached(caption: Sentence, words: set[str], lexicon: Lexicon) -> dict[str, list[tuple[int, int]]]:
    """For words of the references, how and where the caption matches them, in the order the program finds it."""
    reached: dict[str, list[tuple[int, int]]] = {}
    for word, places in caption.places.items():
        near = lexicon.matches[word]
        for other in near.keys() & words:
            reached.setdefault(other, []).extend((how, own) for how in near[other] for own in places)
    for ways in reached.values():
        ways.sort()
    return reached


def _word_options(
    reference: Sentence, reached: dict[str, list[tuple[int, int]]], *, only_exact: bool
) -> list[list[Match]]:
    """The matches of single words, by where they begin in the reference."""
    options: list[list[Match]] = []
    for start, word in enumerate(reference.words):
        ways = reached.get(word, ())
        options.append(
            [(start, 1, own, 1, how) for how, own in ways if not only_exact or how == EXACT] if ways else []
        )
    return options


_Echo = tuple[int, int, list[tuple[int, list[str]]]]
"""A phrase of the caption, where and how long, and those of its paraphrases that the references have words for."""


def _echoes(caption: Sentence, words: set[str]) -> list[_Echo]:
    found = []
    for place, length, by_first in caption.phrases:
        some = [
            paraphrase
            for first in by_first.keys() & words
            for paraphrase in by_first[first]
            if len(paraphrase[1]) == 1 or words.issuperset(paraphrase[1])
        ]
        if some:
            found.append((place, length, sorted(some)))
    return found


def _add_paraphrases(
    options: list[list[Match]],
    caption: Sentence,
    reference: Sentence,
    echoes: list[_Echo],
    heard: dict[int, list[tuple[int, int]]],
) -> None:
    """The matches of phrases: paraphrases of the reference's that the caption says, then the other way round.

    `heard` keeps, by phrase, where the caption says one of its paraphrases: references repeat each other.
    """
    for start, length, by_first in reference.phrases:
        places = heard.get(id(by_first))
        if places is None:
            places = heard[id(by_first)] = _where(_among(by_first, caption), caption)
        for own, own_length in places:
            options[start].append((start, length, own, own_length, PARAPHRASE))
    for own, own_length, paraphrases in echoes:
        for start, length in _where(paraphrases, reference):
            options[start].append((start, length, own, own_length, PARAPHRASE))


def _among(by_first: Paraphrases, sentence: Sentence) -> list[tuple[int, list[str]]]:
    """The paraphrases whose first word stands in the sentence, by rank."""
    keys = sentence.places.keys()
    if by_first.keys().isdisjoint(keys):
        return []
    return sorted(paraphrase for first in by_first.keys() & keys for paraphrase in by_first[first])


def _where(paraphrases: list[tuple[int, list[str]]], sentence: Sentence) -> list[tuple[int, int]]:
    """Where in the sentence they stand, and how long they are."""
    found = []
    for _, words in paraphrases:
        length = len(words)
        for place in sentence.places.get(words[0], ()):
            if length == 1 or sentence.words[place : place + length] == words:
                found.append((place, length))
    return found


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
            if length == 1 == own_length:
                alone = covered[start] == 1 == own_covered[own]
            else:
                used = covered[start : start + length] + own_covered[own : own + own_length]
                alone = max(used) == 1
            if alone:
                settled[place] = some[0]
    return settled


# A hypothesis is ranked by words covered (more first), chunks, distance (less first): one number, least first.
_COVERED, _CHUNK = 1 << 40, 1 << 20
_rank = itemgetter(0)

_Chain = tuple[Match, "_Chain"] | None
_Hypothesis = tuple[int, int, int, _Chain]
"""Rank, where its open chunk ends in the caption (-1: none is open), words used (bits), matches so far."""

_Move = tuple[Match, int, int, int, int, int]
"""A match; the words it uses (bits of the reference, then of the caption); what it adds to the rank, and how far it
moves; where it begins and ends in the caption."""


def _move(match: Match, places: int) -> _Move:
    start, length, own, own_length, module = match
    words = ((1 << length) - 1) << start | ((1 << own_length) - 1) << own + places
    covered = length + own_length if module == EXACT else length // 2 + own_length // 2
    return match, words, -_COVERED * covered, abs(start - own), own, own + own_length


def _search(options: list[list[Match]], settled: list[Match | None]) -> list[Match]:
    places = len(options)
    fixed = [None if match is None else _move(match, places) for match in settled]
    used = sum(move[1] for move in fixed if move is not None)
    beam: list[_Hypothesis] = [(0, -1, used, None)]
    for place, some in enumerate(options):
        if (move := fixed[place]) is not None:
            beam = _take(beam, move)
        elif some:
            beam = _branch(beam, [_move(match, places) for match in some], place)
        else:
            beam = _pass(beam, place)
        if len(beam) > 1:
            beam.sort(key=_rank)
            del beam[BEAM:]
    closed = [(rank if end == -1 else rank + _CHUNK, chain) for rank, end, _, chain in beam]
    return _unchained(min(closed, key=_rank)[1])


def _take(beam: list[_Hypothesis], move: _Move) -> list[_Hypothesis]:
    """All take the match that is settled."""
    match, _, gain, moved, own, own_end = move
    same, other = gain + moved, gain + moved + _CHUNK
    return [
        (rank + (same if end in (-1, own) else other), own_end, used, (match, chain))
        for rank, end, used, chain in beam
    ]


def _pass(beam: list[_Hypothesis], place: int) -> list[_Hypothesis]:
    """Nothing begins here: an open chunk ends, but for those in the middle of a match."""
    return [
        hypothesis
        if hypothesis[1] == -1 or hypothesis[2] >> place & 1
        else (hypothesis[0] + _CHUNK, -1, *hypothesis[2:])
        for hypothesis in beam
    ]


def _branch(beam: list[_Hypothesis], moves: list[_Move], place: int) -> list[_Hypothesis]:
    """Of each, those that take one of the moves, and the one that takes none."""
    following: list[_Hypothesis] = []
    add = following.append
    for hypothesis in beam:
        rank, end, used, chain = hypothesis
        if used >> place & 1:  # in the middle of a match
            add(hypothesis)
            continue
        for match, words, gain, moved, own, own_end in moves:
            if not used & words:
                chunk = 0 if end in (-1, own) else _CHUNK
                add((rank + gain + chunk, own_end, used | words, (match, chain)))
                rank += (
                    moved  # the program's slip: paid by what comes after, not by the one that has the match
                )
        add((rank if end == -1 else rank + _CHUNK, -1, used, chain))
    return following


def _unchained(chain: _Chain) -> list[Match]:
    matches = []
    while chain is not None:
        match, chain = chain
        matches.append(match)
    return matches[::-1]

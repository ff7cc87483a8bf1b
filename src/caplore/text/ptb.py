"""Captions as the field tokenises them: the Stanford PTB tokeniser as coco-caption calls it, without Java.

coco-caption writes captions as the lines of one file, runs `PTBTokenizer -preserveLines -lowerCase` (CoreNLP 3.4.1)
and drops a list of punctuation. `tokenize_lines` gives the same words for the same lines, each as one text, and
`tokenize_many` as lists; `tokenize` is a file of one line. What was compared: docs/tokenisation.md.

How: at each position the rule that matches most characters wins, what a rule only looks at counted in; among
equals the first. A caption is first cut at its spaces, and a piece that cannot depend on its neighbours is remembered.
The compiled twin, ptb.cpp, reads captions of nothing but common pieces, nearly all there are; the others come here.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from caplore.machine import collector_paused
from caplore.native import native

SIGNATURE = "ptb-1"

PUNCTUATION = frozenset(
    ["''", "'", "``", "`", "-LRB-", "-RRB-", "-LCB-", "-RCB-", *".?!,:;", "-", "--", "..."]
)


def tokenize(caption: str) -> list[str]:
    """The words of one caption, lower case, without punctuation. Never raises; an empty caption has no words."""
    try:
        return list(chain.from_iterable(map(_known.__getitem__, caption.split(" "))))
    except KeyError:
        return _tokenize_unknown(caption)


def tokenize_lines(captions: Sequence[str]) -> list[str]:
    """As `tokenize_many`, the words of each caption joined by single spaces: no word holds one. The fastest way.

    A caption without words is an empty text; `words_of` gives the words back.
    """
    if (twin := native("caplore.text._ptb")) is None:
        return [" ".join(_tokenize_line(captions, index)) for index in range(len(captions))]
    lines: list[str]
    lines, left = twin.lines(list(captions), _RUN_TOGETHER, _ABBREVIATIONS)
    for index in left:
        lines[index] = " ".join(_tokenize_line(captions, index))
    return lines


def words_of(line: str) -> list[str]:
    """The words of one of the lines of `tokenize_lines`."""
    return line.split(" ") if line else []


def tokenize_many(captions: Sequence[str]) -> list[list[str]]:
    """One list of words for each caption, in order, as if the captions were the lines of one file.

    Only one thing looks across a line: "the letter K." keeps its period unless the next line opens a sentence ("A",
    "The", ...), and "no." keeps it before a digit. Tokenised one by one, 14 of COCO's 616,767 captions differ for it.
    """
    with collector_paused():
        if (twin := native("caplore.text._ptb")) is None:
            return [_tokenize_line(captions, index) for index in range(len(captions))]
        words: list[list[str]]
        words, left = twin.lists(list(captions), _RUN_TOGETHER, _ABBREVIATIONS)
        for index in left:
            words[index] = _tokenize_line(captions, index)
        return words


def _tokenize_line(captions: Sequence[str], index: int) -> list[str]:
    """The words of one of the captions, by Python."""
    try:
        return list(chain.from_iterable(map(_known.__getitem__, captions[index].split(" "))))
    except KeyError:
        return _tokenize_unknown(captions[index], partial(_next_line, captions, index))


class _Pieces(dict[str, tuple[str, ...]]):
    """The words of pieces that stand for themselves; plain ones are learned as they are asked for."""

    def __missing__(self, piece: str) -> tuple[str, ...]:
        plain = _PLAIN.fullmatch(piece)
        if plain is None or (word := plain[1].lower()) in _NOT_PLAIN:
            raise KeyError(piece)
        return self.learn(piece, (word, "'s") if plain[2] else (word,))

    def learn(self, piece: str, words: tuple[str, ...]) -> tuple[str, ...]:
        if len(self) > _KNOWN_LIMIT:
            self.clear()
            self[""] = ()
        self[piece] = words
        return words


_known = _Pieces({"": ()})
_KNOWN_LIMIT = 500_000  # pieces; some 100 MB. A corpus of captions has a tenth of it


def _tokenize_unknown(caption: str, next_line: Callable[[], str] = str) -> list[str]:
    """The caption piece by piece; if one of them does not stand for itself, the caption is read as a whole."""
    line = caption if caption.isprintable() else _LINE_BREAK.sub(" ", caption)
    words: list[str] = []
    for piece in line.split(" "):
        try:
            words += _known[piece]
        except KeyError:
            if _leans().match(_by_kind(piece)):
                return list(_words(f"{line}\n{next_line()}\n", len(line)))
            words += _known.learn(piece, tuple(_words(piece + "\n", len(piece))))
    return words


def _next_line(captions: Sequence[str], index: int) -> str:
    """The start of the next line with anything on it; no rule looks further than its first word."""
    for follower in range(index + 1, len(captions)):
        if start := captions[follower].lstrip()[:40]:
            return _LINE_BREAK.sub(" ", start)
    return ""


def _words(text: str, end: int) -> Iterator[str]:
    """The words of text[:end]; the rest is only looked at."""
    kinds = _by_kind(text)
    rules = [rule for rule in _rules() if rule.needs in text]
    position = 0
    while position < end:
        if space := _SPACE.match(kinds, position):
            position = space.end()
            continue
        matches = [(found, rule) for rule in rules if (found := rule.pattern.match(kinds, position))]
        if not matches:  # a character of no rule: the program drops it, too
            position += 1
            continue
        longest, rule = max(matches, key=lambda match: match[0].end())  # the first of the longest
        token = text[position : longest.end(1)]
        position += len(token)
        if (word := rule.rewrite(token)) and word not in PUNCTUATION:
            yield word


class _Rule(NamedTuple):
    """Group 1 is the token. What the pattern matches behind it is looked at, counts for the length, and stays."""

    pattern: re.Pattern[str]
    rewrite: Callable[[str], str]
    needs: str = ""
    """What must be somewhere in a text for the rule to match: spares long texts a search from every position."""


def _as_it_is(token: str) -> str:
    return token.lower()


def _without_soft_hyphens(token: str) -> str:
    return token.replace("\u00ad", "").lower() or "-"


_STRAIGHT = {ord(c): "`" for c in "\u0091‘‛‹"} | {ord(c): "'" for c in "\u0092’›"}
_STRAIGHT |= {ord(c): "``" for c in "\u0093“«"} | {ord(c): "''" for c in "\u0094”»"}


def _straight_quotes(token: str) -> str:
    return re.sub("(?ai:&apos;)", "'", token).translate(_STRAIGHT).lower()


def _plain_ampersands(token: str) -> str:
    return re.sub("(?ai:&amp;)", "&", token).lower()


def _bracket_name(token: str) -> str:
    return _BRACKETS[token]


def _parenthesis_names(token: str) -> str:
    return token.replace("(", "-lrb-").replace(")", "-rrb-").lower()


def _kept_together(token: str) -> str:
    """A token with a space in it (`1 1/2`) is printed with a no-break space."""
    return token.replace(" ", "\u00a0").lower()


def _short_dash(token: str) -> str:
    return token if len(token) > 4 else "--"


def _nothing(token: str) -> str:
    """Quotes and ellipses: whatever they are rewritten to is punctuation, and dropped."""
    return ""


_BRACKETS = {"(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-"}
_ONE_FOR_ANOTHER = {"¼": "1/4", "½": "1/2", "¾": "3/4", "⅓": "1/3", "⅔": "2/3"}
_ONE_FOR_ANOTHER |= {"¢": "cents", "£": "#", "\u0080": "$", "¤": "$", "\u20a0": "$", "€": "$"}


def _character_name(token: str) -> str:
    return _ONE_FOR_ANOTHER.get(token, token)


# Words whose final period belongs to them. Case does not matter, except the first letter of the capitalised ones.
_TITLES = """
a b c d e f g h i j k l m n o p q r s t u v w x y z cf dr ft lt mr ms mt ph st vs wm adj adm adv alex asst assoc atty
attys ave brig capt cie cmdr col comdr cpl dept det drs elec ens gen gov govs hon insp invt jos lieut maj messrs
mfg mlle mme mrs msgr mtg natl pfc pres prof profs pvt rep reps rev sen sens sfc sgt spc ste supt supts treas
"""
_MAY_CLOSE_A_SENTENCE = """
al ala apr ariz assn aug bancorp bhd bldg blvd bros calif co colo conn corp cos ct dak dec ed.d esq est etc ext feb
fla fri ga inc ind intl jan jr jul jun kan kans ky ltd mar md mich minn mo mon mont neb nev nov oct okla penn ph.d plc
ppte pptes ppty pptys pte ptes pty ptys rd rt sep sept seq sq sr sys tel tenn thu thurs tue tues univ va vt wed wis
wisc wyo Ark Az Del Ill La Mass Miss Ore Pa Tex Wash
"""
_ABBREVIATIONS_BEFORE_A_NUMBER = "art ca fig figs no nos op pp prop"
_FILE_ENDINGS = """
bat bmp c cgi class cpp dll doc docx exe gif gz h htm html jar java jpeg jpg mov mp3 pdf php pl png ppt ps py sql tar
txt wav x xml zip
"""
_SENTENCE_STARTS = """
A About According Additionally After An As At But Earlier He Her Here However If In It Last Many More Mr. Ms. Now
Once One Other Our She Since So Some Such That The Their Then There These They This We What When While Yet You
"""


def _any_of(words: str) -> str:
    """An alternation, longest first; lower case matches any case, a capital only itself (the rest any case)."""
    longest_first = sorted(words.split(), key=len, reverse=True)
    return "|".join(
        f"(?ai:{re.escape(word)})" if word.islower() else f"{word[0]}(?ai:{re.escape(word[1:])})"
        for word in longest_first
    )


@cache
def _rules() -> tuple[_Rule, ...]:
    """Every rule, for texts in which one letter, digit or mark stands for all: `_by_kind`."""
    letters, digits, marks = f"A-Za-z{_A_LETTER}", f"0-9{_A_DIGIT}", _A_MARK
    symbols = _character_set(_SYMBOLS)
    letter, digit, alphanumeric = f"[{letters}]", f"[{digits}]", f"[{letters}{digits}]"
    accented = "&[aeiouAEIOU](?ai:acute|grave|uml);"
    # A letter of a word may be a combining mark, a soft hyphen or an HTML accent.
    word_letter = f"(?:[{letters}{marks}\u00ad]|{accented})"
    word_character = f"(?:[{letters}{marks}{digits}\u00ad]|{accented})"
    word = f"{word_letter}{word_character}*(?:[.!?]{word_letter}{word_character}*)*"
    apostrophe = "(?:['\u0092\u2019]|(?ai:&apos;))"
    any_quote = "(?:['`\u0091\u0092\u2018\u2019\u201b]|(?ai:&apos;))"
    space_or_line = f"[{_SPACES}{_LINE_BREAKS}]"
    clitic = f"{apostrophe}(?:[msdMSD]|(?ai:re|ve|ll))"  # 's, 'm, 'd, 're, 've, 'll
    negation = f"[nN]{any_quote}[tT]"
    number = f"(?:{digit}*(?:[.:,\u00ad\u066b\u066c]{digit}+)+|{digit}+)"
    initials = r"[A-Za-z](?:\.[A-Za-z])+"
    compound_part = f"(?:[dDoOlL]{any_quote}{alphanumeric})?{alphanumeric}+"
    compound = f"{compound_part}(?:[-_\u058a\u2010\u2011]{compound_part})*"
    hyphenated = rf"[A-Za-z0-9][A-Za-z0-9.,\u00ad]*(?:-(?:{initials}\.|[A-Za-z0-9\u00ad]+))+"
    joined_capitals = "[A-Z]+(?:(?:[+&]|(?ai:&amp;))[A-Z]+)+"
    slash_part = "[A-Za-z0-9]+(?:-[A-Za-z]+){0,2}"
    not_url = r' \t\n\f\r"<>|(){}'
    url_path = rf"(?:/[^{not_url}]+[^{not_url}.!?,\-])?"
    tag_name = r"[A-Za-z][A-Za-z0-9_:.\-]*"
    tag_value = rf"""(?:'[^\r\n']*'|"[^\r\n"]*"|{tag_name})"""
    open_tag = f"{tag_name}(?: +{tag_name}(?:={tag_value})?)* */?"
    tag = rf"<(?:[!?][A-Za-z\-][^>\r\n]*|/{tag_name}|{open_tag}) *>"
    clause_mark = "[,;:\u3001]"

    def rule(
        token: str, ahead: str = "", rewrite: Callable[[str], str] = _as_it_is, needs: str = ""
    ) -> _Rule:
        return _Rule(re.compile(f"({token}){ahead}"), rewrite, needs)

    return (
        # contractions written as one word: the second half is the next token
        rule("(?ai:can)", "(?ai:not)"),
        rule("(?ai:gon|wan)", "(?ai:na)"),
        rule("(?ai:got)", "(?ai:ta)"),
        rule("(?ai:lem|gim)", "(?ai:me)"),
        rule("'[tT]", "(?ai:is|was)"),
        # mark-up and its entities
        rule(tag, "", _kept_together, "<"),
        rule("(?ai:&(?:md|mdash|ndash);)|[\u0096\u0097\u2013\u2014\u2015]", rewrite=_nothing),
        rule("(?ai:&amp;)", rewrite=_plain_ampersands),
        rule("(?ai:&(?:ht|tl|ur|lr|qc|ql|qr|odq|cdq|#[0-9]+);)"),
        # words
        rule(word, clitic, _without_soft_hyphens),
        rule("[A-Za-z\u00ad]*[A-MO-Za-mo-z]\u00ad*", negation, _without_soft_hyphens),
        rule(word, rewrite=_without_soft_hyphens),
        # words with an apostrophe inside, before or behind: 'n', l', ol', '90s, O'Neil, ma'am, y'all
        rule(f"{apostrophe}[nN]{apostrophe}?"),
        rule(f"[lLdDjJ]{apostrophe}"),
        rule(f"(?ai:dunkin|somethin|ol){apostrophe}|{apostrophe}(?ai:em|till?|cause)|{apostrophe}[2-9]0[sS]"),
        rule(f"[A-HJ-XZn]{any_quote}{letter}{{2,}}"),
        rule(f"{letter}+[aeiouyAEIOUY]{any_quote}[aeiouA-Z]{letter}*"),
        rule(rf"(?ai:cont'd\.?|nor'easter|c'mon|e'er|s'mores|ev'ry|li'l|nat'l)|[oO]{any_quote}[oO]"),
        rule(f"[yY]{apostrophe}", letter),
        # addresses. The range ,-_ takes digits and capitals out of a host: the program's own slip, kept
        rule(rf"https?://[^{not_url}]+[^{not_url}.!?,\-]"),
        rule(rf"(?ai:www)\.(?:[^{not_url}.!?,]+\.)+[A-Za-z]{{2,4}}{url_path}"),
        rule(rf"(?:[^{not_url}`'.!?,-_$]+\.)+(?ai:com|net|org|edu){url_path}", needs="."),
        rule(
            rf"(?:<|(?ai:&lt;))?[A-Za-z0-9][^{not_url}\u00a0]*@(?:[^{not_url}.\u00a0]+\.)*[^{not_url}.\u00a0]+"
            "(?:>|(?ai:&gt;))?",
            needs="@",
        ),
        rule(f"@[A-Za-z_][A-Za-z_0-9]*|#{word_letter}+"),
        # numbers, dates, fractions, money
        rule(clitic, "[^A-Za-z]", _straight_quotes),
        rule(negation, "[^A-Za-z]", _straight_quotes),
        rule(rf"{digit}{{1,2}}[\-/]{digit}{{1,2}}[\-/]{digit}{{2,4}}"),
        rule(rf"[\-+]?{number}", rewrite=_without_soft_hyphens),
        rule(
            "[\u207a\u207b\u208a\u208b]?(?:[\u2070\u00b9\u00b2\u00b3\u2074-\u2079]+|[\u2080-\u2089]+)",
        ),
        rule(
            rf"(?:{digit}{{1,4}}[- \u00a0])?{digit}{{1,4}}(?:\\?/|\u2044){digit}{{1,4}}",
            rewrite=_kept_together,
        ),
        rule("[¼½¾\u2153-\u215e]", rewrite=_character_name),
        rule(
            "-(?ai:[lr][rcs]b)-|(?ai:c\\.d\\.s|pro-|anti-)|[sS](?:&|(?ai:&amp;))(?ai:p-500|ls)",
            rewrite=_plain_ampersands,
        ),
        rule(r"(?ai:c\+\+|[cf]#)"),
        rule(f"(?ai:cap){apostrophe}[nN]|[cC]{apostrophe}(?ai:est)"),
        rule(rf"{slash_part}(?:\\?/{slash_part}){{1,2}}"),
        rule(r"[A-Z]*\$|#"),
        rule("[¢£¤¥\u0080\u20a0\u20ac]", rewrite=_character_name),
        # abbreviations
        rule(rf"(?:{_any_of(_TITLES)})\."),
        rule(rf"(?:{_any_of(_MAY_CLOSE_A_SENTENCE)})\.", r"[\s\S]{0,2}"),
        rule(rf"(?:{_any_of(_ABBREVIATIONS_BEFORE_A_NUMBER)})\.", f"{space_or_line}?{digit}"),
        rule(rf"{initials}\."),
        rule("[A-Za-z]", rf"\.{space_or_line}+(?:{_any_of(_SENTENCE_STARTS)}|{tag}){space_or_line}"),
        rule(r"(?ai:(?:canada|sino|korean|eu|japan|non)-u\.s\.|u\.s\.-(?:u\.k\.|u\.s\.s\.r\.))"),
        rule(
            rf"{word_character}+(?:\.{word_character}+)*\.(?ai:{_any_of(_FILE_ENDINGS)})",
            rf"[{_SPACES}{_LINE_BREAKS}.?!,]",
        ),
        rule(f"{apostrophe}[0-9][0-9]", space_or_line),
        rule(rf"{word}\.", clause_mark, _without_soft_hyphens),
        rule(
            r"(?:\([0-9]{2,3}\)[ \u00a0]?|(?:\+\+?)?(?:[0-9]{2,4}[\- \u00a0])?[0-9]{2,4}[\- \u00a0])"
            r"[0-9]{3,4}[\- \u00a0]?[0-9]{3,5}|(?:(?:\+\+?)?[0-9]{2,4}\.)?[0-9]{2,4}\.[0-9]{3,4}\.[0-9]{3,5}",
            rewrite=lambda token: _kept_together(_parenthesis_names(token)),
        ),
        # signs
        rule('"|(?ai:&quot;)', rewrite=_nothing),
        rule("<|(?ai:&lt;)", rewrite=lambda token: "<"),
        rule(">|(?ai:&gt;)", rewrite=lambda token: ">"),
        rule("<<|>>"),
        rule(r"[<>]?[:;=][\-o*']?[()DPdpO\\{@|\[\]]", "[^A-Za-z0-9]", _parenthesis_names),
        rule(
            r"[\^x=~<>]\.\[\^x=~<>\]|[\-\^x=~<>']_[\-\^x=~<>']|\([\-\^x=~<>'][_.]?[\-\^x=~<>']\)"
            r"|\([\^x=~<>']-[\^x=~<>'`]\)",
            rewrite=_parenthesis_names,
        ),
        rule(r"[\[\](){}]", rewrite=_bracket_name),
        rule("-+", rewrite=_short_dash),
        rule("\\.{3,5}|(?:\\.[ \u00a0]){2,4}\\.|\u2026", rewrite=_nothing),
        rule(r"(?:\\\*){1,3}|\*+|_+|#+|@+|[?!]+"),
        # what is left of words: hyphens, underscores, ampersands
        rule(hyphenated, rewrite=_without_soft_hyphens),
        rule(compound),
        rule(joined_capitals, rewrite=_plain_ampersands),
        rule(rf"{hyphenated}\.", clause_mark, _without_soft_hyphens),
        rule(rf"(?:{compound}|{joined_capitals})\.", clause_mark, _plain_ampersands),
        rule("'", r"[A-Za-z][^ \t\n\r\u00a0]", _nothing),
        rule(clitic, rewrite=_straight_quotes),
        rule(negation, rewrite=_straight_quotes),
        rule(f"''|[`\u0091-\u0094‘’‚‛“”„‟‹›«»]{{1,2}}|{apostrophe}", rewrite=_straight_quotes),
        rule(f"[{symbols}{marks}.,:;=/&@+\u2044\u00ad]", rewrite=_without_soft_hyphens),
    )


# Characters, as hexadecimal ranges: Java's notion of letter and digit when the program was built (Unicode 6.3).
_LETTERS = """
41-5a 61-7a aa b5 ba c0-d6 d8-f6 f8-2c1 2c6-2d1 2e0-2e4 2ec 2ee 370-374 376-377 37a-37d 386 388-38a 38c
38e-3a1 3a3-3f5 3f7-481 48a-527 531-556 559 561-587 5d0-5ea 5f0-5f2 620-64a 66e-66f 671-6d3 6d5 6e5-6e6
6ee-6ef 6fa-6fc 6ff 710 712-72f 74d-7a5 7b1 7ca-7ea 7f4-7f5 7fa 800-815 81a 824 828 840-858 8a0 8a2-8ac
904-939 93d 950 958-961 971-977 979-97f 985-98c 98f-990 993-9a8 9aa-9b0 9b2 9b6-9b9 9bd 9ce 9dc-9dd 9df-9e1
9f0-9f1 a05-a0a a0f-a10 a13-a28 a2a-a30 a32-a33 a35-a36 a38-a39 a59-a5c a5e a72-a74 a85-a8d a8f-a91 a93-aa8
aaa-ab0 ab2-ab3 ab5-ab9 abd ad0 ae0-ae1 b05-b0c b0f-b10 b13-b28 b2a-b30 b32-b33 b35-b39 b3d b5c-b5d b5f-b61
b71 b83 b85-b8a b8e-b90 b92-b95 b99-b9a b9c b9e-b9f ba3-ba4 ba8-baa bae-bb9 bd0 c05-c0c c0e-c10 c12-c28
c2a-c33 c35-c39 c3d c58-c59 c60-c61 c85-c8c c8e-c90 c92-ca8 caa-cb3 cb5-cb9 cbd cde ce0-ce1 cf1-cf2 d05-d0c
d0e-d10 d12-d3a d3d d4e d60-d61 d7a-d7f d85-d96 d9a-db1 db3-dbb dbd dc0-dc6 e01-e30 e32-e33 e40-e46 e81-e82
e84 e87-e88 e8a e8d e94-e97 e99-e9f ea1-ea3 ea5 ea7 eaa-eab ead-eb0 eb2-eb3 ebd ec0-ec4 ec6 edc-edf f00
f40-f47 f49-f6c f88-f8c 1000-102a 103f 1050-1055 105a-105d 1061 1065-1066 106e-1070 1075-1081 108e 10a0-10c5
10c7 10cd 10d0-10fa 10fc-1248 124a-124d 1250-1256 1258 125a-125d 1260-1288 128a-128d 1290-12b0 12b2-12b5
12b8-12be 12c0 12c2-12c5 12c8-12d6 12d8-1310 1312-1315 1318-135a 1380-138f 13a0-13f4 1401-166c 166f-167f
1681-169a 16a0-16ea 1700-170c 170e-1711 1720-1731 1740-1751 1760-176c 176e-1770 1780-17b3 17d7 17dc
1820-1877 1880-18a8 18aa 18b0-18f5 1900-191c 1950-196d 1970-1974 1980-19ab 19c1-19c7 1a00-1a16 1a20-1a54
1aa7 1b05-1b33 1b45-1b4b 1b83-1ba0 1bae-1baf 1bba-1be5 1c00-1c23 1c4d-1c4f 1c5a-1c7d 1ce9-1cec 1cee-1cf1
1cf5-1cf6 1d00-1dbf 1e00-1f15 1f18-1f1d 1f20-1f45 1f48-1f4d 1f50-1f57 1f59 1f5b 1f5d 1f5f-1f7d 1f80-1fb4
1fb6-1fbc 1fbe 1fc2-1fc4 1fc6-1fcc 1fd0-1fd3 1fd6-1fdb 1fe0-1fec 1ff2-1ff4 1ff6-1ffc 2071 207f 2090-209c
2102 2107 210a-2113 2115 2119-211d 2124 2126 2128 212a-212d 212f-2139 213c-213f 2145-2149 214e 2183-2184
2c00-2c2e 2c30-2c5e 2c60-2ce4 2ceb-2cee 2cf2-2cf3 2d00-2d25 2d27 2d2d 2d30-2d67 2d6f 2d80-2d96 2da0-2da6
2da8-2dae 2db0-2db6 2db8-2dbe 2dc0-2dc6 2dc8-2dce 2dd0-2dd6 2dd8-2dde 2e2f 3005-3006 3031-3035 303b-303c
3041-3096 309d-309f 30a1-30fa 30fc-30ff 3105-312d 3131-318e 31a0-31ba 31f0-31ff 3400-4db5 4e00-9fcc
a000-a48c a4d0-a4fd a500-a60c a610-a61f a62a-a62b a640-a66e a67f-a697 a6a0-a6e5 a717-a71f a722-a788
a78b-a78e a790-a793 a7a0-a7aa a7f8-a801 a803-a805 a807-a80a a80c-a822 a840-a873 a882-a8b3 a8f2-a8f7 a8fb
a90a-a925 a930-a946 a960-a97c a984-a9b2 a9cf aa00-aa28 aa40-aa42 aa44-aa4b aa60-aa76 aa7a aa80-aaaf aab1
aab5-aab6 aab9-aabd aac0 aac2 aadb-aadd aae0-aaea aaf2-aaf4 ab01-ab06 ab09-ab0e ab11-ab16 ab20-ab26
ab28-ab2e abc0-abe2 ac00-d7a3 d7b0-d7c6 d7cb-d7fb f900-fa6d fa70-fad9 fb00-fb06 fb13-fb17 fb1d fb1f-fb28
fb2a-fb36 fb38-fb3c fb3e fb40-fb41 fb43-fb44 fb46-fbb1 fbd3-fd3d fd50-fd8f fd92-fdc7 fdf0-fdfb fe70-fe74
fe76-fefc ff21-ff3a ff41-ff5a ff66-ffbe ffc2-ffc7 ffca-ffcf ffd2-ffd7 ffda-ffdc
"""
_DIGITS = """
30-39 660-669 6f0-6f9 7c0-7c9 966-96f 9e6-9ef a66-a6f ae6-aef b66-b6f be6-bef c66-c6f ce6-cef d66-d6f
e50-e59 ed0-ed9 f20-f29 1040-1049 1090-1099 17e0-17e9 1810-1819 1946-194f 19d0-19d9 1a80-1a89 1a90-1a99
1b50-1b59 1bb0-1bb9 1c40-1c49 1c50-1c59 a620-a629 a8d0-a8d9 a900-a909 a9d0-a9d9 aa50-aa59 abf0-abf9
ff10-ff19
"""
_MARKS = """
2c2-2c5 2d2-2df 2e5-2eb 2ed 2ef-36f 375 378-379 384-385 3f6 483-487 55a-55f 591-5bd 5bf 5c1-5c2 5c4-5c5 5c7
615-61a 64b-65e 670 6d6-6e4 6e7-6ed 6fd-6fe 70f 711 730-74c 7a6-7b0 7eb-7f3 900-903 93c 93e-94e 951-955
962-963 981-983 9bc 9be-9c4 9c7-9c8 9cb-9cd 9d7 9e2-9e3 a01-a03 a3c a3e-a4f a81-a83 abc abe-acf b82 bbe-bc2
bc6-bc8 bca-bcd c01-c03 c3e-c56 d3e-d44 d46-d48 e31 e34-e3a e47-e4e eb1 eb4-ebc ec8-ecd
"""
_SYMBOLS = """
24-27 2a 3b-3e 5c 5e 60 7c 7e a1 a5-a9 ac ae-b4 b6-b9 bf d7 f7 37e 387 589 5be 5c0 5c3 5c6 5f3-5f4 600-603
606-60c 614 61b 61e-61f 66a 66d 6d4 700-70d 7f6-7f8 964-965 e3f e4f 1fbd 2016-2017 201a 201e-2023 2030-2038
203b 203e-2042 2070 2074-207e 2080-208e 20a4 2100-2101 2103-2106 2108-2109 2114 2116-2118 211e-2123 2125
2127 2129 212e 213a-213b 2140-2144 214a-214d 214f 2155-215e 2190-2bff 3001-3002 3012 30fb ff01-ff0f
ff1a-ff20 ff3b-ff40 ff5b-ff65 ffe0-ffe1 ffe5-ffe6
"""

_SPACES = " \\t\u00a0\u2000-\u200a\u3000"
_LINE_BREAKS = "\\r\\n\u000b\u000c\u0085\u2028\u2029"
_LINE_BREAK = re.compile(f"[{_LINE_BREAKS}]")
_SPACE = re.compile(f"(?:[{_SPACES}{_LINE_BREAKS}\0\u200b\u200e\u200f\ufeff]|(?ai:&nbsp;))+")

# What stands for every letter, digit and combining mark beyond ASCII while rules are tried.
_A_LETTER, _A_DIGIT, _A_MARK = "\u00aa\u0660\u02c2"


def _by_kind(text: str) -> str:
    """The text with one letter in place of all, one digit and one mark: rules that name thousands build slowly."""
    return text if text.isascii() else text.translate(_kinds())


class _Kinds(dict[int, int]):
    """What stands for a character, learned as it is asked for."""

    def __init__(self) -> None:
        sets = ((_LETTERS, _A_LETTER), (_DIGITS, _A_DIGIT), (_MARKS, _A_MARK))
        self.ranges = sorted((*ends, ord(kind)) for ranges, kind in sets for ends in _ranges(ranges))

    def __missing__(self, code: int) -> int:
        first, last, kind = self.ranges[bisect_right(self.ranges, code, key=itemgetter(0)) - 1]
        self[code] = kind if code > 0x7F and first <= code <= last else code
        return self[code]


_kinds = cache(_Kinds)


def _ranges(ranges: str) -> list[tuple[int, int]]:
    """'61-7a aa' as the first and the last of each."""
    ends = (part.partition("-") for part in ranges.split())
    return [(int(first, 16), int(last or first, 16)) for first, _, last in ends]


def _character_set(ranges: str) -> str:
    """'61-7a aa' as the inside of a regular expression's [...]."""
    return "".join(f"\\u{first:04x}-\\u{last:04x}" for first, last in _ranges(ranges))


@cache
def _leans() -> re.Pattern[str]:
    """A piece whose tokens could depend on the piece before or behind it (or one that is too long to remember)."""
    return re.compile(
        rf".*[^!-~{_A_LETTER}]"  # holds a space or sign of another kind
        r"|.{65}"  # not worth remembering
        r"|.*<|[0-9]{3}|[0-9]{1,4}\\?/[0-9]|\.+[^.]"  # a tag; half a phone number, a fraction, an ellipsis
        rf"|(?:.*[^A-Za-z])?[A-Za-z]\.$|.*(?:{_any_of(_ABBREVIATIONS_BEFORE_A_NUMBER)})\.$",  # what follows decides
        re.DOTALL,
    )


# Nearly every piece is a word, perhaps with 's, perhaps between marks: no need to try all rules on those.
_PLAIN = re.compile(r'(?!.{65})"?((?![0-9]{3})[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*)(\'s)?[.,!?;:]?"?')
_RUN_TOGETHER = "cannot gonna wanna gotta lemme gimme"
_ABBREVIATIONS = f"{_TITLES} {_MAY_CLOSE_A_SENTENCE} {_ABBREVIATIONS_BEFORE_A_NUMBER}".lower()
_NOT_PLAIN = frozenset(f"{_RUN_TOGETHER} {_ABBREVIATIONS}".split())

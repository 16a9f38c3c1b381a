"""Sub-queries without a language model: the question, its quotations and names, its alternatives and clauses."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from georag_jax.documents import Question
from georag_jax.models.subqueries.parse import distinct

_MOST = 12  # sub-queries a question; a long text would give dozens
_REACH = 4  # words that a phrase takes from the left or the right of a name


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_QUESTION_WORDS = _set("what which who whom whose when where why how")
_AUXILIARIES = _set(
    """am is are was were be been being do does did has have had can could will would shall should may might must
    isn't aren't wasn't weren't don't doesn't didn't hasn't haven't"""
)
_ARTICLES = _set("a an the")
_CONJUNCTIONS = _set("and or")
_COMMON = _QUESTION_WORDS | _AUXILIARIES | _ARTICLES | _CONJUNCTIONS
_FUNCTION_WORDS = _COMMON | _set(
    """about above after against along among around as aside at before behind between beyond by during except for from
    in inside into like near of off on onto out outside over since than through to toward towards under until up upon
    with within without this that these those it its he his him she her hers they their them we our us you your i my
    one but nor so yet both either neither if then there also other others another such same more most many much some
    any all each every no not only just too very first last name give list tell find identify state describe consider
    question while although though because according given besides"""
)
# A name's phrase ends before these; prepositions may stand in it: "creator of Emma".
_PHRASE_EDGES = _COMMON | _set("this that these those but both either")
_LINKS = _set("of in from by for")
# Lower-case words that stand inside names, between two capitalised words.
_JOINERS = _set(
    """of the de del della di da do dos das du des la le les el los las van von der den ter zu al bin ibn y et und e on
    in to for a an"""
)
_MARKS = "()[]{}<>¿?¡!,;:\"'“”„«»‘’`*…-–—"
_BREAKS = ',;:?!)]}"”»'  # marks after which no phrase goes on
_QUOTATION = re.compile(r'"([^"]+)"|“([^”“]+)”|„([^“”„]+)[“”]|«([^»«]+)»|(?<!\w)[\'‘]([^\'‘’]+)[\'’](?!\w)')
_POSSESSIVE = re.compile(r"(?<=\w)(?:['’]s|(?<=s)['’])$")
_CLAUSE_EDGE = re.compile(
    r"[,;:—–]\s+|\s+(?=(?:that|which|who|whom|whose|where|when|while|starring|featuring|directed|written|produced|"
    r"created|founded|born|known|named|called|located|based|owned|played|performed|released|formed|held|hosted|set|"
    r"used)\b)",
    re.IGNORECASE,
)


class Decomposer:
    """Takes sub-queries out of the question itself, by rules for English.

    In this order: the question; its quotations and names, each with the words that lead to it ("creator of Emma"),
    or that it describes ("French pilot"); what they possess ("Emma's author"); for alternatives ("Emma or Persuasion")
    the question with each of them alone; its clauses with the noun they hang on. A question without capitals,
    quotations and clauses gives itself alone. There are at most twelve.

    >>> Decomposer().subqueries([Question("1", "Who is older, Jane Austen or Walter Scott?")])[0][1:3]
    ['Jane Austen', 'Walter Scott']
    """

    def subqueries(self, questions: Sequence[Question]) -> list[list[str]]:
        """The sub-queries of each question; the same for the same text.

        Args:
            questions: only their text is read.

        Returns:
            One list a question, in the order of the questions: the question first, then others that differ from it
            and from each other in more than case and punctuation. Empty for a blank question.
        """
        return [list(distinct(_candidates(question.text)))[:_MOST] for question in questions]


class _Word(NamedTuple):
    core: str  # without marks and possessive ending
    start: int
    end: int  # of the core
    possesses: bool
    breaks: bool  # a phrase ends here

    @property
    def lower(self) -> str:
        return self.core.casefold()

    @property
    def is_function(self) -> bool:
        return self.lower in _FUNCTION_WORDS

    @property
    def is_capital(self) -> bool:
        return any(c.isupper() or c.istitle() for c in self.core)

    @property
    def is_number(self) -> bool:
        return self.core[0].isdigit()


_Span = tuple[int, int]  # half-open range of words


def _candidates(question: str) -> Iterator[str]:
    text = " ".join(question.split())
    if not text:
        return
    yield text
    words = _words(text)
    names = _names(text, words)
    for before, span in zip([(0, 0), *names], names, strict=False):
        yield _cut(text, words, _phrase(words, span, before[1]))
    for span in names:
        if words[span[1] - 1].possesses:
            yield _cut(text, words, _with_following(words, span, _REACH))
    yield from _alternatives(text, words, names)
    yield from _clauses(text)


def _words(text: str) -> list[_Word]:
    words = []
    for match in re.finditer(r"\S+", text):
        raw = match.group()
        start = match.start() + len(raw) - len(raw.lstrip(_MARKS))
        core = raw.strip(_MARKS)
        if not core:
            if words:
                words[-1] = words[-1]._replace(breaks=True)
            continue
        possessive = _POSSESSIVE.search(raw.rstrip(",;:?!")[start - match.start() :])
        if possessive:
            core = core[: possessive.start()]
        end = start + len(core)
        tail = text[end : match.end()]
        ends = possessive is not None or any(mark in _BREAKS for mark in tail)
        words.append(_Word(core, start, end, possessive is not None, ends))
    return words


def _cut(text: str, words: list[_Word], span: _Span) -> str:
    return text[words[span[0]].start : words[span[1] - 1].end]


def _names(text: str, words: list[_Word]) -> list[_Span]:
    """Quotations and runs of capitalised words, in the order of the text, none inside another."""
    quoted = []
    for match in _QUOTATION.finditer(text):
        inside = [i for i, word in enumerate(words) if match.start() < word.start and word.end < match.end()]
        if inside:
            quoted.append((inside[0], inside[-1] + 1))
    parted = list(words)
    for start, end in quoted:  # a name neither runs into a quotation nor out of it
        for i in (max(start - 1, 0), end - 1):
            parted[i] = parted[i]._replace(breaks=True)
    capitalised = (s for s in _capitalised(parted) if all(s[1] <= a or b <= s[0] for a, b in quoted))
    return sorted([*quoted, *capitalised])


def _capitalised(words: list[_Word]) -> Iterator[_Span]:
    i = 0
    while i < len(words):
        # The capital of a sentence's first word says nothing, unless the word can only be a name.
        if not words[i].is_capital or (words[i].is_function and (i == 0 or words[i].lower in _QUESTION_WORDS)):
            i += 1
            continue
        start, end = i, _end_of_name(words, i)
        while start > 0 and words[start - 1].is_number and not words[start - 1].breaks:
            start -= 1
        if not all(word.is_function for word in words[start:end]):
            yield start, end
        i = end


def _end_of_name(words: list[_Word], start: int) -> int:
    end = start + 1
    while end < len(words) and _goes_on(words[end - 1], words[end]):
        after = end
        while after < len(words) - 1 and after < end + 2 and words[after].core in _JOINERS and not words[after].breaks:
            after += 1
        if not (words[after].is_capital or (words[after].is_number and after == end)):
            break
        end = after + 1
    return end


def _goes_on(word: _Word, following: _Word) -> bool:
    """Whether a name may hold both words; "Schindler's List" is one name, "Schindler's factory" is not."""
    return not word.breaks or (word.possesses and following.is_capital)


def _phrase(words: list[_Word], span: _Span, first: int) -> _Span:
    """The name with words from ``first`` on that lead to it, "creator of Emma", or that it describes."""
    start = _leftmost(words, span[0], first)
    behind_article = span[0] >= 2 and words[span[0] - 1].lower in _ARTICLES and words[span[0] - 2].lower in _LINKS
    if start == span[0] and behind_article:
        start = _leftmost(words, span[0] - 1, first)
    while start < span[0] and words[start].is_function:
        start += 1
    if span[1] - start > 1 or words[start].breaks:
        return start, span[1]
    # A lone capital is often an adjective, which finds anything.
    return _with_following(words, (start, span[1]), _REACH - 1)


def _leftmost(words: list[_Word], start: int, first: int) -> int:
    left = start
    while (
        left > max(first, start - _REACH) and words[left - 1].lower not in _PHRASE_EDGES and not words[left - 1].breaks
    ):
        left -= 1
    return left


def _with_following(words: list[_Word], span: _Span, reach: int) -> _Span:
    """The span with up to ``reach`` content words after it."""
    end = span[1]
    while end < min(len(words), span[1] + reach) and not words[end].is_function:
        end += 1
        if words[end - 1].breaks:
            break
    return span[0], end


def _alternatives(text: str, words: list[_Word], names: list[_Span]) -> Iterator[str]:
    """For each run of names joined by commas and "or" or "and": the text with one of them in place of the run."""
    i = 0
    while i < len(names):
        last, joined = i, False
        while last + 1 < len(names):
            between = [word.lower for word in words[names[last][1] : names[last + 1][0]]]
            gap = text[words[names[last][1] - 1].end : words[names[last + 1][0]].start]
            conjunction = any(word in _CONJUNCTIONS for word in between)
            if not _CONJUNCTIONS.union(_ARTICLES).issuperset(between) or not (conjunction or "," in gap):
                break
            joined |= conjunction
            last += 1
        if joined:
            before, after = text[: words[names[i][0]].start], text[words[names[last][1] - 1].end :]
            for span in names[i : last + 1]:
                yield before + _cut(text, words, span) + after
        i = last + 1


def _clauses(text: str) -> Iterator[str]:
    """The parts between commas, relative words and participles, each after the noun that it hangs on."""
    previous = ""
    for part in _CLAUSE_EDGE.split(text):
        part = part.strip(_MARKS + " ")
        words = _words(previous)
        start = len(words)
        while start > max(0, len(words) - _REACH - 1) and not words[start - 1].is_function:
            start -= 1
        noun = previous[words[start].start :] + " " if start < len(words) else ""
        previous = part
        if any(not w.is_function for w in _words(part)) and sum(not w.is_function for w in _words(noun + part)) >= 2:
            yield noun + part

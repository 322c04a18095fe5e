"""Citations: which words of the ingested text an answer stands on, and whether a quote is there.

Nothing here trusts the model. A quote it wrote is looked up in the text; the supporting sentences
listed under an answer are cut out of the text itself.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from longctx.contexts.corpus import Corpus
from longctx.contexts.passages import Passage
from longctx.documents.document import Place
from longctx.indexshare.lexical import STOP_WORDS, words

MIN_QUOTE_WORDS = 3
MAX_CITATIONS = 4
MAX_QUOTE_CHARACTERS = 320
STATED = 20.0  # a sentence that holds the whole answer, word for word, comes before all others

_QUOTED = re.compile(r'"([^"\n]{8,600})"|“([^”\n]{8,600})”')
_LABEL = re.compile(r"\[(\d{1,3})\]")
# A sentence of wrapped prose ends at its full stop, or where a blank line, a list item, a heading
# or a table row follows. Code and captions say one thing a line.
_PROSE = re.compile(
    r"\S[\s\S]*?(?:[.!?][\"')\]]*(?=\s|$)|(?=\n\s*(?:\n|[-*#|•]|\(?\w{1,3}[.)]\s))|$)"
)
_LINE_KINDS = ("code", "vtt", "srt")
_LINE = re.compile(r"\S[^\n]*")
# Characters that writers exchange freely: straight and curly quotes, hyphens and dashes.
_ALIKE = ("'\u2018\u2019", '"\u201c\u201d', "-\u2010\u2011\u2012\u2013\u2014\u2212")


@dataclass(frozen=True)
class Cited:
    """A quote and where it stands; `passage` is the number of the evidence it came from."""

    passage: int
    quote: str
    path: str | None
    place: Place | None
    verified: bool


def cite(question: str, answer: str, read: Sequence[Passage], corpus: Corpus) -> list[Cited]:
    """Quotes the answer wrote, looked up, then the sentences of the evidence that support it."""
    found = _written_quotes(answer, read, corpus)
    covered = {(c.passage, c.quote) for c in found if c.verified}
    for number, start, end in _supporting(question, answer, read, corpus):
        passage = read[number - 1]
        document = corpus.entries[passage.document].document
        start, end = passage.start + start, passage.start + end
        quote = document.text[start:end]
        if len(found) < MAX_CITATIONS and not any(p == number and q in quote for p, q in covered):
            found.append(Cited(number, quote, passage.path, document.place(start, end), True))
    return found


def find_quote(quote: str, text: str) -> tuple[int, int] | None:
    """Where a quote stands in a text, whitespace, case and the shape of quotes and dashes aside."""
    parts = quote.split()
    if not parts:
        return None
    pattern = r"\s+".join(_loose(part) for part in parts)
    match = re.search(pattern, text, re.IGNORECASE)
    return (match.start(), match.end()) if match else None


def _loose(word: str) -> str:
    """A pattern of the word in which characters that are alike stand for each other."""
    groups = (next((g for g in _ALIKE if char in g), char) for char in word)
    return "".join(f"[{re.escape(group)}]" for group in groups)


def _written_quotes(answer: str, read: Sequence[Passage], corpus: Corpus) -> list[Cited]:
    cited = []
    for match in _QUOTED.finditer(answer):
        quote = (match.group(1) or match.group(2)).strip().rstrip(".,;…").strip()
        if len(quote.split()) >= MIN_QUOTE_WORDS:
            cited.append(_look_up(quote, read, corpus))
    return cited[:MAX_CITATIONS]


def _look_up(quote: str, read: Sequence[Passage], corpus: Corpus) -> Cited:
    for number, passage in enumerate(read, 1):
        span = find_quote(quote, passage.text)
        if span:
            document = corpus.entries[passage.document].document
            start, end = passage.start + span[0], passage.start + span[1]
            return Cited(
                number, document.text[start:end], passage.path, document.place(start, end), True
            )
    for entry in corpus.entries:
        span = find_quote(quote, entry.document.text)
        if span:
            document = entry.document
            return Cited(0, document.text[slice(*span)], document.path, document.place(*span), True)
    return Cited(0, quote, None, None, False)


def _supporting(
    question: str, answer: str, read: Sequence[Passage], corpus: Corpus
) -> list[tuple[int, int, int]]:
    """Sentences `(passage number, start, end)` of the evidence that share the most telling words
    with the answer, best first."""
    sentences = [
        (number, passage.text, start, end)
        for number, passage in enumerate(read, 1)
        for start, end in _sentences(
            passage.text, corpus.entries[passage.document].document.kind not in _LINE_KINDS
        )
    ]
    bags = [set(words(text[a:b])) - STOP_WORDS for _, text, a, b in sentences]
    frequency = Counter(word for bag in bags for word in bag)
    named = {int(n) for n in _LABEL.findall(answer)}
    said = set(words(_LABEL.sub("", answer))) - STOP_WORDS
    asked = set(words(question)) - STOP_WORDS

    def weight(found: set[str]) -> float:
        return sum(math.log(1 + len(bags) / frequency[word]) for word in found)

    ranked: list[_Ranked] = []
    stated = " ".join(answer.lower().split()).rstrip(".") or "\0"
    for (number, text, start, end), bag in zip(sentences, bags, strict=True):
        new, known = bag & (said - asked), bag & said & asked
        score = weight(new) + 0.5 * weight(known) + 0.25 * weight((bag & asked) - said)
        score *= 1.5 if number in named else 1.0
        score += STATED * (stated in " ".join(text[start:end].lower().split()))
        if new or known or score >= STATED:
            ranked.append(_Ranked(score, number, start, end, frozenset(bag & said)))
    ranked.sort(key=lambda row: -row.score)
    return [(row.passage, row.start, row.end) for row in _cover(ranked)]


@dataclass(frozen=True)
class _Ranked:
    score: float
    passage: int
    start: int
    end: int
    shared: frozenset[str]


def _cover(ranked: list[_Ranked]) -> list[_Ranked]:
    """The best sentence, then those that add words of the answer the others did not have."""
    chosen: list[_Ranked] = []
    covered: set[str] = set()
    for row in ranked:
        if chosen and (row.score < 0.45 * ranked[0].score or not row.shared - covered):
            continue
        covered |= row.shared
        chosen.append(row)
        if len(chosen) == MAX_CITATIONS - 1:
            break
    return chosen


def _sentences(text: str, prose: bool) -> list[tuple[int, int]]:
    spans = []
    for match in (_PROSE if prose else _LINE).finditer(text):
        start, end = match.span()
        end = min(end, start + MAX_QUOTE_CHARACTERS)
        while end > start and text[end - 1].isspace():
            end -= 1
        if end - start > 3:
            spans.append((start, end))
    return spans

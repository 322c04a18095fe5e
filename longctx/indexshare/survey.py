"""The prompt of the second look: candidate blocks with their documents' names, then the question.

Text and token positions only; the blocks come from the caller, in context order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from longctx.indexshare.select import place
from longctx.models.chat import ChatTemplate, locate_chat
from longctx.models.tokenizer import TextTokenizer


@dataclass(frozen=True)
class Shown:
    """One candidate: its document's name, its text, and whether it continues the one before."""

    path: str
    text: str
    follows: bool


def listed(
    blocks: Sequence[int], first: Sequence[int], read: Callable[[int, int], tuple[str, str]]
) -> list[Shown]:
    """Blocks of the context, in its order, as they are shown.

    `first` holds each document's first block; `read(document, block)` gives a document's name and
    the text of one of its blocks.
    """
    found, before = [], -2
    for block in blocks:
        document, inside = place(block, first)
        name, text = read(document, inside)
        found.append(Shown(name, text, inside > 0 and block == before + 1))
        before = block
    return found


@dataclass(frozen=True)
class Survey:
    """Token ids `[T]` of the prompt and, for each, the candidate it belongs to or -1."""

    prompt: list[int]
    owners: list[int]
    blocks: int


def survey(
    tokenizer: TextTokenizer, template: ChatTemplate, question: str, blocks: Sequence[Shown]
) -> Survey:
    """One user message that shows the blocks and asks; the answer would begin at its end."""
    parts = ["Excerpts:\n"]
    length, path = len(parts[0]), None
    starts, ends = [], []
    for shown in blocks:
        lead = "" if shown.follows else "\n...\n"
        if shown.path != path:
            lead = f"\n\nFrom {shown.path}:\n"
        path = shown.path
        starts.append(length + len(lead))
        ends.append(starts[-1] + len(shown.text))
        parts.append(lead + shown.text)
        length = ends[-1]
    parts.append(f"\n\nQuestion: {question}")
    message = {"role": "user", "content": "".join(parts)}
    ids, begins = locate_chat(tokenizer, template, [message])
    owners = []
    for at in begins:
        number = bisect_right(starts, at) - 1
        owners.append(number if number >= 0 and at < ends[number] else -1)
    return Survey(ids, owners, len(blocks))

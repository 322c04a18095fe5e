"""Cut a long text where no supported tokenizer joins two sides, so that pieces encode alone.

Encoding five megabytes in one call needs hundreds of bytes a token at once; encoding pieces needs
them a piece at a time and lets a batch use every core. It knows characters, not tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

CHUNK_CHARACTERS = 32_768
# No pre-tokenizer joins a lone line end to the word after it, and each treats it alike at the end
# of a text and before a word. (A longer run of blanks is cut differently there.)
_LINE = re.compile(r"(?<=\S\n)(?=\w)")
# Second best, for a file of one line: before a lone space between two letters.
_WORD = re.compile(r"(?<=[^\W\d_])(?= [^\W\d_])")
# Third, for indented data: between a letter and a mark that belongs to no contraction. Here
# SentencePiece, which has no pre-tokenizer, might have joined the two.
_MARK = re.compile(r"(?<=[^\W\d_])(?=[\"(),.:;<=>\[\]{}])")


def split_text(text: str, size: int = CHUNK_CHARACTERS) -> Iterator[tuple[int, str]]:
    """Yield `(start, piece)`, the pieces joining to `text`, each about `size` characters.

    A piece ends at the first line end after `size` characters, or else at a space or mark after
    twice that, where no byte-level tokenizer changes its tokens. A text without any of them within
    four times `size` (base64, blanks) is cut there regardless, and the tokens around that cut may
    differ from an unsplit encoding.
    """
    start = 0
    while len(text) - start > size:
        end = _cut(text, start, size)
        yield start, text[start:end]
        start = end
    if start < len(text):
        yield start, text[start:]


def _cut(text: str, start: int, size: int) -> int:
    limit = min(start + 4 * size, len(text))
    found = (
        _LINE.search(text, start + size, limit)
        or _WORD.search(text, start + 2 * size, limit)
        or _MARK.search(text, start + 2 * size, limit)
    )
    return found.start() if found else limit

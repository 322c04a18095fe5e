"""Text from tokens one at a time, holding back characters that are not whole yet.

A token of a byte-level vocabulary may end in the middle of a UTF-8 character; what is shown of an
answer must not.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from longctx.models.tokenizer import TextTokenizer


class Streamer:
    """Feed ids, get text: all `feed` results and `flush` together are `decode` of the ids.

    Control tokens (an end of turn) give no text; other added tokens (`<tool_call>`) do.
    """

    def __init__(self, tokenizer: TextTokenizer):
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._at_start = True

    def feed(self, token_id: int) -> str:
        """The characters completed by this token; empty while one is still incomplete."""
        if token_id in self._tokenizer.control_ids:
            return ""
        data = self._tokenizer.token_bytes(token_id)
        if self._at_start and self._tokenizer.space_prefix:
            data = data.removeprefix(b" ")
        self._at_start = False
        return self._decoder.decode(data)

    def flush(self) -> str:
        """What is left at the end: U+FFFD for an incomplete character, else nothing."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        self._at_start = True
        return text

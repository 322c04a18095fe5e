"""What a model reasons before it answers, kept apart from the answer token by token."""

from __future__ import annotations

from collections.abc import Sequence

from longctx.models.tokenizer import TextTokenizer

OPEN, CLOSE = "<think>", "</think>"


class Thoughts:
    """Tells of each token whether it belongs to the answer.

    Reasoning models find `<think>` at the end of their prompt and write `</think>` alone; others
    write both. Only the tokenizer's own tokens count: the same letters in a text do not.
    """

    def __init__(self, tokenizer: TextTokenizer, prompt: Sequence[int]):
        self._open, self._close = tokenizer.token_id(OPEN), tokenizer.token_id(CLOSE)
        self.under_way = self._open is not None and list(prompt[-1:]) == [self._open]

    def answers(self, token: int) -> bool:
        """Whether `token` is part of the answer."""
        if token == self._open:
            self.under_way = True
            return False
        if token == self._close:
            self.under_way = False
            return False
        return not self.under_way

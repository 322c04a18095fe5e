"""The part of a reading prompt that is the same for every question, computed once.

Always computed apart from the rest, also the first time: how rows are grouped decides the last bits
of bf16 sums, and the same question must get the same answer whenever it is asked.
"""

from __future__ import annotations

from collections.abc import Sequence

from longctx.models.decoder import Decoder, KVCache


class Opening:
    """Keys and values of the token ids every prompt of one engine begins with."""

    def __init__(self, decoder: Decoder, tokens: Sequence[int]):
        self._decoder, self.tokens = decoder, list(tokens)
        self._held: KVCache | None = None

    def fill(self, cache: KVCache, prompt: Sequence[int]) -> tuple[int, int]:
        """Put the opening into an empty cache where `prompt` begins with it.

        Returns how many tokens the cache holds then, and how many of them were computed before.
        """
        size = len(self.tokens)
        if not size or list(prompt[:size]) != self.tokens or size >= len(prompt):
            return 0, 0
        known = self._held is not None
        if self._held is None:
            held = self._decoder.new_cache(size)
            self._decoder.hidden(self.tokens, held, last_only=True)
            self._held = held
        cache.keys[:, :, :size] = self._held.keys[:, :, :size]
        cache.values[:, :, :size] = self._held.values[:, :, :size]
        cache.length = size
        return size, size if known else 0

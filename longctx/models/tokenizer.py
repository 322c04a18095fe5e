"""Text to tokens and back, with documents kept apart from control tokens.

Two tokenizers share one vocabulary: one that knows the added tokens, for our own chat markup, and
one that knows none, for everything a file or a user wrote. It knows no models and no prompts.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longctx.errors import ModelError
from longctx.models.stored_tokenizer import TURN_ENDS, StoredTokenizer, read_tokenizer_folder
from longctx.models.text_chunks import split_text

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_BATCH_CHUNKS = 16
_SENTINEL = "\x00"  # no vocabulary joins it to anything
_SURROGATES = re.compile("[\ud800-\udfff]")
_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")

Offsets = list[tuple[int, int]]


class TextTokenizer:
    """A model's tokenizer.

    `bos_id`, `eos_ids` (tokens that end an answer), `add_bos` (whether a prompt starts with one),
    `chat_template` (its Jinja source or None), `vocab_size` (largest id plus one), `control_ids`
    (added tokens that carry no text) and `space_prefix` (SentencePiece: a text gets a space first).
    """

    def __init__(self, stored: StoredTokenizer):
        from tokenizers import Tokenizer

        try:
            self._control = Tokenizer.from_str(stored.json)
        except Exception as error:  # the library raises bare Exception
            raise ModelError(f"the tokenizer is damaged ({error}); fetch the model again") from None
        self._control.no_padding()
        self._control.no_truncation()
        added = self._control.get_added_tokens_decoder()
        self.control_ids = frozenset(i for i, token in added.items() if token.special)
        self._plain = _without_added(
            self._control, stored.json, {t.content for t in added.values()}
        )
        self._byte_level = _is_byte_level(self._control)
        self.space_prefix = not self._byte_level and self._adds_space()
        self.bos_id = stored.bos_id
        self.eos_ids = self._all_ends(stored.eos_ids)
        self.add_bos = self._adds_bos() if stored.add_bos is None else stored.add_bos
        self.chat_template = stored.chat_template
        highest = max((*self._control.get_vocab().values(), -1)) + 1
        self.vocab_size = max(highest, stored.vocab_size)
        self._stored = stored

    @classmethod
    def from_gguf(cls, path: str | Path) -> TextTokenizer:
        """Read the tokenizer in a GGUF file. Raises `ModelError`."""
        from longctx.models.gguf_tokenizer import read_gguf_tokenizer

        return cls(read_gguf_tokenizer(Path(path)))

    @classmethod
    def from_directory(cls, folder: str | Path) -> TextTokenizer:
        """Read `tokenizer.json` and its settings from a model folder. Raises `ModelError`."""
        return cls(read_tokenizer_folder(Path(folder)))

    def to_json(self) -> str:
        """The content of a `tokenizer.json` that makes this tokenizer again."""
        return self._stored.json

    def save(self, folder: str | Path) -> None:
        """Write what `from_directory` reads (tokenizer, settings, chat template) into a folder."""
        eos = self.token(self._stored.eos_ids[0]) if self._stored.eos_ids else None
        stored = replace(self._stored, eos_ids=self.eos_ids, add_bos=self.add_bos)
        stored.save(Path(folder), self.token(self.bos_id), eos)

    def encode_text(self, text: str, continued: bool = False) -> tuple[list[int], Offsets]:
        """Token ids of any text and the `(start, end)` characters of `text` each one covers.

        No id is ever an added token and no BOS is put first, whatever the text holds. Tokens that
        share a character each cover it; where the tokenizer composes letters and accents (Unicode
        NFC, as Qwen's does) they cover what the composed text came from. `continued` says that the
        text follows another, so that a SentencePiece vocabulary gives it no space of its own. Lone
        surrogates encode as U+FFFD.
        """
        ids: list[int] = []
        offsets: Offsets = []
        for chunk_ids, chunk_offsets in self.iter_encode(text, continued):
            ids += chunk_ids
            offsets += chunk_offsets
        return ids, offsets

    def iter_encode(
        self, text: str, continued: bool = False
    ) -> Iterator[tuple[list[int], Offsets]]:
        """`encode_text` piece by piece (see `text_chunks`), for texts of many megabytes."""
        text = _SURROGATES.sub("\ufffd", text)
        batch: list[tuple[int, str]] = []
        for piece in split_text(text):
            batch.append(piece)
            if len(batch) == _BATCH_CHUNKS:
                yield from self._encode_batch(batch, continued)
                batch = []
        yield from self._encode_batch(batch, continued)

    def _encode_batch(
        self, batch: list[tuple[int, str]], continued: bool
    ) -> Iterator[tuple[list[int], Offsets]]:
        marks = [self._mark(continued or start > 0) for start, _ in batch]
        pieces = [mark + piece for mark, (_, piece) in zip(marks, batch, strict=True)]
        encodings = self._plain.encode_batch(pieces, add_special_tokens=False)
        for mark, (start, piece), encoding in zip(marks, batch, encodings, strict=True):
            ids, offsets = _past_mark(encoding, len(mark), start)
            if not unicodedata.is_normalized("NFC", piece):
                offsets = _close_gaps(offsets, start + len(piece))
            yield ids, offsets

    def encode_control(self, text: str, continued: bool = False) -> list[int]:
        """Token ids of our own markup, in which added tokens are recognised. Adds no BOS.

        Never pass it anything that came from a file or a user.
        """
        mark = self._mark(continued)
        encoding = self._control.encode(mark + text, add_special_tokens=False)
        return _past_mark(encoding, len(mark), 0)[0]

    def _mark(self, continued: bool) -> str:
        """What stands before a text that is no beginning, to take the space a beginning gets."""
        return _SENTINEL if continued and self.space_prefix else ""

    def decode(self, ids: Sequence[int], skip_control: bool = False) -> str:
        """The text of ids; bytes that are no UTF-8 become U+FFFD."""
        return self._control.decode(list(ids), skip_special_tokens=skip_control)

    def token_bytes(self, token_id: int) -> bytes:
        """The UTF-8 bytes a token stands for, possibly part of a character; empty if unknown."""
        token = self._control.id_to_token(token_id)
        if token is None:
            return b""
        if self._byte_level:
            alphabet = _byte_alphabet()
            if all(character in alphabet for character in token):
                return bytes(alphabet[character] for character in token)
            return token.encode()
        if found := _BYTE_TOKEN.fullmatch(token):
            return bytes([int(found[1], 16)])
        return token.replace("▁", " ").encode()

    def token(self, token_id: int | None) -> str | None:
        """A token as the vocabulary spells it, None if there is no such id."""
        return None if token_id is None else self._control.id_to_token(token_id)

    def token_id(self, token: str) -> int | None:
        """The id of a token as the vocabulary spells it (`<|im_end|>`), None if it has none."""
        return self._control.token_to_id(token)

    def _all_ends(self, named: tuple[int, ...]) -> tuple[int, ...]:
        known = (self.token_id(token) for token in TURN_ENDS)
        controls = (i for i in known if i is not None and i in self.control_ids)
        return tuple(dict.fromkeys((*named, *controls)))

    def _adds_space(self) -> bool:
        tokens = self._plain.encode("x", add_special_tokens=False).tokens
        return bool(tokens) and tokens[0].startswith("▁")

    def _adds_bos(self) -> bool:
        ids = self._control.encode("", add_special_tokens=True).ids
        return self.bos_id is not None and ids[:1] == [self.bos_id]


def _past_mark(encoding: Any, mark: int, start: int) -> tuple[list[int], Offsets]:
    """Drop the tokens of the first `mark` characters and count offsets from `start`."""
    ids, offsets, shift = encoding.ids, encoding.offsets, start - mark
    if mark:
        skip = sum(1 for begin, _ in offsets if begin < mark)
        ids, offsets = ids[skip:], offsets[skip:]
    if shift:
        offsets = [(begin + shift, end + shift) for begin, end in offsets]
    return ids, offsets


def _close_gaps(offsets: Offsets, end: int) -> Offsets:
    """Let a token cover the accents that normalisation composed into its last letter."""
    starts = [*(begin for begin, _ in offsets[1:]), end]
    return [(begin, max(stop, after)) for (begin, stop), after in zip(offsets, starts, strict=True)]


def _without_added(control: Tokenizer, content: str, added: set[str]) -> Tokenizer:
    """A tokenizer of the same vocabulary that can yield none of the tokens `added`.

    `encode_special_tokens` is not enough: it leaves added tokens that are not "special".
    """
    from tokenizers import Tokenizer
    from tokenizers.models import BPE

    if not isinstance(control.model, BPE):
        kind = type(control.model).__name__
        raise ModelError(f"a tokenizer of kind {kind} is not supported; choose a model with BPE")
    model: Any = control.model
    if any(model.token_to_id(token) is not None for token in added):
        model = Tokenizer.from_str(_stripped(content, added)).model
    plain = Tokenizer(model)
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        if (value := getattr(control, part)) is not None:
            setattr(plain, part, value)
    return plain


def _stripped(content: str, added: set[str]) -> str:
    """A `tokenizer.json` whose vocabulary and merges lack the tokens `added`."""
    document = json.loads(content)
    model = document["model"]
    unknown = model.get("unk_token")
    byte_level = "ByteLevel" in json.dumps(document.get("decoder"))
    if byte_level or model.get("byte_fallback"):  # then every text can be spelled without it
        model["unk_token"] = unknown = None
    model["vocab"] = {t: i for t, i in model["vocab"].items() if t not in added or t == unknown}
    merges = [tuple(m.split(" ", 1)) if isinstance(m, str) else tuple(m) for m in model["merges"]]
    model["merges"] = [
        (left, right)
        for left, right in merges
        if added.isdisjoint((left, right, left + right)) and not _BYTE_TOKEN.fullmatch(left + right)
    ]
    return json.dumps({"version": "1.0", "added_tokens": [], "model": model})


def _is_byte_level(tokenizer: Tokenizer) -> bool:
    """Whether tokens spell bytes in the GPT-2 alphabet: then a space decodes from its "Ġ"."""
    return tokenizer.decoder is not None and tokenizer.decoder.decode(["Ġ"]) == " "


@cache
def _byte_alphabet() -> dict[str, int]:
    """Character -> byte of byte-level vocabularies: printable bytes are themselves."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    shifted = (byte for byte in range(256) if byte not in set(printable))
    return {chr(b): b for b in printable} | {chr(256 + n): b for n, b in enumerate(shifted)}

"""The tokenizer in a GGUF header, turned into the content of a `tokenizer.json`.

Two kinds are read: byte-level BPE ("gpt2") and SentencePiece-like BPE with scores and byte
fallback ("llama"). Nothing here encodes text.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from longctx.errors import ModelError
from longctx.models.gguf_header import read_header
from longctx.models.pretokenizers import PRE_TOKENIZERS, byte_level
from longctx.models.stored_tokenizer import StoredTokenizer

_UNKNOWN, _CONTROL, _USER, _UNUSED, _BYTE = 2, 3, 4, 5, 6
_ADDED = (_UNKNOWN, _CONTROL, _USER)
_SPACE = "▁"


def read_gguf_tokenizer(path: Path) -> StoredTokenizer:
    """Read the tokenizer of a GGUF file; `ModelError` when it is missing or of an unknown kind."""
    fields = read_header(path, ("tokenizer.",))

    def field(name: str, default: Any = None) -> Any:
        return fields.get(f"tokenizer.ggml.{name}", default)

    tokens = field("tokens")
    if not tokens:
        raise ModelError(f"{path}: holds no tokenizer; choose another GGUF file of this model")
    types = field("token_type") or [1] * len(tokens)
    if len(types) != len(tokens):
        raise ModelError(f"{path}: {len(tokens)} tokens but {len(types)} types; fetch it again")
    kind, pre = field("model"), field("pre", "default")
    if kind == "gpt2":
        if pre not in PRE_TOKENIZERS:
            raise ModelError(
                f"{path}: its tokenizer {pre!r} is not known; use the safetensors model instead"
            )
        content = _byte_level_bpe(tokens, types, field("merges") or [], pre)
    elif kind == "llama":
        scores = field("scores") or [-float(i) for i in range(len(tokens))]
        if types.count(_BYTE) != 256 or len(scores) != len(tokens):
            raise ModelError(f"{path}: lacks byte tokens or scores; use the safetensors model")
        content = _scored_bpe(tokens, types, scores, field("add_space_prefix", True))
    else:
        raise ModelError(
            f"{path}: a tokenizer of kind {kind!r} is not supported (gpt2 and llama are); "
            "use the safetensors model instead"
        )
    ids = (field("eos_token_id"), field("eot_token_id"), field("eom_token_id"))
    return StoredTokenizer(
        json=json.dumps(content, ensure_ascii=False),
        bos_id=field("bos_token_id"),
        eos_ids=tuple(dict.fromkeys(i for i in ids if i is not None)),
        add_bos=bool(field("add_bos_token", kind == "llama" or pre == "llama-bpe")),
        chat_template=fields.get("tokenizer.chat_template"),
        vocab_size=len(tokens),
    )


def _byte_level_bpe(
    tokens: list[str], types: list[int], merges: list[str], pre: str
) -> dict[str, Any]:
    settings = PRE_TOKENIZERS[pre]
    vocab = _vocabulary(tokens, types)
    pairs = [tuple(merge.split(" ", 1)) for merge in merges]
    return {
        "version": "1.0",
        "added_tokens": _added(tokens, types),
        "normalizer": settings.normalizer(),
        "pre_tokenizer": settings.pre_tokenizer(),
        "post_processor": None,
        "decoder": byte_level(),
        "model": {
            "type": "BPE",
            "unk_token": None,
            "byte_fallback": False,
            "ignore_merges": settings.whole_words,
            "vocab": vocab,
            "merges": [p for p in pairs if len(p) == 2 and p[0] + p[1] in vocab],
        },
    }


def _scored_bpe(
    tokens: list[str], types: list[int], scores: list[float], prefix: bool
) -> dict[str, Any]:
    vocab = _vocabulary(tokens, types)
    text = {token: i for token, i in vocab.items() if types[i] not in (*_ADDED, _BYTE)}
    normalizers: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    ]
    decoders: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if prefix:
        normalizers.insert(0, {"type": "Prepend", "prepend": _SPACE})
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {
        "version": "1.0",
        "added_tokens": _added(tokens, types),
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {
            "type": "BPE",
            "unk_token": None,
            "byte_fallback": True,
            "fuse_unk": True,
            "vocab": vocab,
            "merges": _merges_from_scores(text, scores),
        },
    }


def _vocabulary(tokens: list[str], types: list[int]) -> dict[str, int]:
    """Token -> id without unused ones, and without added ones where they all come last.

    A `tokenizer.json` numbers an added token that the vocabulary lacks by appending it, so any
    other must stay in.
    """
    added = [i for i, kind in enumerate(types) if kind in _ADDED]
    text = {token: i for i, token in enumerate(tokens) if types[i] not in (*_ADDED, _UNUSED)}
    if added == list(range(len(text), len(text) + len(added))):
        return text
    return {token: i for i, token in enumerate(tokens) if types[i] != _UNUSED}


def _added(tokens: list[str], types: list[int]) -> list[dict[str, Any]]:
    return [
        {
            "id": i,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kind != _USER,
        }
        for i, (token, kind) in enumerate(zip(tokens, types, strict=True))
        if kind in _ADDED
    ]


def _merges_from_scores(vocab: dict[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """Every way to build a token from two others, the best-scored token first.

    SentencePiece always joins the neighbours whose union has the best score, so this order gives
    the same pieces.
    """
    found = []
    for token, i in vocab.items():
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in vocab and right in vocab:
                found.append((-scores[i], vocab[left], vocab[right], left, right))
    found.sort(key=lambda item: item[:3])
    return [(left, right) for *_, left, right in found]

"""Small tokenizers made on the spot, as a model folder or as a GGUF file."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import gguf
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from tokenizers.normalizers import NFC

QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
NOT_SPECIAL = ["<tool_call>"]
PROSE = [
    "The tide turned before noon; the harbour master's log says it didn't turn at all.",
    "def tide(hour):\n    return 12 * hour % 7\n",
    "Größe, naïve, 東京の潮位, прилив 2024",
    "system user assistant <tool> </s> <|x|> im_start im_end",
]


@cache
def byte_level_json() -> str:
    """A byte-level BPE in the manner of Qwen: NFC, single digits, added tokens after the rest."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(PROSE * 3, trainer)
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.add_tokens([AddedToken(token, special=False) for token in NOT_SPECIAL])
    return tokenizer.to_str()


def write_folder(folder: Path, content: str | None = None, **settings: Any) -> Path:
    """A model folder's tokenizer files; `settings` go to `tokenizer_config.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(content or byte_level_json(), encoding="utf-8")
    chosen = {"eos_token": "<|im_end|>", "bos_token": "<|endoftext|>"} | settings
    (folder / "tokenizer_config.json").write_text(json.dumps(chosen), encoding="utf-8")
    return folder


def write_byte_level_gguf(path: Path, pre: str = "qwen2", template: str | None = None) -> Path:
    """The tokenizer of `byte_level_json` in a GGUF header."""
    content = json.loads(byte_level_json())
    ids = content["model"]["vocab"] | {t["content"]: t["id"] for t in content["added_tokens"]}
    tokens = sorted(ids, key=lambda token: ids[token])
    kinds = dict.fromkeys(SPECIAL, 3) | dict.fromkeys(NOT_SPECIAL, 4)
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([kinds.get(token, 1) for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in content["model"]["merges"]])
    writer.add_eos_token_id(ids["<|im_end|>"])
    writer.add_bos_token_id(ids["<|endoftext|>"])
    writer.add_add_bos_token(False)
    return _finish(writer, path, template)


def write_scored_gguf(path: Path, template: str | None = None) -> Path:
    """A SentencePiece-like tokenizer: scores, byte tokens, a space before every text."""
    tokens, kinds = ["<unk>", "<s>", "</s>"], [2, 3, 3]
    tokens += [f"<0x{byte:02X}>" for byte in range(256)]
    kinds += [6] * 256
    pieces = ["▁t", "he", "▁the", "▁tide", "▁ti", "de", "</", "s>", "</s", "<s"]
    pieces += sorted(set("▁abcdefghijklmnopqrstuvwxyz</>0x"))
    tokens += pieces
    kinds += [1] * len(pieces)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_scores([0.0] * 259 + [-float(i) for i in range(len(pieces))])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    return _finish(writer, path, template)


def _finish(writer: gguf.GGUFWriter, path: Path, template: str | None) -> Path:
    if template is not None:
        writer.add_chat_template(template)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path

"""A whole model that takes no time: random float32 weights, its own tokenizer, ChatML.

It answers nonsense, always the same, so that everything around the answer can be tested for real:
`longctx.index(folder, model=...)` runs on it as on any model folder.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from longctx.indexshare.profile import LeaderHead, Profile
from longctx.models.loaded import LoadedModel, load

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INNER = 4, 64, 4, 2, 16, 96
MAX_POSITIONS = 4096
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
PROFILE = Profile(
    model="tiny",
    heads=(LeaderHead(1, 0, 1.0), LeaderHead(1, 1, 0.5), LeaderHead(2, 3, 0.7)),
    window=64,
    block=32,
    preamble="These are documents.\n\n",
    top_blocks=4,
    document_weight=0.0,
    decline_margin=1e9,
)
_WORDS = (
    "The lease of the harbour office ends on 30 June 2027; rent is 1,200 a month, due in advance. "
    "Excerpts from documents: Question and answer, lines, page, system, user, assistant.\n"
)


def write_model(folder: Path, family: str = "qwen2", **settings: Any) -> Path:
    """Write a model of `family` (llama, qwen2, qwen3); `settings` replace those of its config."""
    folder.mkdir(parents=True, exist_ok=True)
    content = tokenizer_json()
    config = {
        "model_type": family,
        "num_hidden_layers": LAYERS,
        "hidden_size": HIDDEN,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "intermediate_size": INNER,
        "vocab_size": Tokenizer.from_str(content).get_vocab_size(),
        "max_position_embeddings": MAX_POSITIONS,
        "tie_word_embeddings": True,
    } | settings
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "tokenizer.json").write_text(content, encoding="utf-8")
    names = {"eos_token": "<|im_end|>", "bos_token": "<|endoftext|>", "add_bos_token": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(names), encoding="utf-8")
    save_file(_weights(family, config["vocab_size"]), folder / "model.safetensors")
    return folder


def load_tiny(folder: Path) -> LoadedModel:
    """Load on the CPU in float32, whatever this machine has."""
    model = load(str(folder), device="cpu", dtype="float32")
    assert isinstance(model, LoadedModel)
    return model


@cache
def tokenizer_json() -> str:
    """A byte-level BPE of a few hundred tokens; digits stand alone, as in larger vocabularies."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([_WORDS] * 3, trainer)
    tokenizer.add_special_tokens(list(CONTROL))
    return tokenizer.to_str()


def token_ids(count: int, seed: int = 0) -> list[int]:
    """Random ids of plain tokens."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count,), generator=draw).tolist()


def sentences(count: int, seed: int = 0) -> str:
    """Lines of made-up prose, the same for the same seed."""
    draw = torch.Generator().manual_seed(seed)

    def pick(words: Sequence[str]) -> str:
        return words[int(torch.randint(0, len(words), (1,), generator=draw))]

    who = ("The harbour master", "A pilot", "The tenant", "Our clerk", "The surveyor")
    what = ("measured", "signed", "paid for", "repaired", "forgot", "insured")
    which = ("the northern quay", "an old crane", "the tide gauge", "a barge", "the ledger")
    when = ("in March", "before noon", "last winter", "on a Monday", "after the storm")
    return "".join(f"{pick(who)} {pick(what)} {pick(which)} {pick(when)}.\n" for _ in range(count))


def _weights(family: str, vocab: int) -> dict[str, Tensor]:
    """Large enough that attention is peaked and biases count."""
    draw = torch.Generator().manual_seed(11)

    def matrix(rows: int, columns: int) -> Tensor:
        return 2 * torch.randn(rows, columns, generator=draw) / columns**0.5

    def norm(size: int) -> Tensor:
        return 1 + 0.3 * torch.randn(size, generator=draw)

    q_rows, kv_rows = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    found = {"model.embed_tokens.weight": matrix(vocab, HIDDEN), "model.norm.weight": norm(HIDDEN)}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        for name, rows in (("q", q_rows), ("k", kv_rows), ("v", kv_rows)):
            found[f"{prefix}self_attn.{name}_proj.weight"] = matrix(rows, HIDDEN)
            if family == "qwen2":
                bias = torch.randn(rows, generator=draw)
                found[f"{prefix}self_attn.{name}_proj.bias"] = bias
        if family == "qwen3":
            found[f"{prefix}self_attn.q_norm.weight"] = norm(HEAD_DIM)
            found[f"{prefix}self_attn.k_norm.weight"] = norm(HEAD_DIM)
        found[f"{prefix}self_attn.o_proj.weight"] = matrix(HIDDEN, q_rows)
        found[f"{prefix}mlp.gate_proj.weight"] = matrix(INNER, HIDDEN)
        found[f"{prefix}mlp.up_proj.weight"] = matrix(INNER, HIDDEN)
        found[f"{prefix}mlp.down_proj.weight"] = matrix(HIDDEN, INNER)
        found[f"{prefix}input_layernorm.weight"] = norm(HIDDEN)
        found[f"{prefix}post_attention_layernorm.weight"] = norm(HIDDEN)
    return found

"""A config that this decoder cannot compute exactly is refused in one line that says why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from longctx.errors import ModelError
from longctx.models.config import ModelConfig, parse_config, read_config

SMALL: dict[str, Any] = {
    "model_type": "llama",
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 96,
    "vocab_size": 100,
    "max_position_embeddings": 128,
}
WINDOWED = {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 8}
NESTED = {"full_attention": {"rope_type": "default"}, "sliding_attention": {"rope_type": "linear"}}


def parsed(**changes: Any) -> ModelConfig:
    return parse_config(SMALL | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gemma3"}, "family 'gemma3' is not supported; supported: llama, mistral"),
        ({"model_type": None}, "family None is not supported"),
        ({"rope_scaling": {"rope_type": "mrope"}}, "rope scaling 'mrope' is not supported"),
        ({"rope_scaling": {"type": "su"}}, "rope scaling 'su' is not supported"),
        ({"rope_parameters": NESTED}, "rope settings that differ between layers"),
        ({"rope_scaling": ["yarn"]}, "lacks or misstates"),
        ({"partial_rotary_factor": 0.5}, "partial rotary"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial rotary"),
        ({"num_attention_heads": 4, "num_key_value_heads": 3}, "4 heads for 3 key heads"),
        ({"num_attention_heads": 0}, "lacks or misstates"),
        ({"num_attention_heads": None}, "lacks or misstates"),
        ({"hidden_size": "wide"}, "lacks or misstates"),
        ({"num_hidden_layers": 0}, "a size below 1"),
        ({"num_key_value_heads": -2}, "a size below 1"),
        ({"intermediate_size": 0}, "a size below 1"),
        ({"vocab_size": 0}, "a size below 1"),
        ({"head_dim": 15}, "odd size 15"),
        ({"hidden_act": "gelu"}, "activation 'gelu' is not supported"),
        ({"quantization_config": {"quant_method": "gptq"}}, r"quantised \(gptq\)"),
        (WINDOWED | {"layer_types": ["full_attention"]}, "1 layer types for 2 layers"),
    ],
)
def test_refusals(changes: dict[str, Any], message: str):
    with pytest.raises(ModelError, match=message) as error:
        parsed(**changes)

    assert "\n" not in str(error.value)


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "vocab_size"])
def test_a_missing_size_is_named(key: str):
    with pytest.raises(ModelError, match=f"lacks or misstates '{key}'"):
        parse_config({k: v for k, v in SMALL.items() if k != key})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not a readable config"),
        ("[1]", "not a model config"),
        (b"\xff\xfe", "not a readable"),
    ],
)
def test_a_file_that_is_no_config(content: str | bytes, message: str, tmp_path: Path):
    path = tmp_path / "config.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())

    with pytest.raises(ModelError, match=message):
        read_config(path)


def test_no_file(tmp_path: Path):
    with pytest.raises(ModelError, match=r"no config.json there; is this a model folder\?"):
        read_config(tmp_path / "config.json")


def test_sizes_that_follow_from_others():
    config = parse_config({k: v for k, v in SMALL.items() if k != "num_key_value_heads"})

    assert config.kv_heads == 4
    assert config.head_dim == 16
    assert config.max_positions == 128


@pytest.mark.parametrize(("value", "ids"), [(None, ()), (2, (2,)), ([2, 5], (2, 5))])
def test_ends_of_an_answer(value: Any, ids: tuple[int, ...]):
    assert parsed(eos_token_id=value).eos_ids == ids


def test_parameters_are_counted():
    layer = 64 * (64 + 64 + 32 + 32) + 3 * 64 * 96

    assert parsed(tie_word_embeddings=True).parameters == 2 * layer + 100 * 64
    assert parsed(tie_word_embeddings=False).parameters == 2 * layer + 2 * 100 * 64


def test_mistral_has_a_window_unless_it_says_none():
    assert parsed(model_type="mistral").windows == (4096, 4096)
    assert parsed(model_type="mistral", sliding_window=None).windows == ()
    assert parsed(sliding_window=5, use_sliding_window=True).windows == ()  # llama has none

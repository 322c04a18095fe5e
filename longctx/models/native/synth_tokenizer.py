"""A small tokenizer and chat template in a family's form, for checkpoints of random weights.

Byte-level BPE over a few common English pieces, with the family's own control tokens behind it.
Any text can be encoded; the ids are not those of the published vocabularies.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from longctx.errors import UsageError

_COMMON_WORDS = (
    "the of and to in is that for it as was with be by on not he his but at are this have from or "
    "had an they which one you were her all she there would their we him been has when who will "
    "more no if out so said what up its about into than them can only other new some could time "
    "these two may then do first any my now such like our over me even most made after also did "
    "many before must through back years where much your way well down should because each just"
)


@dataclass(frozen=True)
class ChatForm:
    """Control tokens in id order, which of them start, pad and end a text, and the template."""

    tokens: tuple[str, ...]
    bos: str | None
    pad: str
    ends: tuple[str, ...]
    template: str


_GLM = ChatForm(
    tokens=(
        *("<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>", "<|system|>"),
        *("<|user|>", "<|assistant|>", "<|observation|>", "<think>", "</think>"),
        *("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    ),
    bos=None,
    pad="<|endoftext|>",
    ends=("<|endoftext|>", "<|user|>", "<|observation|>"),
    template=(
        "{%- set thinks = enable_thinking is not defined or enable_thinking -%}"
        "[gMASK]<sop>"
        "{%- if thinks %}<|system|>Reasoning Effort: "
        "{{- ' High' if reasoning_effort is defined and reasoning_effort == 'high' else ' Max' }}"
        "{%- endif -%}"
        "{%- for message in messages -%}"
        "{%- if message.role == 'assistant' %}<|assistant|><think></think>{{ message.content }}"
        "{%- elif message.role == 'tool' %}"
        "{%- if loop.first or loop.previtem.role != 'tool' %}<|observation|>{% endif -%}"
        "{{ message.content }}"
        "{%- else %}<|{{ message.role }}|>{{ message.content }}{% endif -%}"
        "{%- endfor -%}"
        "{%- if add_generation_prompt %}<|assistant|><think>"
        "{%- if not thinks %}</think>{% endif -%}{% endif -%}"
    ),
)
_DEEPSEEK = ChatForm(
    tokens=(
        *("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"),  # noqa: RUF001
        *("<｜User｜>", "<｜Assistant｜>", "<think>", "</think>"),  # noqa: RUF001
    ),
    bos="<｜begin▁of▁sentence｜>",  # noqa: RUF001
    pad="<｜▁pad▁｜>",  # noqa: RUF001
    ends=("<｜end▁of▁sentence｜>",),  # noqa: RUF001
    template=(
        "{{- bos_token -}}"
        "{%- for message in messages -%}"
        "{%- if message.role == 'system' %}{{ message.content }}"
        "{%- elif message.role == 'assistant' %}<｜Assistant｜></think>"  # noqa: RUF001
        "{{- message.content }}{{ eos_token }}"
        "{%- else %}<｜User｜>{{ message.content }}{% endif -%}"  # noqa: RUF001
        "{%- endfor -%}"
        "{%- if add_generation_prompt %}<｜Assistant｜>"  # noqa: RUF001
        "{%- if enable_thinking is defined and enable_thinking %}<think>"
        "{%- else %}</think>{% endif -%}{% endif -%}"
    ),
)
_FORMS = {"glm_moe_dsa": _GLM, "deepseek_v32": _DEEPSEEK}


def chat_form(model_type: str) -> ChatForm:
    """The control tokens and template of an architecture."""
    return _FORMS[model_type]


def tokenizer_files(model_type: str, vocab: int, positions: int) -> tuple[dict[str, str], list]:
    """`tokenizer.json` and its settings by file name, and the ids of the control tokens.

    The ids are in the order of `chat_form`. Raises `UsageError` where `vocab` rows are too few.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

    form = chat_form(model_type)
    words, merges = _vocabulary(vocab - len(form.tokens))
    tokenizer = Tokenizer(models.BPE(vocab=words, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in form.tokens]
    )
    settings = {
        "add_bos_token": form.bos is not None,
        "bos_token": form.bos,
        "chat_template": form.template,
        "clean_up_tokenization_spaces": False,
        "eos_token": form.ends[0],
        "model_max_length": positions,
        "pad_token": form.pad,
        "padding_side": "left",
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    files = {
        "tokenizer.json": tokenizer.to_str(pretty=True),
        "tokenizer_config.json": json.dumps(settings, indent=2, ensure_ascii=False) + "\n",
    }
    return files, [tokenizer.token_to_id(token) for token in form.tokens]


def _vocabulary(room: int) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """At most `room` words, every byte first, and the merges that make the longer ones."""
    from tokenizers.pre_tokenizers import ByteLevel

    words = {letter: place for place, letter in enumerate(sorted(ByteLevel.alphabet()))}
    if len(words) > room:
        raise UsageError(
            f"{room} words beside the control tokens are too few: every byte needs one of "
            f"{len(words)}; choose a larger vocabulary"
        )
    merges: list[tuple[str, str]] = []
    for piece in _COMMON_WORDS.split():
        for word in (piece, "Ġ" + piece):
            for end in range(2, len(word) + 1):
                if word[:end] in words:
                    continue
                if len(words) == room:
                    return words, merges
                words[word[:end]] = len(words)
                merges.append((word[: end - 1], word[end - 1]))
    return words, merges

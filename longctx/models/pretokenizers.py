"""How each tokenizer named by `tokenizer.ggml.pre` cuts text before byte-pair merging.

A GGUF file names its pre-tokenizer and does not hold it. This is the table from names to the
`pre_tokenizer` and `normalizer` parts of a `tokenizer.json`; it knows nothing of vocabularies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LINE_ENDS = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_WORD_START = r"[^\r\n\p{L}\p{N}]?"


def _words(digits: str, punctuation: str = r" ?[^\s\p{L}\p{N}]+[\r\n]*") -> str:
    words = rf"{_WORD_START}\p{{L}}+"
    return rf"{_CONTRACTIONS}|{words}|{digits}|{punctuation}{_LINE_ENDS}"


def _cased_words(digits: str, ending: str = "") -> str:
    """Words split where lower case turns to upper; `ending` is an optional contraction."""
    words = rf"{_WORD_START}{_UPPER}*{_LOWER}+{ending}|{_WORD_START}{_UPPER}+{_LOWER}*{ending}"
    return rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*{_LINE_ENDS}"


@dataclass(frozen=True)
class PreTokenizer:
    """`splits` are regular expressions applied in order, each match becoming a piece of its own.

    `gpt2` adds the cut built into the byte-level step; `single_digits` isolates every digit first;
    `whole_words` lets a piece that is a token skip the merges.
    """

    splits: tuple[str, ...] = ()
    gpt2: bool = False
    single_digits: bool = False
    whole_words: bool = False
    nfc: bool = False

    def pre_tokenizer(self) -> dict[str, Any]:
        """The `pre_tokenizer` value of a `tokenizer.json`."""
        steps: list[dict[str, Any]] = []
        if self.single_digits:
            steps.append({"type": "Digits", "individual_digits": True})
        steps += [
            {
                "type": "Split",
                "pattern": {"Regex": pattern},
                "behavior": "Isolated",
                "invert": False,
            }
            for pattern in self.splits
        ]
        steps.append(byte_level(use_regex=self.gpt2))
        return {"type": "Sequence", "pretokenizers": steps}

    def normalizer(self) -> dict[str, Any] | None:
        """The `normalizer` value of a `tokenizer.json`."""
        return {"type": "NFC"} if self.nfc else None


def byte_level(use_regex: bool = False) -> dict[str, Any]:
    """The step that maps bytes to the printable alphabet of byte-level vocabularies."""
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": False,
        "use_regex": use_regex,
    }


_GPT2 = PreTokenizer(gpt2=True)
_SINGLE_DIGITS = PreTokenizer(gpt2=True, single_digits=True)
_LLAMA3 = PreTokenizer((_words(r"\p{N}{1,3}"),), whole_words=True)
_GLM4 = PreTokenizer((_words(r"\p{N}{1,3}"),))
_QWEN2 = PreTokenizer((_words(r"\p{N}"),), nfc=True)
_TEKKEN = PreTokenizer((_cased_words(r"\p{N}"),), whole_words=True)
_GPT4O = PreTokenizer((_cased_words(r"\p{N}{1,3}", rf"{_CONTRACTIONS}?"),))
_DEEPSEEK3 = PreTokenizer(
    (
        r"\p{N}{1,3}",
        "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
        r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        r"| ?[\p{P}\p{S}]+[\r\n]*" + _LINE_ENDS,
    )
)

PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    **dict.fromkeys(("default", "gpt-2", "gpt2", "olmo", "phi-2", "mpt"), _GPT2),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell"), _SINGLE_DIGITS),
    **dict.fromkeys(
        ("llama-bpe", "llama3", "llama-v3", "smaug-bpe", "falcon3", "pixtral"), _LLAMA3
    ),
    **dict.fromkeys(("glm4", "chatglm-bpe"), _GLM4),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez"), _QWEN2),
    "tekken": _TEKKEN,
    "gpt-4o": _GPT4O,
    "deepseek-v3": _DEEPSEEK3,
}

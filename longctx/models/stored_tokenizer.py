"""What a model on disk says about its tokenizer, read from and written to a model folder.

It handles the files of a Hugging Face checkpoint and encodes nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longctx.errors import ModelError

# Tokens that end a turn in the chat formats of supported families, whether or not the model's own
# files list them: an unlisted one would let an answer run on into an invented next turn.
TURN_ENDS = (
    "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<|end|>", "<end_of_turn>",
    "</s>", "<\uff5cend\u2581of\u2581sentence\uff5c>", "<|user|>", "<|observation|>",
)  # fmt: skip


@dataclass(frozen=True)
class StoredTokenizer:
    """`json` is the text of a `tokenizer.json`; ids are None or empty where nothing is said."""

    json: str
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    add_bos: bool | None = None
    chat_template: str | None = None
    vocab_size: int = 0

    def save(self, folder: Path, bos: str | None, eos: str | None) -> None:
        """Write the files that `read_tokenizer_folder` reads into an existing folder."""
        settings = {"bos_token": bos, "eos_token": eos, "add_bos_token": bool(self.add_bos)}
        generation = {"bos_token_id": self.bos_id, "eos_token_id": list(self.eos_ids)}
        (folder / "tokenizer.json").write_text(self.json, encoding="utf-8")
        _write_json(folder / "tokenizer_config.json", settings)
        _write_json(folder / "generation_config.json", generation)
        if self.chat_template is not None:
            template = folder / "chat_template.jinja"
            template.write_text(self.chat_template, encoding="utf-8", newline="")


def read_tokenizer_folder(folder: Path) -> StoredTokenizer:
    """Read `tokenizer.json` and what stands beside it; `ModelError` when it is not there."""
    content = folder / "tokenizer.json"
    try:
        text = content.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise ModelError(
            f"{folder}: no tokenizer.json there; fetch the model again, with its tokenizer"
        ) from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{content}: cannot be read ({error}); fetch it again") from None
    settings = _read_json(folder / "tokenizer_config.json")
    generation = _read_json(folder / "generation_config.json")
    config = _read_json(folder / "config.json")
    added = _added_ids(content, text)
    bos = _token_text(settings.get("bos_token"))
    eos = _token_text(settings.get("eos_token"))
    ids = [
        *_as_ids(generation.get("eos_token_id")),
        *_as_ids(config.get("eos_token_id")),
        *([added[eos]] if eos in added else []),
    ]
    return StoredTokenizer(
        json=text,
        bos_id=added.get(bos) if bos else None,
        eos_ids=tuple(dict.fromkeys(ids)),
        add_bos=settings.get("add_bos_token"),
        chat_template=_chat_template(folder, settings),
    )


def _chat_template(folder: Path, settings: dict[str, Any]) -> str | None:
    try:
        return (folder / "chat_template.jinja").read_bytes().decode()
    except (OSError, ValueError):
        pass  # older checkpoints keep it in tokenizer_config.json
    found = settings.get("chat_template")
    if isinstance(found, list):  # several, by name
        named = {t.get("name"): t.get("template") for t in found if isinstance(t, dict)}
        found = named.get("default")
    return found if isinstance(found, str) else None


def _added_ids(path: Path, text: str) -> dict[str, int]:
    try:
        added = json.loads(text)["added_tokens"]
        return {token["content"]: int(token["id"]) for token in added}
    except (ValueError, KeyError, TypeError):
        raise ModelError(f"{path}: not a readable tokenizer; fetch the model again") from None


def _token_text(value: Any) -> str | None:
    """A token is written as a string or as an object with its text in `content`."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _as_ids(value: Any) -> list[int]:
    values = value if isinstance(value, list) else [value]
    return [v for v in values if isinstance(v, int)]


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: cannot be read ({error}); fetch the model again") from None
    return found if isinstance(found, dict) else {}


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")

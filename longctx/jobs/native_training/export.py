"""A trained model as a model folder: settings, bfloat16 weights under their public names, words.

The folder is written at once or not at all, and read back into the trainable model by `load`.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from longctx.atomic import replace_folder
from longctx.errors import ModelError
from longctx.jobs.native_training.model import NativeModel
from longctx.jobs.native_training.shape import Shape, from_config, to_config
from longctx.jobs.native_training.tasks import END, UNKNOWN, words

WEIGHTS = "model.safetensors"
_FLOAT32 = "e_score_correction_bias"  # public checkpoints keep the routers' bias in float32


def export(model: NativeModel, folder: Path, notes: str = "") -> None:
    """Write the model folder; `notes` becomes its README.md. The parent folder must exist."""
    with replace_folder(folder) as place:
        (place / WEIGHTS).write_bytes(save(tensors(model), metadata={"format": "pt"}))
        _write(place / "config.json", to_config(model.shape))
        _write(
            place / "generation_config.json",
            {"do_sample": False, "eos_token_id": END, "pad_token_id": UNKNOWN},
        )
        _write(
            place / "tokenizer_config.json",
            {
                "eos_token": words()[END],
                "add_bos_token": False,
                "clean_up_tokenization_spaces": False,
            },
        )
        (place / "tokenizer.json").write_text(tokenizer_json(), encoding="utf-8")
        if notes:
            (place / "README.md").write_text(notes, encoding="utf-8")


def tensors(model: NativeModel) -> dict[str, Tensor]:
    """The weights by their names on disk, bfloat16 but for the routers' bias."""
    return {
        name: value.detach()
        .cpu()
        .to(torch.float32 if name.endswith(_FLOAT32) else torch.bfloat16)
        .contiguous()
        for name, value in model.state_dict().items()
    }


def read_shape(folder: Path) -> Shape:
    """The sizes a folder of `export` says. Raises `ModelError` when it is not one."""
    try:
        return from_config(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder}: not a readable model folder ({error})") from None


def load(folder: Path, shape: Shape | None = None) -> NativeModel:
    """Read a folder of `export` as a float32 model for evaluation.

    `shape` may give another schedule, as long as every layer it makes full has an indexer on disk.
    Raises `ModelError` otherwise, or when the folder is not readable.
    """
    try:
        stored = load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{folder}: not a readable model folder ({error})") from None
    model = NativeModel(shape or read_shape(folder))
    wanted = model.state_dict()
    if missing := sorted(wanted.keys() - stored.keys()):
        raise ModelError(f"{folder}: no {missing[0]} there for schedule {model.shape.schedule}")
    model.load_state_dict({name: stored[name].float() for name in wanted})
    return model.eval()


def tokenizer_json() -> str:
    """The content of `tokenizer.json`: one token a word, words parted by blanks."""
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

    names = words()
    vocabulary = {word: number for number, word in enumerate(names)}
    # Whole words in a BPE without merges, the kind of tokenizer that `longctx.models` reads.
    model = models.BPE(vocabulary, [], unk_token=names[UNKNOWN], fuse_unk=True, ignore_merges=True)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(
        [AddedToken(names[at], special=True, normalized=False) for at in (UNKNOWN, END)]
    )
    return tokenizer.to_str()


def _write(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

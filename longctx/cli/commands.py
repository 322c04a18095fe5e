"""Which commands there are. Importing it costs typer alone; each command imports what it uses."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from longctx.cli import ask, chat, doctor, models
from longctx.cli.outcome import EPILOG, guarded

_COMPLETION_VARIABLE = "_LONGCTX_COMPLETE"


class Commands(TyperGroup):
    """The command group, with our own way of ending: one line, one exit code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command that `args` name; exit with its code, or return it if not standalone."""
        if _COMPLETION_VARIABLE in os.environ:
            return super().main(args, "longctx", complete_var, standalone_mode)
        code = guarded(lambda: self._run(sys.argv[1:] if args is None else args))
        if standalone_mode:
            sys.exit(code)
        return code

    def _run(self, args: Sequence[str]) -> None:
        with self.make_context("longctx", list(args)) as context:
            self.invoke(context)


app = typer.Typer(
    cls=Commands,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
    epilog=EPILOG,
)
app.command("ask")(ask.ask)
app.command("chat")(chat.chat)
app.add_typer(models.app, name="models")
app.command("doctor")(doctor.doctor)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"longctx {version('longctx-indexshare')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def longctx(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Ask questions of whole folders, with a model on this machine and citations that are checked.

    longctx ask "Who may terminate early?" contracts/
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())

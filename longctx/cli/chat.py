"""`longctx chat PATH...`: several questions over one context, with what was said before in mind."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import typer

from longctx.cli import options
from longctx.cli.options import ContextSettings
from longctx.engines.base import AskOptions
from longctx.errors import EXIT_SKIPPED
from longctx.models.sources import DEFAULT_MODEL

if TYPE_CHECKING:
    from longctx import Context
    from longctx.cli.render import Output

DEFAULTS = AskOptions()


def chat(
    paths: options.Paths,
    model: options.ModelName = DEFAULT_MODEL,
    device: options.DeviceName = "auto",
    max_answer_tokens: options.MaxAnswerTokens = DEFAULTS.max_answer_tokens,
    temperature: options.Temperature = DEFAULTS.temperature,
    seed: options.Seed = DEFAULTS.seed,
    index: options.IndexName = "hybrid",
    show_evidence: options.ShowEvidence = False,
    strict: options.Strict = False,
    quiet: options.Quiet = False,
    no_store: options.NoStore = False,
    hidden: options.Hidden = False,
    follow_symlinks: options.FollowSymlinks = False,
    thinking: options.ThinkingName = "off",
    stream_weights: options.StreamWeights = False,
) -> None:
    """Ask several questions of files and folders; /help says what else can be typed."""
    from longctx.cli.conversation import Conversation
    from longctx.cli.inputs import STDIN
    from longctx.cli.opening import open_context
    from longctx.cli.progress import progress_view
    from longctx.cli.render import Output
    from longctx.errors import UsageError

    if STDIN in paths:
        raise UsageError("chat reads its questions from standard input: name the paths instead")
    output = Output(quiet=quiet)
    how = AskOptions(max_answer_tokens, temperature, seed, index, thinking)
    settings = ContextSettings(
        model, device, not no_store, hidden, follow_symlinks, index, thinking, stream_weights
    )
    view = progress_view(output)
    with contextlib.closing(open_context(paths, settings, view)) as context:
        _introduce(context, output)
        conversation = Conversation(context.chat(), how, output, view, show_evidence=show_evidence)
        code = conversation.run()
        if strict and context.skipped:
            code = code or EXIT_SKIPPED
    raise typer.Exit(code)


def _introduce(context: Context, output: Output) -> None:
    """What is being talked to, and what of it is missing."""
    from longctx.cli.amounts import count
    from longctx.cli.report import skipped_lines, warning_lines

    documents = count(len(context.documents), "document")
    tokens = count(context.context_tokens, "token")
    output.note(f"{documents}, {tokens}, {context.model_name}; /help for commands")
    output.notes(skipped_lines(context.skipped))
    output.notes(warning_lines(context.warnings))

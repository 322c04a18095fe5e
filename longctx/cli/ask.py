"""`longctx ask QUESTION PATH...`: one question, or a file of them, over one context."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from longctx.cli import options
from longctx.cli.options import ContextSettings
from longctx.engines.base import AskOptions
from longctx.errors import EXIT_FAILURE, EXIT_OK, EXIT_SKIPPED, UsageError
from longctx.models.sources import DEFAULT_MODEL

if TYPE_CHECKING:
    from longctx import Context
    from longctx.cli.inputs import Question
    from longctx.cli.progress import ProgressView
    from longctx.cli.render import Output

DEFAULTS = AskOptions()


def ask(
    question: Annotated[
        str | None,
        typer.Argument(metavar="QUESTION", help="In quotation marks.", show_default=False),
    ] = None,
    paths: options.Paths = [],  # noqa: B006  typer wants the default itself, nobody changes it
    model: options.ModelName = DEFAULT_MODEL,
    device: options.DeviceName = "auto",
    max_answer_tokens: options.MaxAnswerTokens = DEFAULTS.max_answer_tokens,
    temperature: options.Temperature = DEFAULTS.temperature,
    seed: options.Seed = DEFAULTS.seed,
    index: options.IndexName = "hybrid",
    questions: options.QuestionsFile = None,
    json: options.JsonOutput = False,
    show_evidence: options.ShowEvidence = False,
    strict: options.Strict = False,
    quiet: options.Quiet = False,
    no_store: options.NoStore = False,
    hidden: options.Hidden = False,
    follow_symlinks: options.FollowSymlinks = False,
    thinking: options.ThinkingName = "off",
    stream_weights: options.StreamWeights = False,
) -> None:
    """Ask a question of files and folders."""
    from longctx.cli.inputs import checked_question, questions_and_paths
    from longctx.cli.opening import open_context
    from longctx.cli.progress import progress_view
    from longctx.cli.render import Output

    output = Output(quiet=quiet)
    if questions is None:
        asked = checked_question(_question_given(question, paths))
        batch = []
    else:
        asked = ""
        batch, paths = questions_and_paths(questions, question, paths)
    how = AskOptions(max_answer_tokens, temperature, seed, index, thinking)
    settings = ContextSettings(
        model, device, not no_store, hidden, follow_symlinks, index, thinking, stream_weights
    )
    view = progress_view(output)
    with contextlib.closing(open_context(paths, settings, view)) as context:
        if batch:
            code = _ask_all(context, batch, how, output, view)
        elif json:
            code = _ask_json(context, asked, how, output, view)
        else:
            code = _ask_shown(context, asked, how, output, view, show_evidence)
        if strict and context.skipped:
            from longctx.cli.amounts import count

            output.error_line(f"longctx: {count(len(context.skipped), 'file')} skipped (--strict)")
            code = code or EXIT_SKIPPED
    raise typer.Exit(code)


def _question_given(question: str | None, paths: Sequence[str]) -> str:
    """The QUESTION argument; a lone argument that is a path was meant to be one."""
    from longctx.documents.sanitize import is_blank

    if question is None:
        raise UsageError('nothing is asked; for instance: longctx ask "Who may terminate?" folder/')
    if not paths and not is_blank(question):
        hint = " (the question comes before it)" if os.path.exists(question) else ""
        raise UsageError(f"no path is named{hint}; for instance: longctx ask QUESTION folder/")
    return question


def _ask_shown(
    context: Context,
    question: str,
    how: AskOptions,
    output: Output,
    view: ProgressView,
    show_evidence: bool,
) -> int:
    from longctx.cli.answering import show_answer
    from longctx.cli.heat import heat_strip
    from longctx.cli.report import report_lines, skipped_lines, warning_lines

    shown = show_answer(context.stream(question, how), output, view, show_evidence=show_evidence)
    answer = shown.answer
    if output.quiet:
        return EXIT_OK
    if output.err.interactive:
        output.note()
    output.notes(heat_strip(answer.heat, output.err))
    output.notes(
        report_lines(answer.usage, answer.compute, len(context.documents), shown.writing_seconds)
    )
    output.notes(skipped_lines(context.skipped))
    output.notes(warning_lines([*context.warnings, *answer.warnings]))
    return EXIT_OK


def _ask_json(
    context: Context, question: str, how: AskOptions, output: Output, view: ProgressView
) -> int:
    from longctx.cli.answering import silent_answer
    from longctx.cli.report import warning_lines

    answer = silent_answer(context.stream(question, how), view)
    output.json(answer.to_json())
    output.notes(warning_lines([*context.warnings, *answer.warnings]))
    return EXIT_OK


def _ask_all(
    context: Context,
    batch: Sequence[Question],
    how: AskOptions,
    output: Output,
    view: ProgressView,
) -> int:
    """One JSON object a line, in order; a question that fails leaves its error and the rest run."""
    from longctx.cli.answering import silent_answer
    from longctx.cli.outcome import outcome_of, show_traceback
    from longctx.cli.report import warning_lines

    code = EXIT_OK
    warnings = list(context.warnings)
    for question in batch:
        try:
            answer = silent_answer(context.stream(question.text, how), view)
            result = answer.to_json()
            warnings.extend(answer.warnings)
        except Exception as error:
            show_traceback(error)
            result = {"error": outcome_of(error).message}
            code = EXIT_FAILURE
        output.json({"id": question.id, **result})
    output.notes(warning_lines(warnings))
    return code

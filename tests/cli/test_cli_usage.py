"""Wrong usage and failures: one clear line on stderr and the right exit code, never a traceback."""

from __future__ import annotations

import subprocess
import sys

import pytest

from longctx.cli.outcome import outcome_of
from longctx.errors import DoesNotFitError


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["ask"], "nothing is asked"),
        (["ask", "When?"], "no path is named"),
        (["ask", "."], "the question comes before it"),
        (["ask", "", "."], "the question is empty"),
        (["ask", " \n", "."], "the question is empty"),
        (["ask", "\u200b\u202e\x07", "."], "the question is empty"),
        (["ask", "\u3164\ufe0f"], "the question is empty"),
        (["ask", "When?", ""], "a path is empty"),
        (["ask", "-m", "tony-1m", "When?", "."], "no model is named 'tony-1m'"),
        (["ask", "-m", "tony-1m", "When?", "."], "see `longctx models list`"),
        (["ask", "-m", "", "When?", "."], "see `longctx models list`"),
        (["ask", "-m", "./no.gguf", "When?", "."], "./no.gguf: no such file or folder"),
        (["ask", "-m", "no/such.gguf", "When?", "."], "no/such.gguf: no such file or folder"),
        (["chat", "-m", "tony-1m", "."], "see `longctx models list`"),
        (["ask", "When?", "/no/such/path"], "no such file or folder: /no/such/path"),
        (["chat", "-"], "name the paths instead"),
        (["ask", "--index", "psychic", "When?", "."], "'psychic' is not one of 'hybrid'"),
        (["ask", "--device", "tpu", "When?", "."], "'tpu' is not one of 'auto'"),
        (["ask", "--max-answer-tokens", "0", "When?", "."], "'--max-answer-tokens'"),
        (["ask", "--temperature", "-1", "When?", "."], "'--temperature'"),
        (["ask", "--temperature", "nan", "When?", "."], "'--temperature'"),
        (["ask", "--seed", "-1", "When?", "."], "'--seed'"),
        (["ask", "--modle", "x", "When?", "."], "no such option: --modle"),
        (["chat"], "missing argument 'PATH...'"),
        (["aks", "When?", "."], "no such command 'aks'. Did you mean 'ask'?"),
        (["models"], "missing command"),
        (["--nonsense"], "no such option: --nonsense"),
    ],
)
def test_wrong_usage_is_told_in_a_line_or_two(run, arguments: list[str], complaint: str) -> None:
    result = run(*arguments)

    assert result.exit_code == 2
    assert result.stdout == ""
    first, *rest = result.stderr.splitlines()
    assert first.startswith("longctx: ")
    assert complaint in first
    assert len(rest) <= 1


def test_an_escape_in_an_argument_is_not_sent_back_to_the_terminal(run) -> None:
    result = run("ask", "When?", "/no/\x1b[2Jsuch")

    assert "\x1b" not in result.stderr


@pytest.mark.parametrize(
    ("question", "code", "message"),
    [
        ("this fails", 1, "longctx: the model broke; fetch it again\n"),
        ("this explodes", 3, "longctx: out of memory; choose a smaller model"),
        ("this crashes", 1, "longctx: internal error: ValueError: an unforeseen case"),
        ("this breaks off", 1, "longctx: the answer broke off; ask again\n"),
    ],
)
def test_a_failure_is_one_line(run, question: str, code: int, message: str) -> None:
    result = run("ask", "-q", question, ".")

    assert result.exit_code == code
    assert result.stderr.startswith(message)
    assert result.stderr.count("\n") == 1


def test_a_traceback_is_shown_to_those_who_ask_for_it(run, monkeypatch) -> None:
    monkeypatch.setenv("LONGCTX_DEBUG", "1")

    errors = run("ask", "this crashes", ".").stderr

    assert "Traceback (most recent call last)" in errors
    assert "longctx: internal error: ValueError" in errors


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (DoesNotFitError("the model needs 3 GB"), 3, "the model needs 3 GB"),
        (OSError(28, "No space left on device", "/x"), 3, "/x: No space left on device; free"),
        (PermissionError(13, "Permission denied", "/x"), 1, "/x: Permission denied"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you..."), 3, "out of memory"),
        (RuntimeError("shapes differ"), 1, "internal error: RuntimeError: shapes differ"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (KeyError("a\nb"), 1, r"internal error: KeyError: 'a\nb'"),
    ],
)
def test_every_exception_has_a_line_and_a_code(error, code: int, message: str) -> None:
    outcome = outcome_of(error)

    assert outcome.code == code
    assert outcome.message.startswith(message)


def test_help_names_the_exit_codes(run) -> None:
    result = run("--help")

    assert result.exit_code == 0
    assert "3    does not fit" in result.stdout
    assert "4    files were skipped, under --strict" in result.stdout


def test_no_arguments_show_the_help(run) -> None:
    assert run().stdout == run("--help").stdout


def test_the_version_is_that_of_the_package(run) -> None:
    assert run("--version").stdout.startswith("longctx 0.")


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['longctx', 'ask', '--help']\n"
        "import atexit; heavy = {'torch', 'rich', 'numpy', 'tokenizers', 'jinja2', 'pypdf'}\n"
        "atexit.register(lambda: print(heavy & set(sys.modules), file=sys.stderr))\n"
        "from longctx.cli.app import main; main()"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert done.stderr == "set()\n"


def test_shells_can_be_given_completion() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "longctx.cli.app"],
        env={"_LONGCTX_COMPLETE": "complete_bash", "COMP_WORDS": "longctx mo", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
    )

    assert done.stdout.strip() == "models"


@pytest.mark.parametrize("name", ["smollm2-135m", "org/name", "org/name:file.gguf", "."])
def test_a_model_that_may_be_had_is_left_to_the_loader(run, index, name: str) -> None:
    """A damaged one fails with 1 there; so does one that the hub has not got."""
    assert run("ask", "-q", "-m", name, "When?", ".").exit_code == 0
    assert index.settings["model"] == name

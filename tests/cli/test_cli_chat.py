"""`longctx chat` with its questions from a pipe; test_cli_terminal.py has it at a terminal."""

from __future__ import annotations


def test_every_line_is_a_question(run, index) -> None:
    result = run("chat", ".", input="When?\n\n  Who?  \n")

    assert index.context.asked == ["When?", "Who?"]
    assert "You asked: When?" in result.stdout
    assert "[1] contracts/msa.txt:12-13" in result.stdout
    assert result.exit_code == 0


def test_quit_ends_it(run, index) -> None:
    run("chat", ".", input="When?\n/quit\nWho?\n")

    assert index.context.asked == ["When?"]
    assert index.context.closed


def test_sources_shows_what_the_last_answer_stands_on(run) -> None:
    result = run("chat", ".", "-q", input="When?\n/sources\n")

    assert "score 0.910" in result.stdout
    assert "on 90 days" in result.stdout


def test_sources_before_any_answer_says_so(run) -> None:
    assert "nothing was answered yet" in run("chat", ".", input="/sources\n").stderr


def test_help_and_unknown_commands_are_not_questions(run, index) -> None:
    result = run("chat", ".", input="/help\n/nonsense\n")

    assert "/sources" in result.stdout
    assert "no command /nonsense" in result.stderr
    assert index.context.asked == []


def test_a_path_at_the_beginning_of_a_question_is_no_command(run, index) -> None:
    run("chat", ".", input="/etc/hosts has what?\n")

    assert index.context.asked == ["/etc/hosts has what?"]


def test_a_question_that_fails_does_not_end_it_but_shows_in_the_exit_code(run, index) -> None:
    result = run("chat", ".", input="this fails\nWhen?\n")

    assert "longctx: the model broke; fetch it again" in result.stderr
    assert "You asked: When?" in result.stdout
    assert result.exit_code == 1


def test_it_says_what_it_talks_about_and_a_line_on_every_answer(run) -> None:
    errors = run("chat", ".", input="When?\n").stderr

    assert errors.startswith("1 document, 152,340 tokens, fake; /help for commands\n")
    assert "logo.png: binary" in errors
    assert "3,120 tokens read, 7 tokens answered" in errors


def test_strict_counts_here_too(run) -> None:
    assert run("chat", ".", "--strict", input="").exit_code == 4

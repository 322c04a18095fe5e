"""What a person at a terminal sees: progress that moves and is gone, colours, interruptions."""

from __future__ import annotations

import sys

import pytest

if sys.platform == "win32":
    pytest.skip("needs a pseudo-terminal", allow_module_level=True)

from pseudo_terminal import PseudoTerminal, screen


def test_progress_is_gone_when_the_answer_stands() -> None:
    with PseudoTerminal("ask", "When?", ".", index_seconds=0.4) as terminal:
        assert terminal.finish() == 0

    assert "indexing" in terminal.output
    lines = screen(terminal.output)
    assert lines[0] == "Ninety days [1]. You asked: When?"
    assert not any("indexing" in line or "searching" in line for line in lines)


def test_progress_tells_documents_tokens_speed_and_time_left() -> None:
    with PseudoTerminal("ask", "When?", ".", index_seconds=0.4, columns=120) as terminal:
        terminal.finish()

    assert "2/8 documents  50,000/200,000 tokens  5,000 tokens/s  30 s left" in terminal.output


def test_progress_moves_while_no_event_comes() -> None:
    with PseudoTerminal("ask", "When?", ".", index_seconds=1.5) as terminal:
        terminal.read_until("indexing")
        redraws = terminal.read_for(1.0).count("indexing")

    assert redraws >= 2


@pytest.mark.parametrize("columns", [20, 45, 79])
def test_the_line_of_progress_fits_a_narrow_terminal(columns: int) -> None:
    with PseudoTerminal("ask", "When?", ".", index_seconds=0.4, columns=columns) as terminal:
        terminal.finish()

    frames = terminal.output.split("Ninety")[0].split("\r")
    assert max(len(line) for frame in frames for line in screen(frame)) <= columns


def test_the_cursor_is_given_back() -> None:
    with PseudoTerminal("ask", "When?", ".", index_seconds=0.2) as terminal:
        terminal.finish()

    assert terminal.output.rfind("\x1b[?25h") > terminal.output.rfind("\x1b[?25l") > 0


def test_a_terminal_gets_colours_unless_they_are_refused() -> None:
    with PseudoTerminal("ask", "When?", ".") as coloured:
        coloured.finish()
    with PseudoTerminal("ask", "When?", ".", NO_COLOR="1", FORCE_COLOR="1") as plain:
        plain.finish()

    assert "\x1b[32m✓ verified\x1b[0m" in coloured.output
    assert "\x1b[3" not in plain.output
    assert "✓ verified" in plain.output


def test_a_dumb_terminal_gets_no_control_codes() -> None:
    with PseudoTerminal("ask", "When?", ".", index_seconds=0.2, TERM="dumb") as terminal:
        terminal.finish()

    assert "\x1b" not in terminal.output


def test_an_interruption_while_indexing_restores_the_terminal() -> None:
    with PseudoTerminal("ask", "When?", ".", index_seconds=9) as terminal:
        terminal.read_until("indexing")
        terminal.type("\x03")
        assert terminal.finish() == 130

    assert screen(terminal.output)[-2:] == ["longctx: interrupted", ""]
    assert terminal.output.rfind("\x1b[?25h") > terminal.output.rfind("\x1b[?25l")
    assert "Traceback" not in terminal.output


def test_an_interruption_while_answering_ends_the_line() -> None:
    with PseudoTerminal("ask", "a slow one", ".") as terminal:
        terminal.read_until("word3")
        terminal.type("\x03")
        assert terminal.finish() == 130

    lines = screen(terminal.output)
    assert lines[0].startswith("word0 word1 word2 word3")
    assert lines[1] == "longctx: interrupted"


def test_chat_stops_an_answer_and_goes_on() -> None:
    with PseudoTerminal("chat", ".") as terminal:
        terminal.read_until("> ")
        terminal.type("a slow one\n")
        terminal.read_until("word3")
        terminal.type("\x03")
        terminal.read_until("stopped; Ctrl-C again or /quit leaves")
        terminal.type("When?\n")
        terminal.read_until("You asked: When?")
        terminal.type("/quit\n")
        assert terminal.finish() == 0


def test_chat_is_left_by_two_interruptions() -> None:
    with PseudoTerminal("chat", ".") as terminal:
        terminal.read_until("> ")
        terminal.read_for(0.3)  # readline shows its prompt a moment before it waits for keys
        terminal.type("\x03")
        terminal.read_until("stopped")
        terminal.read_for(0.3)
        terminal.type("\x03")
        assert terminal.finish() == 130


def test_chat_is_left_at_the_end_of_input() -> None:
    with PseudoTerminal("chat", ".") as terminal:
        terminal.read_until("> ")
        terminal.type("\x04")
        assert terminal.finish() == 0

    assert screen(terminal.output)[-1] == ""


def test_chat_lets_lines_be_edited() -> None:
    pytest.importorskip("readline")
    with PseudoTerminal("chat", ".") as terminal:
        terminal.read_until("> ")
        terminal.type("hen?\x01W\n")  # Ctrl-A goes to the beginning
        terminal.read_until("You asked: When?")

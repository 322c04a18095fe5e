"""`longctx ask`: what goes to which stream, in which words, and how it ends."""

from __future__ import annotations

import base64
import json
import os

from fake_context import Done, FakeContext, FakeIndex, Token, answered
from typer.testing import Result

from longctx.documents.document import Skipped


def test_the_answer_and_its_citations_are_all_there_is_on_stdout(run) -> None:
    result: Result = run("ask", "When may we leave?", ".")

    assert result.exit_code == 0
    assert result.stdout == (
        "Ninety days [1]. You asked: When may we leave?\n"
        "\n"
        "[1] contracts/msa.txt:12-13  ✓ verified\n"
        '    "Either party may leave"\n'
        "[2] contracts/fee.pdf:p.3  ✓ verified\n"
        '    "The fee is 1,200"\n'
        "[3] calls/q3.vtt:00:12:31  ✗ not found in the text\n"
        '    "Nobody said this"\n'
    )


def test_heat_report_skipped_files_and_warnings_go_to_stderr(run) -> None:
    errors = run("ask", "When?", ".").stderr

    assert "contracts/msa.txt  ▁" in errors
    assert (
        "152,340 in context (1 document), 150,000 indexed now, reused 2,340 of 152,340, "
        "3,120 read, 7 answered" in errors
    )
    assert "3,000 tokens/s indexed" in errors
    assert "1.2 load, 50.0 index, 0.3 select, 53.1 to the first token, 54.0 in all" in errors
    assert (
        "12.3 TFLOP done; dense attention over the same context 210 TFLOP (17.1x), "
        "an indexer in every layer 48.0 TFLOP (3.9x)" in errors
    )
    assert "logo.png: binary" in errors
    assert "msa.txt: read as windows-1252" in errors
    assert "calibrated quickly" in errors


def test_neither_stream_has_control_codes_without_a_terminal(run) -> None:
    result = run("ask", "When?", ".")

    assert "\x1b" not in result.output
    assert "\r" not in result.output


def test_quiet_leaves_the_answer_and_its_citations(run) -> None:
    result = run("ask", "-q", "When?", ".")

    assert result.stdout == run("ask", "When?", ".").stdout
    assert result.stderr == ""


def test_json_is_one_object_and_alone_on_stdout(run) -> None:
    result = run("ask", "--json", "When?", ".")

    assert json.loads(result.stdout) == json.loads(json.dumps(answered("When?").to_json()))
    assert result.stdout.count("\n") == 1


def test_evidence_is_shown_before_the_report(run) -> None:
    errors = run("ask", "--show-evidence", "When?", ".").stderr

    assert "[1] contracts/msa.txt:12-15  score 0.910\n    Either party may leave\n" in errors
    assert errors.index("score 0.910") < errors.index("in context")


def test_nothing_found_is_an_answer_without_citations(run) -> None:
    result = run("ask", "What is absent?", ".")

    assert result.stdout == "Not found.\n"
    assert result.exit_code == 0


def test_an_answer_that_was_streamed_and_then_taken_back_says_so(run, index, monkeypatch) -> None:
    taken_back = answered("", answer="I did not find that.", found=False, citations=())
    events = [Token("Four hundred."), Done(taken_back)]
    monkeypatch.setattr(index.context, "stream", lambda question, options: iter(events))

    assert run("ask", "How many?", ".").stdout == "Four hundred.\nI did not find that.\n"


def test_what_the_model_writes_cannot_reach_the_terminal(run) -> None:
    result = run("ask", "a hostile answer", ".")

    assert result.stdout.startswith("abcd\n")


def test_names_of_files_cannot_reach_the_terminal(run, index: FakeIndex) -> None:
    index.context = FakeContext(skipped=[Skipped("\x1b]0;owned\x07a\nb\u202e.txt", "binary")])

    result = run("ask", "When?", ".")

    assert "a b.txt: binary" in result.stderr
    assert "owned" not in result.stderr


def test_strings_in_json_are_safe_to_print_too(run) -> None:
    result = run("ask", "--json", "a hostile answer", ".")

    assert json.loads(result.stdout)["answer"] == "abcd"


def test_strict_tells_of_skipped_files_in_the_exit_code_after_the_answer(run) -> None:
    result = run("ask", "--strict", "--quiet", "When?", ".")

    assert result.exit_code == 4
    assert result.stdout.startswith("Ninety days")
    assert result.stderr == "longctx: 1 file skipped (--strict)\n"


def test_strict_is_content_when_nothing_was_skipped(run, index: FakeIndex) -> None:
    index.context = FakeContext(skipped=[])

    assert run("ask", "--strict", "When?", ".").exit_code == 0


def test_only_the_first_ten_skipped_files_are_named(run, index: FakeIndex) -> None:
    index.context = FakeContext(skipped=[Skipped(f"{n}.bin", "binary") for n in range(12)])

    errors = run("ask", "When?", ".").stderr

    assert "9.bin: binary" in errors
    assert "10.bin" not in errors
    assert "and 2 more" in errors


def test_options_reach_the_context(run, index: FakeIndex) -> None:
    result = run(
        "ask", "Which options?", ".", "--model", "org/m", "--device", "cpu", "--no-store",
        "--hidden", "--follow-symlinks", "--max-answer-tokens", "9", "--temperature", "0.5",
        "--seed", "3", "--index", "lexical", "--thinking", "high", "--stream-weights", "--json",
    )  # fmt: skip

    assert json.loads(result.stdout)["answer"] == (
        "AskOptions(max_answer_tokens=9, temperature=0.5, seed=3, index='lexical', thinking='high')"
    )
    assert index.settings == {
        "model": "org/m",
        "device": "cpu",
        "store": False,
        "hidden": True,
        "follow_symlinks": True,
        "index": "lexical",
        "thinking": "high",
        "stream_weights": True,
    }


def test_a_dash_hands_on_the_paths_listed_on_stdin(run, index: FakeIndex) -> None:
    run("ask", "When?", "-", ".", input=b"a.txt\0b.txt\0")

    assert index.listed == b"a.txt\0b.txt\0"
    assert [path.as_posix() for path in index.paths] == ["."]


def test_the_context_is_closed_also_when_the_answer_fails(run, index: FakeIndex) -> None:
    run("ask", "It fails", ".")

    assert index.context.closed


def test_a_name_that_json_cannot_hold_comes_as_bytes_too(run, index, monkeypatch) -> None:
    name = os.fsdecode(b"caf\xe9.txt")
    found = answered("", skipped=({"path": name, "reason": "binary"},))
    monkeypatch.setattr(index.context, "stream", lambda question, options: iter([Done(found)]))

    result = json.loads(run("ask", "--json", "When?", ".").stdout)

    assert result["skipped"] == [
        {"path": "caf\ufffd.txt", "reason": "binary", "path_bytes": "Y2Fm6S50eHQ="}
    ]
    assert base64.b64decode("Y2Fm6S50eHQ=") == b"caf\xe9.txt"
    assert not any("path_bytes" in passage for passage in result["evidence"])

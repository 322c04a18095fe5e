"""`longctx ask --questions`: many questions over one context, one JSON object a line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


def _write(path: Path, *lines: str) -> str:
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


def test_each_question_gets_one_line_with_its_id_first(run, index, tmp_path) -> None:
    file = _write(
        tmp_path / "q.jsonl",
        '{"id": "a", "question": "When?", "answer": "unused"}',
        "",
        '{"question": "Who?"}',
    )

    result = run("ask", "--questions", file, ".")

    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [next(iter(line.items())) for line in lines] == [("id", "a"), ("id", 3)]
    assert index.context.asked == ["When?", "Who?"]
    assert result.exit_code == 0


def test_a_question_that_fails_leaves_its_error_and_the_others_run(run, tmp_path) -> None:
    file = _write(
        tmp_path / "q.jsonl",
        '{"id": 1, "question": "this fails"}',
        '{"id": 2, "question": "this crashes"}',
        '{"id": 3, "question": "When?"}',
    )

    result = run("ask", "--questions", file, ".")

    first, second, third = map(json.loads, result.stdout.splitlines())
    assert first == {"id": 1, "error": "the model broke; fetch it again"}
    assert second["error"].startswith("internal error: ValueError: an unforeseen case")
    assert third["found"]
    assert result.exit_code == 1


def test_all_arguments_are_paths_then(run, index, tmp_path) -> None:
    file = _write(tmp_path / "q.jsonl", '{"question": "When?"}')

    run("ask", "--questions", file, str(tmp_path), ".")

    assert index.paths == [tmp_path, Path(".")]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("not json", "line 2: not JSON"),
        ("[1]", "line 2: not an object"),
        ('{"id": 1}', 'line 2: "question" is missing'),
        ('{"question": "  "}', 'line 2: "question" is missing, empty'),
        (r'{"question": "\u200b"}', 'line 2: "question" is missing, empty'),
        ('{"question": "When?", "id": [1]}', 'line 2: "id" is neither'),
        ("[" * 100_000, "line 2: not JSON"),
        ("\xff", "line 2: not JSON"),
    ],
)
def test_a_bad_line_is_named_before_anything_is_indexed(
    run, index, tmp_path, line: str, complaint: str
) -> None:
    path = tmp_path / "q.jsonl"
    path.write_bytes(b'{"question": "When?"}\n' + line.encode("latin-1") + b"\n")

    result = run("ask", "--questions", str(path), ".")

    assert result.exit_code == 2
    assert result.stderr.startswith("longctx: ")
    assert complaint in result.stderr
    assert result.stderr.count("\n") == 1
    assert index.settings == {}


@pytest.mark.parametrize("content", [b"", b"\n \n", b"\xef\xbb\xbf\n"])
def test_a_file_without_questions_is_wrong_usage(run, tmp_path, content: bytes) -> None:
    (tmp_path / "q.jsonl").write_bytes(content)

    result = run("ask", "--questions", str(tmp_path / "q.jsonl"), ".")

    assert result.exit_code == 2
    assert "no questions in it" in result.stderr


def test_a_missing_file_is_wrong_usage(run, tmp_path) -> None:
    result = run("ask", "--questions", str(tmp_path / "none.jsonl"), ".")

    assert result.exit_code == 2
    assert "none.jsonl: cannot read the questions (No such file" in result.stderr


def test_strict_does_not_hide_that_a_question_failed(run, tmp_path) -> None:
    file = _write(tmp_path / "q.jsonl", '{"question": "this fails"}')

    assert run("ask", "--strict", "--questions", file, ".").exit_code == 1


def test_a_question_beside_the_file_is_wrong_usage(run, index, tmp_path) -> None:
    file = _write(tmp_path / "q.jsonl", '{"question": "When?"}')

    result = run("ask", "Who left?", ".", "--questions", file)

    assert result.exit_code == 2
    assert result.stderr == (
        "longctx: 'Who left?' is no file or folder: with --questions every argument is a path, "
        "so leave out either the question or --questions\n"
    )
    assert index.settings == {}


def test_questions_come_from_stdin_too(run, index) -> None:
    result = run("ask", "--questions", "-", ".", input=b'{"id": "a", "question": "When?"}\n')

    assert json.loads(result.stdout)["id"] == "a"
    assert index.context.asked == ["When?"]
    assert index.listed == b""


def test_a_bad_line_of_stdin_is_named(run) -> None:
    result = run("ask", "--questions", "-", ".", input=b"{}\nWhen?\n")

    assert result.exit_code == 2
    assert result.stderr.startswith("longctx: standard input, line 1: ")


@pytest.mark.parametrize("paths", [["-"], [".", "-"]])
def test_stdin_cannot_give_both_questions_and_paths(run, paths: list[str]) -> None:
    result = run("ask", "--questions", "-", *paths, input=b"")

    assert result.exit_code == 2
    assert "cannot give both the questions and the paths" in result.stderr


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_of_questions_end_as_in_editors(run, index, tmp_path, end: str) -> None:
    lines = ['{"question": "When?"}', "", '{"question": "Who?"}', ""]
    (tmp_path / "q.jsonl").write_bytes(end.join(lines).encode())

    result = run("ask", "--questions", str(tmp_path / "q.jsonl"), ".")

    assert [json.loads(line)["id"] for line in result.stdout.splitlines()] == [1, 3]

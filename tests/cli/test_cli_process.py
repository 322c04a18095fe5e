"""`longctx` as a process among others: pipes that close, signals, full disks, odd locales."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

FAKE = Path(__file__).with_name("fake_context.py")

if sys.platform == "win32":
    pytest.skip("needs POSIX signals and shells", allow_module_level=True)


def start(*arguments: str, seconds: float = 0.0, **settings) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(FAKE), str(seconds), *arguments],
        stdout=settings.pop("stdout", subprocess.PIPE),
        stderr=settings.pop("stderr", subprocess.PIPE),
        encoding="utf-8",
        **settings,
    )


def shell(line: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = line.replace("longctx", f"{sys.executable} {FAKE} 0")
    return subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, **variables},
    )


def test_a_reader_that_leaves_ends_the_command_quietly() -> None:
    done = shell('longctx ask "a slow one" . | head -c 5; echo; echo ${PIPESTATUS[0]} >&2')

    assert done.stdout == "word0\n"
    assert done.stderr.endswith("0\n")
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def test_a_reader_that_leaves_ends_the_work_too() -> None:
    process = start("ask", "a slow one", ".")
    assert process.stdout is not None
    process.stdout.read(1)
    began = time.monotonic()
    process.stdout.close()

    assert process.wait(10) == 0
    assert time.monotonic() - began < 3  # the whole answer takes 6 s


@pytest.mark.parametrize("arguments", ["--help", "ask --help", "models list", "doctor --version"])
def test_help_into_a_closed_pipe_is_quiet(arguments: str) -> None:
    done = shell(f"longctx {arguments} | true")

    assert "Traceback" not in done.stderr
    assert "Broken" not in done.stderr


def test_closed_standard_streams_do_no_harm() -> None:
    done = shell('longctx ask "When?" . <&- >&- 2>&-')

    assert done.returncode == 0


def test_a_closed_stdin_gives_no_paths(tmp_path: Path) -> None:
    done = shell(f'longctx ask -q "When?" {tmp_path} - <&-')

    assert done.returncode == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_is_told() -> None:
    done = shell('longctx ask -q "When?" . >/dev/full')

    assert done.returncode == 3
    assert done.stderr.startswith("longctx: No space left on device")
    assert done.stderr.count("\n") == 1


def test_stdout_is_utf8_in_every_locale() -> None:
    done = shell('longctx ask -q "When?" .', PYTHONIOENCODING="ascii")

    assert "✓ verified" in done.stdout


def test_the_heat_strip_is_ascii_where_blocks_cannot_be_shown() -> None:
    done = shell('longctx ask "When?" .', PYTHONIOENCODING="ascii")

    assert "contracts/msa.txt  ..." in done.stderr


def test_arguments_that_are_not_utf8_do_no_harm() -> None:
    done = shell("longctx ask -q $'caf\\xe9?' .")

    assert done.returncode == 0
    assert "You asked: caf??" in done.stdout


def test_colours_can_be_forced_into_a_pipe_but_bars_cannot() -> None:
    done = shell('longctx ask "When?" .', FORCE_COLOR="1")

    assert "\x1b[32m✓ verified" in done.stdout
    assert "\x1b[?25l" not in done.stderr
    assert "\r" not in done.stderr


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
@pytest.mark.parametrize("command", [("ask", "When?", "."), ("chat", ".")])
def test_signals_end_the_command_with_one_line(
    tmp_path: Path, command, number: int, code: int, word: str
) -> None:
    marker = tmp_path / "indexing"
    environment = {**os.environ, "FAKE_MARKER": str(marker)}
    process = start(*command, seconds=30, stdin=subprocess.DEVNULL, env=environment)
    while not marker.exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(number)
    _, errors = process.communicate(timeout=5)

    assert process.returncode == code
    assert errors == f"longctx: {word}\n"


def test_an_interruption_in_the_first_moment_is_no_traceback() -> None:
    for delay in (0.03, 0.06, 0.09):
        process = start("ask", "a slow one", ".")
        time.sleep(delay)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=5)
        assert "Traceback" not in errors


def _first_words(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    process.stdout.read(5)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_answer_that_is_interrupted_ends_its_line(number: int, code: int) -> None:
    process = start("ask", "a slow one", ".")
    _first_words(process)
    process.send_signal(number)
    answer, errors = process.communicate(timeout=5)

    assert process.returncode == code
    assert answer.endswith("\n")
    assert answer.count("\n") == 1
    assert errors.count("\n") == 1


def test_an_answer_that_fails_half_way_ends_its_line() -> None:
    done = shell('longctx ask -q "a broken one" . 2>&1')

    assert done.returncode == 1
    assert done.stdout == "half\nlongctx: the model broke; fetch it again\n"

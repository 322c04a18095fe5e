"""Numbers, heat strips and progress in words: pure functions, tested on small examples."""

from __future__ import annotations

import base64
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longctx.cli import amounts
from longctx.cli.heat import MOST_ROWS, heat_strip
from longctx.cli.progress import PlainProgress
from longctx.cli.render import Output, Styled, printable
from longctx.cli.report import compute_line
from longctx.cli.status import Meter
from longctx.cli.terminal import Terminal, look_at
from longctx.documents.sanitize import sanitize
from longctx.engines.base import Compute, HeatRow, Progress


def text_of(lines) -> list[str]:
    return ["".join(p.text if isinstance(p, Styled) else p for p in line) for line in lines]


@pytest.mark.parametrize(
    ("flops", "words"),
    [
        (0, "0 FLOP"),
        (999, "999 FLOP"),
        (12_345_678, "12.3 MFLOP"),
        (999_600_000, "1.00 GFLOP"),
        (99_960_000_000, "100 GFLOP"),
        (2.1e14, "210 TFLOP"),
        (5e30, "5,000,000,000 ZFLOP"),
    ],
)
def test_operations_have_three_digits(flops: float, words: str) -> None:
    assert amounts.operations(flops) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-3, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (3599.9, "1 h 00 min"),
        (7384, "2 h 03 min"),
    ],
)
def test_durations_grow_units(seconds: float, words: str) -> None:
    assert amounts.duration(seconds) == words


def test_nothing_computed_has_no_compute_line() -> None:
    assert compute_line(Compute(0, 10, 10)) == ""
    assert compute_line(Compute(10, 0, 0)) == "10 FLOP done"


def test_what_costs_more_than_it_saves_says_so() -> None:
    assert compute_line(Compute(800_000, 100_000, 900_000)) == (
        "800 kFLOP done; no saving at this size: 8.0 times the cost of dense attention over the "
        "same context 100 kFLOP, an indexer in every layer 900 kFLOP (1.1x)"
    )


@pytest.mark.parametrize(
    "path", ["caf\udce9.txt", "a\x1b[2Jb.txt", "turn\u202e.txt", "line\rend", "odd\ud800"]
)
def test_a_path_that_cannot_be_printed_is_not_lost(path: str) -> None:
    (shown,) = printable([{"path": path, "quote": path}])

    assert shown["path"] == shown["quote"] == sanitize(path)
    name = base64.b64decode(shown["path_bytes"])
    assert name == path.encode("utf-8", "surrogatepass" if "\ud800" in path else "surrogateescape")


@pytest.mark.parametrize("value", [{"path": "café.txt"}, {"path": None}, {"quote": "\x1b"}])
def test_a_path_that_can_be_printed_stands_alone(value: dict) -> None:
    assert "path_bytes" not in printable(value)


def test_the_strip_is_as_wide_as_the_terminal_and_shows_the_peak() -> None:
    (line,) = text_of(heat_strip([HeatRow("a.txt", 9, (0.0, 1.0, 0.5))], Terminal(columns=20)))

    assert line == "a.txt  ▁▁▁▁████▅▅▅▅"


def test_a_strip_narrower_than_its_slices_keeps_every_peak() -> None:
    heat = [0.0] * 999
    heat[500] = 1.0

    (line,) = text_of(heat_strip([HeatRow("a", 9, tuple(heat))], Terminal(columns=20)))

    assert line.count("█") == 1


def test_a_strip_without_block_characters_is_ascii() -> None:
    rows = [HeatRow("a-very-long-name-" * 9 + "end.txt", 9, (0.0, 1.0))]

    (line,) = text_of(heat_strip(rows, Terminal(columns=40, blocks=False)))

    assert line.isascii()
    assert line.startswith("..")
    assert "end.txt  ..." in line
    assert line.endswith("@")


def test_many_documents_are_shown_by_folder() -> None:
    rows = [HeatRow(f"d{n % 3}/sub/{n}.txt", 10, (n / 40,)) for n in range(30)]

    lines = text_of(heat_strip(rows, Terminal()))

    assert [line.split("  ")[0] for line in lines] == [f"d{n}/sub/ (10)" for n in range(3)]


def test_many_folders_are_shown_by_the_folders_above_them() -> None:
    rows = [HeatRow(f"top/d{n}/{n}.txt", 10, (0.5,)) for n in range(30)]

    (line,) = text_of(heat_strip(rows, Terminal()))

    assert line.startswith("top/ (30)")


def test_of_too_many_folders_the_hottest_are_shown() -> None:
    rows = [HeatRow(f"d{n:02}/a.txt", 10, (n / 30,)) for n in range(30)]

    lines = text_of(heat_strip(rows, Terminal()))

    assert len(lines) == MOST_ROWS + 1
    assert lines[0].startswith("d10/")
    assert lines[-1] == "and 10 cooler folders"


@settings(deadline=None)
@given(
    st.lists(
        st.builds(
            HeatRow,
            st.text(min_size=1, max_size=30),
            st.integers(0, 1000),
            st.lists(st.floats(0, 1), max_size=9).map(tuple),
        ),
        max_size=40,
    ),
    st.integers(20, 200),
)
def test_no_line_of_heat_is_wider_than_the_terminal(rows: list[HeatRow], columns: int) -> None:
    from rich.cells import cell_len

    for line in text_of(heat_strip(rows, Terminal(columns=columns))):
        assert cell_len(line) < columns
        assert "\n" not in line


def test_loading_counts_in_bytes_and_indexing_in_tokens() -> None:
    meter = Meter()

    loading = meter.of_event(
        Progress("load", note="fetching", tokens=10**6, total_tokens=4 * 10**6)
    )
    indexing = meter.of_event(Progress("index", 1, 4, 1000, 5000, 2.0))

    assert (loading.label, loading.told()) == ("fetching", ["1.00 MB of 4.00 MB"])
    assert indexing.told() == ["1/4 documents", "1,000/5,000 tokens", "500 tokens/s", "8 s left"]
    assert indexing.told(age_seconds=3)[-1] == "5 s left"


def test_what_was_fetched_before_is_no_part_of_the_speed(monkeypatch) -> None:
    now = iter([100.0, 102.0])
    monkeypatch.setattr("longctx.cli.status.time.monotonic", lambda: next(now))
    meter = Meter()

    meter.of_bytes("part 3", 900_000_000, 1_000_000_000)
    status = meter.of_bytes("part 4", 920_000_000, 1_000_000_000)

    assert status.told() == ["920 MB of 1.00 GB", "10.0 MB/s", "8 s left"]


def test_plain_progress_comes_every_five_seconds_at_most(monkeypatch, capsys) -> None:
    now = [0.0]
    monkeypatch.setattr("longctx.cli.progress.time.monotonic", lambda: now[0])
    view = PlainProgress(Output())

    for second in range(13):
        now[0] = float(second)
        view(Progress("index", 1, 2, second * 10, 200, float(second)))

    assert capsys.readouterr().err == (
        "indexing: 1/2 documents, 50/200 tokens, 10.0 tokens/s, 15 s left\n"
        "indexing: 1/2 documents, 100/200 tokens, 10.0 tokens/s, 10 s left\n"
    )


def test_only_terminals_move_and_colours_can_be_forced_or_refused() -> None:
    pipe = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")

    assert look_at(pipe, {}) == Terminal()
    assert look_at(pipe, {"FORCE_COLOR": "1"}) == Terminal(colour=True)
    assert look_at(pipe, {"FORCE_COLOR": "1", "NO_COLOR": "1"}) == Terminal()
    assert look_at(pipe, {"FORCE_COLOR": "0", "NO_COLOR": ""}) == Terminal()
    assert look_at(pipe, {"COLUMNS": "7"}).columns == 20


@settings(deadline=None)
@given(st.recursive(st.none() | st.text() | st.floats(), st.lists, max_leaves=9))
def test_everything_in_json_is_safe(value) -> None:
    import json

    text = json.dumps(printable(value), ensure_ascii=False, allow_nan=False)

    assert sanitize(text) == text
    text.encode()

"""The report under an answer: tokens, speed, seconds, compute and what was not read.

Pure lines out of an `Answer`; which of them are shown is the command's business.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from longctx.cli import amounts
from longctx.cli.render import Line, Styled
from longctx.documents.document import Skipped
from longctx.engines.base import Compute, Usage

MOST_SKIPPED = 10
_PHASES = {
    "load": "load",
    "index": "index",
    "select": "select",
    "first_token": "to the first token",
    "total": "in all",
}


def report_lines(
    usage: Usage, compute: Compute, documents: int, writing_seconds: float
) -> list[Line]:
    """One labelled line each for tokens, speed, seconds and compute, where they are known.

    `writing_seconds` go from the first piece of the answer to its end.
    """
    count = amounts.count
    tokens = (
        f"{count(usage.context_tokens)} in context ({count(documents, 'document')}), "
        f"{count(usage.indexed_tokens)} indexed now, "
        f"reused {count(usage.reused_tokens)} of {count(usage.context_tokens)}, "
        f"{count(usage.read_tokens)} read, {count(usage.answer_tokens)} answered"
    )
    labelled = {
        "tokens": tokens,
        "speed": ", ".join(_speeds(usage, writing_seconds)),
        "seconds": ", ".join(_seconds(usage.seconds)),
        "compute": compute_line(compute),
    }
    return [(Styled(f"{label:9}", "dim"), text) for label, text in labelled.items() if text]


def summary_line(usage: Usage, writing_seconds: float) -> str:
    """The report of a chat's answer: one line."""
    facts = [amounts.count(usage.read_tokens, "token") + " read"]
    facts.append(amounts.count(usage.answer_tokens, "token") + " answered")
    speed = _writing_speed(usage, writing_seconds)
    if speed is not None:
        facts.append(amounts.per_second(speed))
    if "total" in usage.seconds:
        facts.append(f"{usage.seconds['total']:.1f} s")
    return ", ".join(facts)


def compute_line(compute: Compute) -> str:
    """Compute done, and beside it what the same question costs without the index."""
    if compute.flops <= 0:
        return ""
    facts = [
        _beside(compute.flops, what, flops)
        for what, flops in (
            ("dense attention over the same context", compute.dense_flops),
            ("an indexer in every layer", compute.every_layer_index_flops),
        )
        if flops > 0
    ]
    done = f"{amounts.operations(compute.flops)} done"
    return f"{done}; {', '.join(facts)}" if facts else done


def _beside(done: int, what: str, flops: int) -> str:
    """What another way costs as a multiple of what was done; the other way round if it is less."""
    other = f"{what} {amounts.operations(flops)}"
    if flops >= done:
        return f"{other} ({flops / done:.1f}x)"
    return f"no saving at this size: {done / flops:.1f} times the cost of {other}"


def skipped_lines(skipped: Sequence[Skipped]) -> Iterator[Line]:
    """The first files that were not read with their reasons, then a count of the others."""
    if not skipped:
        return
    yield (Styled(f"{'skipped':9}", "yellow"), amounts.count(len(skipped), "file"))
    for file in skipped[:MOST_SKIPPED]:
        yield (f"{'':9}{file.path}: {file.reason}",)
    if len(skipped) > MOST_SKIPPED:
        yield (f"{'':9}and {amounts.count(len(skipped) - MOST_SKIPPED)} more",)


def warning_lines(warnings: Sequence[str]) -> Iterator[Line]:
    """One line a warning, each once."""
    for warning in dict.fromkeys(warnings):
        yield (Styled(f"{'warning':9}", "yellow"), warning)


def _speeds(usage: Usage, writing_seconds: float) -> Iterator[str]:
    indexing = amounts.rate(usage.indexed_tokens, usage.seconds.get("index", 0.0))
    if indexing is not None:
        yield f"{amounts.per_second(indexing)} indexed"
    answering = _writing_speed(usage, writing_seconds)
    if answering is not None:
        yield f"{amounts.per_second(answering)} answered"


def _writing_speed(usage: Usage, writing_seconds: float) -> float | None:
    """The first token ends the wait, it is not part of the writing."""
    return amounts.rate(usage.answer_tokens - 1, writing_seconds)


def _seconds(seconds: dict[str, float]) -> Iterator[str]:
    for phase, value in seconds.items():
        yield f"{value:.1f} {_PHASES.get(phase, phase)}"

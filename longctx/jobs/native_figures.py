"""The 200K run as a table and a plot: what every way of attending costs, counted and timed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

from longctx.jobs.native_variants import DENSE, EVERY, POSITIONS, SHARED, VARIANTS, Chunk

Runs = Mapping[str, Sequence[Chunk]]
NEAR = 4  # chunks that end at a position: the median of their times
# Okabe and Ito's colours, told apart whatever one's colour vision; lines differ in dashes too.
STYLES = {SHARED: ("#0072B2", "-"), EVERY: ("#D55E00", "--"), DENSE: ("#000000", ":")}


def at(chunks: Sequence[Chunk], position: int) -> Chunk | None:
    """The chunk that ends at `position`, with the median time of it and those just before."""
    near = [c for c in chunks if position - NEAR * c.count < c.first + c.count <= position]
    if not near or near[-1].first + near[-1].count != position:
        return None
    last = near[-1]
    seconds = median(c.seconds for c in near)
    return Chunk(last.first, last.count, seconds, last.flops, last.formula, last.resident_bytes)


def table(runs: Runs, positions: Sequence[int] = POSITIONS) -> Iterator[str]:
    """Lines of Markdown: a row a position, MFLOP and milliseconds a token, and their ratios."""
    yield (
        "| position | MFLOP a token: IndexShare | every layer | dense "
        "| ms a token: IndexShare | every layer | dense "
        "| every layer / IndexShare: FLOPs | time | dense / IndexShare: FLOPs | time |"
    )
    yield "|" + "---:|" * 11
    for position in positions:
        found = {name: at(chunks, position) for name, chunks in runs.items()}
        if not any(found.values()):
            continue
        shared, every, dense = (found.get(name) for name in VARIANTS)
        cells = [
            f"{position:,}",
            *(_cell(c and c.flops / c.count / 1e6, 1) for c in (shared, every, dense)),
            *(_cell(c and c.milliseconds, 2) for c in (shared, every, dense)),
        ]
        for other in (every, dense):
            ratios = (
                (other.flops / shared.flops, other.milliseconds / shared.milliseconds)
                if other and shared
                else (None, None)
            )
            cells += [_cell(r, 2, "x") for r in ratios]
        yield f"| {' | '.join(cells)} |"


def totals(runs: Runs, positions: Sequence[int] = POSITIONS) -> Iterator[str]:
    """Lines of Markdown: whole prompts, where both sparse ways were run from the first token on."""
    yield "| prompt | seconds: IndexShare | every layer | FLOPs ratio | time ratio |"
    yield "|" + "---:|" * 5
    for position in positions:
        parts = [[c for c in runs.get(n, ()) if c.first < position] for n in (SHARED, EVERY)]
        if any(sum(c.count for c in part) < position for part in parts):
            continue
        (seconds, flops), (more_seconds, more_flops) = (
            (sum(c.seconds for c in part), sum(c.flops for c in part)) for part in parts
        )
        yield (
            f"| {position:,} | {seconds:.0f} | {more_seconds:.0f} | {more_flops / flops:.2f}x "
            f"| {more_seconds / seconds:.2f}x |"
        )


def checks(runs: Runs) -> Iterator[str]:
    """Whether counts are the closed formulas', and how memory moved over a run."""
    for name, chunks in runs.items():
        known = [c for c in chunks if c.formula is not None]
        same = sum(c.flops == c.formula for c in known)
        held = [c.resident_bytes for c in chunks if c.first and c.resident_bytes]
        memory = (
            f"; memory {min(held) / 1e6:,.0f} to {max(held) / 1e6:,.0f} MB past the first chunk"
            if held
            else ""
        )
        yield f"{name}: counted FLOPs are the formulas' in {same} of {len(known)} chunks{memory}"


def _cell(value: float | None, digits: int, unit: str = "") -> str:
    return "" if value is None else f"{value:,.{digits}f}{unit}"


def plot(runs: Runs, path: Path) -> None:
    """Time per token against position, and memory against position, as a PNG for a README.

    Needs matplotlib. Raises `ImportError` without it.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), dpi=110, layout="constrained")
    times, memory = figure.subplots(1, 2, width_ratios=(3, 2))
    for name, chunks in runs.items():
        colour, dashes = STYLES[name]
        x = [(c.first + c.count) / 1000 for c in chunks]
        marker = "o" if name == DENSE else None  # its chunks lie apart
        smooth = _medians([c.milliseconds for c in chunks])
        times.plot(x, smooth, dashes, color=colour, label=name, marker=marker, markersize=4)
        if name != DENSE:
            held = [c.resident_bytes / 1e6 for c in chunks]
            memory.plot(x, held, dashes, color=colour, label=name)
    times.set(xlabel="position (thousand tokens)", ylabel="time per token (ms)", ylim=(0, None))
    times.set_title("Prefill time per token", fontsize=11)
    memory.set(xlabel="position (thousand tokens)", ylabel="memory held (MB)", ylim=(0, None))
    memory.set_title("Memory, cache allocated at the start", fontsize=11)
    for axes in (times, memory):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})


def _medians(values: Sequence[float]) -> list[float]:
    """Each value's median with its two neighbours: one interrupted chunk is no trend."""
    padded = [values[0], *values, values[-1]] if values else []
    return [median(padded[i : i + 3]) for i in range(len(values))]

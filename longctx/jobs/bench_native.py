"""Reproduce the figures of IndexShare models: `python -m longctx.jobs.bench_native SECTION...`.

prefill: 200K tokens through a small model with shared, every-layer and no index choices; a run that
is on record in `--folder` is not repeated. stream: a model layer by layer against the ordinary
order, and the forecast for GLM-5.2. flops: what the published 2.9x consists of. sharing: accuracy
of the trained small model by schedule.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from longctx.errors import LongctxError
from longctx.paths import cache_dir, ensure

SECTIONS = ("prefill", "stream", "flops", "sharing")
FIGURE = Path("samples/figures/native-prefill.png")
TRAINED = Path("samples/native")
EVERY_TOKENS = 204_800


def main(arguments: Sequence[str] | None = None) -> int:
    # Threads that wait by spinning take the time of those that work; read when torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    parser = argparse.ArgumentParser(
        prog="python -m longctx.jobs.bench_native", description=__doc__
    )
    parser.add_argument("sections", nargs="+", choices=SECTIONS)
    parser.add_argument("--folder", type=Path, help="where runs and checkpoints are kept")
    parser.add_argument("--tokens", type=int, default=EVERY_TOKENS, help="of the longest prompt")
    parser.add_argument("--variants", nargs="+", choices=list(VARIANT_NAMES), help="to run now")
    parser.add_argument("--again", action="store_true", help="repeat runs that are on record")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--figure", type=Path, default=FIGURE)
    parser.add_argument("--trained", type=Path, default=TRAINED, help="the trained small model")
    options = parser.parse_args(arguments)
    import torch

    torch.set_num_threads(options.threads)
    run = {"prefill": prefill, "stream": stream, "flops": flops, "sharing": sharing}
    try:
        options.folder = ensure(options.folder or cache_dir() / "bench-native")
        for section in options.sections:
            run[section](options)
    except LongctxError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


VARIANT_NAMES = {"indexshare": "IndexShare", "every-layer": "every layer", "dense": "dense"}


def prefill(options: argparse.Namespace) -> None:
    """Run what is not on record, then print the tables and draw the plot of all that is."""
    from longctx.jobs import native_variants as variants

    place = variants.checkpoint(options.folder)
    runs: dict[str, list[variants.Chunk]] = {}
    machines: dict[str, str] = {}
    for short, name in VARIANT_NAMES.items():
        record = options.folder / f"prefill-{short}-{options.tokens}.json"
        asked = options.variants is None or short in options.variants
        if asked and (options.again or not record.exists()):
            variants.measure(place, name, options.tokens, record, options.threads)
        if record.exists():
            machines[short], runs[name] = variants.load(record)
    _report(runs, machines, options)


def _report(runs: dict, machines: dict[str, str], options: argparse.Namespace) -> None:
    from longctx.jobs import native_figures as figures
    from longctx.jobs.native_variants import DENSE_TOKENS

    for line in sorted(set(machines.values())):
        print(line)
    print(
        "dense: keys and values made from the cached latents for every chunk, read by torch's own "
        f"attention; from {DENSE_TOKENS:,} tokens on single chunks behind random latents, which "
        "take the same time. FLOPs of the sparse ways are of absorbed attention, as run."
    )
    for part in (figures.table, figures.totals, figures.checks):
        print()
        for line in part(runs):
            print(line)
    try:
        figures.plot(runs, options.figure)
    except ImportError:
        print("\nno plot: matplotlib is not installed")
    else:
        print(f"\nplot: {options.figure}, {options.figure.stat().st_size / 1000:.0f} kB")


def stream(options: argparse.Namespace) -> None:
    """A checkpoint both ways in processes of their own, then GLM-5.2's forecast."""
    from longctx.accounting import forecast
    from longctx.accounting.rates import measure
    from longctx.jobs.native_stream import compared
    from longctx.models.native.synth_presets import Sizes, preset

    for line in compared(options.folder):
        print(line)
    print()
    sizes = Sizes.of(preset("glm-5.2"))
    for chunk, widen_once in ((1024, False), (forecast.WIDE_CHUNK, True)):
        rates = measure(sizes, options.folder, chunk_tokens=chunk)
        plan = forecast.Forecast(sizes, forecast.MILLION, chunk, fp8=True, widen_once=widen_once)
        print("\n".join(forecast.lines(plan, rates, "GLM-5.2-FP8")))


def flops(options: argparse.Namespace) -> None:
    """The published claim taken apart, from closed formulas alone."""
    from longctx.accounting import native

    print(native.table())


def sharing(options: argparse.Namespace) -> None:
    """Accuracy with the schedule it was trained with, and with more layers sharing."""
    from longctx.jobs.native_training import evaluate
    from longctx.jobs.native_training.export import read_shape

    if not (options.trained / "config.json").is_file():
        print(f"sharing: no trained model in {options.trained}; skipped")
        return
    own = read_shape(options.trained).schedule
    schedules = [own]
    while (last := schedules[-1].rfind("F")) > 0:
        schedules.append(schedules[-1][:last] + "S" + schedules[-1][last + 1 :])
    evaluate.main(
        [str(options.trained), "--schedules", *schedules, "--threads", str(options.threads)]
    )


if __name__ == "__main__":
    raise SystemExit(main())

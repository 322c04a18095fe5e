"""Reproduce the README's figures: `python -m longctx.jobs.bench SECTION... [--samples DIR]`.

Sections: speed, retrieval, answers, million. Every figure is printed beside the limit or target it
is compared with; absolute times are never asserted. `--filler N` adds N tokens of other text.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import sysconfig
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import longctx
from longctx.contexts.cite import find_quote
from longctx.contexts.passages import Passage, widen
from longctx.engines.base import AskOptions, Done
from longctx.engines.selection import Selected
from longctx.jobs.questions import (
    Question,
    answer_right,
    evidence_found,
    load_encyclopedic,
    load_questions,
)

KINDS = ("hybrid", "attention", "lexical")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m longctx.jobs.bench", description=__doc__)
    parser.add_argument("sections", nargs="+", choices=["speed", "retrieval", "answers", "million"])
    parser.add_argument("--model", default="qwen2.5-coder-1.5b")
    parser.add_argument("--samples", type=Path, default=Path("samples"))
    parser.add_argument("--encyclopedic", type=Path, help="an XQuAD-shaped JSON file")
    parser.add_argument("--filler", type=int, default=0, help="tokens of other text to add")
    parser.add_argument("--limit", type=int, default=0, help="ask at most this many questions")
    options = parser.parse_args(arguments)
    model = longctx.load_model(options.model)
    print(machine(), flush=True)
    for section in options.sections:
        {"speed": speed, "retrieval": retrieval, "answers": answers, "million": million}[section](
            model, options
        )
    return 0


def machine() -> str:
    """One line: processor, cores, memory, torch."""
    import torch

    name = "unknown processor"
    flags = ""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                name = line.split(":")[1].strip()
            if line.startswith("flags"):
                flags = " AMX" if "amx_bf16" in line else (" AVX-512" if "avx512f" in line else "")
    threads = torch.get_num_threads()
    return f"machine: {name}{flags}, {threads} threads, torch {torch.__version__}"


def filler(folder: Path, tokens: int) -> int:
    """Write about `tokens` tokens of Python's own library sources as text files; returns files."""
    wanted, files = tokens * 3.6, 0
    for source in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
        if wanted <= 0:
            break
        if "site-packages" in source.parts or "test" in source.parts:
            continue
        text = source.read_text(encoding="utf-8", errors="ignore")
        if len(text) > 2000:
            (folder / f"{files:04d}_{source.stem}.txt").write_text(text, encoding="utf-8")
            wanted -= len(text)
            files += 1
    return files


def speed(model, options) -> None:
    """Index speed against the matrix products of the same layers alone, in one run, as pairs."""
    import torch

    from longctx.indexshare.leader import ROWS_PER_BATCH, LeaderPass, batches
    from longctx.indexshare.profile import find_profile

    profile = find_profile(model.name, model.digest)
    assert profile is not None, "the model has no profile: longctx models calibrate"
    decoder, depth, rows = model.decoder, profile.leader, ROWS_PER_BATCH
    text = " ".join(path.read_text() for path in sorted(options.samples.rglob("*.md")))
    ids = model.tokenizer.encode_text(text)[0][: 4 * rows]
    leader = LeaderPass(
        decoder, depth, model.tokenizer.encode_text(profile.preamble)[0], profile.window
    )
    work = list(batches([ids], profile.window))
    x = torch.randn(rows, decoder.config.hidden, dtype=decoder.dtype)
    wide = torch.randn(rows, decoder.config.intermediate, dtype=decoder.dtype)
    attended = torch.randn(rows, decoder.config.heads * decoder.config.head_dim).to(x.dtype)

    def products() -> None:
        for layer in decoder.layers[:depth]:
            for linear in (layer.q, layer.k, layer.v, layer.gate, layer.up):
                torch.mm(x, linear.weight.T)
            torch.mm(attended, layer.o.weight.T)
            torch.mm(wide, layer.down.weight.T)

    ratios, rates = [], []
    with torch.inference_mode():
        for batch in work * 3:
            start = time.perf_counter()
            products()
            limit = rows / (time.perf_counter() - start)
            start = time.perf_counter()
            leader.run(batch, lambda captured: None, key_layers=frozenset([depth]))
            rate = sum(len(c.tokens) for c in batch) / (time.perf_counter() - start)
            ratios.append(rate / limit)
            rates.append((rate, limit))
    middle = sorted(range(len(ratios)), key=lambda i: ratios[i])[len(ratios) // 2]
    rate, limit = rates[middle]
    flops = 2 * decoder.config.layer_parameters * depth
    print(
        f"index speed: {rate:,.0f} tokens/s ({rate * flops / 1e12:.2f} TFLOP/s) of "
        f"{limit:,.0f} ({limit * flops / 1e12:.2f}) by the matrix products alone: "
        f"{ratios[middle]:.0%} (target 75%), median of {len(ratios)} pairs, "
        f"{depth} of {decoder.config.layers} layers",
        flush=True,
    )


def retrieval(model, options) -> None:
    """Share of questions whose truth is among what is read, by kind of question and index."""
    with TemporaryDirectory() as work:
        extra = Path(work)
        filler(extra, options.filler)
        for folder in sorted(options.samples.iterdir()):
            if (folder / "questions.jsonl").exists():
                paths = [folder] + ([extra] if options.filler else [])
                context = longctx.index(paths, model=model)
                questions = load_questions(folder / "questions.jsonl")
                _retrieve(folder.name, context, questions)
        if options.encyclopedic:
            texts, questions = load_encyclopedic(options.encyclopedic)
            for number, text in enumerate(texts):
                (extra / f"paragraph_{number:03d}.txt").write_text(text, encoding="utf-8")
            if not options.filler:
                filler(extra, 100_000)
            context = longctx.index(extra, model=model)
            _retrieve("encyclopedic", context, questions[: options.limit or 240])


def _retrieve(name: str, context, questions: list[Question]) -> None:
    asked = [question for question in questions if question.evidence]
    for kind in KINDS:
        hits: dict[str, list[bool]] = defaultdict(list)
        for question in asked:
            selected = context._engine.select(question.text, context._corpus, kind)
            hits[question.kind].append(evidence_found(question, selected.passages))
        every = [hit for found in hits.values() for hit in found]
        parts = ", ".join(f"{k} {sum(v)}/{len(v)}" for k, v in sorted(hits.items()))
        print(
            f"retrieval {name} {context.context_tokens:,} tokens, {kind}: "
            f"{sum(every) / len(every):.1%} ({parts})",
            flush=True,
        )


def answers(model, options) -> None:
    """Right answers over the context against those from the true passages alone."""
    totals: dict[str, list[bool]] = defaultdict(list)
    with TemporaryDirectory() as work:
        extra = Path(work)
        filler(extra, options.filler)
        for folder in sorted(options.samples.iterdir()):
            if not (folder / "questions.jsonl").exists():
                continue
            paths = [folder] + ([extra] if options.filler else [])
            context = longctx.index(paths, model=model)
            questions = load_questions(folder / "questions.jsonl")
            for question in questions[: options.limit or None]:
                answer = context.ask(question.text, max_answer_tokens=96)
                right = answer_right(question, answer.answer, answer.found)
                totals["all" if question.answerable else "unanswerable"].append(right)
                told = "right" if right else "wrong"
                print(f"  {question.id} {question.kind}: {told}: {answer.answer!r}", flush=True)
                if question.answerable:
                    alone = _from_truth(context, question)
                    totals["from the passage alone"].append(
                        answer_right(question, alone.answer, alone.found)
                    )
    for name, hits in totals.items():
        print(f"answers, {name}: {sum(hits)}/{len(hits)} = {sum(hits) / len(hits):.1%}")
    if totals["from the passage alone"]:
        ratio = sum(totals["all"]) / max(1, sum(totals["from the passage alone"]))
        print(f"answers over the context / from the passage alone: {ratio:.1%} (target 90%)")


def _from_truth(context, question: Question):
    """The model's answer when it is handed the true passages and nothing else."""
    import numpy as np

    engine, corpus = context._engine, context._corpus
    passages = []
    for number, entry in enumerate(corpus.entries):
        document = entry.document
        for truth in question.evidence:
            span = document.path.endswith(truth.path) and find_quote(truth.quote, document.text)
            if span:
                start, end = widen(document.text, span[0], span[1])
                text = document.text[start:end]
                place = document.place(start, end)
                passages.append(Passage(number, document.path, start, end, text, place, 0.0))
    scores = np.zeros(corpus.first_blocks[-1], dtype=np.float32)
    selected = Selected(passages, scores, 0)
    for event in engine.read(question.text, selected, corpus, AskOptions(max_answer_tokens=96)):
        if isinstance(event, Done):
            return event.answer
    raise AssertionError("no answer")


def million(model, options) -> None:
    """One million tokens: cost by position, index on disk, peak memory, the second question."""
    from longctx.contexts.store import store_size

    with TemporaryDirectory() as work:
        extra = Path(work)
        filler(extra, options.filler or 1_000_000)
        before = store_size()[1]
        marks: list[tuple[int, float]] = []

        def hear(progress) -> None:
            if progress.stage == "index" and progress.note != "reused":
                marks.append((progress.tokens, progress.seconds))

        start = time.perf_counter()
        context = longctx.index([options.samples, extra], model=model, on_progress=hear)
        took = time.perf_counter() - start
        tokens = context._corpus.indexed_tokens
        size = store_size()[1] - before
        print(f"{context.context_tokens:,} tokens in context")
        print(f"indexed {tokens:,} tokens in {took:,.0f} s = {tokens / took:,.0f} tokens/s")
        print(f"index on disk: {size / 1e9:.3f} GB = {size / max(tokens, 1):.0f} bytes a token")
        rate = _pace(marks, 0.0, 0.1), _pace(marks, 0.9, 1.0)
        print(f"a token in the last tenth costs {rate[0] / rate[1]:.2f} of one in the first")
        question = "Which company took Wilhelmina Crake's place as guarantor of the Unit 7 lease?"
        for turn in ("first", "second"):
            answer = context.ask(question, max_answer_tokens=32)
            seconds = answer.usage.seconds
            print(
                f"{turn} question: select {seconds['select']:.2f} s, first token after "
                f"{seconds['first_token'] - seconds['load'] - seconds['index']:.2f} s (target 10)"
            )
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(f"peak memory {peak / 2**30:.2f} GiB (target 6)", flush=True)


def _pace(marks: list[tuple[int, float]], low: float, high: float) -> float:
    """Tokens a second between two shares of the work."""
    if len(marks) < 3:
        return 1.0
    first, last = marks[int(low * (len(marks) - 1))], marks[int(high * (len(marks) - 1))]
    return (last[0] - first[0]) / max(last[1] - first[1], 1e-9)


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sys.exit(main())

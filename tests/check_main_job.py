"""Compares the JSON of the end-to-end run with what samples/contracts says. Reads stdin."""

from __future__ import annotations

import json
import sys


def main() -> int:
    answer = json.load(sys.stdin)
    text = answer["answer"].lower()
    problems = []
    if not answer["found"] or "halden holdings" not in text:
        problems.append(f"unexpected answer: {answer['answer']!r}")
    if not all(c["verified"] for c in answer["citations"]):
        problems.append(f"citations are not verified: {answer['citations']}")
    if not any("deed-of-variation" in c["path"] for c in answer["citations"]):
        problems.append(f"the deed of variation is not cited: {answer['citations']}")
    if answer["skipped"]:
        problems.append(f"files were skipped: {answer['skipped']}")
    if answer["usage"]["context_tokens"] < 50_000:
        problems.append(f"context too small: {answer['usage']}")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

"""`longctx doctor`: what this machine offers, what is missing, and how to get it."""

from __future__ import annotations

import typer

from longctx.cli import options
from longctx.errors import EXIT_FAILURE, EXIT_OK


def doctor(json: options.JsonOutput = False) -> None:
    """Check device, kernels, memory, disk, models and packages; exit with 1 if one is missing."""
    from longctx.cli.checkup import checkup
    from longctx.cli.render import Output, Styled

    output = Output()
    marks = {"ok": Styled("ok      ", "green"), "note": "note    ", "missing": "missing "}
    findings = []
    for finding in checkup():
        findings.append(finding)
        if not json:
            advice = f"  -> {finding.advice}" if finding.advice else ""
            output.line(marks[finding.status], f"{finding.name:11}{finding.value}{advice}")
    healthy = all(finding.status != "missing" for finding in findings)
    if json:
        from dataclasses import asdict

        output.json({"ok": healthy, "findings": [asdict(f) for f in findings]}, indent=2)
    raise typer.Exit(EXIT_OK if healthy else EXIT_FAILURE)

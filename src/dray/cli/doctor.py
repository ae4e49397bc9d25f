"""Checks everything that a job on a cluster depends on."""

from __future__ import annotations

from collections.abc import Sequence

import click

from dray.cli.output import colored, columns, hanging, launcher, print_json
from dray.cli.parameters import ClusterName, json_option
from dray.cli.terminal import joined, lines, tell
from dray.job.model import Finding

LABEL = 10
INDENT = LABEL + 6


@click.command("doctor")
@click.argument("cluster", required=False, type=ClusterName())
@json_option
def command(cluster: str | None, as_json: bool) -> int:
    """Check everything that a job on CLUSTER (default: where jobs go) depends on."""
    return check(cluster, as_json)


def check(cluster: str | None, as_json: bool) -> int:
    verbs = launcher()
    findings = verbs.doctor(cluster or verbs.config.on)
    if as_json:
        print_json([finding._asdict() for finding in findings])
    else:
        show(findings)
    return 0 if all(finding.ok for finding in findings) else 7


def show(findings: Sequence[Finding]) -> None:
    for finding in findings:
        sign = colored("ok ", "done") if finding.ok else colored("BAD", "failed")
        detail, *further = finding.detail.split("\n")  # what ssh says has several lines
        lead = f"  {finding.what:<{LABEL}} "
        told = hanging(joined(sign, lead), detail, INDENT, len("ok ") + columns(lead))
        for line in further:
            told += hanging(" " * INDENT, line, INDENT)
        if finding.advice:
            told += hanging(" " * INDENT, f"→ {finding.advice}", INDENT + 2, INDENT)
        tell(lines(told))

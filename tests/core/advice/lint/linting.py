"""Lint of texts, as the command does it, without files."""

from __future__ import annotations

from textwrap import dedent

from allot.cli.linting.config_checks import CONFIG_CHECKS
from allot.cli.linting.knowledge import profiles_snapshot
from allot.cli.linting.server_answers import ServerAnswers
from allot.core.advice.lint.finding import Finding, apply_fixes
from allot.core.advice.lint.knowledge import Knowledge
from allot.core.advice.lint.linter import lint
from allot.core.advice.lint.source import subjects
from allot.core.advice.snapshot import Snapshot, read_object
from allot.core.features import ALL_GATES
from allot.reading.sources import read_source

SERVER = ServerAnswers(ALL_GATES)
NOTHING = Knowledge(config_checks=CONFIG_CHECKS)


def hardware(*profiles: str) -> Knowledge:
    """What is known with --profile."""
    return Knowledge(examples=profiles_snapshot(profiles), config_checks=CONFIG_CHECKS)


def cluster(text: str) -> Knowledge:
    """What is known with --against a dump."""
    source = read_source(dedent(text).encode(), "dump.yaml")
    objects = tuple(read_object(subject.value) for subject in subjects(source))
    return Knowledge(cluster=Snapshot(objects), config_checks=CONFIG_CHECKS)


def findings(text: str, knowledge: Knowledge = NOTHING) -> list[Finding]:
    """Everything that is wrong with a text."""
    return list(lint([read_source(dedent(text).encode(), "f.yaml")], knowledge, SERVER))


def told(text: str, knowledge: Knowledge = NOTHING) -> list[tuple[int, str]]:
    """Lines and rules of what is found."""
    return [(finding.line, finding.rule) for finding in findings(text, knowledge)]


def by_rule(text: str, rule: str, knowledge: Knowledge = NOTHING) -> list[Finding]:
    """What one rule finds."""
    return [finding for finding in findings(text, knowledge) if finding.rule == rule]


def the(text: str, rule: str, knowledge: Knowledge = NOTHING) -> Finding:
    """The one thing that a rule finds."""
    found = by_rule(text, rule, knowledge)
    assert len(found) == 1, findings(text, knowledge)
    return found[0]


def fixed(text: str, knowledge: Knowledge = NOTHING) -> str:
    """The text with all safe fixes."""
    text = dedent(text)
    return apply_fixes(text, [finding.fix for finding in findings(text, knowledge) if finding.fix])[0]


def claim(expression: str, *, class_name: str = "gpu.nvidia.com", extra: str = "") -> str:
    """A claim with one request and one selector."""
    return dedent(
        f"""\
        apiVersion: resource.k8s.io/v1
        kind: ResourceClaim
        metadata:
          name: train
        spec:
          devices:
            requests:
            - name: gpu
              exactly:
                deviceClassName: {class_name}
                selectors:
                - cel:
                    expression: |
                      {expression}
        """
    ) + (dedent(extra) if extra else "")

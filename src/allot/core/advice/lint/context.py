"""What every topic receives: the objects, the knowledge, and where to report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import msgspec

from allot.core.advice.lint.claims import PodSpec, pod_specs
from allot.core.advice.lint.finding import Finding, Fix, Severity
from allot.core.advice.lint.knowledge import Knowledge
from allot.core.advice.lint.rules import BY_NAME
from allot.core.advice.lint.source import Subject
from allot.core.advice.places import Path
from allot.core.model.plain import plain_text
from allot.core.schema import Schema
from allot.core.validation.fields import FieldError


class Answer(msgspec.Struct, frozen=True):
    """The API server's answer to a new object."""

    errors: tuple[FieldError, ...] = ()
    warnings: tuple[str, ...] = ()


class Server(Protocol):
    """An API server's answers, as far as they need no cluster."""

    def kinds(self) -> Sequence[tuple[str, str, str]]:
        """Group, version and kind of everything that it serves; for each kind, the preferred version first."""

    def schema(self, group: str, version: str, kind: str) -> Schema | None:
        """The fields of a kind."""

    def ask(self, value: dict[str, Any]) -> Answer:
        """Its answer to a new object of a served kind without unknown fields."""


class Context:
    """One run."""

    def __init__(self, subjects: Sequence[Subject], knowledge: Knowledge, server: Server) -> None:
        self.subjects = tuple(subjects)
        self.knowledge = knowledge
        self.server = server
        self.findings: list[Finding] = []
        # Objects that the server refuses are not checked further.
        self.refused: set[int] = set()

    def report(
        self,
        subject: Subject,
        rule: str,
        path: Path,
        message: str,
        fix: Fix | str | None = None,
        *,
        severity: Severity | None = None,
        line: int | None = None,
    ) -> None:
        """Report a finding, with the rule's severity unless more is known."""
        known = Fix(fix) if isinstance(fix, str) and fix else fix if isinstance(fix, Fix) else None
        self.findings.append(subject.finding(rule, severity or BY_NAME[rule].severity, path, message, known, line=line))

    @property
    def certain(self) -> Severity:
        """The severity of an unknown name: a cluster is complete, hardware profiles are examples."""
        return Severity.ERROR if self.knowledge.is_cluster else Severity.WARNING

    @cached_property
    def namespace_labels(self) -> Mapping[str, Mapping[str, str]]:
        """Labels of the known namespaces, those of the input first."""
        labels = dict(self.knowledge.namespace_labels)
        for subject in self.subjects:
            if (subject.api_version, subject.kind) == ("v1", "Namespace"):
                given = subject.at(("metadata", "labels"))
                labels[subject.name] = given if isinstance(given, dict) else {}
        return labels

    @cached_property
    def pods(self) -> tuple[PodSpec, ...]:
        """The specs of pods in all objects."""
        return tuple(spec for subject in self.subjects for spec in pod_specs(subject))

    @cached_property
    def pods_by_template(self) -> Mapping[tuple[str, str], Sequence[tuple[PodSpec, str]]]:
        """Pods with their names for the claim, by namespace and name of the claim template."""
        found: dict[tuple[str, str], list[tuple[PodSpec, str]]] = {}
        for spec in self.pods:
            for entry, _ in spec.claims:
                template, name = plain_text(entry.get("resourceClaimTemplateName")), plain_text(entry.get("name"))
                if template:
                    found.setdefault((spec.subject.home, template), []).append((spec, name))
        return found

    def priority(self, name: str) -> int | None:
        """The value of a priority class of the input or the cluster; None if unknown."""
        return self._priorities.get(name)

    @cached_property
    def _priorities(self) -> dict[str, int]:
        found = dict(self.knowledge.priorities)
        for subject in self.subjects:
            value = subject.value.get("value")
            if (subject.group, subject.kind) == ("scheduling.k8s.io", "PriorityClass") and type(value) is int:
                found[subject.name] = value
                if subject.value.get("globalDefault") is True:
                    found[""] = value
        return found

    def named(self, kind: str, namespace: str | None = None) -> dict[str, Subject]:
        """Objects of resource.k8s.io in the input, by name."""
        return self._named.get((kind, namespace), {})

    @cached_property
    def _named(self) -> dict[tuple[str, str | None], dict[str, Subject]]:
        found: dict[tuple[str, str | None], dict[str, Subject]] = {}
        for subject in self.subjects:
            if subject.group == "resource.k8s.io":
                for namespace in (None, subject.home):
                    found.setdefault((subject.kind, namespace), {})[subject.name] = subject
        return found

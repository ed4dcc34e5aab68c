"""Converts manifests of every API generation, including common misspellings, to current Kubernetes.

Knows the removed kinds and fields of resource.k8s.io from 1.26 on, vendors' parameter kinds of that time, the CEL of 1.30, the
dialects of pod groups, and the extended resources of device plugins. Works on JSON values: old forms have no types. Every step
is a `Change` with its reason and confidence; what cannot be converted is a `Problem`. A field that restricts what a
workload gets is never dropped without one of the two. Reads no files and prints nothing; `core.validation` checks
the result.
"""

from __future__ import annotations

from allot.core.advice.convert.changes import Change, Confidence, Problem, Severity
from allot.core.advice.convert.converting import Converted, ConvertedDocument, Options, convert

__all__ = [
    "Change",
    "Confidence",
    "Converted",
    "ConvertedDocument",
    "Options",
    "Problem",
    "Severity",
    "convert",
]

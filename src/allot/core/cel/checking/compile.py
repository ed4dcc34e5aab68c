"""From source text to a type-checked expression in one step: parse, check, validate."""

from __future__ import annotations

from allot.core.cel.checking.check import check
from allot.core.cel.checking.environment import Environment
from allot.core.cel.checking.types import Checked
from allot.core.cel.checking.validators import validate
from allot.core.cel.syntax.parser import parse


def compile_expression(source: str, environment: Environment) -> Checked:
    """The checked expression; raises CelCompileError, whose text Kubernetes shows after "compilation failed: "."""
    parsed = parse(source, macros=environment.macros, optional_syntax=environment.optional_syntax)
    checked = check(parsed, environment)
    if environment.literal_validation:
        validate(checked)
    return checked

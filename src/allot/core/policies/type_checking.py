"""What is wrong with the expressions of a ValidatingAdmissionPolicy, given the kinds of objects that it is about.

A policy is accepted before it is known what objects look like, so these are warnings in its status, as upstream: found once for
each generation, for kinds that its rules name without wildcards.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from allot.core.cel.checking.compile import compile_expression
from allot.core.cel.checking.types import DYN, CelType
from allot.core.cel.syntax.errors import CelCompileError
from allot.core.policies.environment import typed_environment, variable_type
from allot.core.policies.object_types import ObjectTypes

Object = Mapping[str, Any]

# Of one rule.
_KINDS_MAX = 10


class ServedKind(msgspec.Struct, frozen=True, order=True):
    """A kind that a server has."""

    group: str
    version: str
    kind: str
    plural: str = ""
    singular: str = ""

    @property
    def group_version(self) -> tuple[str, str]:
        """Where its schema is."""
        return self.group, self.version

    def __str__(self) -> str:
        return f"{self.group}/{self.version}, Kind={self.kind}"


class ExpressionWarning(msgspec.Struct, frozen=True):
    """What is wrong with one expression."""

    field: str
    text: str


def needs_check(policy: Object) -> bool:
    """Whether a policy has changed since it was checked."""
    observed = (policy.get("status") or {}).get("observedGeneration") or 0
    return int(policy["metadata"].get("generation") or 0) > int(observed)


def checked_kinds(policy: Object, served: Sequence[ServedKind]) -> tuple[ServedKind, ...]:
    """The kinds of objects for which a policy's expressions are checked."""
    found: dict[ServedKind, None] = {}
    for rule in _objects(policy["spec"].get("matchConstraints") or {}, "resourceRules"):
        kinds = list(islice(_kinds_of(rule, served), _KINDS_MAX))
        found |= dict.fromkeys(kinds)
        if len(kinds) == _KINDS_MAX:
            # As upstream: the rules after this one are not looked at.
            break
    return tuple(sorted(found))


def _kinds_of(rule: Object, served: Sequence[ServedKind]) -> Iterable[ServedKind]:
    groups, versions = _texts(rule, "apiGroups"), _texts(rule, "apiVersions")
    if any("*" in each for each in (*groups, *versions)):
        return
    resources = [each for each in _texts(rule, "resources") if "*" not in each and "/" not in each]
    for group in sorted(groups):
        for version in sorted(versions):
            for resource in sorted(resources):
                for kind in served:
                    # To upstream's mapper, the core group is any group.
                    is_named = kind.version == version and resource in (kind.plural, kind.singular)
                    if is_named and group in ("", kind.group):
                        yield kind


def param_kind(policy: Object) -> ServedKind | None:
    """The kind of a policy's parameters."""
    told = policy["spec"].get("paramKind")
    if not isinstance(told, Mapping):
        return None
    group, _, version = str(told.get("apiVersion") or "").rpartition("/")
    return ServedKind(group, version, str(told.get("kind") or ""))


def type_warnings(
    policy: Object, kinds: Iterable[ServedKind], types: Mapping[tuple[str, str], ObjectTypes]
) -> list[ExpressionWarning]:
    """The warnings about all expressions; each tells of all kinds for which the expression does not fit.

    types: by group and version. A kind without a schema is left out."""
    spec = policy["spec"]
    scopes = [(kind, scope) for kind in kinds if (scope := _scope_of(policy, kind, types)) is not None]
    found = []
    for position, validation in enumerate(_objects(spec, "validations")):
        for name in ("expression", "messageExpression"):
            source = str(validation.get(name) or "")
            problems = [
                f"{kind}: {problem}\n" for kind, scope in scopes if source and (problem := scope.problem(source))
            ]
            if problems:
                found.append(ExpressionWarning(f"spec.validations[{position}].{name}", "\n".join(problems)))
    return found


def _scope_of(policy: Object, kind: ServedKind, types: Mapping[tuple[str, str], ObjectTypes]) -> _Scope | None:
    object_ = _declared(kind, types, kind.kind)
    if object_ is None:
        return None
    told = param_kind(policy)
    params = None
    if told is not None:
        params = _declared(told, types, f"{told.kind}@params") or DYN
    homes = {kind.group_version, told.group_version if told is not None else kind.group_version}
    scope = _Scope(object_, params, ChainMap(*(types[home] for home in sorted(homes) if home in types)))  # type: ignore[arg-type]
    for variable in _objects(policy["spec"], "variables"):
        scope.add_variable(str(variable.get("name") or ""), str(variable.get("expression") or ""))
    return scope


def _declared(kind: ServedKind, types: Mapping[tuple[str, str], ObjectTypes], name: str) -> CelType | None:
    objects = types.get(kind.group_version)
    return None if objects is None else objects.declare(kind.group, kind.version, kind.kind, name)


class _Scope:
    """What expressions see for one kind of objects."""

    def __init__(self, object_: CelType, params: CelType | None, objects: Mapping[str, Mapping[str, CelType]]) -> None:
        self._object = object_
        self._params = params
        self._objects = objects
        self._variables: dict[str, CelType] = {}

    def add_variable(self, name: str, source: str) -> None:
        """A variable that the following expressions may read; of any type if its own expression does not fit."""
        self._variables[name] = variable_type(self._compiled(source)[1])

    def problem(self, source: str) -> str:
        """What is wrong with an expression; empty if it fits."""
        return self._compiled(source)[0]

    def _compiled(self, source: str) -> tuple[str, CelType]:
        environment = typed_environment(self._variables, self._object, self._params, self._objects)
        try:
            checked = compile_expression(source, environment)
        except CelCompileError as error:
            return str(error), DYN
        return "", checked.types[checked.parsed.root.id]


# --- reading ---


def _objects(value: Object, name: str) -> list[Object]:
    return [each for each in value.get(name) or () if isinstance(each, Mapping)]


def _texts(value: Object, name: str) -> list[str]:
    return [each for each in value.get(name) or () if isinstance(each, str)]

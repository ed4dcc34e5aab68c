"""The public CEL conformance suite: every case that needs no protocol buffers runs on the same engine as selectors."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import msgspec
import pytest

from allot.core.cel.checking import types as cel_types
from allot.core.cel.checking.check import check
from allot.core.cel.checking.environment import Environment, standard_environment
from allot.core.cel.checking.types import CelType, Checked, Kind
from allot.core.cel.data.values import Duration, KeyedMap, Timestamp, TypeValue, Value, map_key, type_name
from allot.core.cel.evaluation.interpret import evaluate
from allot.core.cel.evaluation.plan import PlanError, plan
from allot.core.cel.syntax import ast
from allot.core.cel.syntax.ast import UInt
from allot.core.cel.syntax.errors import CelCompileError
from allot.core.cel.syntax.parser import parse
from vectors import vectors_dir

VECTORS = vectors_dir()
SIMPLE_TYPES = {
    "bool": cel_types.BOOL,
    "int": cel_types.INT,
    "uint": cel_types.UINT,
    "double": cel_types.DOUBLE,
    "string": cel_types.STRING,
    "bytes": cel_types.BYTES,
    "null_type": cel_types.NULL,
    "dyn": cel_types.DYN,
    "any": cel_types.ANY,
    "timestamp": cel_types.TIMESTAMP,
    "duration": cel_types.DURATION,
}
# Messages, enumerations and their fields are outside of what device selectors can meet.
PROTOBUF = re.compile(
    r"TestAllTypes|NestedTestAllTypes|google\.protobuf\.(?!Duration|Timestamp)|GlobalEnum|NestedEnum|cel\.expr|proto\."
)
# Also in the suite, but about messages throughout.
PROTOBUF_FILES = frozenset(("dynamic", "enums", "proto2", "proto2_ext", "proto3", "wrappers"))
# Cases that come out differently on purpose; docs/reference/differences.md has the reasons.
DIFFERENT = frozenset(
    (
        "fields/map_fields/map_bad_key_type_or_true",
        "fields/map_fields/map_bad_key_type_and_false",
        "fields/qualified_identifier_resolution/map_key_float",
        "fields/qualified_identifier_resolution/map_value_repeat_key",
        "fields/qualified_identifier_resolution/map_value_repeat_key_heterogeneous",
        "namespace/namespace/self_eval_container_lookup_unchecked",
        "namespace/namespace_shadowing/comprehension_shadowing_selector_parse_only",
        "network_ext/ipv4/ipv4_equals_ipv6",
        "network_ext/ipv4/ipv4_not_equals_ipv6",
        "optionals/optionals/map_null_entry_no_such_key",
        "optionals/optionals/map_present_key_invalid_field",
        "parse/bytes_literals/triple_single_quoted_unescaped_punctuation",
        "parse/bytes_literals/triple_double_quoted_unescaped_punctuation",
        "string_ext/value_errors/indexof_out_of_range",
        "string_ext/value_errors/lastindexof_out_of_range",
        "type_deduction/legacy_nullable_types/null_assignable_to_abstract_parameter_candidate",
    )
)


def applies(case: dict[str, Any]) -> bool:
    text = json.dumps({key: case.get(key) for key in ("expr", "container", "type_env", "bindings", "expect")})
    uses_messages = PROTOBUF.search(text) or '"message"' in text or '"enum"' in text
    return case["file"] not in PROTOBUF_FILES and not uses_messages


def decoded(value: Any) -> Value:
    ((kind, raw),) = value.items()
    if kind == "uint":
        return UInt(raw)
    if kind == "double":
        return float(raw)
    if kind == "bytes":
        return bytes.fromhex(raw)
    if kind == "list":
        return [decoded(element) for element in raw]
    if kind == "map":
        return KeyedMap((map_key(decoded(key)), decoded(item)) for key, item in raw)
    if kind == "timestamp":
        return Timestamp(raw[0] * 10**9 + raw[1])
    if kind == "duration":
        return Duration(raw[0] * 10**9 + raw[1])
    if kind == "type":
        return TypeValue(raw)
    return raw


def decoded_type(value: Any) -> CelType:
    if isinstance(value, str):
        return SIMPLE_TYPES.get(value) or cel_types.type_param(value)
    kind, *params = value
    if kind == "param":
        return cel_types.type_param(params[0])
    arguments = tuple(decoded_type(param) for param in params)
    if kind == "list":
        return cel_types.list_of(*arguments)
    if kind == "map":
        return cel_types.map_of(*arguments)
    if kind == "type":
        return cel_types.type_of(*arguments)
    return cel_types.opaque(kind, *arguments)


def same(left: Value, right: Value) -> bool:
    """Strict equality: same classes all the way down, NaN equal to itself."""
    if type_name(left) != type_name(right):
        return False
    if isinstance(left, float):
        return math.isnan(left) == math.isnan(right) and (math.isnan(left) or left == right)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return len(left) == len(right) and all(key in right and same(item, right[key]) for key, item in left.items())
    if isinstance(left, Timestamp):
        return left.nanoseconds == right.nanoseconds
    return bool(left == right)


def environment_of(case: dict[str, Any]) -> Environment:
    variables: dict[str, CelType] = {}
    functions = []
    for declared in case.get("type_env", []):
        if "function" in declared:
            overloads = tuple(
                cel_types.Overload(
                    item["id"],
                    tuple(decoded_type(param) for param in item["params"]),
                    decoded_type(item["result"]),
                    item["member"],
                )
                for item in declared["function"]
            )
            functions.append(cel_types.Function(declared["name"], overloads))
        else:
            variables[declared["name"]] = decoded_type(declared["type"])
    for name in case.get("bindings", {}):
        variables.setdefault(name, cel_types.DYN)
    return standard_environment(variables=variables, functions=tuple(functions), container=case.get("container", ""))


def unchecked(parsed: ast.Parsed, environment: Environment) -> Checked:
    """The expression without types: only qualified function names are resolved."""

    def named(node: ast.Expr) -> str | None:
        if isinstance(node, ast.Ident):
            return node.name
        if isinstance(node, ast.Select) and not node.test_only:
            front = named(node.operand)
            return None if front is None else f"{front}.{node.field}"
        return None

    def loosened(node: Any) -> Any:
        if isinstance(node, ast.Call) and node.target is not None:
            front = named(node.target)
            if front is not None and f"{front}.{node.function}" in environment.functions:
                node = ast.Call(id=node.id, function=f"{front}.{node.function}", args=node.args)
        if isinstance(node, ast.Select) and named(node) in environment.variables:
            return ast.Ident(id=node.id, name=str(named(node)))
        if isinstance(node, msgspec.Struct):
            return type(node)(**{name: loosened(getattr(node, name)) for name in node.__struct_fields__})
        return tuple(map(loosened, node)) if isinstance(node, tuple) else node

    root = loosened(parsed.root)
    return Checked(parsed=msgspec.structs.replace(parsed, root=root), types={}, references={})


def outcome(case: dict[str, Any]) -> tuple[str, Any]:
    """("value", value), ("error", text) or ("type", text)."""
    environment = environment_of(case)
    try:
        parsed = parse(case["expr"], macros=environment.macros, optional_syntax=True)
        if case.get("disable_check"):
            checked = unchecked(parsed, environment)
        else:
            checked = check(parsed, environment)
        if case.get("check_only"):
            return "type", checked.types[checked.parsed.root.id]
        program = plan(checked, environment)
    except (CelCompileError, PlanError) as error:
        return "error", str(error)
    bindings = {name: decoded(value) for name, value in case.get("bindings", {}).items()}
    # Without checking, names of types are looked up like variables.
    types = {name: TypeValue(name) for name in environment.types}
    result = evaluate(program, {**types, **bindings}, limit=10**9)
    return ("value", result.value) if result.error is None else ("error", result.error)


def named(case: dict[str, Any]) -> str:
    return f"{case['file']}/{case['section']}/{case['name']}"


def passes(case: dict[str, Any]) -> tuple[bool, str]:
    kind, result = outcome(case)
    expected = case["expect"]
    shown = f"{named(case)}: {case['expr']!r} gave {kind} {result!r}, expected {expected}"
    if "error" in expected:
        return kind == "error", shown
    if kind == "type":
        return spelled(result) == expected["type"], shown
    return kind == "value" and same(result, decoded(expected["value"])), shown


def spelled(found: CelType) -> Any:
    """A type in the notation of the vectors."""
    by_type = {value: key for key, value in SIMPLE_TYPES.items()}
    if found in by_type:
        return by_type[found]
    if found.kind is Kind.OPAQUE:
        return [found.name, *map(spelled, found.params)]
    return [found.kind.value, *map(spelled, found.params)]


@pytest.mark.slow
@pytest.mark.skipif(VECTORS is None, reason="the test vectors are not next to this repository")
def test_the_conformance_suite_passes() -> None:
    assert VECTORS is not None
    cases = [case for case in json.loads((VECTORS / "cel" / "celspec.json").read_text())["cases"] if applies(case)]
    failures = {named(case): shown for case in cases for ok, shown in (passes(case),) if not ok}
    assert len(cases) > 1400
    assert set(failures) == DIFFERENT, "\n".join(shown for name, shown in failures.items() if name not in DIFFERENT)

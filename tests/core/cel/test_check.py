"""Types, references and the messages of the checker."""

from __future__ import annotations

import json
from typing import Any

import pytest

from allot.core.cel.checking.check import check
from allot.core.cel.checking.compile import compile_expression
from allot.core.cel.checking.environment import Environment, device_environment, standard_environment
from allot.core.cel.checking.inference import describe, full_name
from allot.core.cel.checking.types import (
    BOOL,
    DYN,
    INT,
    STRING,
    CelType,
    Checked,
    Function,
    Kind,
    Overload,
    list_of,
    map_of,
)
from allot.core.cel.syntax.ast import Call, Ident
from allot.core.cel.syntax.errors import CelCompileError
from allot.core.cel.syntax.parser import parse
from vectors import vectors_dir

VECTORS = vectors_dir()
needs_vectors = pytest.mark.skipif(VECTORS is None, reason="no vectors: set ALLOT_VECTORS to their folder")
DEVICE = device_environment(list_type_attributes=True, consumable_capacity=True, stored=False)
PLAIN = standard_environment(
    variables={
        "x": INT,
        "d": DYN,
        "m": map_of(STRING, INT),
        "a.b": STRING,
        "p.q.r": BOOL,
        "obj": CelType(Kind.OBJECT, "Box"),
    },
    objects={"Box": {"width": INT, "label": STRING}},
)


def type_text(source: str, environment: Environment = PLAIN) -> str:
    checked = check(parse(source, macros=environment.macros), environment)
    return describe(checked.types[checked.parsed.root.id])


def complaints(source: str, environment: Environment = PLAIN) -> list[str]:
    with pytest.raises(CelCompileError) as caught:
        check(parse(source, macros=environment.macros), environment)
    return [f"{issue.column}: {issue.message}" for issue in caught.value.issues]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("1 + x", "int"),
        ("[1, 2]", "list(int)"),
        ("[]", "list(dyn)"),
        ("[[], [1]]", "list(list(int))"),
        ("{'a': [1.0]}", "map(string, list(double))"),
        ("[1, 'a']", "list(dyn)"),
        ("d.foo[0]", "dyn"),
        ("m.key", "int"),
        ("m[?'key']", "optional_type(int)"),
        ("m.?key", "optional_type(int)"),
        ("m.?key.orValue(1)", "int"),
        ("optional.none()", "optional_type(dyn)"),
        ("[1].map(e, e * 2 == d)", "list(bool)"),
        ("m.transformList(k, v, k + string(v))", "list(string)"),
        ("[1].transformMap(i, v, 'a')", "map(int, string)"),
        ("cel.bind(y, [1], y + [x])", "list(int)"),
        ("type(1)", "type(int)"),
        ("int", "type(int)"),
        ("true ? 1 : d", "dyn"),
        ("true ? d : 1", "dyn"),
        ("a.b", "string"),
        ("obj.width", "int"),
        ("Box{width: 1}", "Box"),
        ("duration('1s')", "duration"),
        ("null", "null"),
        ("obj == null", "bool"),
        ("1 < 2.0", "bool"),
        ("has(m.a)", "bool"),
        ("math.greatest(1, 2.0)", "dyn"),
        ("[3, 1].sortBy(e, -e)", "list(int)"),
        ("lists.range(3).flatten(1)", "list(dyn)"),
    ],
)
def test_types_are_inferred(source: str, expected: str) -> None:
    assert type_text(source) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("y", ["1: undeclared reference to 'y' (in container '')"]),
        ("f(1)", ["2: undeclared reference to 'f' (in container '')"]),
        ("x.f()", ["4: undeclared reference to 'f' (in container '')"]),
        ("1 + 'a'", ["3: found no matching overload for '_+_' applied to '(int, string)'"]),
        ("'a'.size(1)", ["9: found no matching overload for 'size' applied to 'string.(int)'"]),
        ("obj.depth", ["4: undefined field 'depth'"]),
        ("x.y", ["2: type 'int' does not support field selection"]),
        ("true && 1", ["9: expected type 'bool' but found 'int'"]),
        (
            "1.exists(e, true)",
            ["1: expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)"],
        ),
        ("[?1]", ["3: expected type 'optional_type(int)' but found 'int'"]),
        ("Box{width: 'a'}", ["10: expected type of field 'width' is 'int' but provided type is 'string'"]),
        ("Nope{}", ["5: undeclared reference to 'Nope' (in container '')"]),
        (
            "y || z",
            ["1: undeclared reference to 'y' (in container '')", "6: undeclared reference to 'z' (in container '')"],
        ),
        ("[1].all(e, e)", ["12: expected type 'bool' but found 'int'"]),
        ("[1].all(e, true) && e", ["21: undeclared reference to 'e' (in container '')"]),
        ("1 == 'a'", ["3: found no matching overload for '_==_' applied to '(int, string)'"]),
    ],
)
def test_all_errors_are_named_in_upstreams_words(source: str, expected: list[str]) -> None:
    assert complaints(source) == expected


def test_names_resolve_in_the_container_first() -> None:
    environment = standard_environment(variables={"com.example.y": BOOL, "y": STRING}, container="com.example")
    assert type_text("y", environment) == "bool"
    assert type_text(".y", environment) == "string"
    assert type_text("[1].exists(y, y == 1)", environment) == "bool"


def test_qualified_names_become_one_node() -> None:
    checked = check(parse("p.q.r && optional.of(a.b).hasValue()"), PLAIN)
    root = checked.parsed.root
    assert isinstance(root, Call)
    variable, call = root.args
    assert isinstance(variable, Ident)
    assert variable.name == "p.q.r"
    assert checked.references[variable.id].name == "p.q.r"
    assert isinstance(call, Call)
    assert isinstance(call.target, Call)
    assert (call.target.function, call.target.target) == ("optional.of", None)
    assert call.target.args == (Ident(id=call.target.args[0].id, name="a.b"),)


def test_a_local_variable_hides_a_qualified_name() -> None:
    assert type_text("[{'q': {'r': 1}}].map(p, p.q.r)") == "list(int)"


def test_calls_with_unknown_types_keep_every_overload_that_may_fit() -> None:
    checked = check(parse("d + d"), PLAIN)
    assert len(checked.references[checked.parsed.root.id].overload_ids) == 9
    checked = check(parse("x + x"), PLAIN)
    assert checked.references[checked.parsed.root.id].overload_ids == ("add_int64",)


def test_type_parameters_of_declared_functions_are_independent() -> None:
    pair = Function(
        "pair", (Overload("pair_a", (list_of(CelType(Kind.TYPE_PARAM, "A")),), CelType(Kind.TYPE_PARAM, "A")),)
    )
    environment = standard_environment(functions=(pair,))
    assert type_text("pair([1]) + 1 == 2 && pair(['a']) == 'a'", environment) == "bool"


@pytest.mark.parametrize(
    "source",
    [
        "[1]" + ".map(x, [x])" * 200,
        "".join(f"cel.bind(a{i}, {{a{i - 1}: a{i - 1}}}, " for i in range(1, 120)).replace("a0", "1") + "1" + ")" * 119,
        "[" * 100 + "]" * 100,
    ],
)
def test_types_that_grow_without_bound_are_refused(source: str) -> None:
    assert complaints(source) == ["1: types nest too deeply or have too many parts to be checked"]


def test_deep_expressions_do_not_exhaust_the_interpreter() -> None:
    assert type_text("[1].all(a, " * 200 + "true" + ")" * 200) == "bool"
    assert type_text("d" + ".a" * 240) == "dyn"


def compiled(source: str, environment: Environment) -> tuple[Checked | None, str]:
    try:
        return compile_expression(source, environment), ""
    except CelCompileError as error:
        return None, f"compilation failed: {error}"


@needs_vectors
def test_quirks_have_upstreams_compile_errors() -> None:
    assert VECTORS is not None
    for probe in json.loads((VECTORS / "cel" / "quirks.json").read_text()):
        case, upstream = probe["case"], probe["upstream"]
        environment = device_environment(
            list_type_attributes=case["listtype"], consumable_capacity=case["consumable"], stored=not case["new"]
        )
        assert compiled(case["expression"], environment)[1] == upstream.get("compile_error", ""), case["expression"]


@pytest.mark.slow
@needs_vectors
def test_random_selectors_have_upstreams_types_and_compile_errors() -> None:
    assert VECTORS is not None
    for case in json.loads((VECTORS / "cel" / "fuzz.json").read_text())["cases"]:
        expected = case.get("compile_error", "")
        checked, error = compiled(case["expression"], DEVICE)
        if expected.startswith("program instantiation failed"):
            # Constants are folded later, when the expression becomes a program.
            expected = ""
        assert error == expected, case["expression"]
        if checked is not None and "output_type" in case:
            assert full_name(checked.types[checked.parsed.root.id]) == case["output_type"], case["expression"]


def selector_environments(case: dict[str, Any]) -> list[Environment]:
    gates = (
        [case["features"]]
        if case["features"]
        else [
            {"EnableListTypeAttributes": lists, "EnableConsumableCapacity": multiple}
            for lists in (False, True)
            for multiple in (False, True)
        ]
    )
    stored = {None: (False, True), "NewExpressions": (False,), "StoredExpressions": (True,)}[case["env_type"]]
    return [
        device_environment(
            list_type_attributes=gate["EnableListTypeAttributes"],
            consumable_capacity=gate["EnableConsumableCapacity"],
            stored=is_stored,
        )
        for gate in gates
        for is_stored in stored
    ]


@needs_vectors
def test_selectors_compile_in_the_environments_in_which_they_do_upstream() -> None:
    assert VECTORS is not None
    for case in json.loads((VECTORS / "cel" / "table.json").read_text())["selector_cases"]:
        expected = case["expect_compile_error"] or ""
        if expected.startswith("must evaluate to"):
            expected = ""
        for environment in selector_environments(case):
            _, error = compiled(case["expression"], environment)
            assert (expected in error) and bool(error) == bool(expected), case["name"]

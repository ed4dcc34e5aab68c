"""What device selectors may refer to, depending on feature gates."""

import pytest

from allot.core.cel.checking.compile import compile_expression
from allot.core.cel.checking.environment import Environment, device_environment, standard_environment
from allot.core.cel.checking.signatures import merged, overload
from allot.core.cel.checking.types import INT, STRING, Function, list_of, optional_of, type_param
from allot.core.cel.syntax.errors import CelCompileError


def device(lists: bool = False, multiple: bool = False, stored: bool = False) -> Environment:
    return device_environment(list_type_attributes=lists, consumable_capacity=multiple, stored=stored)


GATED = {
    "device.allowMultipleAllocations": device(multiple=True),
    "device.attributes['a'].b.exists(x, x == 1)": device(lists=True),
    "device.attributes['a'].b.includes(1)": device(lists=True),
}


@pytest.mark.parametrize("source", GATED)
def test_gated_features_are_missing_from_new_expressions_but_not_from_stored_ones(source: str) -> None:
    with pytest.raises(CelCompileError):
        compile_expression(source, device())
    compile_expression(source, GATED[source])
    compile_expression(source, device(stored=True))


@pytest.mark.parametrize("environment", [device(), device(True, True), device(stored=True)])
@pytest.mark.parametrize(
    "source",
    [
        "device.driver == 'a'",
        "device.capacity['a'].b.compareTo(quantity('1Gi')) >= 0",
        "device.attributes['a'].v.isGreaterThan(semver('1.2.3'))",
        "cel.bind(dra, device.attributes['a'], dra.b && dra.c)",
        "device.attributes['a'].?b.orValue('x') == 'x'",
        "ip('1.2.3.4').family() == 4 && cidr('10.0.0.0/8').containsIP(ip('10.1.1.1'))",
        "format.dns1123Label().validate('a').hasValue()",
        "[1, 2].sum() == 3 && [2, 1].sort() == [1, 2] && sets.contains([1], [1])",
        "url('https://a').getHost() == 'a'",
        "'abc'.find('b') == 'b' && ['a'].join(',') == 'a'",
        "{'a': 1}.all(k, v, v > 0)",
    ],
)
def test_libraries_are_there(environment: Environment, source: str) -> None:
    compile_expression(source, environment)


@pytest.mark.parametrize(
    "source", ["math.abs(1) == 1", "base64.encode(b'a') == ''", "'a'.reverse() == 'a'", "[1].existsOne(x, x == 1)"]
)
def test_libraries_that_kubernetes_leaves_out_are_not_there(source: str) -> None:
    with pytest.raises(CelCompileError):
        compile_expression(source, device(stored=True))


def test_every_overload_id_is_declared_once_per_function() -> None:
    for environment in (device(), device(stored=True), standard_environment()):
        for function in environment.functions.values():
            ids = [declared.id for declared in function.overloads]
            assert len(ids) == len(set(ids)), function.name


def test_signatures_are_read() -> None:
    member = overload("f", "list(A).(int, optional(A)) -> A")
    assert member.member
    assert member.params == (list_of(type_param("A")), INT, optional_of(type_param("A")))
    assert member.result == type_param("A")
    nothing = overload("g", "-> string")
    assert (nothing.params, nothing.result, nothing.generic) == ((), STRING, False)


def test_merging_appends_overloads_and_drops_repetitions() -> None:
    first = Function("f", (overload("f_int", "int -> int"),))
    second = Function("f", (overload("f_int", "int -> int"), overload("f_string", "string -> int")))
    assert [declared.id for declared in merged((first,), (second,))["f"].overloads] == ["f_int", "f_string"]

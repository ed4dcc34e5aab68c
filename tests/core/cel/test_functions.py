"""Functions by example: results and messages, through whole expressions in Kubernetes' environment."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.cel.checking.compile import compile_expression
from allot.core.cel.checking.declarations import AUTHORIZER, AUTHORIZER_SELECTORS
from allot.core.cel.checking.environment import device_environment, standard_environment
from allot.core.cel.data.text import go_text
from allot.core.cel.evaluation.interpret import evaluate
from allot.core.cel.evaluation.plan import PlanError, plan
from allot.core.cel.library.table import OVERLOADS, SINGLETONS

KUBERNETES = device_environment(list_type_attributes=True, consumable_capacity=True, stored=True)
# Evaluated by the interpreter itself, not by a function.
SPECIAL = frozenset(
    (
        *("_&&_", "_||_", "_?_:_", "_==_", "_!=_", "_[_]", "_[?_]", "_?._", "or", "orValue"),
        *("@not_strictly_false", "cel.@block", "cel.block", "cel.index"),
    )
)


def result(expression: str) -> str:
    """The result as Go prints it, or the error after a mark."""
    checked = compile_expression(expression, KUBERNETES)
    try:
        outcome = evaluate(plan(checked, KUBERNETES), {})
    except PlanError as error:
        return f"! {error}"
    return go_text(outcome.value) if outcome.error is None else f"! {outcome.error}"


@pytest.mark.parametrize("environment", [KUBERNETES, standard_environment()])
def test_every_declared_function_is_implemented(environment: Any) -> None:
    without = {function.name for library in (AUTHORIZER, AUTHORIZER_SELECTORS) for function in library}
    missing = [
        overload.id
        for function in environment.functions.values()
        if function.name not in SINGLETONS and function.name not in SPECIAL and function.name not in without
        for overload in function.overloads
        if overload.id not in OVERLOADS
    ]
    assert missing == []


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        # numbers
        ("9223372036854775807 + 1", "! integer overflow"),
        ("-(-9223372036854775807 - 1)", "! integer overflow"),
        ("0u - 1u", "! unsigned integer overflow"),
        ("-7 / 2", "-3"),
        ("-7 % 2", "-1"),
        ("1 / 0", "! division by zero"),
        ("1u % 0u", "! modulus by zero"),
        ("1.0 / 0.0", "+Inf"),
        # conversions
        ('int("12")', "12"),
        ('int("1_2")', "! type conversion error from 'string' to 'int'"),
        ("int(9.9)", "9"),
        ("int(1e19)", "! integer overflow"),
        ('uint("-1")', "! type conversion error from 'string' to 'uint'"),
        ('double("1e400")', "! type conversion error from 'string' to 'double'"),
        ('double("0x1p-2")', "0.25"),
        ('bool("t")', "true"),
        ("string(1e6)", "1e+06"),
        ("string(b'\\xff')", "! invalid UTF-8 in bytes, cannot convert to string"),
        ('string(duration("90m"))', "5400s"),
        ('string(timestamp("2009-02-13T23:31:30+01:00"))', "2009-02-13T23:31:30+01:00"),
        ("timestamp(0 + 253402300800)", "! timestamp overflow"),
        ("type(1u)", "uint"),
        # strings
        ('"tacocat".indexOf("a", 2)', "5"),
        ('"tacocat".lastIndexOf("a", 4)', "1"),
        ('"hello".substring(1, 3)', "el"),
        ('"hello".substring(9)', "! index out of range: 9"),
        ('"hello".charAt(5)', ""),
        ('"a,b,c".split(",", 2)', "[a, b,c]"),
        ('"abc".split("")', "[a, b, c]"),
        ('"\u00c9A".lowerAscii()', "\u00c9a"),
        ('" a ".trim()', "a"),
        ('["a", "b"].join("-")', "a-b"),
        ('strings.quote("a\\"b")', '"a\\"b"'),
        ('"aaa".replace("a", "b", 2)', "bba"),
        (
            '"%s is %d, %.2f, %x, %s".format([dyn("a"), dyn(2), dyn(1234.5), dyn(255), dyn([dyn(1), dyn("b")])])',
            'a is 2, 1,234.50, ff, [1, "b"]',
        ),
        (
            '"%d".format([dyn("a")])',
            "! error during formatting: decimal clause can only be used on integers, was given string",
        ),
        ('"a1b22".find("[0-9]+")', "1"),
        ('"a1b22".findAll("[0-9]+")', "[1, 22]"),
        ('"a".find("[")', "! error parsing regexp: missing closing ]: `[`"),
        # lists and sets
        ("[3, 1, 2].sort()", "[1, 2, 3]"),
        ("[1, 2, 1].distinct()", "[1, 2]"),
        ("[[[1]], [[2, 3]]].flatten()", "[[1], [2, 3]]"),
        ("[1, 2, 3].slice(1, 5)", "! cannot slice(1, 5), list is length 3"),
        ("[1, 2].sum()", "3"),
        ("[2, 1].min()", "1"),
        ("[].max()", "! max called on empty list"),
        ("[1, 2, 2].lastIndexOf(2)", "2"),
        ("[2, 1].isSorted()", "false"),
        ("[1, 2].includes(2)", "true"),
        ("sets.equivalent([1, 2], [2, 1, 1])", "true"),
        ("sets.intersects([1], [2])", "false"),
        ("lists.range(3)", "[0, 1, 2]"),
        ('{"a": 1, "b": 2}.transformMap(k, v, v + 1)', "{a: 2, b: 3}"),
        ("[1, 2].transformList(i, v, i + v)", "[1, 3]"),
        # optional values
        ("optional.none().value()", "! optional.none() dereference"),
        ("optional.ofNonZeroValue(0).hasValue()", "false"),
        ("[1][?3].or(optional.of(4)).value()", "4"),
        ("[1, 2].last().value()", "2"),
        ("[?optional.none(), ?optional.of(1)]", "[1]"),
        # quantities and versions
        ('quantity("1.5Ki").asInteger()', "! cannot convert value to integer"),
        ('quantity("1.5").asApproximateFloat()', "1.5"),
        ('quantity("1Gi").sub(quantity("1Mi")).compareTo(quantity("1023Mi"))', "0"),
        ('quantity("1").add(2).isGreaterThan(quantity("2"))', "true"),
        ('semver("1.2.3-rc.1").isLessThan(semver("1.2.3"))', "true"),
        ('semver("v1.2", true).minor()', "2"),
        # networks
        ('ip("::ffff:1.2.3.4").family()', '! IPv4-mapped IPv6 address "::ffff:1.2.3.4" is not allowed'),
        ('string(ip("2001:0DB8::0:1"))', "2001:db8::1"),
        ('ip.isCanonical("127.0.0.1")', "true"),
        ('ip("169.254.1.1").isLinkLocalUnicast()', "true"),
        ('cidr("10.0.0.0/8").containsCIDR("10.1.0.0/16")', "true"),
        ('string(cidr("10.1.2.3/8").masked())', "10.0.0.0/8"),
        ('isCIDR("10.0.0.0/33")', "false"),
        ('url("https://user@[::1]:80/a b?x=1&x=2").getEscapedPath()', "/a%20b"),
        ('url("https://example.com:80/?k=a+b&k=c").getQuery()', "{k: [a b, c]}"),
        ('url("https://[::1]:80/").getHostname()', "::1"),
        ('isURL("../x")', "false"),
        # formats
        ('format.dns1123Label().validate("a.b").value()', "[must not contain dots]"),
        ('format.named("uuid").value().validate("123e4567-e89b-12d3-a456-426614174000").hasValue()', "false"),
        ('format.named("nope").hasValue()', "false"),
        ('format.datetime().validate("2021-01-01T00:00:00Z").hasValue()', "false"),
        # time
        ('timestamp("2009-02-13T23:31:30Z").getHours("+05:30")', "5"),
        ('timestamp("2009-02-13T23:31:30Z").getDayOfWeek("America/New_York")', "5"),
        ('timestamp("2009-02-13T23:31:30.123Z").getMilliseconds()', "123"),
        ('duration("-90s").getMinutes()', "-1"),
        ('timestamp("2009-02-13T23:31:30Z") - timestamp("2009-02-13T23:31:00Z") == duration("30s")', "true"),
    ],
)
def test_functions_give_upstreams_results_and_messages(expression: str, expected: str) -> None:
    assert result(expression) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("size(dyn(1))", "! no such overload: size"),
        ('dyn("a") / 2', "! no such overload"),
        ("dyn([1]) < 2", "! no such overload: _<_"),
        ('dyn(1).startsWith("a")', "! no such overload"),
        ('dyn(1).matches("a")', "! no such overload"),
        ("dyn(1).substring(1)", "! no such overload: substring(int, int)"),
        ("string(dyn([1]))", "! no such overload: string(list)"),
        ('dyn([dyn(1), dyn("a")]).join()', "! no such overload: join(list)"),
        ('[dyn("a"), dyn(1)].join()', "! join: invalid input: 1"),
        ('dyn("a").isLessThan(semver("1.0.0"))', "! no such overload: isLessThan(string, kubernetes.Semver)"),
        ('[1][dyn("a")]', "! unsupported index type 'string' in list"),
        ("[1][dyn([1])]", "! invalid qualifier type: *types.baseList"),
        ("dyn(1).all(x, true)", "! got 'types.Int', expected iterable type"),
        ('{"a": 1}[dyn(2)]', "! no such key: 2"),
        ("dyn(1).x", "! no such key: x"),
    ],
)
def test_arguments_of_the_wrong_type_are_refused_in_upstreams_words(expression: str, expected: str) -> None:
    assert result(expression) == expected

"""Literals that Kubernetes refuses although their types are right."""

import pytest

from allot.core.cel.checking.compile import compile_expression
from allot.core.cel.checking.environment import device_environment, standard_environment
from allot.core.cel.syntax.errors import CelCompileError

DEVICE = device_environment(list_type_attributes=True, consumable_capacity=True, stored=False)
ATTRIBUTE = "device.attributes['a'].b"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("'a'.matches('[')", "13: invalid matches argument"),
        ("matches('[', 'a')", "9: invalid matches argument"),
        ("duration('x') == duration('1s')", "10: invalid duration argument"),
        ("timestamp('x') > timestamp(0)", "11: invalid timestamp argument"),
        (f"['a', {ATTRIBUTE}].size() == 2", "29: expected type 'string' but found 'dyn'"),
        (f"{{'a': 1, 'b': {ATTRIBUTE}}}.size() == 2", "37: expected type 'int' but found 'dyn'"),
        ("[1, 'a'].size() == 2", "5: expected type 'int' but found 'string'"),
        (
            "'%d'.format(['a']) == ''",
            "14: error during formatting: decimal clause can only be used on integers, was given string",
        ),
        ("'%z'.format([1]) == ''", '12: could not parse formatting clause: unrecognized formatting clause "z"'),
        ("'%s %s'.format([1]) == ''", "15: index 1 out of range"),
        ("'%s'.format([1, 2]) == ''", "12: too many arguments supplied to string.format (expected 1, got 2)"),
        ("'%'.format([1]) == ''", "11: unexpected end of string"),
        (
            "'%.'.format([1.0]) == ''",
            "12: could not parse formatting clause: error while parsing precision: could not find end of precision specifier",
        ),
        (
            "'%x'.format([1.0]) == ''",
            "14: error during formatting: only integers, byte buffers, and strings can be formatted as hex, was given double",
        ),
    ],
)
def test_literals_are_validated(source: str, expected: str) -> None:
    with pytest.raises(CelCompileError) as caught:
        compile_expression(source, DEVICE)
    (issue,) = caught.value.issues
    assert f"{issue.column}: {issue.message}" == expected


@pytest.mark.parametrize(
    "source",
    [
        "'a'.matches('[a-z]+')",
        "duration('1h') < duration('90m')",
        "'%s %%'.format(['a']) == ''",
        "'%.3f'.format([1.0]) == ''",
        f"'%d'.format([{ATTRIBUTE}]) == ''",
        f"[{ATTRIBUTE}, {ATTRIBUTE}].size() == 2",
        "[?optional.of(1), 2].size() == 2",
    ],
)
def test_sensible_literals_are_accepted(source: str) -> None:
    compile_expression(source, DEVICE)


def test_plain_cel_is_not_validated() -> None:
    compile_expression("'a'.matches('[') && [1, 'a'].size() == 2", standard_environment())

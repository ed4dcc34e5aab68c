"""Random expressions over a device, for tests that hold the engine's parts against each other.

A grammar as data: each kind of expression has productions, in which `{kind}` is replaced by an expression of that kind
(`{{` and `}}` stand for braces).
Most of what it makes compiles; much of it fails when evaluated, which is wanted.
"""

from __future__ import annotations

import re

from hypothesis import strategies as st

# Productions that need no further expression come first in each list: `_LEAVES` of them, used when the depth runs out.
_GRAMMAR: dict[str, tuple[int, list[str]]] = {
    "bool": (
        5,
        [
            "true",
            "false",
            "{attribute} == {attribute}",
            "has({attributes}.{id})",
            "device.allowMultipleAllocations",
            "{attribute}",
            "!{bool}",
            "{bool} && {bool}",
            "{bool} || {bool}",
            "({bool} ? {bool} : {bool})",
            "{int} {order} {int}",
            "{string} {order} {string}",
            "{attribute} {order} {attribute}",
            "dyn({any}) == {any}",
            "{any} != dyn({any})",
            "{any} == {any}",
            "{string} in {strings}",
            "dyn({any}) in [{string}, {string}]",
            "{int} in {ints}",
            "{attribute} in {attribute}",
            "{string} in {attributes}",
            "{strings}.all(x, {bool} && x != {string})",
            "{strings}.exists(x, x == {string} || {bool})",
            "{ints}.exists_one(x, x > {int})",
            "{attributes}.exists(k, v, k == {string} || v == {any})",
            "{attributes}.all(k, {attributes}[k] != {any})",
            "{attribute}.exists(x, x == {any})",
            "cel.bind(y, {attribute}, y == {any} || y != {any})",
            "cel.bind(y, {bool}, y && {bool})",
            "{string}.startsWith({string})",
            "{attribute}.startsWith({string})",
            "{string}.endsWith({attribute})",
            "{attribute}.contains({string})",
            "{attribute} {order} {int}",
            "{string} {order} {attribute}",
            "{attribute} + {int} == {int}",
            "{attribute} && {attribute}",
            "{attribute} || {bool}",
            "!{attribute}",
            "({attribute} ? {bool} : {bool})",
            "{attribute}.all(x, {bool})",
            "{attribute}.isGreaterThan({quantity})",
            "{quantity} == {quantity}",
            "{quantity}.isLessThan({quantity})",
            "{quantity}.compareTo({quantity}) {order} {int}",
            "{semver}.compareTo({semver}) {order} {int}",
            "{attribute}.compareTo({semver}) {order} 0",
            "{attribute}.size() {order} {int}",
            "size({attribute}) {order} {int}",
            "{map} == {map}",
            "{string} in {map}",
            "{map}.all(k, v, {bool})",
            "{attributes} == {attributes}",
            "device == device",
            "{attributes}.{id}.exists_one(x, {bool})",
            "{attribute}.map(x, x) == {attribute}",
            "{string}.endsWith({string})",
            "{string}.contains({string})",
            '{string}.matches("^[a-f]+$")',
            "{attribute}.matches({string})",
            "{quantity}.isGreaterThan({quantity})",
            "{attribute}.isLessThan({semver})",
            "{semver}.isGreaterThan({attribute})",
            "isQuantity({string})",
            "isSemver({string})",
            "sets.contains({strings}, {strings})",
            "sets.intersects({ints}, {ints})",
            "sets.equivalent({ints}, {ints})",
            "{attribute}.includes({any})",
            "{optional}.hasValue()",
            "{optional}.orValue(dyn({any})) == {any}",
            "isIP({string})",
            'cidr("10.0.0.0/8").containsIP({string})',
            '{string}.find("[a-z]+") == {string}',
            "{ints}.isSorted()",
            "type({any}) == string",
        ],
    ),
    "any": (3, ["{attribute}", "{int}", "{string}", "{bool}", "{quantity}", "{semver}", "{strings}", "{double}"]),
    "attribute": (
        4,
        [
            "{attributes}.{id}",
            "{attributes}.{id}",
            '{attributes}["{id}"]',
            "{attributes}[{string}]",
            "{attributes}.{id}[{int}]",
            "({bool} ? {attribute} : {attribute})",
        ],
    ),
    "attributes": (
        3,
        [
            'device.attributes["dra.example.com"]',
            'device.attributes["o.example.com"]',
            "device.attributes[device.driver]",
            "device.attributes[{string}]",
            "({bool} ? {attributes} : {attributes})",
        ],
    ),
    "int": (
        3,
        [
            "0",
            "5",
            "-3",
            "9223372036854775807",
            "{int} + {int}",
            "{int} - {int}",
            "{int} * {int}",
            "{int} / {int}",
            "{int} % {int}",
            "-{int}",
            "size({strings})",
            "{string}.size()",
            "int({attribute})",
            "int({string})",
            "{ints}[{int}]",
            "{ints}.sum()",
            "{ints}.max()",
            "{string}.indexOf({string})",
            "{quantity}.compareTo({quantity})",
            "{quantity}.asInteger()",
            "{semver}.major()",
            "({bool} ? {int} : {int})",
        ],
    ),
    "double": (2, ["1.5", "-0.0", "double({int})", "{double} / {double}", "{quantity}.asApproximateFloat()"]),
    "string": (
        4,
        [
            "'a'",
            "'fish'",
            "''",
            "'1.2.3'",
            "device.driver",
            "'é\\u0000\\'\"'",
            "string({any})",
            "{string} + {string}",
            "{string}.lowerAscii()",
            "{string}.upperAscii()",
            "{string}.trim()",
            "{string}.replace({string}, {string})",
            "{string}.substring({int})",
            "{string}.charAt({int})",
            "{strings}.join({string})",
            "{strings}[{int}]",
            "'%s %s'.format([{any}, {int}])",
            "({bool} ? {string} : {string})",
        ],
    ),
    "strings": (
        3,
        [
            "[]",
            "['a', 'b']",
            "['fish']",
            "[{string}, {string}]",
            "{string}.split({string})",
            "{strings}.map(x, x + {string})",
            "{strings}.filter(x, {bool} || x == {string})",
            "{strings} + {strings}",
            "{strings}.sort()",
            "{strings}.distinct()",
            "{strings}.reverse()",
            "{strings}.slice({int}, {int})",
            "{attributes}.map(k, k)",
            "{strings}.transformList(i, v, v)",
            "({bool} ? {strings} : {strings})",
        ],
    ),
    "ints": (2, ["[1, 2, 3]", "[]", "[{int}, {int}]", "{ints}.map(x, x * {int})", "lists.range(3)", "{ints} + {ints}"]),
    "quantity": (
        3,
        [
            'quantity("1Gi")',
            'quantity("1.5Ki")',
            'device.capacity["dra.example.com"].mem',
            'device.capacity["dra.example.com"].{id}',
            "quantity({string})",
            "{quantity}.add({quantity})",
            "{quantity}.sub({int})",
        ],
    ),
    "semver": (2, ['semver("1.2.3")', 'semver("2.0.0-rc1")', "semver({string})", 'semver("v1.2", true)']),
    "optional": (
        2,
        [
            "{attributes}.?{id}",
            '{attributes}[?"{id}"]',
            "optional.of({any})",
            "optional.none()",
            "{attributes}.?{id}.optMap(z, z == {any})",
            "{optional}.or({optional})",
            'device.attributes[?"dra.example.com"].?{id}',
        ],
    ),
    "map": (
        2,
        [
            "{{}}",
            "{{'a': 1}}",
            "{{{string}: {int}}}",
            "{{{string}: {string}, 'fish': {string}}}",
            "{strings}.transformMap(i, v, v)",
            "{strings}.transformMapEntry(i, v, {{v: i}})",
        ],
    ),
    "id": (9, ["s", "t", "i", "j", "b", "v", "l", "il", "nope"]),
    "order": (4, ["<", "<=", ">", ">="]),
}
_PLACEHOLDER = re.compile(r"\{(\w+)\}|(\{\{|\}\})")


@st.composite
def expressions(draw: st.DrawFn, kind: str = "bool", depth: int = 4) -> str:
    """An expression of a kind; the deeper the larger, but never many more than 300 operations."""
    budget = [60]

    def expand(kind: str, depth: int) -> str:
        leaves, productions = _GRAMMAR[kind]
        budget[0] -= 1
        if depth <= 0 or budget[0] <= 0:
            productions = productions[:leaves]
        production = draw(st.sampled_from(productions))
        text = _PLACEHOLDER.sub(
            lambda match: expand(match.group(1), depth - 1) if match.group(1) else match.group(2)[0], production
        )
        return f"({text})" if " " in production else text

    return expand(kind, depth)

"""Mutations of JSON values, as from a confused or hostile client.

Deterministic: every choice comes from the given dice. What JSON libraries would not write (duplicated keys, lone surrogates,
numbers out of range) is kept as `msgspec.Raw`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

NESTED_LEVELS = 10_000
_LONG = 70_000

NUMBERS: tuple[Any, ...] = (
    *(0, -1, 1, 2, 65535, 65536, 2**31 - 1, 2**31, -(2**31) - 1, 2**32, 2**53 + 1, 2**63 - 1, -(2**63)),
    *(0.5, -0.0, 1e-7, 1e21, 1.7976931348623157e308, 5e-324),
    *(msgspec.Raw(text) for text in (b"1e400", b"-1e400", b"1e-400", b"9223372036854775808", b"18446744073709551616")),
    *(msgspec.Raw(text) for text in (b"-9223372036854775809", b"1E5", b"1.0", b"-0", b"1" * 400, b"1" * 5000)),
)
# What JSON does not know, or no one should: the whole body is refused for it.
MALFORMED: tuple[Any, ...] = tuple(
    msgspec.Raw(text)
    for text in (
        *(
            b"NaN",
            b"Infinity",
            b"01",
            b"1.",
            b"+1",
            b"0x1f",
            b".5",
            b"1e" + b"9" * 30,
            b"[1,]",
            b"{'a':1}",
            b"[1,/* */2]",
        ),
        *(b"[" * NESTED_LEVELS + b"]" * NESTED_LEVELS, b'{"a":' * NESTED_LEVELS + b"1" + b"}" * NESTED_LEVELS),
        *(b'"\xff\xfe"', b'"\xed\xa0\x80"', b'"\x00"', b"nul", b"\xef\xbb\xbf1"),
    )
)

_UNICODE = (
    *("\0", "a\0b", "\u202eevil", "e" + "\u0301" * 300, "\ufeff", "\u2028", "\x7f\x80\x9f", "²", "١٢٣", "Ǆ", "ß", "İ"),
    *("\U0001f9ff" * 40, "\U000e0001", "ａ", "\r\nX-Evil: 1", "a\tb", "\ud7ff\ue000", "﷽" * 20, "\N{KELVIN SIGN}i"),
)
_SURROGATES = (
    rb'"\ud800"',
    rb'"\udfff\ud800"',
    rb'"a\ud83d"',
    rb'"\u0000"',
    rb'"\uD83D\uDE00"',
)
TEXTS: tuple[Any, ...] = (
    *(
        "",
        " ",
        "a",
        "A",
        "a" * 63,
        "a" * 64,
        "a" * 253,
        "a" * 254,
        "a" * 1025,
        "x" * _LONG,
        "-a",
        "a-",
        "a.b",
        "a..b",
        "a/b",
        "a/b/c",
    ),
    *(
        "true",
        "null",
        "0",
        "-1",
        "1e400",
        "NaN",
        "1.5",
        "2147483648",
        "9223372036854775808",
        "9" * 400,
        "0x10",
        "1_000",
        "０",
    ),
    *(
        "1Ki",
        "1E",
        "1e3",
        "1e-10",
        "1e99999999",
        "1e-99999999",
        "-1n",
        "0.0000000001",
        "999999999999999999999Ei",
        "1Kii",
        "+1",
        ".5",
        "1." + "0" * 500,
    ),
    *(
        "2026-01-01T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "0000-00-00T00:00:00Z",
        "9999-12-31T23:59:60Z",
        "2026-01-01T00:00:00.123456789123Z",
    ),
    *(
        "0001-01-01T00:00:00Z",
        "2026-01-01T00:00:00+99:99",
        "10000-01-01T00:00:00Z",
        "1s",
        "1h1m1s1ms",
        "9" * 30 + "h",
        "-5s",
        "²s",
    ),
    *(
        "10.0.0.1",
        "10.0.0.256",
        "010.0.0.1",
        "::ffff:127.0.0.1",
        "fe80::1%eth0",
        "::/129",
        "10.0.0.0/33",
        "10.0.0.0/²",
        "1.2.3.4/-1",
    ),
    *(
        "v1",
        "apps/v1",
        "v0",
        "a/b/v1",
        "/",
        "//",
        "..",
        "../../etc/passwd",
        "%2e%2e",
        "%00",
        "*",
        "a,b",
        "a=b",
        "a in (b",
        "!a",
        "a,,b",
        "==",
    ),
    *(
        "system:masters",
        "system:node:fuzz",
        "kubernetes.io/x",
        "k8s.io/" + "a" * 64,
        "example.com/gpu",
        "a.example.com",
        ".example.com",
    ),
    *(
        "Foreground",
        "Orphan",
        "All",
        "Always",
        "Strict",
        "True",
        "Equal",
        "Exists",
        "NoExecute",
        "IPv4",
        "ClusterIP",
        "None",
    ),
    *(
        "$(A)",
        "${A}",
        "{{x}}",
        "<x>",
        "'; DROP TABLE x",
        "aGVsbG8=",
        "!!!!",
        "====",
        "A" * 4097,
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ),
    *(
        "(a+)+$",
        "[",
        "(?P<a>",
        "a{1,100000}",
        "\\p{L}",
        "(?=a)",
        "true",
        "1 +",
        "self",
        "device.driver == 'a'",
        "[1,2,3].all(x, x > 0)",
    ),
    *(
        "'a'.matches('(a+)+$')",
        "object.spec.x.y",
        "((((((((((((((((((((1))))))))))))))))))))",
        "size('" + "a" * 2000 + "') > 1",
    ),
    *(
        "[" + ",".join("1" for _ in range(500)) + "].map(x, x*2).size() > 0",
        "1/0 == 1",
        "dyn(1) < 'a'",
        "quantity('x').isGreaterThan(quantity('1'))",
    ),
    *(
        "{.metadata.name}",
        "{.x[",
        "{range .items[*]}",
        ".spec.replicas",
        "spec",
        ".",
        "[0]",
        "{.a['b']}",
        "f:spec",
        'k:{"a":1}',
        "v:1",
        "i:0",
        "i:-1",
    ),
    *_UNICODE,
    *(msgspec.Raw(text) for text in _SURROGATES),
)
CONTAINERS: tuple[Any, ...] = (
    *(
        [],
        {},
        [[]],
        [{}],
        [None],
        [0],
        [""],
        {"": ""},
        {"a": None},
        {"a": {}},
        {"a": []},
        [[], {}],
        {"$patch": "delete"},
        {"$patch": "replace"},
    ),
    *(
        {"$retainKeys": ["a"]},
        {"$setElementOrder/containers": [{"name": "a"}]},
        {"$deleteFromPrimitiveList/finalizers": ["a"]},
        {"items": []},
    ),
    *({".": {}, "f:a": {}}, {"apiVersion": "v1", "kind": "Pod"}, {"kind": "List", "apiVersion": "v1", "items": [{}]}),
    msgspec.Raw(b"[" * 90 + b"]" * 90),
    msgspec.Raw(b'{"a":' * 99 + b"1" + b"}" * 99),
    msgspec.Raw(b'{"a":1,"a":2}'),
    msgspec.Raw(b'{"name":"a","name":["b"]}'),
    msgspec.Raw(b'{"a":1,"A":2,"\\u0061":3}'),
)
LITERALS: tuple[Any, ...] = (None, True, False)

_OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "fuzz-0", "uid": "0a0a0a0a-0000-4000-8000-000000000000"}
_MANAGED = {
    "manager": "fuzz",
    "operation": "Apply",
    "apiVersion": "v1",
    "time": "2026-01-01T00:00:00Z",
    "fieldsType": "FieldsV1",
    "fieldsV1": {
        "f:metadata": {"f:labels": {"f:a": {}}},
        "f:spec": {"f:containers": {'k:{"name":"a"}': {".": {}, "f:image": {}}}},
    },
}
# Fields that every object has and that mean something to the server.
METADATA: tuple[tuple[str, Any], ...] = (
    ("name", "fuzz-1"),
    ("name", "Not A Name"),
    ("generateName", "fuzz-"),
    ("namespace", "fuzz-b"),
    ("uid", "0a0a0a0a-0000-4000-8000-000000000000"),
    ("resourceVersion", "1"),
    ("resourceVersion", "0"),
    ("resourceVersion", "99999999999999999999"),
    ("resourceVersion", "-1"),
    ("resourceVersion", "²"),
    ("generation", 2**63 - 1),
    ("creationTimestamp", "2026-01-01T00:00:00Z"),
    ("deletionTimestamp", "2026-01-01T00:00:00Z"),
    ("deletionGracePeriodSeconds", -1),
    ("finalizers", ["example.com/fuzz"]),
    ("finalizers", ["foregroundDeletion", "orphan"]),
    ("finalizers", ["a", "a", ""]),
    ("ownerReferences", [_OWNER]),
    ("ownerReferences", [{**_OWNER, "controller": True}, {**_OWNER, "controller": True}]),
    ("ownerReferences", [_OWNER] * 300),
    ("ownerReferences", [{"kind": ["Pod"]}]),
    ("managedFields", [_MANAGED]),
    ("managedFields", [{**_MANAGED, "fieldsV1": {"f:spec": [], "k:{": {}, "x": 1}}]),
    ("managedFields", [{**_MANAGED, "fieldsV1": "text"}, {**_MANAGED, "operation": "x"}]),
    ("managedFields", [{}]),
    ("managedFields", []),
    ("managedFields", None),
    ("labels", {f"key-{number}": "value" for number in range(400)}),
    ("labels", {"a": None, "": "", "a/b/c": "é"}),
    ("annotations", {"kubectl.kubernetes.io/last-applied-configuration": '{"a":'}),
    ("annotations", {"a": "x" * 300_000}),
    ("selfLink", "/api/v1"),
)

Place = tuple[Any, Any]


def places(value: Any) -> list[Place]:
    """All (container, key) pairs in a value."""
    found: list[Place] = []
    waiting = [value]
    while waiting:
        container = waiting.pop()
        keys = list(container) if isinstance(container, dict) else range(len(container))
        for key in keys:
            found.append((container, key))
            if isinstance(container[key], dict | list) and container[key]:
                waiting.append(container[key])
    return found


def copied(value: Any) -> Any:
    """A value of which nothing is shared: what is mutated must not be what others will get."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value


def odd_value(dice: random.Random) -> Any:
    """Any value that programs stumble over."""
    if dice.random() < 0.04:
        return dice.choice(MALFORMED)
    return copied(dice.choice(dice.choice((NUMBERS, TEXTS, TEXTS, CONTAINERS, LITERALS))))


def mutate(value: Any, dice: random.Random, donors: list[Any]) -> Any:
    """A value with one thing wrong. Changes the given one; donors: values from which parts are taken."""
    if not isinstance(value, dict | list) or not value:
        return odd_value(dice)
    if dice.random() < 0.02:
        return odd_value(dice)
    if dice.random() < 0.15 and isinstance(value, dict):
        return _mutate_metadata(value, dice)
    container, key = dice.choice(places(value))
    dice.choice(_MUTATIONS)(container, key, dice, donors)
    return value


def _mutate_metadata(value: dict[str, Any], dice: random.Random) -> dict[str, Any]:
    metadata = value.get("metadata")
    if not isinstance(metadata, dict):
        metadata = value["metadata"] = {}
    name, content = dice.choice(METADATA)
    metadata[name] = copied(content)
    return value


def _odd(container: Any, key: Any, dice: random.Random, _: list[Any]) -> None:
    container[key] = odd_value(dice)


def _another_type(container: Any, key: Any, dice: random.Random, _: list[Any]) -> None:
    present = container[key]
    kinds = {bool: LITERALS, int: NUMBERS, float: NUMBERS, str: TEXTS, dict: CONTAINERS, list: CONTAINERS}
    others = [values for values in (NUMBERS, TEXTS, CONTAINERS, LITERALS) if values is not kinds.get(type(present))]
    container[key] = copied(dice.choice(dice.choice(others)))


def _same_type(container: Any, key: Any, dice: random.Random, _: list[Any]) -> None:
    present = container[key]
    if isinstance(present, bool):
        container[key] = not present
    elif isinstance(present, int | float):
        container[key] = dice.choice(NUMBERS)
    elif isinstance(present, str):
        container[key] = dice.choice(
            (dice.choice(TEXTS), present + "\0", present.upper(), present * 50, present[:-1], f" {present}")
        )
    elif isinstance(present, list):
        container[key] = copied(dice.choice(([], [present], present + present, present[:1] * 200, [*present, None])))
    elif isinstance(present, dict):
        container[key] = dice.choice(({}, [present], {**present, "unknown": 1}, dict.fromkeys(present)))


def _wrap(container: Any, key: Any, dice: random.Random, _: list[Any]) -> None:
    present = container[key]
    container[key] = dice.choice(([present], {"a": present}, {"value": present}, [[present]], str(present)))


def _remove(container: Any, key: Any, *_: Any) -> None:
    del container[key]


def _rename(container: Any, key: Any, dice: random.Random, _: list[Any]) -> None:
    present = container[key]
    del container[key]
    if isinstance(container, dict):
        odd = [text for text in TEXTS if isinstance(text, str)]
        container[dice.choice((str(key).upper(), f"{key}s", "", f"f:{key}", dice.choice(odd)))] = present
    else:
        container.insert(dice.randrange(len(container) + 1), present)


def _splice(container: Any, key: Any, dice: random.Random, donors: list[Any]) -> None:
    donor = dice.choice(donors)
    inner = places(donor)
    found = donor if not inner or dice.random() < 0.2 else (lambda at: at[0][at[1]])(dice.choice(inner))
    found = copied(found)
    if isinstance(container, dict) and dice.random() < 0.3:
        container[dice.choice(("metadata", "spec", "status", "data", str(key)))] = found
    else:
        container[key] = found


def _duplicate(container: Any, key: Any, dice: random.Random, _: list[Any]) -> None:
    present = container[key]
    if isinstance(present, list) and present:
        container[key] = copied(present * dice.choice((2, 3, 17, 65, 300)))
    elif isinstance(present, dict) and present and not _has_raw(present):
        name = dice.choice(list(present))
        inside = msgspec.json.encode(present)[1:-1]
        again = msgspec.json.encode({name: dice.choice((present[name], None, 1, "x"))})[1:-1]
        container[key] = msgspec.Raw(b"{" + inside + b"," + again + b"}")
    elif isinstance(container, list):
        container.insert(0, present)


def _many(container: Any, key: Any, dice: random.Random, _: list[Any]) -> None:
    count = dice.choice((11, 33, 129, 1001, 3000))
    present = container[key]
    large = dice.choice(
        (
            {f"k{number}": present if count < 200 else "v" for number in range(count)},
            [present if count < 200 else number for number in range(count)],
            "v" * count,
        )
    )
    container[key] = copied(large)


def _has_raw(value: Any) -> bool:
    return any(isinstance(container[key], msgspec.Raw) for container, key in places(value))


_Mutation = Callable[[Any, Any, random.Random, list[Any]], None]
_MUTATIONS: tuple[_Mutation, ...] = (
    *(_odd, _odd, _odd, _another_type, _another_type, _another_type, _same_type, _same_type, _same_type),
    *(_wrap, _remove, _remove, _rename, _splice, _splice, _duplicate, _many),
)


def havoc(data: bytes, dice: random.Random) -> bytes:
    """Bytes with some of them changed, taken away, doubled or new."""
    changed = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 4, 16))):
        at = dice.randrange(len(changed) + 1)
        span = dice.choice((1, 1, 2, 8, 64))
        match dice.randrange(6):
            case 0 if at < len(changed):
                changed[at] ^= 1 << dice.randrange(8)
            case 1 if at < len(changed):
                changed[at] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, 0x0A, 0x0D, 0x22, 0x5C, 0x7B))
            case 2:
                del changed[at : at + span]
            case 3:
                changed[at:at] = changed[at : at + span] * dice.choice((1, 3, 20))
            case 4:
                changed[at:at] = dice.randbytes(span)
            case _:
                changed[at:at] = dice.choice(
                    (b"\0", b"\xff" * 9, b"\r\n", b"{", b"[", b'"', b"- ", b"&a ", b"*a", b": ", b"\x80" * 11)
                )
    return bytes(changed)


def texts(value: Any) -> Iterator[str]:
    """All texts in a value."""
    for container, key in places(value):
        if isinstance(container[key], str):
            yield container[key]

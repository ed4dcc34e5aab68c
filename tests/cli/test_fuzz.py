"""Whatever the input: an answer or a clear error, never a traceback, a hang or endless memory."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allot.reading.manifests import read_manifests
from cli.command import Result, allot
from cli.manifest_texts import claim, device, device_class, node, resource_slice, text

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
OBJECTS = [manifest.value for manifest in read_manifests([str(EXAMPLES / "cluster"), str(EXAMPLES / "claims")])]
COMMANDS = (
    ("validate", "-"),
    ("validate", "-", "-o", "json", "--strict", "--feature-gates", "default"),
    ("allocate", "-"),
    ("allocate", "-", "-o", "yaml", "--policy", "pack", "--features", "all"),
    ("cel", 'device.attributes["gpu.example.com"].model == "X80"', "-f", "-"),
)
JUNK: list[Any] = [
    None, True, 0, -1, 2**31, 2**63, 10**300, 1.5, "", " ", "x" * 300, "ö\u2028\x1b", "1e999999", "-1", "80Gi",
    [], {}, [None], [[]], {"": None}, {"a": {"b": {}}}, ["a", "a"], "device.driver ==", "true",
]  # fmt: skip


def check(result: Result) -> None:
    said = result.stdout + result.stderr
    assert result.code in (0, 1, 2), said
    assert "internal error" not in said
    assert "Traceback" not in said
    assert result.code != 2 or "error: " in result.stderr or '"error":' in result.stdout


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in a value."""
    found: list[tuple[Any, Any]] = []
    pending = [value]
    while pending:
        container = pending.pop()
        keys = list(container) if isinstance(container, dict) else range(len(container))
        for key in keys:
            found.append((container, key))
            if isinstance(container[key], dict | list):
                pending.append(container[key])
    return found


def mutated(chance: random.Random) -> list[Any]:
    """The example cluster with a few values removed, replaced, renamed or repeated."""
    objects = copy.deepcopy(chance.sample(OBJECTS, chance.randint(1, len(OBJECTS))))
    for _ in range(chance.randint(1, 4)):
        container, key = chance.choice(places(objects) or [({"": 0}, "")])
        change = chance.randrange(4)
        if change == 0:
            del container[key]
        elif change == 1 and isinstance(container, dict):
            container[chance.choice(["name", "exactly", "cel", "value", "x", ""])] = container.pop(key)
        elif change == 2 and isinstance(container, list):
            container.extend(copy.deepcopy(container[:3]))
        else:
            container[key] = copy.deepcopy(chance.choice(JUNK))
    return objects


slow_fuzz = settings(max_examples=150, suppress_health_check=list(HealthCheck))


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@slow_fuzz
@given(st.randoms(use_true_random=False))
def test_damaged_manifests_get_an_answer_or_an_error(command: tuple[str, ...], chance: random.Random) -> None:
    check(allot(*command, stdin=text(*mutated(chance))))


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@slow_fuzz
@given(st.binary(max_size=300))
def test_any_bytes_get_an_answer_or_an_error(command: tuple[str, ...], data: bytes) -> None:
    check(allot(*command, stdin=data))


@pytest.mark.slow
@slow_fuzz
@given(st.randoms(use_true_random=False))
def test_yaml_with_damaged_bytes_gets_an_answer_or_an_error(chance: random.Random) -> None:
    data = bytearray((EXAMPLES / "cluster" / "partitions.yaml").read_bytes())
    for _ in range(chance.randint(1, 6)):
        place = chance.randrange(len(data))
        data[place : place + chance.randrange(3)] = chance.choice(
            [b"", b"\t", b"\xff", b"- ", b": ", b"&a ", b"*a", b"\0", b"{"]
        )
    check(allot("validate", "-", stdin=bytes(data)))


@pytest.mark.slow
@slow_fuzz
@given(st.randoms(use_true_random=False))
def test_damaged_scenario_lines_are_answered(chance: random.Random) -> None:
    lines = [json.loads(line) for line in (EXAMPLES / "scenarios.jsonl").read_text().splitlines()]
    for line in lines:
        container, key = chance.choice(places(line))
        container[key] = chance.choice(JUNK)
    result = allot("allocate", "-", stdin="\n".join(map(json.dumps, lines)))
    check(result)


@pytest.mark.slow
@slow_fuzz
@given(st.text(alphabet='device.attributes["gpu"]()&|!<>=?: \'x1,{}+-*/%\\\n', max_size=60))
def test_any_expression_gets_an_answer_or_an_error(expression: str) -> None:
    if not expression.startswith("-"):
        check(allot("cel", expression, "-f", str(EXAMPLES / "cluster" / "nics.yaml")))


# --- built to hurt ---


@pytest.mark.slow
def test_a_file_of_ten_megabytes_is_read() -> None:
    devices = [
        device(f"gpu-{number}", attributes={"model": {"string": "X80"}}, capacity={"memory": {"value": "80Gi"}})
        for number in range(64)
    ]
    slices = [resource_slice(f"n{number}", *devices) for number in range(1500)]
    manifests = text(device_class(), claim(), *slices)
    assert len(manifests) > 10_000_000
    result = allot("allocate", "-", "--node", "n7", "-o", "json", stdin=manifests)
    assert result.code == 0, result.stderr
    assert result.lines[0]["node"] == "n7"


@pytest.mark.slow
def test_ten_megabytes_of_anything_else_are_refused() -> None:
    for data in (
        b"[" * 10_000_000,
        b"a: " * 3_000_000,
        b"- " * 5_000_000,
        b"\xff" * 10_000_000,
        b'{"a":' * 2_000_000,
        b"x" * 10_000_000,
    ):
        result = allot("validate", "-", stdin=data)
        assert result.code == 2
        assert len(result.stderr) < 5000


SLOW_SELECTORS = [
    "device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, device.attributes.all(d, a == d))))",
    'device.driver.matches("(a+)+$") || "' + "a" * 5000 + '!".matches("(a+)+$")',
    "[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, [1,2,3,4,5,6,7,8,9].all(d, [1,2,3,4,5,6,7,8,9].all(e, [1,2,3,4,5,6,7,8,9].all(f, a + b + c + d + e + f > 0))))))",
    '"' + "a" * 9000 + '".replace("a", "' + "b" * 900 + '").replace("b", "' + "c" * 90 + '").size() > 0',
    "!" * 5000 + "true",
    "-" + "(" * 1000 + "1" + ")" * 1000 + " == 1",
]


@pytest.mark.parametrize("expression", SLOW_SELECTORS, ids=range(len(SLOW_SELECTORS)))
def test_selectors_built_to_be_slow_are_refused_or_stopped(expression: str) -> None:
    selector = {"selectors": [{"cel": {"expression": expression}}]}
    manifests = text(device_class(), resource_slice(), node(), claim(**selector))
    for command in (("allocate", "-"), ("validate", "-")):
        check(allot(*command, stdin=manifests))
    check(allot("cel", "--", expression))
    check(allot("cel", "-f", "-", "--", expression, stdin=manifests))


@pytest.mark.parametrize(
    "amount",
    ["1e999999", "1e-999999", "9" * 100_000, "0." + "0" * 100_000 + "1", "1e99999999999999999999", "-0", "1Ei1"],
)
def test_quantities_out_of_all_bounds_are_read_or_refused(amount: str) -> None:
    slices = resource_slice("n1", device("d", allowMultipleAllocations=True, capacity={"memory": {"value": amount}}))
    needs = claim(capacity={"requests": {"memory": amount}})
    for command in (("validate", "-"), ("allocate", "-")):
        check(allot(*command, stdin=text(device_class(), slices, needs)))


def test_deeply_nested_parameters_are_refused() -> None:
    nested: Any = 1
    for _ in range(150):
        nested = {"a": nested}
    deep = device_class()
    deep["spec"]["config"] = [{"opaque": {"driver": "d.example.com", "parameters": nested}}]
    check(allot("validate", "-", stdin=text(deep)))
    check(allot("validate", "-", stdin='{"a":' * 100_000))


def test_a_name_given_twice_is_refused() -> None:
    result = allot("allocate", "-", stdin=text(device_class(), resource_slice(), claim(), claim()))
    assert result.code == 2
    assert "error: ResourceClaim ml/c1: defined twice" in result.stderr

"""Generated code: what is translated, what it looks like to an attacker, and that it says what the interpreter says."""

from __future__ import annotations

import dis
import types
from collections.abc import Callable
from typing import Any

import pytest

from allot.core.cel.checking.compile import compile_expression
from allot.core.cel.checking.environment import device_environment
from allot.core.cel.codegen.generate import Untranslatable, generate
from allot.core.cel.data.values import EvaluationError
from allot.core.cel.device import DeviceView, view
from allot.core.cel.evaluation.interpret import evaluate
from allot.core.cel.evaluation.plan import plan
from allot.core.quantity import Quantity

ENVIRONMENT = device_environment(list_type_attributes=True, consumable_capacity=True, stored=True)
DEVICE = view(
    "gpu.example.com",
    {
        "model": ("string", "a100"),
        "index": ("int", 3),
        "healthy": ("bool", True),
        "version": ("version", "1.2.3"),
        "modes": ("strings", ["a", "b"]),
        "empty": ("strings", []),
    },
    {"memory": Quantity.parse("40Gi")},
)
ATTRIBUTES = 'device.attributes["gpu.example.com"]'
CAPACITY = 'device.capacity["gpu.example.com"]'


def generated(expression: str) -> Callable[[DeviceView], Any]:
    def oversized(_: DeviceView) -> Any:
        raise AssertionError("no device here is larger than the API allows")

    return generate(plan(compile_expression(expression, ENVIRONMENT), ENVIRONMENT), oversized)


def outcome(run: Callable[[DeviceView], Any], seen: DeviceView) -> tuple[str, str]:
    try:
        return "value", repr(run(seen))
    except EvaluationError as error:
        return "error", error.message


@pytest.mark.parametrize(
    "expression",
    [
        f'{ATTRIBUTES}.model == "a100"',
        f'"a100" != {ATTRIBUTES}.version',
        f"{ATTRIBUTES}.index == 3.0",
        f"{ATTRIBUTES}.healthy == 1",
        f'{ATTRIBUTES}.version == "1.2.3"',
        f'{ATTRIBUTES}.nope == 1 || {ATTRIBUTES}.model == "a100"',
        f'{ATTRIBUTES}.nope == 1 && {ATTRIBUTES}.model == "a100"',
        f"{ATTRIBUTES}.model && {ATTRIBUTES}.healthy",
        f'{ATTRIBUTES}.nope in ["a"]',
        f'{ATTRIBUTES}.version in ["a"]',
        f'{ATTRIBUTES}.index in ["a", "3"]',
        f'{CAPACITY}.memory.compareTo(quantity("40Gi")) >= 0',
        f'{CAPACITY}.nope.compareTo(quantity("40Gi")) >= 0',
        f'{ATTRIBUTES}.version.isGreaterThan(semver("1.0.0"))',
        f'{ATTRIBUTES}.model.isGreaterThan(semver("1.0.0"))',
        f'{ATTRIBUTES}.?nope.orValue("x") == "x"',
        'device.attributes[?"none"].?nope.hasValue()',
        f'{ATTRIBUTES}.?modes[?1].orValue("z") == "b"',
        f"has({ATTRIBUTES}.nope) || has(device.attributes.nope)",
        f"{ATTRIBUTES}.modes.all(x, x != {ATTRIBUTES}.nope)",
        f'{ATTRIBUTES}.modes.exists(x, x == "b" || {ATTRIBUTES}.nope)',
        f"{ATTRIBUTES}.modes.map(x, x + x) == ['aa', 'bb']",
        f"{ATTRIBUTES}.modes.filter(x, x > 'a').size() == 1",
        f"{ATTRIBUTES}.index.all(x, true)",
        f"{ATTRIBUTES}.exists(k, v, k == 'index' && v == 3)",
        f"{ATTRIBUTES}.transformMap(k, v, k).size() == 6",
        f"cel.bind(x, {ATTRIBUTES}.nope, true)",
        f"cel.bind(x, {ATTRIBUTES}.nope, x == 1 || true)",
        f"cel.bind(x, {ATTRIBUTES}.empty, (x + ['a']).size() + x.size() == 2)",
        f"cel.bind(device, {ATTRIBUTES}, device.index == 3)",
        "[device].all(d, d.driver == 'gpu.example.com')",
        f"({ATTRIBUTES}.healthy ? {ATTRIBUTES} : device.attributes['x']).index == 3",
        f"({ATTRIBUTES}.index ? 1 : 2) == 1",
        f'{ATTRIBUTES}.modes[{ATTRIBUTES}.index] == "a"',
        f'{{"a": {ATTRIBUTES}.index}}["a"] == 3',
        "device == device && device.attributes == device.attributes",
        "quantity('1').add(quantity('1')) == quantity('2')",
        "quantity('2') == quantity('1').add(quantity('1'))",
        f"!({ATTRIBUTES}.healthy && !({ATTRIBUTES}.index < 2 || {ATTRIBUTES}.nope))",
        "1 / 0 == 1 || true",
        'quantity("bad") == quantity("1")',
    ],
)
@pytest.mark.parametrize("seen", [DEVICE, view("other")], ids=["full", "empty"])
def test_generated_code_comes_to_what_the_interpreter_comes_to(expression: str, seen: DeviceView) -> None:
    program = plan(compile_expression(expression, ENVIRONMENT), ENVIRONMENT)
    interpreted = evaluate(program, seen.variables)
    expected = ("value", repr(interpreted.value)) if interpreted.error is None else ("error", interpreted.error)
    assert outcome(generated(expression), seen) == expected


HOSTILE = """'__import__(\\"os\\").system(\\"x\\")\\n\\tk0 = d'"""


def test_nothing_of_the_source_text_becomes_python_source() -> None:
    code: types.CodeType = generated(f"device.attributes[{HOSTILE}][{HOSTILE}] == {HOSTILE}").__code__
    seen = {*code.co_names, *code.co_varnames, *code.co_freevars}
    assert all(name.isidentifier() and len(name) < 30 for name in seen)
    assert not any("import" in str(constant) for constant in code.co_consts)
    instructions = {instruction.opname for instruction in dis.get_instructions(code)}
    assert not instructions & {"IMPORT_NAME", "LOAD_NAME"}


def test_hostile_names_are_keys_like_others() -> None:
    assert outcome(generated(f"device.attributes[{HOSTILE}].x == 1"), DEVICE) == ("error", "no such key: x")


def test_devices_beyond_the_limits_of_the_api_are_left_to_the_interpreter() -> None:
    program = plan(compile_expression("true", ENVIRONMENT), ENVIRONMENT)
    large = view("x" * 64)
    assert generate(program, lambda _: "interpreted")(large) == "interpreted"


def test_deep_nesting_is_left_to_the_interpreter() -> None:
    with pytest.raises(Untranslatable):
        generated(_alternating(60))


def _alternating(levels: int) -> str:
    text = "device.allowMultipleAllocations"
    for level in range(levels):
        text = f"(device.attributes.a.b{level} {'&&' if level % 2 else '||'} {text})"
    return text

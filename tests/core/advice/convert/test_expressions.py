"""CEL of selectors, old and mistaken, in the language of today."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.core.advice.convert.changes import Confidence
from allot.core.advice.convert.expressions import drivers_in, translate, version_text
from allot.core.cel.device import view
from allot.core.cel.selector import compile_selector
from allot.core.quantity import Quantity

GPU = "gpu.nvidia.com"
UNCHANGED = [
    'device.driver == "gpu.nvidia.com"',
    'device.capacity["gpu.nvidia.com"].memory == quantity("80Gi")',
    'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("16Gi")) >= 0',
    'device.attributes["gpu.nvidia.com"].productName == "NVIDIA A100"',
    'device.attributes["cards.example.com"].generation >= 3',
    'device.attributes["cards.example.com"].name >= "b"',
    'has(device.attributes["gpu.nvidia.com"].profile) && device.attributes["gpu.nvidia.com"].profile == "1g.5gb"',
    'device.attributes["gpu.nvidia.com"].?profile.orValue("") == ""',
    '["a", "b"].exists(x, device.attributes["gpu.nvidia.com"].productName.contains(x))',
]
# expression, driver of the class, result
NEW = [
    (
        'device.attributes["cards.example.com"].memory >= "16Gi"',
        None,
        'device.capacity["cards.example.com"].memory.compareTo(quantity("16Gi")) >= 0',
    ),
    (
        '("16Gi"  <= device.capacity["gpu.nvidia.com"].memory) // at least',
        None,
        '(0  <= device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("16Gi"))) // at least',
    ),
    (
        'device.attributes["gpu.nvidia.com"].driverVersion < "550.1"',
        None,
        'device.attributes["gpu.nvidia.com"].driverVersion.compareTo(semver("550.1.0")) < 0',
    ),
    (
        'device.attributes["memory"].quantity() > 24000000000',
        GPU,
        'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("24G")) > 0',
    ),
    (
        'device.attributes["gpu.nvidia.com"].memory.isGreaterThan(quantity("1Gi"))',
        None,
        'device.capacity["gpu.nvidia.com"].memory.isGreaterThan(quantity("1Gi"))',
    ),
    ('attributes.int["index"] == 1', "cards.example.com", 'device.attributes["cards.example.com"].index == 1'),
    (
        'attributes.quantity["memory"].compareTo(quantity("1Gi")) >= 0 && attributes.version["cuda-driver-version"].isLessThan(semver("12.0.0"))',
        GPU,
        'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("1Gi")) >= 0 && device.attributes["gpu.nvidia.com"].cudaDriverVersion.isLessThan(semver("12.0.0"))',
    ),
    (
        '"3d-name" in attributes.string || "memory" in attributes.quantity',
        "cards.example.com",
        '"_3d_name" in device.attributes["cards.example.com"] || "memory" in device.capacity["cards.example.com"]',
    ),
    ("device.driver == “cards”", None, 'device.driver == "cards"'),
]


@pytest.mark.parametrize("text", UNCHANGED)
def test_what_is_right_stays_as_it_is(text: str) -> None:
    result = translate(text, GPU)
    assert (result.text, result.changes, result.problems) == (text, (), ())


@pytest.mark.parametrize(("text", "driver", "expected"), NEW)
def test_old_and_mistaken_forms_are_rewritten_where_they_stand(text: str, driver: str | None, expected: str) -> None:
    result = translate(text, driver, was_1_30="attributes." in text.replace("device.attributes", ""))
    assert (result.text, result.problems) == (expected, ())
    assert result.why
    again = translate(expected, driver)
    assert (again.text, again.changes) == (expected, ())


@pytest.mark.parametrize(
    ("text", "driver", "problem"),
    [
        (
            'attributes.int["index"] == 1',
            GPU,
            "attribute 'index' is not published by driver gpu.nvidia.com, which offers: type,",
        ),
        ('attributes.float["x"] == 1.0', GPU, "attributes.float did not exist in 1.30 either"),
        ('attributes.string["x"] == "y"', None, "attribute 'x' belongs to an unknown driver"),
        ("attributes.string.size() > 0", GPU, "uses the map `attributes` of 1.30 as a whole"),
        ('device.capacity["gpu.nvidia.com"].memory > 16', GPU, "is compared with 16: write a unit, such as 16Gi"),
        ('device.capacity["gpu.nvidia.com"].memory > "much"', GPU, "'much' is not a quantity"),
        ('device.attributes["gpu.nvidia.com"].driverVersion > "new"', GPU, "'new' is not"),
        ("device.driver ==", GPU, "not a CEL expression"),
        ("device.driver", GPU, "does not compile: must evaluate to bool"),
        ("device.unknown == 1", GPU, "does not compile"),
    ],
)
def test_what_cannot_be_rewritten_is_named(text: str, driver: str | None, problem: str) -> None:
    result = translate(text, driver, was_1_30=True)
    assert problem in " ".join(result.problems)


def test_a_size_in_an_unknown_drivers_attribute_is_likely_and_in_a_capacity_certain() -> None:
    assert translate('device.attributes["x.example.com"].memory > "1Gi"', None).confidence is Confidence.LIKELY
    assert translate('device.capacity["x.example.com"].memory > "1Gi"', None).confidence is Confidence.CERTAIN


@pytest.mark.slow
@given(st.integers(1, 400), st.integers(1, 400), st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), st.booleans())
def test_a_rewritten_comparison_compares_sizes(has: int, wants: int, operator: str, reverse: bool) -> None:
    access = f'device.capacity["{GPU}"].memory'
    text = f'"{wants}Gi" {operator} {access}' if reverse else f'{access} {operator} "{wants}Gi"'
    matches = compile_selector(translate(text, GPU).text).matches(
        view(driver=GPU, attributes={}, capacity={"memory": Quantity.parse(f"{has}Gi")})
    )
    left, right = (wants, has) if reverse else (has, wants)
    expected = {
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
        "==": left == right,
        "!=": left != right,
    }
    assert matches == expected[operator]


def test_the_driver_of_an_expression_is_the_one_it_compares_with() -> None:
    assert drivers_in('true && "a" == device.driver || device.driver == "b"') == ("b", "a")
    assert drivers_in("nonsense (") == ()


@pytest.mark.parametrize(("text", "version"), [("8", "8.0.0"), ("8.0", "8.0.0"), ("v12.4.1", "12.4.1"), ("new", None)])
def test_versions_get_the_parts_that_they_lack(text: str, version: str | None) -> None:
    assert version_text(text) == version

"""`allot cel` end to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.command import allot
from cli.manifest_texts import claim, device, resource_slice, text

SLICES = text(
    resource_slice(
        "n1",
        device("small", attributes={"model": {"string": "X40"}}, capacity={"memory": {"value": "40Gi"}}),
        device("large", attributes={"model": {"string": "X80"}}, capacity={"memory": {"value": "80Gi"}}),
        device("bare"),
    )
)
MODEL = 'device.attributes["gpu.example.com"].model == "X80"'


def test_an_expression_is_checked_and_priced() -> None:
    result = allot("cel", 'device.driver == "gpu.example.com"')
    assert result.code == 0
    assert result.stdout.splitlines()[0] == "type: bool"
    assert result.stdout.splitlines()[1].startswith("cost: at most ")


def test_every_device_is_a_match_no_match_or_error_with_the_reason() -> None:
    result = allot("cel", MODEL, "-f", "-", "-o", "json", stdin=SLICES)
    assert result.code == 0
    (answer,) = result.lines
    outcomes = {finding["device"]: (finding["outcome"], finding["why"]) for finding in answer["devices"]}
    assert outcomes["large"] == ("match", "")
    assert outcomes["small"][0] == "no match"
    assert "X40" in outcomes["small"][1]
    assert outcomes["bare"][0] == "error"
    assert outcomes["bare"][1] == 'attribute "gpu.example.com"/model is not published'


def test_the_table_shows_a_row_per_device() -> None:
    result = allot("cel", MODEL, "-f", "-", stdin=SLICES)
    assert "gpu.example.com/n1/large   match" in result.stdout
    assert "1 of 3 devices match, 1 errors" in result.stderr


def test_an_expression_that_does_not_compile_is_refused_with_the_servers_words() -> None:
    result = allot("cel", 'device.capacity["gpu.example.com"].memory >= "80Gi"')
    assert result.code == 1
    assert "error: expression: compilation failed: ERROR: <input>:1:" in result.stderr
    assert "found no matching overload for '_>=_'" in result.stderr


def test_an_expression_of_another_type_is_refused() -> None:
    result = allot("cel", "device.driver", "-o", "json")
    assert result.code == 1
    assert result.lines[0]["error"] == "must evaluate to bool or the unknown type, not string"


def test_an_expression_that_costs_too_much_is_refused_and_ends() -> None:
    expression = "device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, device.attributes.all(d, a == b && c == d))))"
    result = allot("cel", expression, "-f", "-", stdin=SLICES)
    assert result.code == 1
    assert "more than the limit of 1000000" in result.stdout


def test_deep_nesting_is_refused() -> None:
    result = allot("cel", "(" * 5000 + "true" + ")" * 5000)
    assert result.code == 1
    assert "error: expression: " in result.stderr


def test_a_very_long_expression_is_refused() -> None:
    assert allot("cel", " || ".join(["true"] * 100_000)).code == 1


def test_files_without_devices_are_refused() -> None:
    result = allot("cel", "true", "-f", "-", stdin=text(claim()))
    assert result.code == 2
    assert "no ResourceSlice" in result.stderr


def test_without_an_expression_the_usage_is_wrong() -> None:
    result = allot("cel")
    assert result.code == 2
    assert "missing argument" in result.stderr


# --- cases ---


def cases_file(folder: Path, value: Any) -> str:
    file = folder / "cases.json"
    file.write_text(json.dumps(value))
    return str(file)


DEVICE = {"driver": "d.example.com", "attributes": {"s": {"string": "fish"}}, "capacity": {"mem": "16Gi"}}


def test_cases_get_a_line_each(tmp_path: Path) -> None:
    expressions = ["true", 'device.attributes["d.example.com"].nope == 1', "1 +"]
    file = cases_file(tmp_path, {"device": DEVICE, "cases": [{"expression": text_} for text_ in expressions]})
    result = allot("cel", "--cases", file)
    assert result.code == 0
    match, failure, wrong = result.lines
    assert match == {"expression": "true", "match": True, "maxCost": 0}
    assert set(failure) == {"expression", "error", "maxCost"}
    assert failure["error"] == "no such key: nope"
    assert wrong["error"].startswith("compilation failed: ERROR: <input>:1:")


@pytest.mark.parametrize(
    "value",
    [
        5,
        {},
        {"cases": 5},
        {"device": 5, "cases": []},
        {"device": DEVICE, "cases": [5]},
        {"device": DEVICE, "cases": [{}]},
    ],
)
def test_a_cases_file_of_another_form_is_refused(tmp_path: Path, value: Any) -> None:
    result = allot("cel", "--cases", cases_file(tmp_path, value))
    assert result.code == 2
    assert "cases.json: " in result.stderr
    assert "expected" in result.stderr


def test_cases_and_an_expression_cannot_be_mixed(tmp_path: Path) -> None:
    assert allot("cel", "true", "--cases", cases_file(tmp_path, {"device": DEVICE, "cases": []})).code == 2

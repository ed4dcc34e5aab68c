"""JSON patch, with the habits that Kubernetes' clients know."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from allot.core.patching import PatchError, json_patch, operation_errors

OBJECT = {"metadata": {"labels": {"a": "1", "b/c": "2", "d~e": "3"}}, "list": [1, 2, 3], "nothing": None}


def op(name: str, path: str, **more: Any) -> dict[str, Any]:
    return {"op": name, "path": path, **more}


@pytest.mark.parametrize(
    ("operations", "path", "expected"),
    [
        ([op("add", "/metadata/labels/x", value="y")], "metadata.labels.x", "y"),
        ([op("add", "/metadata/labels/a", value="y")], "metadata.labels.a", "y"),
        ([op("replace", "/metadata/labels/b~1c", value="y")], "metadata.labels.b/c", "y"),
        ([op("replace", "/metadata/labels/d~0e", value="y")], "metadata.labels.d~e", "y"),
        ([op("add", "/list/0", value=0)], "list", [0, 1, 2, 3]),
        ([op("add", "/list/3", value=4)], "list", [1, 2, 3, 4]),
        ([op("add", "/list/-", value=4)], "list", [1, 2, 3, 4]),
        ([op("add", "/list/-1", value=4)], "list", [1, 2, 3, 4]),
        ([op("remove", "/list/1")], "list", [1, 3]),
        ([op("remove", "/list/-1")], "list", [1, 2]),
        ([op("replace", "/list/0", value={"a": 1}), op("add", "/list/0/b", value=2)], "list", [{"a": 1, "b": 2}, 2, 3]),
        ([op("copy", "/copied", **{"from": "/list"}), op("remove", "/copied/0")], "list", [1, 2, 3]),
        ([op("copy", "/copied", **{"from": "/list"}), op("remove", "/list/0")], "copied", [1, 2, 3]),
        ([op("move", "/moved", **{"from": "/metadata/labels"})], "moved.a", "1"),
        ([op("test", "/list/1", value=2), op("replace", "/list/1", value=9)], "list", [1, 9, 3]),
        ([op("test", "/absent", value=None)], "list", [1, 2, 3]),
        ([op("test", "/nothing", value=None)], "list", [1, 2, 3]),
        ([op("replace", "", value={"x": 1})], "x", 1),
        ([op("replace", "/new", value=1)], "new", 1),
    ],
)
def test_operations(operations: list[Any], path: str, expected: Any) -> None:
    before = copy.deepcopy(OBJECT)
    result: Any = json_patch(OBJECT, operations)
    for part in path.split("."):
        result = result[part]
    assert result == expected
    assert before == OBJECT, "input is not changed"


@pytest.mark.parametrize(
    ("operation", "cause"),
    [
        (op("remove", "/absent"), "Unable to remove nonexistent key: absent"),
        (op("remove", "/list/3"), "Unable to access invalid index: 3"),
        (op("remove", "/list/x"), "not a proper array index"),
        (op("add", "/list/5", value=1), "Unable to access invalid index: 5"),
        (op("add", "/absent/x", value=1), "doc is missing path"),
        (op("replace", "/list/7", value=1), "Unable to access invalid index: 7"),
        (op("replace", "/metadata/labels/a/x", value=1), "doc is missing path"),
        (op("test", "/list/0", value=2), "testing value /list/0 failed"),
        (op("test", "/list/0", value=True), "testing value /list/0 failed"),
        (op("test", "/absent", value=1), "testing value /absent failed"),
        (op("move", "/x", **{"from": "/absent"}), "nonexistent key: absent"),
        (op("move", "/metadata/labels/x", **{"from": "/metadata"}), "missing destination path"),
        (op("copy", "/x/y", **{"from": "/list"}), "missing destination path"),
        (op("copy", "/x"), "failed to decode from"),
        ({"op": "add", "value": 1}, "failed to decode path"),
        ({"op": "frobnicate", "path": "/x"}, "Unexpected kind: frobnicate"),
        ({"path": "/x"}, "Unexpected kind: unknown"),
        (op("replace", "", value=3), "must be object or array"),
        (op("replace", "", value=[]), "does not leave an object"),
        (op("add", "", value={}), "doc is missing path"),
    ],
)
def test_operations_that_do_not_fit_are_unprocessable(operation: dict[str, Any], cause: str) -> None:
    with pytest.raises(PatchError) as caught:
        json_patch(OBJECT, [operation])
    assert caught.value.code == 422
    assert caught.value.message == "the server rejected our request due to an error in our request"
    assert cause in caught.value.cause


@pytest.mark.parametrize("patch", [{}, "x", 3, None, [1], [[]]])
def test_what_is_no_list_of_operations_is_malformed(patch: Any) -> None:
    with pytest.raises(PatchError) as caught:
        json_patch(OBJECT, patch)
    assert caught.value.code == 400


def test_operations_are_bounded() -> None:
    with pytest.raises(PatchError) as caught:
        json_patch(OBJECT, [op("test", "/list/0", value=1)] * 10_001)
    assert caught.value.code == 413
    assert "The allowed maximum operations in a JSON patch is 10000, got 10001" in caught.value.message


def test_copies_are_bounded() -> None:
    bomb = [op("add", "/x", value=["x" * 1000])] + [op("copy", "/x/-", **{"from": "/x"})] * 40
    with pytest.raises(PatchError, match="accumulated size"):
        json_patch(OBJECT, bomb)


def test_depth_is_bounded() -> None:
    value: Any = 1
    for _ in range(300):
        value = [value]
    with pytest.raises(PatchError, match="nested too deeply"):
        json_patch(OBJECT, [op("add", "/x", value=value)])


def test_strict_validation_tells_unknown_members_of_operations() -> None:
    operations = [op("add", "/a", value=1), op("add", "/b", valeu=1)]
    assert operation_errors(operations) == ('json patch unknown field "[1].valeu"',)

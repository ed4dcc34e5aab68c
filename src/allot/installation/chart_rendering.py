"""Renders allot's chart without Helm: values over defaults, checked against the schema, then every template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import jsonschema
import msgspec

from allot.installation.definitions import definition_texts
from allot.installation.go_templates import Failed, TemplateError, Templates
from allot.yaml_values.reader import documents

Object = dict[str, Any]

# app.kubernetes.io/managed-by of objects of `allot install`.
SERVICE = "allot"
_NOTES = "templates/NOTES.txt"


class BadValues(Exception):
    """Values that the chart does not accept: which, and what was expected."""


class Release(msgspec.Struct, frozen=True):
    """The release that the chart is installed as."""

    name: str
    namespace: str


class Rendered(msgspec.Struct, frozen=True):
    """The objects, in the order of their files, and the notes."""

    objects: tuple[Object, ...]
    notes: str


def chart_folder() -> Traversable:
    """The chart's directory."""
    return files("allot.installation") / "chart"


def default_values() -> Object:
    """values.yaml."""
    return _document("values.yaml")


def _document(name: str) -> Object:
    found: Object = next(documents((chart_folder() / name).read_text())).value
    return found


def merged(values: Mapping[str, Any], over: Mapping[str, Any]) -> Object:
    """values with overrides; null removes a default, as in Helm."""
    result = dict(values)
    for key, value in over.items():
        below = result.get(key)
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(below, Mapping):
            result[key] = merged(below, value)
        else:
            result[key] = value
    return result


def set_value(values: Object, text: str) -> Object:
    """The values with one more, given as `a.b=value`; the value is read as YAML. BadValues."""
    path, equals, given = text.partition("=")
    keys = path.split(".")
    if not equals or not all(keys):
        raise BadValues(f"--set {text!r}: expected KEY=VALUE such as scheduler.replicas=1")
    try:
        value: Any = next(documents(given)).value if given else ""
    except ValueError as error:
        raise BadValues(f"--set {text!r}: {error}") from None
    for key in reversed(keys):
        value = {key: value}
    return merged(values, value)


def check_values(values: Object) -> None:
    """BadValues lists everything that the schema refuses."""
    schema = msgspec.json.decode((chart_folder() / "values.schema.json").read_bytes())
    problems = sorted(
        jsonschema.Draft7Validator(schema).iter_errors(values), key=lambda each: list(map(str, each.path))
    )
    if problems:
        raise BadValues("; ".join(_told(each) for each in problems))


def _told(problem: jsonschema.ValidationError) -> str:
    path = ".".join(map(str, problem.path))
    return f"{path}: {problem.message}" if path else str(problem.message)


def render(values: Mapping[str, Any], release: Release, kube_version: str = "v1.37.0") -> Rendered:
    """The rendered chart with these values over its defaults. BadValues if they are invalid."""
    every = merged(default_values(), values)
    check_values(every)
    context = _context(every, release, kube_version)
    texts = _texts()
    templates = Templates(texts)
    objects: list[Object] = []
    try:
        for name in sorted(texts):
            if name.endswith(".yaml"):
                text = templates.render(name, context)
                objects += [document.value for document in documents(text) if document.value is not None]
        notes = templates.render(_NOTES, context)
    except Failed as error:
        raise BadValues(str(error)) from None
    except TemplateError as error:
        raise AssertionError(f"the chart does not fit its values: {error}") from error
    return Rendered(tuple(objects), notes.strip("\n"))


def _texts() -> dict[str, str]:
    """The templates by file name, including those that only define."""
    return {f"templates/{file.name}": file.read_text() for file in (chart_folder() / "templates").iterdir()}


def _context(values: Object, release: Release, kube_version: str) -> Object:
    chart = _document("Chart.yaml")
    texts = definition_texts()

    def glob(pattern: str) -> dict[str, str]:
        assert pattern == "definitions/*.yaml", pattern
        return {f"definitions/{name}": text for name, text in texts.items()}

    def get(path: str) -> str:
        return texts[path.removeprefix("definitions/")]

    return {
        "Values": values,
        "Chart": {"Name": chart["name"], "Version": chart["version"], "AppVersion": chart["appVersion"]},
        "Release": {"Name": release.name, "Namespace": release.namespace, "Service": SERVICE},
        "Capabilities": {"KubeVersion": {"Version": kube_version}},
        "Files": {"Glob": glob, "Get": get},
    }


def in_part(object_: Object) -> str:
    """The part that an object belongs to; empty for definitions."""
    labels = object_["metadata"].get("labels") or {}
    return str(labels.get("allot.dev/part", ""))


def names_of(objects: Sequence[Object]) -> list[str]:
    """`Kind namespace/name` of each object."""
    return [named(each) for each in objects]


def named(object_: Object) -> str:
    """`Kind namespace/name`."""
    metadata = object_["metadata"]
    place = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
    return f"{object_['kind']} {place}{metadata['name']}"

"""Device classes: ResourceClass of 1.26 to 1.30, in `spec` or beside it, and DeviceClass in its versions."""

from __future__ import annotations

import json
from typing import Any

from allot.core.advice.convert.changes import Confidence, Notebook, shown
from allot.core.advice.convert.configurations import convert_configs
from allot.core.advice.convert.drivers import Driver, driver_named
from allot.core.advice.convert.expressions import translate
from allot.core.advice.convert.objects import RESOURCE_V1, Object, at, leaves, mapping, members, text, without
from allot.core.advice.convert.parameters import parameters_of, wanted
from allot.core.advice.convert.surroundings import NodeRequirement, Surroundings, class_driver
from allot.core.advice.places import Path

RULE = "resource-class"
_NODES = ("suitableNodes", "nodeSelector")


def convert_class(found: Object, around: Surroundings) -> None:
    """A class of any generation to DeviceClass of v1."""
    value, book = found.present, found.book
    if found.kind == "ResourceClass":
        book.change(
            ("kind",),
            f"{found.api_version} {found.kind}",
            f"{RESOURCE_V1} DeviceClass",
            "ResourceClass became DeviceClass in Kubernetes 1.31",
            rule=RULE,
        )
    elif found.api_version != RESOURCE_V1:
        book.change(("apiVersion",), found.api_version, RESOURCE_V1, "v1 is the version to use", rule="old-api-version")
    spec = dict(mapping(value.get("spec")))
    # ResourceClass had its fields beside metadata; authors of either kind put some of them in the other place.
    outside = {
        key: item for key, item in value.items() if key not in ("apiVersion", "kind", "metadata", "spec", "status")
    }
    converting = _Class(found, around, spec, outside)
    converting.run()
    found.value = {
        "apiVersion": RESOURCE_V1,
        "kind": "DeviceClass",
        **({"metadata": value["metadata"]} if "metadata" in value else {}),
        **({"spec": converting.spec} if converting.spec or "spec" in value else {}),
    }


class _Class:
    """The conversion of one class."""

    def __init__(self, found: Object, around: Surroundings, spec: dict[str, Any], outside: dict[str, Any]) -> None:
        self.found = found
        self.around = around
        self.book = found.book
        self.spec = without(spec, "driverName", "parametersRef", "parameters", "structuredParameters", *_NODES)
        self.fields: list[tuple[Path, str, Any]] = [
            *(((key,), key, item) for key, item in outside.items()),
            *((("spec", key), key, item) for key, item in spec.items() if key not in self.spec),
        ]
        self.driver = class_driver(found.given)

    def run(self) -> None:
        """First the fields that a class no longer has, then the others."""
        self.spec["selectors"] = self._selectors()
        for path, key, value in self.fields:
            self._field(path, key, value)
        if "config" in self.spec:
            self.spec["config"] = convert_configs(self.spec["config"], ("spec", "config"), self.book)
        if not self.spec["selectors"]:
            del self.spec["selectors"]
            if self.found.kind == "ResourceClass":
                self.book.error(
                    (), "driverName is missing: expected the driver whose devices the class selects", rule=RULE
                )

    def _selectors(self) -> list[Any]:
        given = self.spec.get("selectors")
        if given is not None and not isinstance(given, list):
            self.book.error(("spec", "selectors"), f"selectors is {json.dumps(given)}: expected a list", rule=RULE)
            return []
        return [
            convert_selector(selector, ("spec", "selectors", index), self.driver or None, self.book)
            for index, selector in enumerate(members(given))
        ]

    def _field(self, path: Path, key: str, value: Any) -> None:
        match key:
            case "driverName":
                self._driver_name(path, value, Confidence.CERTAIN)
            case "structuredParameters":
                self._structured(path, value)
            case "parametersRef":
                self._parameters(path, mapping(value))
            case "parameters" if isinstance(value, dict):
                self._inline(path, value)
            case "suitableNodes" | "nodeSelector":
                self._nodes(path, value)
            case _:
                self.book.error(
                    path,
                    f"{key}: {shown(value)} is not a field of a class, and may restrict what it selects",
                    rule=RULE,
                    hint="a DeviceClass has spec.selectors, spec.config and spec.extendedResourceName",
                )

    def _driver_name(self, path: Path, value: Any, confidence: Confidence) -> None:
        if not isinstance(value, str) or not value:
            self.book.error(path, f"driverName is {shown(value) or 'empty'}: expected the name of a driver", rule=RULE)
            return
        expression = class_expression(driver_named(value), self.found.name)
        self.spec["selectors"].insert(0, {"cel": {"expression": expression}})
        self.book.change(
            path, f"driverName: {value}", expression, "a class selects devices by CEL", rule=RULE, confidence=confidence
        )

    def _structured(self, path: Path, value: Any) -> None:
        """A boolean in 1.30; some authors nest unrelated fields in it."""
        if isinstance(value, bool) or value is None:
            why = "the scheduler always allocates; drivers publish ResourceSlices"
            self.book.change(path, f"structuredParameters: {shown(value)}", None, why, rule=RULE)
            return
        for leaf, item in leaves(value, path):
            if leaf[-1] == "driverName" and not self._has_other_driver_name():
                self._driver_name(leaf, item, Confidence.LIKELY)
            elif item is None:
                why = "null means that it is not set"
                self.book.change(leaf, {leaf[-1]: None}, None, why, rule=RULE)
            else:
                self.book.error(
                    leaf, f"{leaf[-1]}: {shown(item)} has no equivalent in a class and may restrict it", rule=RULE
                )

    def _has_other_driver_name(self) -> bool:
        return any(key == "driverName" for _, key, _ in self.fields)

    def _nodes(self, path: Path, value: Any) -> None:
        terms = members(mapping(value).get("nodeSelectorTerms"))
        if not terms:
            self.book.error(path, f"{path[-1]} is {shown(value)}: expected nodeSelectorTerms", rule=RULE)
            return
        if path[-1] == "suitableNodes" and not self._has_controller():
            why = "it applied to claims that a driver's controller allocates; without one, it had no effect"
            self.book.change(path, {"suitableNodes": value}, None, why, rule=RULE)
            return
        self.around.requirements.append(
            NodeRequirement(
                owner=self.found, path=path, terms=terms, kind="DeviceClass", namespace="", name=self.found.name
            )
        )

    def _has_controller(self) -> bool:
        """Whether a driver's controller allocates claims of the class. Before 1.31 it did unless the class had structured
        parameters; in 1.31 the claims say it."""
        if self.found.kind == "ResourceClass":
            return not any(key == "structuredParameters" and value is True for _, key, value in self.fields)
        return self.around.has_controller(self.found.name)

    def _parameters(self, path: Path, reference: dict[str, Any]) -> None:
        parameters = self.around.referenced(reference, self.found.namespace)
        if parameters is None:
            self.book.error(
                path,
                f"{shown(reference)} is not in the input, but its parameters belong in the class now",
                rule=RULE,
                hint="add the file with the parameters",
            )
            return
        self.book.change(path, reference, None, f"what {parameters} says is part of the class", rule=RULE)
        fields = parameters.given
        self.spec["config"] = [
            *members(self.spec.get("config")),
            *(
                {"opaque": {"driver": item.get("driverName"), "parameters": item.get("parameters")}}
                for item in map(mapping, members(fields.get("vendorParameters")))
            ),
        ]
        if not self.spec["config"]:
            del self.spec["config"]
        self._filters(members(fields.get("filters")), parameters)
        for key, value in fields.items():
            if key not in ("apiVersion", "kind", "metadata", "generatedFrom", "vendorParameters", "filters"):
                self._vendor_field(key, value, parameters)

    def _inline(self, path: Path, value: dict[str, Any]) -> None:
        """Parameters that an author wrote into the class: they become selectors of the class."""
        driver = driver_named(self.driver)
        values, inner = parameters_of(value)
        asked = wanted(values, driver, (*path, *inner), self.book, of_template=True)
        self.spec["selectors"] += [{"cel": {"expression": expression}} for expression in asked.selectors]
        if asked.count is not None or asked.class_name is not None:
            self.book.error(path, f"{shown(value)}: a class cannot set count or profile; its claims can", rule=RULE)
        if asked.configs:
            made = [{"opaque": {"driver": driver.name, "parameters": config}} for config in asked.configs]
            self.spec["config"] = [*members(self.spec.get("config")), *made]

    def _filters(self, filters: list[Any], parameters: Object) -> None:
        seen: set[str] = set()
        for index, item in enumerate(map(mapping, filters)):
            driver, path = text(item.get("driverName")), ("filters", index, "namedResources", "selector")
            expression = at(item, ("namedResources", "selector"))
            if not driver or not isinstance(expression, str) or driver in seen:
                parameters.book.error(
                    ("filters", index),
                    f"{shown(item)}: expected one filter with driverName and namedResources each",
                    rule=RULE,
                )
                continue
            seen.add(driver)
            new = translated(expression, driver, path, parameters.book, was_1_30=True)
            if new != "true":
                self.spec["selectors"].append({"cel": {"expression": f'device.driver != "{driver}" || ({new})'}})

    def _vendor_field(self, key: str, value: Any, parameters: Object) -> None:
        """Fields of vendors' class parameters: sharing is always allowed now, anything else is unknown."""
        spec = mapping(value) if key == "spec" else {key: value}
        for name, item in spec.items():
            path = (key, name) if key == "spec" else (key,)
            if name in ("sharable", "shareable") and item is not False:
                parameters.book.change(path, {name: item}, None, "every claim can be shared", rule=RULE)
            else:
                parameters.book.error(path, f"{name}: {shown(item)} has no equivalent in a class", rule=RULE)


def class_expression(driver: Driver, class_name: str) -> str:
    """The selectors of a driver's class. Classes of NVIDIA's driver meant whole GPUs unless parameters said MIG."""
    return (
        driver.class_expression
        if driver.class_name and "mig" not in class_name
        else f'device.driver == "{driver.name}"'
    )


def convert_selector(selector: Any, path: Path, driver: str | None, book: Notebook) -> Any:
    """One selector, with its expression in current CEL."""
    if isinstance(selector, str):
        why = "a selector has its expression in cel.expression"
        book.change(path, selector, {"cel": {"expression": selector}}, why, rule=RULE, confidence=Confidence.LIKELY)
        selector = {"cel": {"expression": selector}}
    cel = mapping(mapping(selector).get("cel"))
    expression = cel.get("expression")
    if not isinstance(expression, str):
        return selector
    new = translated(expression, driver, (*path, "cel", "expression"), book)
    return selector if new == expression else {**selector, "cel": {**cel, "expression": new}}


def translated(expression: str, driver: str | None, path: Path, book: Notebook, *, was_1_30: bool = False) -> str:
    """The expression in current CEL, with notes about the changes."""
    result = translate(expression, driver, was_1_30=was_1_30)
    for problem in result.problems:
        book.error(path, f"{shown(expression)}: {problem}", rule="cel-expression")
    if result.text != expression:
        book.change(path, expression, result.text, result.why, rule="cel-expression", confidence=result.confidence)
    return result.text

"""Converts parameters of claims before 1.31, referenced or (as some authors write) inline, to requests, selectors and configuration.

Only keys with a known meaning are converted. An unknown key is an error that names the key, its value and what the driver
publishes: it may have restricted what a workload gets.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from allot.core.advice.convert.changes import Confidence, Notebook, shown
from allot.core.advice.convert.configurations import sharing_config
from allot.core.advice.convert.drivers import Driver, Type
from allot.core.advice.convert.expressions import member, quoted, version_text
from allot.core.advice.convert.objects import mapping, members
from allot.core.advice.places import Path
from allot.core.quantity import Quantity, QuantityError

RULE = "claim-parameters"
MIG_CLASS = "mig.nvidia.com"
_OPERATORS = {
    "Equals": "==",
    "LessThan": "<",
    "LessThanOrEqualTo": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqualTo": ">=",
}
# Including spellings that authors use.
_JOINTS = {"andExpression": " && ", "andExpressions": " && ", "orExpression": " || ", "orExpressions": " || "}
_NESTING_MAX = 20
_SMALLEST_BYTES = 1024 * 1024


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The meaning of parameters: devices of one request, and configuration for the driver."""

    count: int | None = None
    class_name: str | None = None
    selectors: tuple[str, ...] = ()
    configs: tuple[dict[str, Any], ...] = ()


def wanted(values: dict[str, Any], driver: Driver, path: Path, book: Notebook, *, of_template: bool) -> Wanted:
    """The meaning of a parameters object or of inline parameters; problems are noted in the book."""
    reading = _Reading(driver, book, of_template)
    for key, value in values.items():
        if key not in ("apiVersion", "kind", "metadata"):
            reading.key(key, value, (*path, key))
    return Wanted(
        count=reading.count,
        class_name=reading.class_name,
        selectors=tuple(reading.selectors),
        configs=tuple(reading.configs),
    )


class _Reading:
    """The keys of one parameters object, one by one."""

    def __init__(self, driver: Driver, book: Notebook, of_template: bool) -> None:
        self.driver = driver
        self.book = book
        self.of_template = of_template
        self.count: int | None = None
        self.class_name: str | None = None
        self.selectors: list[str] = []
        self.configs: list[dict[str, Any]] = []

    def key(self, key: str, value: Any, path: Path) -> None:
        """One key with its value."""
        if value is None:
            self._changed(path, value, None, "null means that it is not set", Confidence.CERTAIN)
            return
        handler = _KEYS.get(key)
        if handler is not None:
            handler(self, value, path)
            return
        published = self.driver.attribute_named(key) if self._publishes(key) else None
        if published is None or isinstance(value, dict | list):
            self._unknown(key, value, path)
            return
        self._attribute(published, value, path, is_named=key == published)

    # --- keys ---

    def _count(self, value: Any, path: Path) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            self._error(path, f"count is {shown(value)}: expected a whole number from 1")
            return
        self.count = value
        self._changed(path, value, f"count: {value}", "a request has the number of devices", Confidence.CERTAIN)

    def _selector(self, value: Any, path: Path) -> None:
        if value == {}:
            self._changed(path, value, None, "an empty selector selects all devices", Confidence.CERTAIN)
            return
        expression = self._tree(value, path, 0)
        if expression is None:
            self._error(path, f"selector {shown(value)} cannot be converted, because of the problems above or below")
        else:
            self._selected(path, value, expression, "selectors are CEL expressions", Confidence.CERTAIN)

    def _sharing(self, value: Any, path: Path) -> None:
        if value in ({}, False):
            self._changed(path, value, None, "an empty sharing is the driver's default", Confidence.CERTAIN)
            return
        config, problem = sharing_config(value, self.driver, is_mig=self.class_name == MIG_CLASS)
        if config is None:
            self._error(path, f"sharing is {shown(value)}: {problem}")
            return
        self.configs.append(config)
        sure = Confidence.CERTAIN if isinstance(value, dict) else Confidence.LIKELY
        self._changed(path, value, config, "configuration for the driver is in config[].opaque", sure)

    def _profile(self, value: Any, path: Path) -> None:
        text = value.removeprefix("mig-") if isinstance(value, str) else ""
        if "profile" not in self.driver.attributes or not re.fullmatch(r"\d+g\.\d+gb(\+me)?", text):
            self._error(
                path, f"profile is {shown(value)}: expected a MIG profile such as 1g.5gb of driver gpu.nvidia.com"
            )
            return
        self.class_name = MIG_CLASS
        self.configs = [{**config, "kind": "MigDeviceConfig"} for config in self.configs]
        expression = f"{member(self.driver.name, 'profile', capacity=False)} == {quoted(text)}"
        self._selected(path, value, expression, f"MIG devices are of class {MIG_CLASS}", Confidence.CERTAIN)

    def _parent(self, value: Any, path: Path) -> None:
        self.book.error(
            path,
            f"{path[-1]}: {shown(value)} puts MIG devices of several claims on one GPU, which now needs one claim",
            rule=RULE,
            hint="ask for all of them in one claim, with constraints: [{matchAttribute: gpu.nvidia.com/parentUUID}]",
        )

    def _shareable(self, value: Any, path: Path) -> None:
        if value is False and not self.of_template:
            self.book.warning(
                path,
                "shareable: false has no equivalent: every pod that refers to the claim shares its devices",
                rule=RULE,
                hint="use a ResourceClaimTemplate, which creates a claim for each pod",
            )
        why = "every claim can be shared" if value else "a claim from a template belongs to one pod"
        self._changed(path, value, None, why, Confidence.CERTAIN)

    # --- attributes by name ---

    def _publishes(self, key: str) -> bool:
        known = (*self.driver.attributes, *self.driver.capacities)
        return bool(known) and self.driver.attribute_named(key) in known

    def _attribute(self, name: str, value: Any, path: Path, *, is_named: bool) -> None:
        """`memory: 80Gi`, `productName: Tesla T4`: at least this amount, this version or newer, exactly this text."""
        if name == "profile":
            self._profile(value, path)
            return
        if (
            not is_named
            and self.driver.attributes.get(name) is Type.TEXT
            and isinstance(value, str)
            and "*" not in value
        ):
            # `model: H100` is part of a product name.
            value = f"*{value}*"
        comparison = self._comparison(name, value, ">=", path)
        if comparison is not None:
            why = f"driver {self.driver.name} publishes {name}, and a selector can use it"
            self._selected(path, value, comparison, why, Confidence.LIKELY)

    def _comparison(self, name: str, value: Any, operator: str, path: Path) -> str | None:
        is_capacity = name in self.driver.capacities
        access = member(self.driver.name, name, capacity=is_capacity)
        type_ = Type.QUANTITY if is_capacity else self.driver.attributes.get(name, Type.TEXT)
        if type_ is Type.QUANTITY:
            quantity = _quantity_text(value, self.driver.memory_unit if name == "memory" else "")
            if quantity is None or (name == "memory" and Quantity.parse(quantity).value() < _SMALLEST_BYTES):
                self._error(path, f"{name} is {shown(value)}: expected a quantity with a unit, such as 80Gi")
                return None
            return f"{access}.compareTo(quantity({quoted(quantity)})) {operator} 0"
        if type_ is Type.VERSION:
            version = version_text(str(value)) if isinstance(value, str | int | float) else None
            if version is None:
                self._error(path, f"{name} is {shown(value)}: expected a version such as 8.0.0")
                return None
            return f"{access}.compareTo(semver({quoted(version)})) {operator} 0"
        if type_ is Type.TEXT and isinstance(value, str):
            return _glob(access, value)
        if isinstance(value, bool) and type_ is Type.BOOL:
            return access if value else f"!{access}"
        if isinstance(value, int) and not isinstance(value, bool) and type_ is Type.INT:
            return f"{access} == {value}"
        self._error(path, f"{name} is {shown(value)}: expected a value of type {type_}")
        return None

    # --- selector trees of NVIDIA's driver before 1.31 ---

    def _tree(self, tree: Any, path: Path, depth: int) -> str | None:
        if not isinstance(tree, dict) or not tree or depth > _NESTING_MAX:
            self._error(path, f"selector is {shown(tree)}: expected properties, andExpression or orExpression")
            return None
        parts: list[str | None] = []
        for key, value in tree.items():
            if key in _JOINTS:
                parts.append(self._joined(key, value, (*path, key), depth))
            else:
                parts.append(self._property(key, value, (*path, key)))
        known = [part for part in parts if part is not None]
        # A missing part was reported.
        return _all(known, " && ") if len(known) == len(parts) else None

    def _joined(self, key: str, value: Any, path: Path, depth: int) -> str | None:
        if not members(value):
            self._error(path, f"{key} is {shown(value)}: expected a list of selectors")
            return None
        parts = [self._tree(item, (*path, index), depth + 1) for index, item in enumerate(value)]
        known = [part for part in parts if part is not None]
        return _all(known, _JOINTS[key]) if len(known) == len(parts) else None

    def _property(self, key: str, value: Any, path: Path) -> str | None:
        if key == "migEnabled" and value is False:
            return f'{member(self.driver.name, "type", capacity=False)} == "gpu"'
        if not self._publishes(key):
            self._unknown(key, value, path)
            return None
        name = self.driver.attribute_named(key)
        assert name is not None, "a driver publishes what it is known to publish"
        if isinstance(value, dict):
            operator = _OPERATORS.get(str(value.get("operator")))
            if operator is None or set(value) - {"operator", "value"}:
                self._error(path, f"{key} is {shown(value)}: expected value and an operator: {', '.join(_OPERATORS)}")
                return None
            return self._comparison(name, value.get("value"), operator, path)
        return self._comparison(name, value, "==", path)

    # --- notes ---

    def _selected(self, path: Path, old: Any, expression: str, why: str, confidence: Confidence) -> None:
        self.selectors.append(expression)
        self._changed(path, old, expression, why, confidence)

    def _changed(self, path: Path, old: Any, new: Any, why: str, confidence: Confidence) -> None:
        self.book.change(path, {path[-1]: old}, new, why, rule=RULE, confidence=confidence)

    def _unknown(self, key: str, value: Any, path: Path) -> None:
        offers = f"driver {self.driver.name} offers: {self.driver.offers}" if self.driver.offers else ""
        known = ", ".join(sorted(_KEYS))
        self.book.error(
            path,
            f"{key}: {shown(value)} has no known meaning in requests and may restrict what the claim gets",
            rule=RULE,
            hint=offers
            or f"known fields are {known}; write a selector for the attributes of driver {self.driver.name}",
        )

    def _error(self, path: Path, message: str) -> None:
        self.book.error(path, message, rule=RULE)


def _quantity_text(value: Any, unit: str) -> str | None:
    """A quantity as text; the unit is for numbers without one."""
    text = f"{value}{unit}" if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str):
        return None
    # Users write GB where a quantity has G.
    text = re.sub(r"\s*([KMGT]i?)[Bb]$", r"\1", text.strip())
    try:
        Quantity.parse(text)
    except QuantityError:
        return None
    return text


def _glob(access: str, pattern: str) -> str:
    """A case-insensitive pattern, in which a star matches anything."""
    lowered = pattern.lower()
    if "*" not in lowered:
        return f"{access}.lowerAscii() == {quoted(lowered)}"
    expression = ".*".join(re.escape(part) for part in lowered.split("*"))
    return f"{access}.lowerAscii().matches({quoted(f'^{expression}$')})"


def _all(parts: list[str], operator: str) -> str:
    if len(parts) == 1:
        return parts[0]
    return operator.join(f"({part})" if "&&" in part or "||" in part else part for part in parts)


def parameters_of(value: dict[str, Any]) -> tuple[dict[str, Any], Path]:
    """The keys of a parameters object, which are in `spec` or, as some authors write, beside `kind`; and their path."""
    if "spec" in value:
        return mapping(value["spec"]), ("spec",)
    return value, ()


_KEYS: dict[str, Callable[[_Reading, Any, Path], None]] = {
    "count": _Reading._count,
    "selector": _Reading._selector,
    "sharing": _Reading._sharing,
    "profile": _Reading._profile,
    "migProfile": _Reading._profile,
    "shareable": _Reading._shareable,
    "sharable": _Reading._shareable,
    "gpuClaimName": _Reading._parent,
    "gpuClaimParametersName": _Reading._parent,
}

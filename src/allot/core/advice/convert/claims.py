"""Claims and templates: the spec of every generation to `devices` with `exactly`."""

from __future__ import annotations

from typing import Any

from allot.core.advice.convert.changes import Confidence, shown
from allot.core.advice.convert.classes import convert_selector, translated
from allot.core.advice.convert.configurations import convert_configs, sharing_config
from allot.core.advice.convert.drivers import Driver, driver_named, driver_of_group
from allot.core.advice.convert.objects import RESOURCE_V1, Object, at, mapping, members, text, without
from allot.core.advice.convert.parameters import Wanted, parameters_of, wanted
from allot.core.advice.convert.surroundings import CLAIM_PARAMETERS, NodeRequirement, Surroundings
from allot.core.advice.places import Path
from allot.core.model.convert import convert_to_hub

RULE = "claim"
_FLAT = (
    "deviceClassName",
    "selectors",
    "allocationMode",
    "count",
    "adminAccess",
    "tolerations",
    "capacity",
    "derivedAttributes",
)
_CONSTRAINT = frozenset(("requests", "matchAttribute", "distinctAttribute"))
_V1BETA1 = "resource.k8s.io/v1beta1"


def convert_claim(found: Object, around: Surroundings) -> None:
    """A ResourceClaim or ResourceClaimTemplate of any generation to v1."""
    if found.api_version != RESOURCE_V1:
        why = "v1 is the version to use; older ones are not served, or not for long"
        found.book.change(("apiVersion",), found.api_version, RESOURCE_V1, why, rule="old-api-version")
    value = {**found.present, "apiVersion": RESOURCE_V1}
    of_template = found.kind == "ResourceClaimTemplate"
    path: Path = ("spec", "spec") if of_template else ("spec",)
    if of_template and isinstance(value.get("spec"), dict) and "spec" not in value["spec"]:
        why = "a template has the claim's spec in spec.spec"
        value["spec"] = {"spec": value["spec"]}
        found.book.change(("spec",), "spec", "spec.spec", why, rule=RULE, confidence=Confidence.LIKELY)
        source: Path = ("spec",)
    else:
        source = path
    spec = at(value, path)
    if isinstance(spec, dict):
        converted = _Claim(found, around, source, of_template).convert(spec)
        if of_template:
            value["spec"] = {**value["spec"], "spec": converted}
        else:
            value["spec"] = converted
    if "status" in value:
        value = _with_status(value, found)
    found.value = value


def _with_status(value: dict[str, Any], found: Object) -> dict[str, Any]:
    status = mapping(value["status"])
    handles = mapping(status.get("allocation")).keys() & {"resourceHandles", "resourceHandle", "shareable"}
    if handles or "driverName" in status:
        why = "allocations from before 1.31 have no equivalent; the claim is allocated again"
        found.book.change(("status",), "status", None, why, rule=RULE)
        found.book.warning(("status",), f"status was dropped: {why}", rule=RULE)
        return without(value, "status")
    if found.api_version != "resource.k8s.io/v1alpha3":
        return value
    hub = convert_to_hub({"apiVersion": found.api_version, "kind": "ResourceClaim", "status": status})
    for warning in hub.warnings:
        found.book.warning(("status",), warning, rule=RULE)
    return {**value, "status": hub.value["status"]}


class _Claim:
    """The conversion of one claim's spec. Paths in notes are relative to the original spec."""

    def __init__(self, found: Object, around: Surroundings, path: Path, of_template: bool) -> None:
        self.found = found
        self.book = found.book
        self.around = around
        self.path = path
        self.of_template = of_template

    def convert(self, spec: dict[str, Any]) -> dict[str, Any]:
        """The converted spec."""
        devices = spec.get("devices", {})
        if not isinstance(devices, dict):
            return spec
        devices = {**devices, **self._misplaced(spec, devices)}
        if "requests" in devices:
            devices["requests"] = self._requests(devices["requests"], self._requests_path(spec))
        if "config" in devices:
            devices["config"] = convert_configs(devices["config"], (*self.path, "devices", "config"), self.book)
        devices = self._constraints(spec, devices)
        if "resourceClassName" in spec or "deviceClassName" in spec:
            devices = self._classic(spec, devices)
        self._others(spec)
        # In reading order: requests, constraints, configuration.
        ordered = {key: devices[key] for key in ("requests", "constraints", "config") if key in devices}
        return {"devices": ordered | devices} if devices or "devices" in spec else {}

    def _requests_path(self, spec: dict[str, Any]) -> Path:
        return (*self.path, "requests") if "requests" in spec else (*self.path, "devices", "requests")

    def _misplaced(self, spec: dict[str, Any], devices: dict[str, Any]) -> dict[str, Any]:
        """`requests` and `config` that belong in `devices`."""
        moved: dict[str, Any] = {}
        for key in ("requests", "config"):
            if key in spec and key not in devices:
                moved[key] = spec[key]
                why = "it belongs in devices"
                self._changed((key,), key, f"devices.{key}", why, Confidence.LIKELY)
        return moved

    # --- requests of 1.31 and later ---

    def _requests(self, requests: Any, path: Path) -> Any:
        if not isinstance(requests, list):
            return requests
        return [
            self._request(request, (*path, index)) if isinstance(request, dict) else request
            for index, request in enumerate(requests)
        ]

    def _request(self, request: dict[str, Any], path: Path) -> dict[str, Any]:
        if "resourceClassName" in request and "deviceClassName" not in request:
            why = "the class of a request is its deviceClassName"
            name = request["resourceClassName"]
            self.book.change((*path, "resourceClassName"), "resourceClassName", "deviceClassName", why, rule=RULE)
            request = {"deviceClassName": name, **without(request, "resourceClassName")}
        flat = [key for key in request if key in _FLAT]
        exactly = request.get("exactly")
        if flat and exactly is None:
            request = self._nested(request, flat, path)
        elif isinstance(exactly, dict) and not flat:
            request = {**request, "exactly": self._exact(exactly, (*path, "exactly"))}
        alternatives = request.get("firstAvailable")
        if isinstance(alternatives, list):
            request = {
                **request,
                "firstAvailable": [
                    self._exact(item, (*path, "firstAvailable", index)) if isinstance(item, dict) else item
                    for index, item in enumerate(alternatives)
                ],
            }
        return request

    def _nested(self, request: dict[str, Any], flat: list[str], path: Path) -> dict[str, Any]:
        selected = {**request, **self._selectors(request, path)}
        pseudo = {
            "apiVersion": self._flat_version,
            "kind": "ResourceClaim",
            "spec": {"devices": {"requests": [selected]}},
        }
        (nested,) = convert_to_hub(pseudo).value["spec"]["devices"]["requests"]
        if "exactly" in nested:
            why = "since v1beta2, a single request is under exactly"
            self.book.change(
                path, ", ".join(flat), f"exactly: {{{', '.join(nested['exactly'])}}}", why, rule="flat-request"
            )
        assert isinstance(nested, dict), "a converted request is an object"
        return nested

    @property
    def _flat_version(self) -> str:
        return self.found.api_version if self.found.api_version == "resource.k8s.io/v1alpha3" else _V1BETA1

    def _exact(self, request: dict[str, Any], path: Path) -> dict[str, Any]:
        return {**request, **self._selectors(request, path)}

    def _selectors(self, request: dict[str, Any], path: Path) -> dict[str, Any]:
        selectors = request.get("selectors")
        if not isinstance(selectors, list):
            return {}
        driver = self.around.driver_of(text(request.get("deviceClassName")))
        name = driver.name if driver is not None else None
        return {
            "selectors": [
                convert_selector(selector, (*path, "selectors", index), name, self.book)
                for index, selector in enumerate(selectors)
            ]
        }

    # --- one class and parameters, of before 1.31 ---

    def _classic(self, spec: dict[str, Any], devices: dict[str, Any]) -> dict[str, Any]:
        key = "resourceClassName" if "resourceClassName" in spec else "deviceClassName"
        class_name = spec[key]
        if not isinstance(class_name, str) or devices.get("requests"):
            self._error((key,), f"{key} is {shown(class_name)} beside requests: expected one of them")
            return devices
        requests, configs = self._asked_for(spec, class_name)
        if key == "deviceClassName":
            fields = {name: spec[name] for name in ("selectors", "count") if name in spec}
            exactly = {**requests[0]["exactly"], **fields}
            requests[0]["exactly"] = {**exactly, **self._selectors(exactly, self.path)}
        if not requests and spec.get("parametersRef") is not None:
            # Its reference is missing, which was reported, or asks for nothing.
            return {**devices, "requests": requests}
        why = "a claim asks for devices in requests, each of a device class"
        sure = Confidence.CERTAIN if key == "resourceClassName" else Confidence.LIKELY
        # The parameters' own notes cover what they add.
        classes = [
            {"name": request["name"], "exactly": {"deviceClassName": request["exactly"]["deviceClassName"]}}
            for request in requests
        ]
        self._changed((key,), f"{key}: {class_name}", {"requests": classes}, why, sure)
        devices = {**devices, "requests": requests}
        if configs:
            devices["config"] = [*members(devices.get("config")), *configs]
        return devices

    def _asked_for(self, spec: dict[str, Any], class_name: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The requests and configuration for the parameters."""
        requests: list[dict[str, Any]] = []
        configs: list[dict[str, Any]] = []
        inline, reference = spec.get("parameters"), spec.get("parametersRef")
        if inline is not None:
            self._add(self._inline(inline, class_name), class_name, requests, configs)
        elif reference is not None:
            self._referenced(mapping(reference), class_name, requests, configs)
        else:
            self._add(Wanted(), class_name, requests, configs)
        return requests, configs

    def _inline(self, inline: Any, class_name: str) -> Wanted:
        path = (*self.path, "parameters")
        if not isinstance(inline, dict):
            self._error(("parameters",), f"parameters is {shown(inline)}: expected a mapping")
            return Wanted()
        values, inner = parameters_of(inline)
        group = text(inline.get("apiVersion")).partition("/")[0]
        driver = self._driver(class_name, group)
        if driver is None:
            self._no_driver(("parameters",), class_name)
            return Wanted()
        return self._with_driver(
            wanted(values, driver, (*path, *inner), self.book, of_template=self.of_template), driver
        )

    def _with_driver(self, asked: Wanted, driver: Driver) -> Wanted:
        configs = tuple({"opaque": {"driver": driver.name, "parameters": config}} for config in asked.configs)
        return Wanted(count=asked.count, class_name=asked.class_name, selectors=asked.selectors, configs=configs)

    def _driver(self, class_name: str, group: str) -> Driver | None:
        return self.around.driver_of(class_name) or driver_of_group(group)

    def _no_driver(self, path: Path, class_name: str) -> None:
        self.book.error(
            (*self.path, *path),
            f"the driver of class {class_name} is unknown, so its parameters cannot be interpreted",
            rule=RULE,
            hint="add the file with the class",
        )

    def _referenced(
        self, reference: dict[str, Any], class_name: str, requests: list[dict[str, Any]], configs: list[dict[str, Any]]
    ) -> None:
        parameters = self.around.referenced(reference, self.found.namespace)
        if parameters is None:
            named = f"{text(reference.get('kind')) or 'parameters'} {text(reference.get('name'))}"
            self.book.error(
                (*self.path, "parametersRef"),
                f"{named} is not in the input, but its content belongs in the claim now",
                rule=RULE,
                hint="add the file with the parameters",
            )
            return
        why = f"what {parameters} says is part of the claim"
        self._changed(("parametersRef",), reference, None, why, Confidence.CERTAIN)
        if parameters.kind == CLAIM_PARAMETERS:
            self._core_parameters(parameters, class_name, requests, configs)
            return
        driver = self._driver(class_name, parameters.group)
        if driver is None:
            self._no_driver(("parametersRef",), class_name)
            return
        values, inner = parameters_of(parameters.given)
        if driver.attributes:
            asked = wanted(values, driver, inner, parameters.book, of_template=self.of_template)
        else:
            asked = self._passed_on(values, inner, parameters)
        self._add(self._with_driver(asked, driver), class_name, requests, configs)

    def _passed_on(self, values: dict[str, Any], inner: Path, parameters: Object) -> Wanted:
        """Parameters of an unknown driver: they can only be passed on to it."""
        own = without(values, "apiVersion", "kind", "metadata")
        config = {"apiVersion": parameters.api_version, "kind": parameters.kind, **own}
        why = "the driver may read its parameters from config[].opaque"
        parameters.book.change(inner, own, config, why, rule=RULE, confidence=Confidence.GUESS)
        for key, value in own.items():
            message = f"{key}: {shown(value)} goes to the driver and no longer restricts which devices the claim gets"
            parameters.book.warning((*inner, key), message, rule=RULE)
        return Wanted(configs=(config,))

    def _core_parameters(
        self, parameters: Object, class_name: str, requests: list[dict[str, Any]], configs: list[dict[str, Any]]
    ) -> None:
        """ResourceClaimParameters of 1.30: requests by driver."""
        values, inner = parameters_of(parameters.given)
        for key, value in values.items():
            if key == "shareable" and (value is not False or self.of_template):
                parameters.book.change((*inner, key), {key: value}, None, "every claim can be shared", rule=RULE)
            elif key not in ("apiVersion", "kind", "metadata", "generatedFrom", "driverRequests"):
                message = f"{key}: {shown(value)} has no equivalent in a claim"
                parameters.book.error((*inner, key), message, rule=RULE)
        for index, item in enumerate(map(mapping, members(values.get("driverRequests")))):
            path = (*inner, "driverRequests", index)
            driver = text(item.get("driverName"))
            first = len(requests)
            own: list[tuple[str, Any, Path]] = []
            for number, request in enumerate(map(mapping, members(item.get("requests")))):
                expression = at(request, ("namedResources", "selector"))
                where = (*path, "requests", number, "namedResources", "selector")
                selectors = [f'device.driver == "{driver}"']
                if isinstance(expression, str):
                    new = translated(expression, driver, where, parameters.book, was_1_30=True)
                    selectors += [new] if new != "true" else []
                self._add(Wanted(selectors=tuple(selectors)), class_name, requests, configs)
                if request.get("vendorParameters") is not None:
                    own.append((requests[-1]["name"], request["vendorParameters"], (*path, "requests", number)))
            names = [request["name"] for request in requests[first:]]
            if item.get("vendorParameters") is not None and names:
                configs += self._vendor_config(item["vendorParameters"], driver, names, path, parameters)
            for name, vendor_parameters, where in own:
                configs += self._vendor_config(vendor_parameters, driver, [name], where, parameters)

    def _vendor_config(
        self, given: Any, driver_name: str, names: list[str], path: Path, parameters: Object
    ) -> list[dict[str, Any]]:
        driver = driver_named(driver_name)
        sharing = at(given, ("spec", "sharing")) or mapping(given).get("sharing")
        config: Any = given
        if driver.config_api_version and sharing:
            made, problem = sharing_config(sharing, driver, is_mig=False)
            if made is None:
                parameters.book.error(path, f"sharing is {shown(sharing)}: {problem}", rule=RULE)
                return []
            config = made
        why = "parameters for the driver are configuration of the claim"
        parameters.book.change((*path, "vendorParameters"), given, config, why, rule=RULE)
        return [{"requests": names, "opaque": {"driver": driver_name, "parameters": config}}]

    def _add(
        self, asked: Wanted, class_name: str, requests: list[dict[str, Any]], configs: list[dict[str, Any]]
    ) -> None:
        exactly: dict[str, Any] = {"deviceClassName": asked.class_name or class_name}
        if asked.selectors:
            exactly["selectors"] = [{"cel": {"expression": expression}} for expression in asked.selectors]
        if asked.count is not None:
            exactly["count"] = asked.count
        requests.append({"name": f"req-{len(requests)}", "exactly": exactly})
        configs += asked.configs

    # --- fields of the spec that are gone ---

    def _constraints(self, spec: dict[str, Any], devices: dict[str, Any]) -> dict[str, Any]:
        """Constraints in either place; node constraints move to pods."""
        kept: list[Any] = []
        for path, given in (
            (("constraints",), spec.get("constraints")),
            (("devices", "constraints"), devices.get("constraints")),
        ):
            if given is not None and not isinstance(given, list):
                self._error(path, f"constraints is {shown(given)}: expected a list")
                continue
            kept += [
                constraint
                for index, constraint in enumerate(members(given))
                if not self._is_about_nodes(constraint, (*path, index))
            ]
            if path == ("constraints",) and kept:
                self._changed(
                    path, "constraints", "devices.constraints", "constraints belong in devices", Confidence.LIKELY
                )
        nodes = spec.get("nodeSelector")
        if nodes is not None:
            self._require(("nodeSelector",), nodes)
        return {**devices, "constraints": kept} if kept else without(devices, "constraints")

    def _is_about_nodes(self, constraint: Any, path: Path) -> bool:
        unknown = sorted(set(mapping(constraint)) - _CONSTRAINT)
        if unknown and set(mapping(constraint)) != {"nodeSelector"}:
            known = ", ".join(sorted(_CONSTRAINT))
            self._error(path, f"{shown(constraint)}: {', '.join(unknown)} unknown in a constraint: expected {known}")
        if not isinstance(constraint, dict) or set(constraint) != {"nodeSelector"}:
            return False
        self._require((*path, "nodeSelector"), constraint["nodeSelector"])
        return True

    def _require(self, path: Path, labels: Any) -> None:
        if not isinstance(labels, dict) or not labels or not all(isinstance(item, str) for item in labels.values()):
            self._error(path, f"nodeSelector is {shown(labels)}: expected labels with their values")
            return
        self.around.requirements.append(
            NodeRequirement(
                owner=self.found,
                path=(*self.path, *path),
                labels=labels,
                kind=self.found.kind,
                namespace=self.found.namespace,
                name=self.found.name,
            )
        )

    def _others(self, spec: dict[str, Any]) -> None:
        """The remaining fields of the spec: each is converted, dropped with a reason, or an error."""
        known = {
            "devices",
            "requests",
            "config",
            "constraints",
            "nodeSelector",
            "resourceClassName",
            "parameters",
            "parametersRef",
        }
        if "deviceClassName" in spec and "resourceClassName" not in spec:
            known |= {"deviceClassName", "selectors", "count"}
        elif "resourceClassName" not in spec:
            known -= {"parameters", "parametersRef"}
        for key, value in spec.items():
            if key in known:
                continue
            if key == "allocationMode" and value in ("WaitForFirstConsumer", None):
                why = "WaitForFirstConsumer is the only behavior now"
                self._changed((key,), f"allocationMode: {value}", None, why, Confidence.CERTAIN)
            elif key == "allocationMode":
                message = f"allocationMode: {shown(value)}: claims are only allocated for a pod now"
                self._error((key,), message, "remove it; only a pod that refers to the claim can use the device")
            elif key == "controller":
                why = "allocation by a driver's controller no longer exists; the driver must publish ResourceSlices"
                self._changed((key,), f"controller: {value}", None, why, Confidence.CERTAIN)
                self.book.warning((*self.path, key), f"controller: {shown(value)} was dropped: {why}", rule=RULE)
            elif key == "shareable" and value is not False:
                self._changed((key,), {key: value}, None, "every claim can be shared", Confidence.CERTAIN)
            else:
                message = f"{key}: {shown(value)} is not a field of a claim, and may restrict what it gets"
                self._error((key,), message, "a claim has devices.requests, devices.constraints and devices.config")

    # --- notes ---

    def _changed(self, path: Path, old: Any, new: Any, why: str, confidence: Confidence) -> None:
        self.book.change((*self.path, *path), old, new, why, rule=RULE, confidence=confidence)

    def _error(self, path: Path, message: str, hint: str = "") -> None:
        self.book.error((*self.path, *path), message, rule=RULE, hint=hint)

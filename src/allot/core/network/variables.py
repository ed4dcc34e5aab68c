"""Environment variables for the Services of a container's namespace, as set by the kubelet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

JSON = Mapping[str, Any]


def service_variables(services: Iterable[JSON]) -> dict[str, str]:
    """Of Services that have an address; those of the last win where names are the same."""
    made: dict[str, str] = {}
    for service in services:
        spec = service.get("spec") or {}
        address, ports = spec.get("clusterIP") or "None", spec.get("ports") or ()
        if address == "None" or not ports:
            continue
        name = _variable(service["metadata"]["name"])
        host = f"[{address}]" if ":" in address else address
        made[f"{name}_SERVICE_HOST"] = address
        made[f"{name}_SERVICE_PORT"] = str(ports[0]["port"])
        made[f"{name}_PORT"] = f"{_protocol(ports[0])}://{host}:{ports[0]['port']}"
        for each in ports:
            if each.get("name"):
                made[f"{name}_SERVICE_PORT_{_variable(each['name'])}"] = str(each["port"])
            link = f"{name}_PORT_{each['port']}_{_protocol(each).upper()}"
            made[link] = f"{_protocol(each)}://{host}:{each['port']}"
            made[f"{link}_PROTO"] = _protocol(each)
            made[f"{link}_PORT"] = str(each["port"])
            made[f"{link}_ADDR"] = address
    return made


def _variable(name: str) -> str:
    return name.upper().replace("-", "_")


def _protocol(port: JSON) -> str:
    return str(port.get("protocol") or "TCP").lower()

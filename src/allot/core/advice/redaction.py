"""Objects without what is private and does not matter to advice: what containers run and with which settings."""

from __future__ import annotations

from typing import Any

JSON = dict[str, Any]

# Of a container: what may carry passwords, and what is only noise here.
_CONTAINER_FIELDS = frozenset(
    (
        "env",
        "envFrom",
        "command",
        "args",
        "lifecycle",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "volumeMounts",
        "volumeDevices",
    )
)
_CONTAINER_LISTS = ("containers", "initContainers", "ephemeralContainers")
# Annotations that repeat a whole object as somebody applied it.
_COPIES = frozenset(("kubectl.kubernetes.io/last-applied-configuration",))
_DATA = frozenset(("data", "binaryData", "stringData"))


def redacted(value: JSON) -> JSON:
    """The object without environment, commands and the like, copies of itself and managedFields."""
    metadata = value.get("metadata")
    plain = {key: part for key, part in value.items() if key not in _DATA}
    if isinstance(metadata, dict):
        plain["metadata"] = _metadata(metadata)
    if isinstance(value.get("spec"), dict):
        plain["spec"] = _spec(value["spec"])
    return plain


def _metadata(metadata: JSON) -> JSON:
    kept = {key: part for key, part in metadata.items() if key != "managedFields"}
    annotations = kept.get("annotations")
    if isinstance(annotations, dict):
        left = {key: text for key, text in annotations.items() if key not in _COPIES}
        kept = {**kept, "annotations": left}
        if not left:
            del kept["annotations"]
    return kept


def _spec(spec: JSON) -> JSON:
    """A spec, and the pod template in it."""
    changed = dict(spec)
    for name in _CONTAINER_LISTS:
        containers = spec.get(name)
        if isinstance(containers, list):
            changed[name] = [_container(each) for each in containers]
    template = spec.get("template")
    if isinstance(template, dict) and isinstance(template.get("spec"), dict):
        changed["template"] = {**template, "spec": _spec(template["spec"])}
    return changed


def _container(container: Any) -> Any:
    if not isinstance(container, dict):
        return container
    return {key: part for key, part in container.items() if key not in _CONTAINER_FIELDS}

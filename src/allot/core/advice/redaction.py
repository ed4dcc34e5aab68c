"""Objects without private data that advice does not need: commands and settings of containers, and what users and tools
wrote in annotations."""

from __future__ import annotations

from typing import Any

from allot.core.advice.explain.causes.volumes import DEFAULT_CLASS
from allot.core.model.resource_v1 import EXTENDED_RESOURCE_CLAIM_ANNOTATION, POD_CLAIM_NAME_ANNOTATION
from allot.core.scheduling import BIND_COMPLETED, OLD_CLASS, SELECTED_NODE
from allot.core.validation.pod import MIRROR_POD_ANNOTATION

JSON = dict[str, Any]

# Container fields that may contain passwords, or are irrelevant here.
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
# Annotations that advice needs; any other may contain anything.
KEPT_ANNOTATIONS = frozenset(
    (
        POD_CLAIM_NAME_ANNOTATION,
        EXTENDED_RESOURCE_CLAIM_ANNOTATION,
        MIRROR_POD_ANNOTATION,
        BIND_COMPLETED,
        SELECTED_NODE,
        OLD_CLASS,
        DEFAULT_CLASS,
    )
)
# Annotations that repeat a whole object as it was applied, including passwords and environment.
_COPIES = frozenset(("kubectl.kubernetes.io/last-applied-configuration",))
_DATA = frozenset(("data", "binaryData", "stringData"))


def redacted(value: JSON, *, keep_annotations: bool = False) -> JSON:
    """The object without environment, commands, managedFields, and annotations that advice does not need.

    keep_annotations: keep all except copies of the object."""
    plain = {key: part for key, part in value.items() if key not in _DATA}
    changed: JSON = _object(plain, keep_annotations)
    return changed


def _object(value: Any, keep_annotations: bool) -> Any:
    """An object, or a template of one."""
    if not isinstance(value, dict):
        return value
    changed = dict(value)
    if isinstance(value.get("metadata"), dict):
        changed["metadata"] = _metadata(value["metadata"], keep_annotations)
    if isinstance(value.get("spec"), dict):
        changed["spec"] = _spec(value["spec"], keep_annotations)
    return changed


def _metadata(metadata: JSON, keep_annotations: bool) -> JSON:
    kept = {key: part for key, part in metadata.items() if key not in ("managedFields", "annotations")}
    annotations = metadata.get("annotations")
    if isinstance(annotations, dict):
        left = {
            key: text
            for key, text in annotations.items()
            if key in KEPT_ANNOTATIONS or (keep_annotations and key not in _COPIES)
        }
        if left:
            kept["annotations"] = left
    return kept


def _spec(spec: JSON, keep_annotations: bool) -> JSON:
    """A spec, with its containers and the templates in it: of pods, jobs, claims and volume claims."""
    changed = dict(spec)
    for name in _CONTAINER_LISTS:
        containers = spec.get(name)
        if isinstance(containers, list):
            changed[name] = [_container(each) for each in containers]
    for name in ("template", "jobTemplate"):
        if name in spec:
            changed[name] = _object(spec[name], keep_annotations)
    if isinstance(spec.get("volumeClaimTemplates"), list):
        changed["volumeClaimTemplates"] = [_object(each, keep_annotations) for each in spec["volumeClaimTemplates"]]
    if isinstance(spec.get("metadata"), dict):
        # A claim template has the claims' metadata in its spec.
        changed["metadata"] = _metadata(spec["metadata"], keep_annotations)
    return changed


def _container(container: Any) -> Any:
    if not isinstance(container, dict):
        return container
    return {key: part for key, part in container.items() if key not in _CONTAINER_FIELDS}

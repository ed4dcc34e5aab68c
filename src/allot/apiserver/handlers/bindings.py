"""pods/binding: a scheduler assigns a pod to a node. This happens once; a second attempt is refused."""

from __future__ import annotations

from typing import Any

from allot.apiserver.admission.attributes import Operation
from allot.apiserver.admission.chain import admission_of
from allot.apiserver.aside import size_of
from allot.apiserver.errors import bad_request, conflict, invalid, not_found
from allot.apiserver.handlers.storing import MODIFIED, owned
from allot.apiserver.objects.fieldchecks import BINDING, read_part
from allot.apiserver.objects.objectmeta import metadata_of, text_of
from allot.apiserver.objects.options import write_options
from allot.apiserver.registry import Served
from allot.apiserver.request import ApiObject, ApiRequest
from allot.apiserver.server_context import ServerContext
from allot.core.validation.fields import NOT_SUPPORTED, REQUIRED, FieldError, quote
from allot.store.port import KeyNotFound, RevisionConflict

Object = dict[str, Any]

SUCCESS: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
_ATTEMPTS = 5


async def bind(context: ServerContext, served: Served, request: ApiRequest) -> ApiObject:
    """POST of a Binding, to pods/binding or to the older bindings."""
    options = write_options(request.query, request.user_agent, "Create")
    binding, warnings = await context.aside.run(
        size_of(request.body), read_part, request, served, context.registry, BINDING, options.field_validation
    )
    metadata = metadata_of(binding)
    name = text_of(metadata, "name")
    if request.name and name != request.name:
        raise bad_request("name in URL does not match name in Binding object")
    if not name:
        raise bad_request("Name parameter required.")
    node = _target(binding, name)
    pods = context.registry.find("", "v1", "pods")
    assert pods is not None, "pods are served"
    admission = admission_of(
        request, Operation.CREATE, pods.resource, binding, None, subresource="binding", dry_run=options.dry_run
    )
    await context.admission.mutate(admission)
    for _ in range(_ATTEMPTS):
        entry = await context.store.get(pods.key(request.namespace, name))
        if entry is None:
            raise not_found("", "pods", name)
        bound = _bound(entry.object, name, node, metadata, context.clock.now())
        async with context.admission.judge(admission):
            if options.dry_run:
                return ApiObject(object=SUCCESS, status=201)
            try:
                await context.store.update(entry.key, owned(bound), entry.revision)
            except (RevisionConflict, KeyNotFound):
                continue
        return ApiObject(object=SUCCESS, status=201, warnings=(*warnings, *admission.warnings))
    raise conflict("", "pods/binding", name, MODIFIED)


def _target(binding: Object, name: str) -> str:
    target = binding.get("target") or {}
    errors = []
    kind = target.get("kind") or ""
    if kind not in ("", "Node"):
        text = f'Unsupported value: {quote(str(kind))}: supported values: "Node", ""'
        errors.append(FieldError("target.kind", NOT_SUPPORTED, text))
    if not isinstance(target.get("name"), str) or not target["name"]:
        errors.append(FieldError("target.name", REQUIRED, "Required value"))
    if errors:
        raise invalid("", "Binding", name, errors)
    return str(target["name"])


def _bound(pod: Object, name: str, node: str, wanted: Object, now: str) -> Object:
    """The pod bound to its node; 409 if it cannot be bound."""
    metadata, spec = pod["metadata"], pod["spec"]
    uid, version = wanted.get("uid"), wanted.get("resourceVersion")
    why = ""
    if uid and uid != metadata.get("uid"):
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {metadata.get('uid')}"
    elif version and version != metadata["resourceVersion"]:
        why = (
            f"Precondition failed: ResourceVersion in precondition: {version}, "
            f"ResourceVersion in object meta: {metadata['resourceVersion']}"
        )
    elif metadata.get("deletionTimestamp"):
        why = f"pod {name} is being deleted, cannot be assigned to a host"
    elif spec.get("nodeName"):
        why = f"pod {name} is already assigned to node {quote(spec['nodeName'])}"
    elif spec.get("schedulingGates"):
        why = f"pod {name} has non-empty .spec.schedulingGates"
    if why:
        raise conflict("", "pods/binding", name, why)
    changed = dict(metadata)
    for member in ("annotations", "labels"):
        if isinstance(wanted.get(member), dict) and wanted[member]:
            changed[member] = {**(metadata.get(member) or {}), **wanted[member]}
    return {
        **pod,
        "metadata": changed,
        "spec": {**spec, "nodeName": node},
        "status": _scheduled(pod.get("status") or {}, metadata.get("generation"), now),
    }


def _scheduled(status: Object, generation: int | None, now: str) -> Object:
    conditions = [c for c in status.get("conditions") or [] if c.get("type") != "PodScheduled"]
    condition: Object = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    if generation:
        condition["observedGeneration"] = generation
    return {**status, "conditions": [*conditions, condition]}

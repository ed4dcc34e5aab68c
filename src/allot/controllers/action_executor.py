"""Executes the actions of reconcilers through the client. Decides nothing: the runner interprets the answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from allot.client.api import Client, PatchType, ResourceClient
from allot.client.errors import AlreadyExists, NotFound
from allot.core.lifecycle import actions
from allot.core.lifecycle.actions import (
    Apply,
    Create,
    Delete,
    LookUp,
    Patch,
    Question,
    RemoveFinalizer,
    Resource,
    Review,
    Update,
    Write,
)
from allot.core.model.codec import encode
from allot.core.model.meta import APIStruct

Object = dict[str, Any]

_PATCH_TYPES = {
    actions.PatchType.JSON: PatchType.JSON,
    actions.PatchType.MERGE: PatchType.MERGE,
    actions.PatchType.STRATEGIC: PatchType.STRATEGIC,
}


class ActionExecutor:
    """Writes and looks up on behalf of a controller. Errors are the client's."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._resources: dict[tuple[str, str, str], ResourceClient] = {}

    async def write(self, action: Write, before: Object | None = None) -> Object | None:
        """Execute it. Returns the resulting object; None if there is none, or nothing was necessary.

        before: the result of the preceding action, for those that build on it.
        """
        match action:
            case Create():
                return await self._create(action)
            case Update():
                return await self._update(action, before)
            case RemoveFinalizer():
                return await self._remove_finalizer(action, before)
            case Patch():
                return await self._of(action.resource).patch(
                    action.name,
                    action.patch,
                    _PATCH_TYPES[action.type],
                    action.namespace,
                    subresource=action.subresource,
                    field_manager=action.manager,
                )
            case Apply():
                return await self._apply(action)
            case Delete():
                return await self._delete(action)

    async def ask(self, question: Question) -> Any:
        """The server's answer to a question."""
        return await (self._look_up(question) if isinstance(question, LookUp) else self._review(question))

    async def _look_up(self, question: LookUp) -> Any:
        """The object as the server has it now, decoded if core has its type; None if there is none. All objects in a tuple
        if no name is given."""
        resource, type_ = self._of(question.resource), question.resource.type
        if not question.name:
            items = (await resource.list(question.namespace)).items
            return items if type_ is None else tuple(map(self._client.typed(type_).decode_cached, items))
        try:
            found = await resource.get(question.name, question.namespace, subresource=question.subresource)
        except NotFound:
            return None
        return found if type_ is None else self._client.typed(type_).decode(found)

    async def _review(self, question: Review) -> Any:
        """The status that the server gives a review, which it does not store."""
        resource = question.resource
        asked = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": msgspec.json.decode(question.spec)}
        return (await self._of(resource).create(asked)).get("status") or {}

    # --- one by one ---

    async def _create(self, action: Create) -> Object | None:
        resource = self._of(action.resource)
        try:
            return await resource.create(
                _encoded(action.object), action.namespace, name=action.name, subresource=action.subresource
            )
        except AlreadyExists:
            if not action.may_exist:
                raise
            return None

    async def _update(self, action: Update, before: Object | None) -> Object:
        object_ = _encoded(action.object)
        # The server keeps managedFields if an update has none; those that were read may be outdated.
        metadata = {key: value for key, value in object_["metadata"].items() if key != "managedFields"}
        if action.follows:
            assert before is not None and before["metadata"]["uid"] == metadata["uid"], "nothing to follow"
            metadata["resourceVersion"] = before["metadata"]["resourceVersion"]
        return await self._of(action.resource).update({**object_, "metadata": metadata}, subresource=action.subresource)

    async def _remove_finalizer(self, action: RemoveFinalizer, before: Object | None) -> Object | None:
        if action.follows and before is None:
            # The preceding action had no result.
            return None
        object_ = before if before is not None and action.follows else _encoded(action.object)
        metadata = dict(object_["metadata"])
        finalizers = [name for name in metadata.pop("finalizers", ()) if name != action.finalizer]
        if finalizers:
            metadata["finalizers"] = finalizers
        return await self._of(action.resource).update({**object_, "metadata": metadata})

    async def _apply(self, action: Apply) -> Object:
        metadata = {"name": action.name}
        if action.namespace:
            metadata["namespace"] = action.namespace
        if action.uid:
            metadata["uid"] = action.uid
        object_ = {
            "apiVersion": action.resource.api_version,
            "kind": action.resource.kind,
            "metadata": metadata,
            **action.fields,
        }
        return await self._of(action.resource).apply(
            object_, action.manager, force=action.force, subresource=action.subresource
        )

    async def _delete(self, action: Delete) -> Object | None:
        try:
            answer = await self._of(action.resource).delete(
                action.name,
                action.namespace,
                uid=action.uid,
                resource_version=action.resource_version,
                propagation_policy=action.propagation_policy,
                grace_period_seconds=action.grace_period_seconds,
            )
        except NotFound:
            return None
        return None if answer.get("kind") == "Status" else answer

    def _of(self, resource: Resource) -> ResourceClient:
        key = (resource.group, resource.version, resource.plural)
        found = self._resources.get(key)
        if found is None:
            found = self._resources[key] = self._client.resource(*key, namespaced=resource.namespaced)
        return found


def _encoded(object_: APIStruct | Mapping[str, Any]) -> Object:
    return encode(object_) if isinstance(object_, APIStruct) else dict(object_)

"""The guard's ValidatingWebhookConfiguration: its content, and keeping it up to date.

The leader writes its address and certificate authority; the installer writes the rest.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from allot.client.api import Client
from allot.client.errors import AlreadyExists, ApiError, Conflict, NotFound
from allot.core.lifecycle.guard_webhook import CHANGES_ALLOCATION, GUARD_WEBHOOK, exempt
from allot.guard.serving import PATH
from allot.process.clock import Clock

_log = logging.getLogger("allot.guard")

_CHECK_EVERY_S = 5.0
_RETRY_S = 1.0
# If we maintain the whole configuration, nothing is exempt: an administrator's selectors are removed.
_EVERYWHERE: Mapping[str, Any] = {"namespaceSelector": {}, "objectSelector": {}}

Object = dict[str, Any]


class Service(msgspec.Struct, frozen=True):
    """A Service that routes to the guard's processes."""

    namespace: str
    name: str
    port: int = 443

    @property
    def host(self) -> str:
        """The name that API servers expect in the certificate."""
        return f"{self.name}.{self.namespace}.svc"


class WebhookOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the configuration."""

    name: str = "allot-guard"
    service: Service | None = None
    # Without a Service: where API servers find the process.
    url: str = ""
    fails_closed: bool = True
    timeout_s: int = 5


def webhook_configuration(options: WebhookOptions, bundle: bytes = b"") -> Object:
    """The object. bundle: the trusted certificates as PEM; empty until the leader has written it."""
    webhook = {
        "name": GUARD_WEBHOOK,
        "admissionReviewVersions": ["v1"],
        "clientConfig": client_config(options, bundle),
        "rules": [
            {
                "apiGroups": ["resource.k8s.io"],
                # All versions: an allocation's devices have the same form in each.
                "apiVersions": ["*"],
                "operations": ["UPDATE"],
                "resources": ["resourceclaims/status"],
                "scope": "Namespaced",
            }
        ],
        "matchConditions": [{"name": "changes-allocation", "expression": CHANGES_ALLOCATION}],
        "matchPolicy": "Exact",
        "failurePolicy": "Fail" if options.fails_closed else "Ignore",
        # An admitted write is recorded; a dry run, which the review indicates, is not.
        "sideEffects": "NoneOnDryRun",
        "timeoutSeconds": options.timeout_s,
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": options.name, "labels": {"app.kubernetes.io/name": "allot-guard"}},
        "webhooks": [webhook],
    }


def client_config(options: WebhookOptions, bundle: bytes) -> Object:
    """The guard's address and trusted certificates."""
    trust = {"caBundle": base64.b64encode(bundle).decode()} if bundle else {}
    if options.service is None:
        return {"url": options.url, **trust}
    service = options.service
    return {
        "service": {"namespace": service.namespace, "name": service.name, "path": PATH, "port": service.port},
        **trust,
    }


class ConfigurationKeeper:
    """Maintains the stored configuration while this process leads."""

    def __init__(self, client: Client, clock: Clock, options: WebhookOptions, *, installs: bool) -> None:
        """installs: create the configuration and maintain all of it; otherwise the leader writes clientConfig into an existing one."""
        self._resource = client.resource(
            "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", namespaced=False
        )
        self._clock = clock
        self._options = options
        self._installs = installs
        self._told = ""

    async def was_used(self) -> bool:
        """Whether API servers may have called a guard before, which requires a stored certificate; true if unknown."""
        try:
            found = await self._resource.get(self._options.name)
        except NotFound:
            return False
        except ApiError as error:
            self._tell(f"not read: {error}")
            return True
        return any((each.get("clientConfig") or {}).get("caBundle") for each in _guards(found))

    async def publish(self, options: WebhookOptions, bundle: bytes) -> None:
        """Write it, retrying until that succeeds."""
        while not await self._ensure(options, bundle):
            await self._clock.sleep(_RETRY_S)

    async def keep(self, wanted: Callable[[], tuple[WebhookOptions, bytes]]) -> None:
        """Maintain it until cancelled. wanted: returns the current options and bundle."""
        while True:
            await self._clock.sleep(_CHECK_EVERY_S)
            options, bundle = wanted()
            await self._ensure(options, bundle)

    async def _ensure(self, options: WebhookOptions, bundle: bytes) -> bool:
        """Correct the configuration; returns whether it is now as wanted."""
        try:
            return await self._write(options, bundle)
        except (Conflict, AlreadyExists):
            return False  # Another writer was faster; the next check sees its write.
        except ApiError as error:
            self._tell(f"not written: {error}")
            return False

    async def _write(self, options: WebhookOptions, bundle: bytes) -> bool:
        wanted = webhook_configuration(options, bundle)
        try:
            found = await self._resource.get(options.name)
        except NotFound:
            if not self._installs:
                self._tell(
                    "does not exist: nothing asks this guard (make it with --install or --print-webhook-configuration)"
                )
                return False
            await self._resource.create(wanted)
            self._tell("made")
            return True
        changed = self._changed(found, wanted)
        if changed is None:
            self._tell(f"has no webhook {GUARD_WEBHOOK}: nothing asks this guard")
            return False
        if changed != found:
            await self._resource.update(changed)
            self._tell("written")
        if reason := next(filter(None, map(exempt, _guards(changed))), ""):
            self._tell(reason)
        return True

    def _changed(self, found: Object, wanted: Object) -> Object | None:
        """The stored configuration with our part updated; None if it has no place for that."""
        (ours,) = wanted["webhooks"]
        webhooks = list(found.get("webhooks") or ())
        place = next((place for place, each in enumerate(webhooks) if each.get("name") == GUARD_WEBHOOK), None)
        if place is None:
            if not self._installs:
                return None
            return {**found, "webhooks": [*webhooks, ours]}
        kept = {**ours, **_EVERYWHERE} if self._installs else {"clientConfig": ours["clientConfig"]}
        webhooks[place] = {**webhooks[place], **kept}
        return {**found, "webhooks": webhooks}

    def _tell(self, text: str) -> None:
        """Log a problem once, until it changes."""
        if text != self._told:
            self._told = text
            _log.warning("ValidatingWebhookConfiguration %s: %s", self._options.name, text)


def _guards(configuration: Object) -> list[Object]:
    return [each for each in configuration.get("webhooks") or () if each.get("name") == GUARD_WEBHOOK]

"""The ResourcePoolStatusRequest controller: wires `core.lifecycle.pools`."""

from __future__ import annotations

from typing import Any

from allot.client.errors import ApiError
from allot.client.informer import Change, Informer
from allot.controllers.runner import Controller, Services
from allot.core.lifecycle.actions import Action, Answers, Update, Write
from allot.core.lifecycle.pool_status_requests import reconcile_request
from allot.core.model.resource_v1 import DeviceTaintRule, ResourceClaim, ResourcePoolStatusRequest, ResourceSlice
from allot.process.metrics import Counter, Histogram, exponential

_NAME = "resourcepoolstatusrequest-controller"
_SUBSYSTEM = "resourcepoolstatusrequest_controller"


def make(services: Services) -> Controller[str]:
    """The controller, with its handlers in place."""
    informers, clock = services.informers, services.clock
    requests: Informer[ResourcePoolStatusRequest] = informers.typed(ResourcePoolStatusRequest)
    slices: Informer[ResourceSlice] = informers.typed(ResourceSlice)
    claims: Informer[ResourceClaim] = informers.typed(ResourceClaim)
    rules: Informer[DeviceTaintRule] | None = None
    if "DRADeviceTaintRules" in services.gates:
        rules = informers.typed(DeviceTaintRule)
    metrics = _Metrics(services)

    def reconcile(key: str, answers: Answers) -> tuple[Action, ...]:  # noqa: ARG001
        request = requests.cache.get(key)
        if request is None:
            return ()
        started = clock.monotonic()
        known_rules = () if rules is None else tuple(rules.cache)
        actions = reconcile_request(request, slices.cache, claims.cache, known_rules, clock.seconds())
        if any(isinstance(action, Update) for action in actions):
            metrics.duration.observe(clock.monotonic() - started, request.spec.driver)
        return actions

    controller: Controller[str] = Controller(
        services,
        reconcile,
        queue_name=_NAME,
        component=_NAME,
        waits_for=[informer for informer in (requests, slices, claims, rules) if informer is not None],
        on_written=metrics.written,
    )

    def request_changed(change: Change[ResourcePoolStatusRequest]) -> None:
        if change.new is not None:
            controller.queue.add(change.key)

    requests.add_handler(request_changed)
    return controller


class _Metrics:
    """Kubernetes' metrics of requests."""

    def __init__(self, services: Services) -> None:
        registry, labels = services.metrics.registry, ("driver_name",)
        self._processed = Counter(
            registry,
            f"{_SUBSYSTEM}_requests_processed",
            "Total number of ResourcePoolStatusRequests processed",
            labels,
        )
        self._errors = Counter(
            registry,
            f"{_SUBSYSTEM}_request_processing_errors",
            "Total number of errors encountered while processing ResourcePoolStatusRequests",
            labels,
        )
        self.duration = Histogram(
            registry,
            f"{_SUBSYSTEM}_request_processing_duration_seconds",
            "Time taken to process a ResourcePoolStatusRequest",
            labels,
            buckets=exponential(0.001, 2, 15),
        )

    def written(self, action: Write, after: dict[str, Any] | None, error: ApiError | None) -> None:  # noqa: ARG002
        """Count an answer."""
        if not isinstance(action, Update):
            return
        assert isinstance(action.object, ResourcePoolStatusRequest)
        driver = action.object.spec.driver
        self._processed.add(driver)
        if error is not None:
            self._errors.add(driver)

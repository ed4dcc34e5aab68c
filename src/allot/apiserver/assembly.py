"""Assembles and runs an API server: store, kinds, access, admission, HTTP, and the few controllers inside it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from allot.apiserver.access.audit import AuditLog
from allot.apiserver.access.authorizer import WATCHED
from allot.apiserver.access.followed_store import FollowedStore
from allot.apiserver.access.setup import Access, open_access
from allot.apiserver.admission.allocation_guard import AllocationGuard
from allot.apiserver.admission.attention import Attendance, UnattendedKinds, UnattendedPods, UnprovidedObjects
from allot.apiserver.admission.chain import AdmissionChain
from allot.apiserver.admission.compute_classes import ComputeClasses
from allot.apiserver.admission.foreign_scheduling import GpuShares, KaiRules
from allot.apiserver.admission.mutating_policies import MutatingPolicies
from allot.apiserver.admission.plugins import default_chain
from allot.apiserver.admission.policies import ValidatingPolicies
from allot.apiserver.admission.queue_use import QueueUse
from allot.apiserver.admission.webhook_calls import WebhookCalls
from allot.apiserver.admission.webhooks import MutatingWebhooks, ValidatingWebhooks
from allot.apiserver.aggregation.aggregation import Aggregation
from allot.apiserver.aside import Aside
from allot.apiserver.bootstrap import SERVICE_ADDRESS, bootstrap
from allot.apiserver.customresources.cleanup import delete_all_objects
from allot.apiserver.customresources.controller import CustomResources
from allot.apiserver.customresources.conversion_webhooks import Conversions
from allot.apiserver.furnishing import Furnishing
from allot.apiserver.handlers.component_statuses import ComponentStatuses
from allot.apiserver.handlers.reviews import Reviews
from allot.apiserver.housekeeping import compact, sweep_events
from allot.apiserver.kinds.schemas import builtin_schemas
from allot.apiserver.kinds.service_addresses import ServiceAddresses
from allot.apiserver.kinds.strategies import strategy_for
from allot.apiserver.kinds.table import builtin_resources, classic_resources
from allot.apiserver.kinds.versions import from_storage
from allot.apiserver.lookup import StoreLookup
from allot.apiserver.metrics import Metrics
from allot.apiserver.metricsapis.answers import MetricsApis, Selecting, selecting_object
from allot.apiserver.metricsapis.schemas import DOCUMENTED
from allot.apiserver.metricsapis.scraping import Board, Scraper
from allot.apiserver.nonresource.endpoints import NonResourceEndpoints
from allot.apiserver.nonresource.health import AGGREGATION_HOOKS, Check, StartHooks, check_log
from allot.apiserver.nonresource.openapi import OpenApi
from allot.apiserver.proxies.dialing import Dialler
from allot.apiserver.registry import Registry, Served
from allot.apiserver.resources import Resource
from allot.apiserver.server import ApiServer
from allot.apiserver.server_context import ServerContext
from allot.apiserver.serving.http import HttpServer
from allot.apiserver.serving.seats import SeatLimits
from allot.core.access.addresses import parse_address
from allot.core.access.node_graph import read_pod
from allot.core.features import DEFAULT_GATES, FeatureGates
from allot.core.metrics.resource_usage import RESOLUTION_S
from allot.core.model.classic import GATE
from allot.core.selectors import Requirements
from allot.http1.connections import Limits
from allot.process.clock import Clock, SystemClock
from allot.process.ids import Ids, SystemIds
from allot.process.supervise import supervise
from allot.store.port import Compacted, Entry, Event, Store, StoreUnavailable


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The administrator's settings."""

    # Holds keys and certificates.
    directory: Path
    host: str = "127.0.0.1"
    port: int = 6443
    gates: FeatureGates = DEFAULT_GATES
    # Additional host names and addresses of the server.
    names: tuple[str, ...] = ()
    token_file: Path | None = None
    # The key that signs service-account tokens, if not the directory's, and files with keys that signed other tokens.
    signing_key_file: Path | None = None
    verifying_key_files: tuple[Path, ...] = ()
    audit_log: Path | None = None
    # How often nodes are scraped for the usage of nodes and pods.
    metric_resolution_s: float = RESOLUTION_S
    # Disabled admission plugins, by kube-apiserver's names.
    disabled_admission: frozenset[str] = frozenset()
    limits: Limits = Limits()
    seats: SeatLimits = SeatLimits()
    # Whether nodes may have loopback addresses. None: only if no other machine can reach the server, so that all nodes are on this one.
    loopback_kubelets: bool | None = None
    # The CA of kubelet certificates; without it, they are not verified.
    kubelet_authority: Path | None = None
    # Host and port of other control plane endpoints, such as etcd: proxies never connect there.
    own_endpoints: tuple[tuple[str, int], ...] = ()
    # What health checks and component statuses call the store.
    store_name: str = "store"


class Running(msgspec.Struct, frozen=True):
    """A server that is ready."""

    server: ApiServer
    access: Access
    url: str
    port: int
    # Discovery, OpenAPI, version, health and metrics, for clients in this process.
    endpoints: NonResourceEndpoints
    # Connects to nodes and pods.
    dialler: Dialler


def builtin_registry(gates: FeatureGates, clock: Clock) -> Registry:
    """A registry with every built-in kind."""
    resources = (*builtin_resources(), *(classic_resources() if GATE in gates else ()))
    return Registry(_row(resource, gates, clock) for resource in resources)


def _row(resource: Resource, gates: FeatureGates, clock: Clock) -> Served:
    schemas = builtin_schemas(with_classic=GATE in gates)
    converts = resource.api_version != resource.storage_api_version
    return Served(
        resource,
        strategy_for(resource, gates=gates, now=clock.now),
        lambda: schemas.for_kind(resource.group, resource.version, resource.kind),
        (lambda objects: [from_storage(object_, resource) for object_ in objects]) if converts else None,
    )


@asynccontextmanager
async def running(
    settings: Settings, store: Store, *, clock: Clock | None = None, ids: Ids | None = None
) -> AsyncIterator[Running]:
    """A server on a store, until the block ends. The store is opened and closed here."""
    clock, ids = clock or SystemClock(), ids or SystemIds()
    await store.open()
    aside = Aside()
    try:
        parts = _assembled(settings, store, clock, ids, aside)
        await parts.state.load()
        await parts.custom.load()
        parts.state.hooks.finish("crd-informer-synced")
        async with asyncio.TaskGroup() as tasks:
            followers = [tasks.create_task(each) for each in parts.followers()]
            try:
                async with parts.http.listening(settings.host, settings.port) as port:
                    for host in (settings.host, *settings.names):
                        parts.dialler.keep_from(host, port)
                    await bootstrap(parts.server, settings.host, port, parts.state.hooks)
                    await parts.aggregation.begin(parts.server)
                    followers += [tasks.create_task(each) for each in parts.aggregation.followers(parts.server)]
                    parts.state.hooks.finish(*AGGREGATION_HOOKS)
                    url = f"https://{_shown_host(settings.host)}:{port}"
                    yield Running(parts.server, parts.access, url, port, parts.endpoints, parts.dialler)
            finally:
                parts.conversions.close()
                for follower in followers:
                    follower.cancel()
    finally:
        aside.close()
        await store.close()


def _shown_host(host: str) -> str:
    """The host at which clients on this machine reach a server that listens on an address."""
    if host in ("0.0.0.0", "::"):
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


class _Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What a server consists of, before it serves."""

    server: ApiServer
    access: Access
    state: _State
    furnishing: Furnishing
    custom: CustomResources
    conversions: Conversions
    endpoints: NonResourceEndpoints
    http: HttpServer
    dialler: Dialler
    scraper: Scraper
    aggregation: Aggregation
    audit: AuditLog | None

    def followers(self) -> Iterator[Coroutine[Any, Any, None]]:
        """What runs alongside it."""
        context = self.server.context
        runs: dict[str, Callable[[], Awaitable[None]]] = {
            "the feed of access rules": self.state.feed,
            "the furnishing of namespaces": self.furnishing.run,
            "the controller of custom resources": self._follow_definitions,
            "compaction": lambda: compact(context),
            "the sweeping of events": lambda: sweep_events(context),
            "the reading of metrics": self.scraper.run,
            "the renewal of certificates": self.access.certificates.keep_renewed,
        }
        for name, run in runs.items():
            yield supervise(name, run, context.clock)
        if self.audit is not None:
            yield self.audit.run()

    async def _follow_definitions(self) -> None:
        self.state.hooks.finish("start-apiextensions-informers", "start-apiextensions-controllers")
        await self.custom.run()


def _assembled(settings: Settings, store: Store, clock: Clock, ids: Ids, aside: Aside) -> _Parts:
    registry = builtin_registry(settings.gates, clock)
    lookup = StoreLookup(store, registry)
    access = open_access(
        settings.directory,
        lookup,
        clock,
        ids,
        names=(*settings.names, settings.host),
        token_file=settings.token_file,
        signing_key_file=settings.signing_key_file,
        verifying_key_files=settings.verifying_key_files,
        gates=settings.gates,
    )
    dialler = _dialler(settings, access)
    calls = WebhookCalls(lookup, dialler)
    guard = AllocationGuard(store, settings.gates)
    attendance = Attendance(clock)
    board = Board(settings.metric_resolution_s)
    metrics_apis = MetricsApis(board, clock.seconds, _selecting(lookup, registry))
    metrics = Metrics()
    aggregation = Aggregation(lookup, registry, dialler, access.certificates, metrics, clock)
    context = ServerContext(
        store=FollowedStore(store, access.authorizer),
        registry=registry,
        admission=_admission(settings, lookup, registry, access, clock, ids, calls, guard, attendance),
        authorizer=access.authorizer,
        clock=clock,
        ids=ids,
        gates=settings.gates,
        aside=aside,
        reviews=Reviews(access, lookup),
        unstored=metrics_apis,
        components=ComponentStatuses(attendance.runs, _store_statuses(settings, store)),
        extensions=aggregation.extensions,
    )
    server = ApiServer(context)
    state = _State(server, access, guard, attendance, aggregation, settings.store_name)
    audit = AuditLog(settings.audit_log, clock) if settings.audit_log is not None else None
    endpoints = NonResourceEndpoints(
        access.authorizer,
        registry,
        OpenApi(registry, builtin_schemas(with_classic=GATE in settings.gates), DOCUMENTED, aggregation.extensions),
        metrics,
        state.checks(),
        access.tokens,
        state.ready_checks(),
        metrics_apis,
        aggregation.extensions,
    )
    conversions = Conversions(calls, ids)
    return _Parts(
        server=server,
        access=access,
        state=state,
        furnishing=Furnishing(server, access.certificates.authority.pem.decode()),
        custom=CustomResources(store, registry, builtin_schemas(), clock, delete_all_objects(context), conversions),
        conversions=conversions,
        endpoints=endpoints,
        http=HttpServer(
            server,
            access,
            endpoints,
            metrics,
            dialler,
            aggregation.extensions,
            audit,
            settings.limits,
            settings.seats,
        ),
        dialler=dialler,
        scraper=Scraper(context, dialler, board),
        aggregation=aggregation,
        audit=audit,
    )


def _admission(
    settings: Settings,
    lookup: StoreLookup,
    registry: Registry,
    access: Access,
    clock: Clock,
    ids: Ids,
    calls: WebhookCalls,
    guard: AllocationGuard,
    attendance: Attendance,
) -> AdmissionChain:
    authorize = access.authorizer.authorize
    return default_chain(
        lookup=lookup,
        writer=lookup,
        authorize=authorize,
        clock=clock,
        ids=ids,
        gates=settings.gates,
        disabled=settings.disabled_admission,
        last_mutating=(
            GpuShares(),
            ComputeClasses(lookup),
            ServiceAddresses(lookup, ids),
            MutatingPolicies(lookup, registry, authorize),
            MutatingWebhooks(lookup, registry, authorize, ids, calls),
        ),
        last_validating=(
            ValidatingPolicies(lookup, registry, authorize),
            ValidatingWebhooks(lookup, registry, authorize, ids, calls),
            guard,
            KaiRules(lookup),
            QueueUse(lookup, authorize),
            UnattendedKinds(attendance, settings.gates),
            UnattendedPods(attendance),
            UnprovidedObjects(attendance, lookup),
        ),
    )


def _store_statuses(settings: Settings, store: Store) -> dict[str, Callable[[], Awaitable[str | None]]]:
    """The statuses of the store's servers. Only etcd has some: other stores are part of this server."""
    return {"etcd-0": lambda: _failure(store.check())} if settings.store_name == "etcd" else {}


def _selecting(lookup: StoreLookup, registry: Registry) -> Selecting:
    """Finds objects that select pods, for metrics of all their pods together."""

    async def ask(group: str, plural: str, namespace: str, name: str) -> tuple[dict[str, Any], Requirements] | None:
        row = registry.storage_row(group, plural)
        if row is None or not row.resource.namespaced or not row.resource.stored:
            return None
        found = await lookup.get(plural, group, namespace, name)
        return selecting_object(found, row.resource.kind, row.resource.api_version)

    return ask


def _dialler(settings: Settings, access: Access) -> Dialler:
    address, loopback = parse_address(settings.host), settings.loopback_kubelets
    if loopback is None:
        loopback = settings.host == "localhost" or (address is not None and address.is_loopback)
    return Dialler(
        access.certificates,
        kubelets_on_loopback=loopback,
        kubelet_authority=settings.kubelet_authority,
        own=((SERVICE_ADDRESS, 443), *settings.own_endpoints),
    )


class _State:
    """What follows the store: permissions, devices held by claims, running components, and other API servers."""

    def __init__(
        self,
        server: ApiServer,
        access: Access,
        guard: AllocationGuard,
        attendance: Attendance,
        aggregation: Aggregation,
        store_name: str,
    ) -> None:
        self._aggregation = aggregation
        self._server = server
        self._access = access
        self._guard = guard
        self._attendance = attendance
        self._store_name = store_name
        self._revision = 0
        self._follows = False
        self.hooks = StartHooks()

    def checks(self) -> tuple[Check, ...]:
        """For the health endpoints."""
        return (("ping", self._ping), ("log", check_log), (self._store_name, self._store), *self.hooks.checks())

    def ready_checks(self) -> tuple[Check, ...]:
        """Additional ones for /readyz: a server whose disk is full still answers reads, and a restart would not help."""
        return (("informer-sync", self._informed), ("store-writable", self._writable))

    async def _ping(self) -> str | None:
        return None

    async def _store(self) -> str | None:
        return await _failure(self._server.context.store.revision())

    async def _writable(self) -> str | None:
        return await _failure(self._server.context.store.check())

    async def _informed(self) -> str | None:
        return None if self._follows else "rules, claims and leases are not followed"

    async def load(self) -> None:
        """Read everything that access decisions depend on."""
        context = self._server.context
        self._revision = await context.store.revision()
        pages: list[tuple[str, tuple[Entry, ...]]] = []
        for group, plural in WATCHED:
            served = context.registry.storage_row(group, plural)
            if served is not None:
                pages.append((plural, (await context.store.list(served.prefix(""))).entries))
        # Decoded just for this, one after another: all pods at once would dominate the server's memory.
        self._access.authorizer.reload(
            (read_pod if plural == "pods" else msgspec.json.decode)(entry.encoded)
            for plural, entries in pages
            for entry in entries
        )
        await self._guard.load()
        await self._attendance.load(context.store)
        await self._aggregation.load(context.store)

    async def feed(self) -> None:
        """Follow changes of what access decisions depend on."""
        context = self._server.context
        watch = context.store.watch("/registry/", self._revision)
        self._follows = True
        self.hooks.finish("generic-apiserver-start-informers")
        try:
            async for change in watch:
                if isinstance(change, Event):
                    self._access.authorizer.apply_change(change)
                    self._guard.apply_change(change)
                    self._attendance.apply_change(change)
                    self._aggregation.apply_change(change)
                self._revision = change.revision
        except Compacted:
            await self.load()
            raise
        finally:
            self._follows = False
            await watch.close()


async def _failure(asking: Awaitable[object]) -> str | None:
    """Why a check of the store fails. Anyone may see it: no paths, no addresses."""
    try:
        async with asyncio.timeout(5):
            await asking
    except StoreUnavailable as error:
        return error.fault or f"reason withheld: {type(error).__name__}"
    except TimeoutError:
        return "no answer in 5 s"
    return None

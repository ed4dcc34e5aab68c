"""The context of handlers: the store, the registry, authorization, and the sources of time and names."""

from __future__ import annotations

from typing import Protocol

import msgspec

from allot.apiserver.access.authorizer import Authorizer
from allot.apiserver.admission.chain import AdmissionChain
from allot.apiserver.aggregation.extension_server import ExtensionServer
from allot.apiserver.aside import Aside
from allot.apiserver.registry import Registry, Served
from allot.apiserver.request import ApiList, ApiObject, ApiRequest
from allot.core.features import FeatureGates
from allot.process.clock import Clock
from allot.process.ids import Ids
from allot.store.port import Store


class Reviews(Protocol):
    """Answers kinds that are never stored."""

    async def answer(self, context: ServerContext, served: Served, request: ApiRequest) -> ApiObject:
        """POST of a review."""

    async def token(self, context: ServerContext, served: Served, request: ApiRequest) -> ApiObject:
        """POST of a TokenRequest to a service account."""


class UnstoredApis(Protocol):
    """Groups whose objects are made on demand."""

    def handles(self, group: str) -> bool:
        """Whether a group is one of these."""

    async def answer(self, request: ApiRequest) -> ApiObject:
        """The answer to an authorized request."""


class Components(Protocol):
    """Answers for the components of the cluster, whose statuses are found out when asked."""

    async def get(self, request: ApiRequest) -> ApiObject:
        """GET of one."""

    async def list(self, served: Served, request: ApiRequest) -> ApiList:
        """GET of all."""


class ExtensionServers(Protocol):
    """The servers behind APIServices."""

    def find(self, group: str, version: str) -> ExtensionServer | None:
        """The server of a group and version; None if they are this server's."""


class ServerContext(msgspec.Struct, frozen=True, kw_only=True):
    """Given to every handler."""

    store: Store
    registry: Registry
    admission: AdmissionChain
    authorizer: Authorizer
    clock: Clock
    ids: Ids
    gates: FeatureGates
    aside: Aside
    reviews: Reviews | None = None
    unstored: UnstoredApis | None = None
    components: Components | None = None
    extensions: ExtensionServers | None = None

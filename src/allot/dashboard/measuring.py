"""How busy the devices of pods are: DCGM's metrics from the custom metrics API. `allot up` serves them for simulated GPUs, an adapter of
Prometheus on other clusters. A server that has no such API, or refuses, is asked again later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from allot.client.api import Client
from allot.client.errors import ApiError
from allot.core.quantity import Quantity, QuantityError

API = "custom.metrics.k8s.io"
# Percent of the time that a GPU is busy; DCGM measures another one, from 0 to 1, of parts of a GPU.
_BUSY = "DCGM_FI_DEV_GPU_UTIL"
_BUSY_SHARE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
_MEMORY_MIB = "DCGM_FI_DEV_FB_USED"
METRICS = (_BUSY, _BUSY_SHARE, _MEMORY_MIB)
_TIMEOUT_S = 5.0
_NAMESPACES_MAX = 200
# Rounds to wait after a server has said that it has no such API.
_PAUSE = 8
Use = tuple[float, float]


class Measuring:
    """Asks a cluster."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._version = ""
        self._pause = 0

    async def read(self, pods: Sequence[str]) -> Mapping[str, Use] | None:
        """Percent of the time and MiB of the memory that is used of the devices of each of these pods, as far as it is measured; None in a pause."""
        if self._pause:
            self._pause -= 1
            return None
        try:
            self._version = self._version or await self._served()
            found: dict[str, Use] = {}
            for namespace in _namespaces(pods):
                found |= await self._of(namespace)
        except (ApiError, KeyError, TypeError):
            # The last two: an answer of some other server behind that name.
            self._version, self._pause = "", _PAUSE
            return {}
        wanted = set(pods)
        return {key: use for key, use in found.items() if key in wanted}

    async def _served(self) -> str:
        body = (await self._client.request("GET", f"/apis/{API}", timeout=_TIMEOUT_S)).body
        return str(body["preferredVersion"]["version"])

    async def _of(self, namespace: str) -> dict[str, Use]:
        busy = {pod: 100 * share for pod, share in (await self._values(namespace, _BUSY_SHARE)).items()}
        busy |= await self._values(namespace, _BUSY)
        memory = await self._values(namespace, _MEMORY_MIB) if busy else {}
        return {f"{namespace}/{pod}": (round(percent), round(memory.get(pod, 0.0))) for pod, percent in busy.items()}

    async def _values(self, namespace: str, metric: str) -> dict[str, float]:
        path = f"/apis/{API}/{self._version}/namespaces/{quote(namespace, safe='')}/pods/*/{metric}"
        try:
            body = (await self._client.request("GET", path, timeout=_TIMEOUT_S)).body
        except ApiError as error:
            if error.code == 404:
                # The metric does not exist.
                return {}
            raise
        items: Iterable[Any] = body.get("items") or () if isinstance(body, dict) else ()
        return dict(filter(None, map(_value, items)))


def _value(item: Any) -> tuple[str, float] | None:
    """Name of the pod, and what is said of it; None for what is no value."""
    try:
        return str(item["describedObject"]["name"]), Quantity.parse(str(item["value"])).nano / 10**9
    except (KeyError, TypeError, QuantityError):
        return None


def _namespaces(pods: Sequence[str]) -> list[str]:
    return sorted({key.partition("/")[0] for key in pods})[:_NAMESPACES_MAX]

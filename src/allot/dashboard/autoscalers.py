"""What an autoscaler says of its pools: in a ConfigMap of a known name, in the namespace in which it runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from allot.client.api import Client
from allot.client.errors import ApiError
from allot.core.model.core_v1 import Pod
from allot.dashboard.model import Model
from allot.yaml_values.reader import NotYAML, read_yaml

# The only ConfigMap that the dashboard may read.
STATUS_NAME = "cluster-autoscaler-status"
# Where autoscalers run most often.
_FIRST = "kube-system"
_WORD = "autoscaler"
_NAMESPACES_MAX = 8


class AutoscalerStatus:
    """Finds the ConfigMap, and remembers where."""

    def __init__(self, client: Client, model: Model) -> None:
        self._configmaps = client.resource("", "v1", "configmaps", namespaced=True)
        self._model = model
        self._namespace = _FIRST

    async def read(self) -> Any:
        """The status; None if there is none, or it may not be read."""
        for namespace in dict.fromkeys((self._namespace, _FIRST, *self._namespaces())):
            try:
                found = await self._configmaps.get(STATUS_NAME, namespace)
            except ApiError:
                continue
            try:
                status = read_yaml(str(found.get("data", {}).get("status", "")).encode())
            except NotYAML:
                continue
            self._namespace = namespace
            return status
        return None

    def _namespaces(self) -> Iterator[str]:
        """Of pods that are autoscalers by their names or labels: `cluster-autoscaler-aws-…`, `app: cluster-autoscaler`."""
        found = {
            pod.metadata.namespace
            for pod in self._model.what_if.all(Pod)
            if _WORD in pod.metadata.name or any(_WORD in value for value in pod.metadata.labels.values())
        }
        return iter(sorted(found)[:_NAMESPACES_MAX])

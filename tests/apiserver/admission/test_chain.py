"""Which plugins a request passes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable

from allot.apiserver.admission.attributes import Admission, Operation
from allot.apiserver.admission.chain import AdmissionChain
from allot.apiserver.request import User
from allot.apiserver.resources import Resource
from apiserver.admission.conftest import World

QUOTAS = ("", "resourcequotas")


class Counting:
    """Idle where there is no quota. Counts who asks."""

    idle_by = (("resourcequotas", ""),)

    def __init__(self, world: World) -> None:
        self._world = world
        self.asked = self.ran = 0

    def handles(self, resource: Resource, subresource: str, operation: Operation) -> bool:  # noqa: ARG002
        return True

    def idle(self, namespace: str) -> bool:
        self.asked += 1
        return not self._world.known_list("resourcequotas", "", namespace)

    async def mutate(self, admission: Admission) -> None:  # noqa: ARG002
        self.ran += 1

    async def validate(self, admission: Admission) -> None:  # noqa: ARG002
        self.ran += 1


async def passes(chain: AdmissionChain, namespace: str = "default") -> None:
    resource = Resource(
        group="",
        version="v1",
        kind="ConfigMap",
        plural="configmaps",
        singular="configmap",
        namespaced=True,
        storage_version="v1",
    )
    admission = Admission(
        user=User("u"), operation=Operation.CREATE, resource=resource, namespace=namespace, object_={"metadata": {}}
    )
    await chain.mutate(admission)
    async with chain.judge(admission):
        pass


async def test_an_idle_plugin_is_not_asked_again_until_something_changes(world: World) -> None:
    plugin = Counting(world)
    chain = AdmissionChain([plugin], [plugin], world)
    for _ in range(3):
        await passes(chain)
    assert (plugin.asked, plugin.ran) == (2, 0)
    world.put(*QUOTAS, {"metadata": {"name": "q", "namespace": "default"}})
    await passes(chain)
    assert plugin.ran == 2
    await passes(chain, "elsewhere")
    assert plugin.ran == 2
    del world.objects[*QUOTAS, "default", "q"]
    await passes(chain)
    assert plugin.ran == 2


async def test_plugins_are_asked_every_time_where_changes_cannot_be_told() -> None:
    class Unable(World):
        def stamp_of(self, kinds: Collection[tuple[str, str]]) -> Callable[[], Hashable] | None:  # noqa: ARG002
            return None

    unable = Unable()
    plugin = Counting(unable)
    chain = AdmissionChain([plugin], [], unable)
    await passes(chain)
    await passes(chain)
    assert (plugin.asked, plugin.ran) == (2, 0)

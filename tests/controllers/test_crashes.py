"""Controllers that die between any two of their writes, or without hearing of the last one, and are started anew."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from allot.client.api import Client
from allot.client.transport import Response
from allot.controllers import resourceclaim
from controllers.cluster import Cluster, Hooked, Send, allocate, cluster, from_template, pod, template
from waiting import until

CONTROLLER = {"resource-claim-controller": resourceclaim.make}
WRITES_MAX = 6


async def die_during(made: Cluster, at_write: int, *, is_sent: bool, idle_s: float = 0.3) -> bool:
    """Run the controller until it stops for ever at a write; False if it comes to the end of its work before."""
    died, left = asyncio.Event(), at_write

    async def around(method: str, path: str, send: Send) -> Response:
        nonlocal left
        if method != "GET" and "events" not in path:
            left -= 1
            if left <= 0:
                if left == 0 and is_sent:
                    await send()
                died.set()
                await asyncio.Event().wait()
        return await send()

    async with made.running(CONTROLLER, through=lambda client: Client(Hooked(client.transport, around))):
        try:
            async with asyncio.timeout(idle_s):
                await died.wait()
        except TimeoutError:
            return False
    return True


async def claims_of(made: Cluster, name: str) -> list[dict[str, Any]]:
    """The claims that were made for a pod."""
    return [one for one in await made.items("resourceclaims") if one["metadata"]["ownerReferences"][0]["name"] == name]


@pytest.mark.slow
@pytest.mark.parametrize("is_sent", [False, True], ids=["before it is sent", "before it is answered"])
async def test_a_controller_that_dies_at_any_write_makes_no_claim_twice_and_leaks_none(
    tmp_path: Path, is_sent: bool
) -> None:
    async with cluster(tmp_path) as made:
        await made.create("resourceclaimtemplates", template("t"))
        deaths = 0
        for at_write in range(1, WRITES_MAX + 1):
            name = f"pod-{at_write}"
            created = await made.create("pods", pod(name, claims=[from_template("a", "t"), from_template("b", "t")]))
            deaths += await die_during(made, at_write, is_sent=is_sent)
            async with made.running(CONTROLLER):

                async def recorded(name: str = name) -> list[str] | None:
                    found = await made.get("pods", name)
                    assert found is not None
                    statuses = found["status"].get("resourceClaimStatuses", [])
                    return [one["resourceClaimName"] for one in statuses] if len(statuses) == 2 else None

                names = await until(recorded)
                assert sorted(names) == [one["metadata"]["name"] for one in await claims_of(made, name)]
            for number, claim in enumerate(names):
                await allocate(made, claim, created, device=f"gpu-{at_write}-{number}")
            await made.set_phase(name, "Succeeded")
            deaths += await die_during(made, at_write, is_sent=is_sent)
            async with made.running(CONTROLLER):

                async def is_tidy(name: str = name) -> bool:
                    return not await claims_of(made, name)

                await until(is_tidy)
        # Three writes make two claims, four release them: every death up to there has happened.
        assert deaths == 3 + 4

"""What kube-apiserver 1.37.0-rc.1 answered to Jobs and CronJobs, good and bad, new and changed (with the gates GenericWorkload
and WorkloadWithJob on), and what this server answers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from allot.client.api import PatchType
from allot.client.errors import ApiError
from allot.core.features import DEFAULT_GATES
from controllers.cluster import Cluster, cluster

Case = dict[str, Any]
CASES: list[Case] = msgspec.json.decode((Path(__file__).parent / "batch_answers.json").read_bytes())
GATES = DEFAULT_GATES.changed(enable=("GenericWorkload", "WorkloadWithJob"))


async def answer(made: Cluster, case: Case, number: int) -> tuple[int, str]:
    """Code and message, in the words of the case."""
    object_ = case["object"]
    plural = "jobs" if object_["kind"] == "Job" else "cronjobs"
    resource = made.of(plural)
    try:
        if "patch" not in case:
            await resource.create(object_, "default", dry_run=True)
            return 201, "ok"
        name = f"u{number}"
        await resource.create({**object_, "metadata": {**object_["metadata"], "name": name}}, "default")
        subresource = "status" if "status" in case else ""
        if case.get("status"):
            first = {"status": case["status"]}
            await resource.patch(name, first, PatchType.MERGE, "default", subresource=subresource)
        await resource.patch(name, case["patch"], PatchType.MERGE, "default", subresource=subresource)
    except ApiError as error:
        message = re.sub(r'"u\d+"', '"j"', error.message)
        return error.code, re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "UID", message)
    return 200, "ok"


@pytest.mark.slow
async def test_answers_are_those_of_kubernetes(tmp_path: Path) -> None:
    different = []
    async with cluster(tmp_path, GATES) as made:
        for number, case in enumerate(CASES):
            code, message = await answer(made, case, number)
            if (code, message) != (case["code"], case["message"]):
                different.append(
                    f"{case['case']}:\n  expected {case['code']} {case['message']}\n  found {code} {message}"
                )
    assert not different, "\n".join(different)
    assert len(CASES) > 100

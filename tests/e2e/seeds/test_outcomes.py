"""What the documents show happens: their manifests, converted, and their commands as they stand, on simulated hardware."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from e2e.seeds.documents import AKS, MISSING, document, seeds_dir
from e2e.seeds.shell import Shell, cluster

pytestmark = [pytest.mark.slow, pytest.mark.skipif(seeds_dir() is None, reason=MISSING)]


# --- two pods, one GPU ---


@pytest.fixture(scope="module")
def with_one_gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """The cluster of the AKS document: a control plane, and a node with one T4."""
    with cluster(tmp_path_factory.mktemp("aks"), "--node", "Standard_NC4as_T4_v3") as shell:
        yield shell


def test_of_two_pods_that_want_the_only_gpu_the_second_runs_when_the_first_is_gone(with_one_gpu: Shell) -> None:
    apply, get, describe, delete, get_again = document(AKS).commands
    assert get == get_again
    printed = with_one_gpu.run(apply)
    assert {"namespace/gpu-test1 created", "pod/pod1 created", "pod/pod2 created"} <= set(printed.splitlines())
    with_one_gpu.shows(get, lambda table: _status(table, "gpu-test1", "pod1") == ("1/1", "Running"))
    assert _status(with_one_gpu.run(get), "gpu-test1", "pod2") == ("0/1", "Pending")
    described = with_one_gpu.shows(describe, lambda text: "FailedScheduling" in text)
    assert re.search(r"^Status: +Pending$", described, re.MULTILINE)
    assert re.search(r"^ +PodScheduled +False", described, re.MULTILINE)
    event = r"Warning +FailedScheduling .* default-scheduler +0/2 nodes are available: 1 cannot allocate all claims"
    assert re.search(event, described)
    assert 'pod "pod1" deleted' in with_one_gpu.run(delete)
    table = with_one_gpu.shows(get_again, lambda table: _status(table, "gpu-test1", "pod2") == ("1/1", "Running"))
    assert "pod1" not in table


def _status(table: str, namespace: str, name: str) -> tuple[str, str] | None:
    """READY and STATUS of a pod in a table of all namespaces."""
    found = re.search(rf"^{namespace} +{name} +(\S+) +(\S+)", table, re.MULTILINE)
    return (found[1], found[2]) if found else None

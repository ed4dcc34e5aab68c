"""One etcd under a real kube-apiserver with its default flags and under allot: each reads what the other has written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from allot.apiserver.kinds.table import builtin_resources
from e2e.components import Caller
from e2e.kube_cluster import NO_ACCOUNTS, caller_of, kube_apiserver
from e2e.kubectl import MISSING, Kubectl, find_kubectls
from e2e.servers import ServerProcess
from etcd_server import MISSING as NO_ETCD
from etcd_server import find_etcd
from kind_manifests import CLUSTER, NAMESPACED

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

NAMESPACE = "both"
DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gizmos.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: gizmos, kind: Gizmo}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns: [{name: Size, type: integer, jsonPath: .spec.size}]
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, properties: {size: {type: integer}, text: {type: string, default: none}}}}
"""
GIZMO = "apiVersion: example.com/v1\nkind: Gizmo\nmetadata: {name: g}\nspec: {size: 3}\n"


class Sides(NamedTuple):
    """kubectl and plain requests, to both servers."""

    ours: Kubectl
    theirs: Kubectl
    our_caller: Caller
    their_caller: Caller


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    binaries = find_kubectls()
    if not binaries:
        pytest.skip(MISSING)
    if find_etcd() is None:
        pytest.skip(NO_ETCD)
    folders = [tmp_path_factory.mktemp(name) for name in ("allot", "kube")]
    with ExitStack() as stack:
        server = stack.enter_context(ServerProcess("etcd", folders[0]))
        kube = stack.enter_context(kube_apiserver(folders[1], NO_ACCOUNTS, etcd_address=server.etcd_address))
        kubeconfigs = (server.kubeconfig, kube)
        ours, theirs = (
            Kubectl(next(iter(binaries.values())), each, folder, NAMESPACE)
            for each, folder in zip(kubeconfigs, folders, strict=True)
        )
        theirs("create", "namespace", NAMESPACE)
        yield Sides(ours, theirs, *map(caller_of, kubeconfigs))


def manifests(prefix: str) -> str:
    documents = []
    for kind, content in [
        *NAMESPACED.items(),
        *((kind, text) for kind, text in CLUSTER.items() if kind != "v1 Namespace"),
    ]:
        version, _, name = kind.partition(" ")
        filled = content.replace("NAMESPACE", NAMESPACE)
        documents.append(
            f"apiVersion: {version}\nkind: {name}\nmetadata: {{name: {prefix}-{name.lower()}}}\n{filled}\n"
        )
    return "---\n".join(documents)


def path_of(object_: dict[str, Any]) -> str:
    """Where an object is served in its version."""
    version, kind, metadata = object_["apiVersion"], object_["kind"], object_["metadata"]
    plural = {(row.api_version, row.kind): row.plural for row in builtin_resources()}.get((version, kind), "gizmos")
    place = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    return f"/{'apis' if '/' in version else 'api'}/{version}{place}/{plural}/{metadata['name']}"


def without(object_: dict[str, Any], *names: str) -> dict[str, Any]:
    """The object without some of its metadata."""
    return {**object_, "metadata": {name: each for name, each in object_["metadata"].items() if name not in names}}


def tidied(value: Any) -> Any:
    """Without what Go writes for structs and lists in which nothing is."""
    if isinstance(value, dict):
        members = {name: tidied(each) for name, each in value.items()}
        return {name: each for name, each in members.items() if each not in (None, {}, [])}
    return [tidied(each) for each in value] if isinstance(value, list) else value


def test_every_kind_is_read_changed_and_read_again(sides: Sides) -> None:
    sides.theirs.apply(DEFINITION)
    sides.theirs("wait", "--for=condition=Established", "crd/gizmos.example.com", "--timeout=60s")
    everything = manifests("theirs") + "---\n" + GIZMO
    sides.theirs("create", "-f", "-", stdin=everything)
    made = sides.theirs.json("get", "-f", "-", stdin=everything)["items"]
    assert len(made) == everything.count("\nkind: ")
    paths = [path_of(each) for each in made] + [path_of(sides.theirs.json("get", "crd", "gizmos.example.com"))]
    before = {path: sides.their_caller.get(path) for path in paths}
    for path in paths:
        assert sides.our_caller.get(path) == before[path], path
    # Written by ours, as JSON, and read by the other; then the other way round.
    sides.ours("label", "seen=by-allot", "-f", "-", stdin=everything)
    sides.ours("label", "crd", "gizmos.example.com", "seen=by-allot")
    for path in paths:
        found, expected = sides.their_caller.get(path), before[path]
        expected["metadata"].setdefault("labels", {})["seen"] = "by-allot"
        changed = ("managedFields", "resourceVersion", "generation")
        assert without(found, *changed) == without(expected, *changed), path
    sides.theirs("label", "--overwrite", "seen=by-kube", "-f", "-", stdin=everything)
    sides.theirs("label", "--overwrite", "crd", "gizmos.example.com", "seen=by-kube")
    for path in paths:
        assert sides.our_caller.get(path) == sides.their_caller.get(path), path


def test_what_ours_creates_the_other_reads(sides: Sides) -> None:
    sides.ours.apply(DEFINITION.replace("gizmo", "widget").replace("Gizmo", "Widget"))
    sides.theirs("wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=60s")
    sides.ours.apply(GIZMO.replace("Gizmo", "Widget"))
    assert sides.theirs.json("get", "widget", "g")["spec"] == {"size": 3, "text": "none"}
    assert sides.theirs.rows("get", "widget", "g")[1] == ["g", "3"]
    everything = manifests("ours")
    sides.ours("create", "-f", "-", stdin=everything)
    for made in sides.ours.json("get", "-f", "-", stdin=everything)["items"]:
        path = path_of(made)
        theirs, ours = (tidied(caller.get(path)) for caller in (sides.their_caller, sides.our_caller))
        assert theirs == ours, path

"""`allot validate` end to end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.command import allot
from cli.manifest_texts import claim, device, device_class, node, resource_slice, text


def test_valid_objects_are_counted() -> None:
    result = allot("validate", "-", stdin=text(device_class(), resource_slice(), node(), claim()))
    assert result.code == 0, result.stdout
    assert result.stdout == "4 objects are valid\n"


def test_all_errors_of_all_objects_are_shown() -> None:
    bad_class = device_class("Bad_Class", "device.nope")
    result = allot("validate", "-", stdin=text(bad_class, claim(count=-1), device_class("good")))
    assert result.code == 1
    assert "DeviceClass Bad_Class (stdin document 1, line 1)" in result.stdout
    assert "  metadata.name: Invalid value:" in result.stdout
    assert "  spec.selectors[0].cel.expression: Invalid value:" in result.stdout
    assert "ResourceClaim ml/c1 (stdin document 2, line 2)" in result.stdout
    assert "  spec.devices.requests[0].exactly.count: Invalid value: -1" in result.stdout
    assert result.stdout.endswith("2 of 3 objects are not valid\n")


def test_json_has_a_line_per_object() -> None:
    result = allot("validate", "-", "-o", "json", stdin=text(device_class(), claim(count=-1)))
    assert result.code == 1
    good, bad = result.lines
    assert (good["kind"], good["name"], good["errors"]) == ("DeviceClass", "gpu", [])
    assert (bad["kind"], bad["name"]) == ("ResourceClaim", "c1")
    assert [(error["field"], error["type"]) for error in bad["errors"]] == [
        ("spec.devices.requests[0].exactly.count", "FieldValueInvalid")
    ]
    assert bad["errors"][0]["message"].startswith("Invalid value: -1")


def test_a_value_of_the_wrong_type_is_an_error_of_its_object() -> None:
    wrong = claim()
    wrong["spec"]["devices"]["requests"] = "none"
    result = allot("validate", "-", "-o", "json", stdin=text(wrong, claim()))
    assert result.code == 1
    bad, good = result.lines
    assert bad["errors"][0]["field"] == "spec.devices.requests"
    assert good["errors"] == []


def test_unknown_fields_are_warnings_or_with_strict_errors() -> None:
    odd = claim()
    odd["spec"]["devices"]["colour"] = "red"
    lenient = allot("validate", "-", stdin=text(odd))
    assert lenient.code == 0
    assert 'warning: ResourceClaim ml/c1: unknown field "spec.devices.colour"' in lenient.stderr
    strict = allot("validate", "-", "--strict", stdin=text(odd))
    assert strict.code == 1
    assert 'unknown field "spec.devices.colour"' in strict.stdout


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [
        ("resource.k8s.io/v1", "ResourceClam"),
        ("resource.k8s.io/v9", "ResourceClaim"),
        ("resource.k8s.i/v1", "ResourceClaim"),
    ],
)
def test_unknown_kinds_are_errors(api_version: str, kind: str) -> None:
    result = allot("validate", "-", "-o", "json", stdin=text({"apiVersion": api_version, "kind": kind}))
    assert result.code == 1
    assert result.lines[0]["errors"][0]["field"] == "kind"


def test_custom_resources_are_not_checked_and_that_is_said() -> None:
    queue = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "a"}}
    flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "b"}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    result = allot("validate", "-", stdin=text(queue, flavor, node))
    assert result.code == 0
    assert result.stdout == "1 object is valid\n"
    assert result.stderr == (
        "note: custom resources are not checked: 1 Queue (scheduling.run.ai/v2), 1 ResourceFlavor (kueue.x-k8s.io/v1beta2)\n"
    )
    alone = allot("validate", "-", stdin=text(queue))
    assert alone.code == 0
    assert alone.stdout == "no object was checked\n"
    assert allot("validate", "-", "-o", "json", stdin=text(queue)).lines[0]["checked"] is False


def test_an_absurd_quantity_is_an_error_or_capped_and_never_hangs() -> None:
    for amount in ("1e999999", "9" * 100_000, "1e-999999", "0x10", "1Zi"):
        slices = resource_slice("n1", device("d", capacity={"memory": {"value": amount}}))
        assert allot("validate", "-", stdin=text(slices)).code in (0, 1)


def test_gates_can_be_switched() -> None:
    lists = resource_slice("n1", device("d", attributes={"zones": {"strings": ["a", "b"]}}))
    assert allot("validate", "-", "--feature-gates", "DRAListTypeAttributes=true", stdin=text(lists)).code == 0
    assert allot("validate", "-", "--feature-gates", "default", stdin=text(lists)).code == 1
    assert allot("validate", "-", "--feature-gates", "all", stdin=text(lists)).code == 0


@pytest.mark.parametrize("gates", ["Nope=true", "DRAAdminAccess=false", "DRAListTypeAttributes", "all=maybe"])
def test_gates_that_cannot_be_switched_are_refused(gates: str) -> None:
    result = allot("validate", "-", "--feature-gates", gates, stdin=text(claim()))
    assert result.code == 2
    assert "feature gate" in result.stderr


def test_admin_access_is_checked_for_a_namespace_in_the_input() -> None:
    admin = claim(adminAccess=True)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}}
    assert allot("validate", "-", stdin=text(admin)).code == 0
    assert allot("validate", "-", stdin=text(namespace, admin)).code == 1
    namespace["metadata"] = {"name": "ml", "labels": {"resource.kubernetes.io/admin-access": "true"}}
    assert allot("validate", "-", stdin=text(namespace, admin)).code == 0


def test_a_name_given_twice_is_a_warning() -> None:
    result = allot("validate", "-", stdin=text(claim(), claim()))
    assert result.code == 0
    assert (
        "warning: ResourceClaim ml/c1: the name is in use: the API server would already have stdin document 1"
        in result.stderr
    )


def test_a_status_is_checked_against_the_object_it_belongs_to() -> None:
    status = {"devices": [{"driver": "d.example.com", "pool": "p", "device": "nope"}]}
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": claim()["metadata"],
        "status": status,
    }
    alone = allot("validate", "-", stdin=text(body))
    assert alone.code == 0
    assert "not checked: a status without a spec needs the object it belongs to" in alone.stderr
    result = allot("validate", "-", "-o", "json", stdin=text(claim(), body))
    assert result.code == 1
    assert result.lines[1]["errors"][0]["field"] == "status.devices[0]"


def test_other_kinds_of_kubernetes_are_checked_by_their_rules() -> None:
    other = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "Web"}, "sepc": {}}
    result = allot("validate", "-", "-o", "json", stdin=text(other, claim()))
    assert result.code == 1
    assert [line["checked"] for line in result.lines] == [True, True]
    assert "metadata.name" in [error["field"] for error in result.lines[0]["errors"]]
    assert 'unknown field "sepc"' in result.stderr
    strict = allot("validate", "-", "-o", "json", "--strict", stdin=text(other))
    assert "sepc" in [error["field"] for error in strict.lines[0]["errors"]]


def test_all_parts_of_pods_are_checked() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": []}}
    result = allot("validate", "-", "-o", "json", stdin=text(pod))
    assert [error["field"] for error in result.lines[0]["errors"]] == ["spec.containers"]


def test_a_value_of_the_wrong_type_in_another_kind_is_refused() -> None:
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"port": 1}}
    assert "cannot unmarshal number" in allot("validate", "-", stdin=text(other)).stdout


def test_no_objects_are_refused() -> None:
    result = allot("validate", "-", stdin="# nothing\n")
    assert result.code == 2
    assert "no objects" in result.stderr


def test_several_files_and_folders_are_read(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.yaml").write_text(text(claim("a")))
    (tmp_path / "b.json").write_text(text(claim("b")))
    result = allot("validate", str(tmp_path / "folder"), str(tmp_path / "b.json"), "-o", "json")
    assert [line["name"] for line in result.lines] == ["a", "b"]


UID = "3b9d1f7e-2f0a-4a51-9a7e-0c1b6a2f9d10"


def dumped_job(**metadata: object) -> dict[str, Any]:
    """A Job as a cluster has it: selected by its uid."""
    labels = {"batch.kubernetes.io/controller-uid": UID, "batch.kubernetes.io/job-name": "sft"}
    labels |= {"controller-uid": UID, "job-name": "sft"}
    container = {"name": "main", "image": "x:1"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "sft", "namespace": "default", **metadata},
        "spec": {
            "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": UID}},
            "template": {"metadata": {"labels": labels}, "spec": {"restartPolicy": "Never", "containers": [container]}},
        },
        "status": {"active": 1, "startTime": "2026-09-14T08:00:00Z"},
    }


@pytest.mark.parametrize("command", ["validate", "lint"])
def test_a_job_that_a_server_has_made_is_no_error(command: str) -> None:
    # A dump that somebody has tidied has lost the uid.
    for job in (dumped_job(uid=UID), dumped_job()):
        result = allot(command, "-", stdin=text(job))
        assert result.code == 0, result.stdout


def test_a_job_with_the_selector_of_another_is_an_error() -> None:
    other = dumped_job(uid="00000000-0000-0000-0000-000000000001")
    new = {key: value for key, value in dumped_job().items() if key != "status"}
    for job in (other, new):
        result = allot("validate", "-", stdin=text(job))
        assert result.code == 1
        assert "controller-uid" in result.stdout

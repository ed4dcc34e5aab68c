"""`allot convert`: what it prints, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest

from cli.command import allot

OLD = dedent(
    """\
    # mine
    apiVersion: resource.k8s.io/v1beta1
    kind: ResourceClaim
    metadata:
      name: gpu
    spec:
      devices:
        requests:
        - name: gpu
          deviceClassName: gpu.nvidia.com   # whole
    """
)
NEW = OLD.replace("v1beta1", "v1").replace(
    "      deviceClassName: gpu.nvidia.com   # whole",
    "      exactly:\n        deviceClassName: gpu.nvidia.com   # whole",
)
LIKELY = OLD.replace("deviceClassName", "resourceClassName").replace("# whole", "").replace("metadata:\n  ", "")
REFUSED = OLD.replace("devices:", "tier: gold\n  devices:")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "claim.yaml"
    path.write_text(OLD)
    return path


def test_the_result_is_on_stdout_and_the_changes_are_on_stderr(file: Path) -> None:
    result = allot("convert", str(file))
    assert (result.code, result.stdout) == (0, NEW)
    assert result.stderr.splitlines()[0] == f"{file}:2: apiVersion: resource.k8s.io/v1beta1 -> resource.k8s.io/v1"
    assert file.read_text() == OLD


def test_files_and_stdin_are_one_stream(file: Path) -> None:
    result = allot("convert", str(file), "-", stdin=OLD.replace("name: gpu\nspec", "name: other\nspec"))
    first, second = result.stdout.split("---\n")
    assert first == NEW
    assert "name: other" in second


def test_write_changes_the_files_and_keeps_their_mode(file: Path) -> None:
    file.chmod(0o640)
    other = file.with_name("right.yaml")
    other.write_text(NEW.replace("name: gpu\nspec", "name: right\nspec"))
    result = allot("convert", str(file.parent), "--write")
    assert (result.code, result.stdout) == (0, "")
    assert file.read_text() == NEW
    assert file.stat().st_mode & 0o777 == 0o640
    assert result.stderr.splitlines()[-1] == "2 changes in 1 file"
    assert sorted(each.name for each in file.parent.iterdir()) == ["claim.yaml", "right.yaml"]
    assert allot("convert", str(file), "--write").stderr == "nothing to change\n"


def test_files_with_windows_line_ends_keep_them(file: Path) -> None:
    file.write_bytes(OLD.replace("\n", "\r\n").encode())
    assert allot("convert", str(file), "--write").code == 0
    assert file.read_bytes() == NEW.replace("\n", "\r\n").encode()


def test_json_that_breaks_off_is_told_once_with_its_place(file: Path) -> None:
    broken = file.with_name("broken.json")
    broken.write_text('{"apiVersion": "v1"')
    expected = f"error: {broken}: line 1, column 20: not JSON: expecting ',' delimiter"
    assert allot("convert", str(broken)).stderr.splitlines() == [expected]


def test_nothing_is_written_when_one_file_cannot_be_converted(file: Path) -> None:
    (file.parent / "other.yaml").write_text(REFUSED)
    result = allot("convert", str(file.parent), "--write")
    assert result.code == 1
    assert file.read_text() == OLD
    assert "error: one field has no equivalent; nothing was written" in result.stderr
    assert "tier: gold is not a field of a claim, and may restrict what it gets" in result.stderr


@pytest.mark.parametrize("given", ["''", "{}", "{cel: {expression: 'true'}}", "3"])
def test_selectors_of_a_class_that_are_no_list_are_refused(given: str) -> None:
    old = (
        f"apiVersion: resource.k8s.io/v1beta1\nkind: DeviceClass\nmetadata: {{name: a}}\nspec:\n  selectors: {given}\n"
    )
    result = allot("convert", "-", stdin=old)
    assert (result.code, result.stdout) == (1, "")
    assert "error: stdin:5: spec.selectors: selectors is " in result.stderr


def test_alternatives_that_are_no_list_stay_for_validation_to_name() -> None:
    result = allot("convert", "-", stdin=NEW.replace("v1\n", "v1beta2\n").replace("exactly:", "firstAvailable:"))
    assert (result.code, result.stdout) == (0, NEW.replace("exactly:", "firstAvailable:"))


def test_stdin_cannot_be_written() -> None:
    result = allot("convert", "-", "--write", stdin=OLD)
    assert (result.code, result.stdout) == (2, "")


def test_diff_shows_what_would_change(file: Path) -> None:
    result = allot("convert", str(file), "--diff")
    assert "-apiVersion: resource.k8s.io/v1beta1\n+apiVersion: resource.k8s.io/v1\n" in result.stdout
    assert file.read_text() == OLD


def test_changes_that_are_not_sure_enough_are_refused() -> None:
    assert allot("convert", "-", stdin=LIKELY).code == 0
    template = OLD.replace("ResourceClaim", "ResourceClaimTemplate")
    result = allot("convert", "-", "--accept", "certain", stdin=template)
    assert (result.code, result.stdout) == (1, "")
    assert result.stderr.endswith("hint: --accept likely accepts them\n")


def test_the_report_has_changes_problems_files_and_documents(file: Path) -> None:
    result = allot("convert", str(file), "-o", "json")
    report = json.loads(result.stdout)
    assert report["changes"][0] == {
        "file": str(file),
        "line": 2,
        "column": 1,
        "field": "apiVersion",
        "rule": "old-api-version",
        "old": "resource.k8s.io/v1beta1",
        "new": "resource.k8s.io/v1",
        "why": "v1 is the version to use; older ones are not served, or not for long",
        "confidence": "certain",
    }
    assert report["problems"] == []
    assert report["files"] == [{"file": str(file), "changed": True}]
    assert report["documents"][0]["spec"]["devices"]["requests"][0]["exactly"] == {"deviceClassName": "gpu.nvidia.com"}
    assert result.stderr == ""


def test_a_report_of_what_cannot_be_converted_names_it() -> None:
    result = allot("convert", "-", "-o", "json", stdin=REFUSED)
    assert result.code == 1
    (problem,) = json.loads(result.stdout)["problems"]
    assert (problem["line"], problem["field"], problem["severity"]) == (7, "spec.tier", "error")


def test_json_stays_json(tmp_path: Path) -> None:
    path = tmp_path / "claim.json"
    value = {"apiVersion": "resource.k8s.io/v1beta2", "kind": "DeviceClass", "metadata": {"name": "x"}, "spec": {}}
    path.write_text(json.dumps(value))
    assert allot("convert", str(path), "--write").code == 0
    assert json.loads(path.read_text()) == {**value, "apiVersion": "resource.k8s.io/v1"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "error: stdin: line"),
        ("- 1\n", "no objects: expected at least one with apiVersion and kind"),
        ("", "no objects"),
    ],
)
def test_what_is_no_manifest_is_refused(text: str, said: str) -> None:
    result = allot("convert", "-", stdin=text)
    assert result.code == 2
    assert said in result.stderr


def test_documents_that_are_no_objects_and_empty_ones_stay() -> None:
    text = f"---\n# nothing\n---\n{NEW}---\nfree: text\n"
    assert allot("convert", "-", stdin=text).stdout == text


def test_a_document_that_is_gone_takes_its_separator_along() -> None:
    gone = "apiVersion: resource.k8s.io/v1alpha2\nkind: PodSchedulingContext\nmetadata:\n  name: x\n"
    assert allot("convert", "-", stdin=f"{NEW}---\n{gone}").stdout == NEW
    assert allot("convert", "-", stdin=gone).stdout == ""


# --- check ---

_CLUSTER = str(Path(__file__).resolve().parents[2] / "examples/cluster")
_TRAINING = """\
apiVersion: resource.k8s.io/v1beta1
kind: ResourceClaimTemplate
metadata: {name: t}
spec: {spec: {devices: {requests: [{name: gpu, deviceClassName: gpu.example.com, count: 2}]}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  parallelism: 2
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: i, resources: {claims: [{name: gpu}]}}]
      resourceClaims: [{name: gpu, source: {resourceClaimTemplateName: t}}]
"""


def test_check_says_where_the_pods_of_the_result_would_run(file: Path) -> None:
    file.write_text(_TRAINING)
    result = allot("convert", str(file), "--check", "-f", _CLUSTER)
    assert result.code == 0
    rows = [line.split() for line in result.stdout.splitlines()]
    assert [row[0] for row in rows] == ["POD", "default/train-0", "default/train-1"]
    assert all(row[-1].startswith("node-") for row in rows[1:])
    assert file.read_text() == _TRAINING


def test_check_says_why_a_pod_would_wait_and_the_exit_code_is_1(file: Path) -> None:
    file.write_text(_TRAINING.replace("gpu.example.com", "gpu.example.org"))
    result = allot("convert", str(file), "--check", "-f", _CLUSTER)
    assert result.code == 1
    assert "DeviceClass gpu.example.org" in result.stdout
    assert "the same: default/train-1" in result.stdout


def test_check_is_part_of_the_report_and_goes_with_write(file: Path) -> None:
    file.write_text(_TRAINING)
    result = allot("convert", str(file), "--check", "--write", "-f", _CLUSTER, "-o", "json")
    assert result.code == 0
    assert [pod["pod"] for pod in json.loads(result.stdout)["check"]["pods"]] == ["default/train-0", "default/train-1"]
    assert "source:" not in file.read_text()


def test_what_cannot_be_converted_is_not_checked(file: Path) -> None:
    file.write_text(REFUSED)
    result = allot("convert", str(file), "--check", "-f", _CLUSTER)
    assert (result.code, result.stdout) == (1, "")


def test_a_dump_without_check_is_a_usage_error(file: Path) -> None:
    result = allot("convert", str(file), "-f", _CLUSTER)
    assert result.code == 2
    assert "--check" in result.stderr

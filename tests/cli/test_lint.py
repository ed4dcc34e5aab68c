"""`allot lint` as a command: files, forms of output, changes, exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from allot.core.advice.lint.rules import RULES
from cli.command import allot

_ROOT = Path(__file__).resolve().parents[2]
_CLEAN = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n"
_WARNED = "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: c}\nspec: {}\n"
_NOTED = """\
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers: [{name: c, image: i, resources: {claims: [{name: gpu}]}}]
  resourceClaims: [{name: gpu, resourceClaimTemplateName: elsewhere}]
"""
_BROKEN = """\
# a comment that stays
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  name: train   # and another
spec:
  devices:
    requests:
    - name: gpu
      exactly:
        deviceclassname: gpu.nvidia.com
        selectors:
        - cel:
            expression: device.capacity["gpu.nvidia.com"].memory >= "16Gi"
–--
apiVersion: v1
kind: ConfigMap
metadata: {name: c}
data:
  port: 8080
"""
_FIXED = (
    _BROKEN.replace("–--", "---")
    .replace("deviceclassname", "deviceClassName")
    .replace('memory >= "16Gi"', 'memory.compareTo(quantity("16Gi")) >= 0')
    .replace("port: 8080", 'port: "8080"')
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "f.yaml"


# --- exit codes ---


@pytest.mark.parametrize(
    ("text", "options", "code"),
    [
        (_CLEAN, (), 0),
        (_WARNED, (), 1),
        (_WARNED, ("--fail-on", "error"), 0),
        (_NOTED, (), 0),
        (_NOTED, ("--fail-on", "note"), 1),
        (_BROKEN, ("--fail-on", "error"), 1),
        (_WARNED, ("--ignore", "class-without-selectors"), 0),
        (_WARNED, ("--rule", "unknown-field"), 0),
        (_WARNED, ("--rule", "class-without-selectors"), 1),
    ],
)
def test_the_exit_code_tells_whether_there_is_something_of_that_severity(
    file: Path, text: str, options: tuple[str, ...], code: int
) -> None:
    file.write_text(text)
    assert allot("lint", str(file), *options).code == code


def test_a_file_that_is_not_there_is_exit_code_2(tmp_path: Path) -> None:
    result = allot("lint", str(tmp_path / "none.yaml"))
    assert result.code == 2
    assert "no such file" in result.stderr


def test_a_file_without_any_object_is_exit_code_2(file: Path) -> None:
    file.write_text("replicaCount: 3\n")
    result = allot("lint", str(file))
    assert result.code == 2
    assert "no Kubernetes objects" in result.stderr


def test_files_that_are_something_else_do_no_harm(tmp_path: Path, file: Path) -> None:
    file.write_text(_CLEAN)
    (tmp_path / "values.yaml").write_text("replicaCount: 3\n")
    result = allot("lint", str(tmp_path))
    assert result.code == 0
    assert "note: ignored" in result.stdout


def test_a_rule_that_does_not_exist_is_a_usage_error_with_the_nearest() -> None:
    result = allot("lint", ".", "--rule", "unknown-fields")
    assert result.code == 2
    assert 'did you mean "unknown-field"?' in result.stderr


def test_a_profile_that_does_not_exist_is_a_usage_error_with_the_nearest(file: Path) -> None:
    file.write_text(_CLEAN)
    result = allot("lint", str(file), "--profile", "h100x80")
    assert result.code == 2
    assert "hint:" in result.stderr


def test_a_kubeconfig_that_is_not_there_is_exit_code_2(file: Path, tmp_path: Path) -> None:
    file.write_text(_CLEAN)
    result = allot("lint", str(file), "--against", "live", "--kubeconfig", str(tmp_path / "none"))
    assert (result.code, result.stdout) == (2, "")


# --- what is read ---


def test_folders_and_stdin_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(_WARNED)
    (tmp_path / "b.json").write_text('{"apiVersion": "v1", "kind": "Nothing"}')
    assert [line.split(":")[1] for line in allot("lint", str(tmp_path)).stdout.splitlines() if "fix:" not in line] == [
        "4",
        "1",
    ]
    assert allot("lint", "-", stdin=_WARNED).stdout.startswith("stdin:4:1: warning: DeviceClass c:")


def test_a_dump_is_a_cluster(tmp_path: Path, file: Path) -> None:
    file.write_text(_NOTED)
    dump = tmp_path / "dump.yaml"
    dump.write_text("apiVersion: v1\nkind: Node\nmetadata: {name: node-1}\n")
    result = allot("lint", str(file), "--against", str(dump))
    assert "error: Pod p: claim template" in result.stdout
    assert allot("lint", str(file), "--cluster", str(dump)).stdout == result.stdout


# --- forms of output ---


def test_text_has_place_severity_object_rule_and_fix(file: Path) -> None:
    file.write_text(_WARNED)
    result = allot("lint", str(file))
    first, second = result.stdout.splitlines()
    assert first == (
        f"{file}:4:1: warning: DeviceClass c: without selectors, the class includes every device of every driver "
        "[class-without-selectors]"
    )
    assert second.startswith("    fix: ")
    assert result.stderr == "1 warning in 1 file\n"


def test_nothing_found_is_said_on_stderr(file: Path) -> None:
    file.write_text(_CLEAN)
    result = allot("lint", str(file))
    assert (result.stdout, result.stderr) == ("", "nothing found in 1 file\n")


def test_json_has_stable_fields(file: Path) -> None:
    file.write_text(_BROKEN)
    (document,) = allot("lint", str(file), "-o", "json").lines
    assert document["summary"] == {"files": 1, "errors": 4, "warnings": 0, "notes": 0, "fixed": 0}
    separator = next(each for each in document["findings"] if each["rule"] == "document-separator")
    start = _BROKEN.index("–--")
    assert separator == {
        "file": str(file),
        "line": 15,
        "column": 1,
        "severity": "error",
        "rule": "document-separator",
        "object": "",
        "field": "",
        "message": "'–--' is written with a dash that is not a hyphen: it does not separate documents",
        "fix": {"text": "write ---", "edits": [{"start": start, "end": start + 3, "text": "---"}]},
    }


def test_github_gets_annotations(file: Path) -> None:
    file.write_text(_WARNED)
    (line,) = allot("lint", str(file), "-o", "github").stdout.splitlines()
    assert line.startswith(f"::warning file={file},line=4,col=1,title=class-without-selectors::without selectors")
    assert "%0Afix: select by driver" in line


def test_sarif_has_what_its_schema_demands(file: Path) -> None:
    file.write_text(_BROKEN)
    log: dict[str, Any] = json.loads(allot("lint", str(file), "-o", "sarif").stdout)
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert log["version"] == "2.1.0"
    assert [rule["id"] for rule in rules] == [rule.name for rule in RULES]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
        region = result["locations"][0]["physicalLocation"]["region"]
        assert region["startLine"] >= 1
        assert region["startColumn"] >= 1
    fixes = [fix for result in run["results"] for fix in result.get("fixes", ())]
    assert all(fix["artifactChanges"][0]["replacements"] for fix in fixes)
    assert len(fixes) == 4


# --- changes ---


def test_fix_changes_only_what_is_wrong(file: Path) -> None:
    file.write_text(_BROKEN)
    result = allot("lint", str(file), "--fix")
    assert file.read_text() == _FIXED
    assert (result.code, result.stdout) == (0, "")
    assert result.stderr.startswith("4 changes made; nothing found")


def test_fix_keeps_mode_and_byte_order_mark_and_line_ends(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf" + _BROKEN.replace("\n", "\r\n").encode())
    file.chmod(0o640)
    allot("lint", str(file), "--fix")
    assert file.read_bytes() == b"\xef\xbb\xbf" + _FIXED.replace("\n", "\r\n").encode()
    assert file.stat().st_mode & 0o777 == 0o640


def test_fix_leaves_a_file_alone_that_has_nothing_to_fix(file: Path) -> None:
    file.write_text(_WARNED)
    before = file.stat().st_mtime_ns
    allot("lint", str(file), "--fix")
    assert file.stat().st_mtime_ns == before


def test_fix_makes_no_change_of_a_rule_that_is_ignored(file: Path) -> None:
    file.write_text(_BROKEN)
    allot("lint", str(file), "--fix", "--rule", "document-separator")
    assert file.read_text() == _BROKEN.replace("–--", "---")


def test_diff_shows_the_changes_and_makes_none(file: Path) -> None:
    file.write_text(_BROKEN)
    result = allot("lint", str(file), "--diff")
    assert file.read_text() == _BROKEN
    assert {"-–--", "+---"} <= set(result.stdout.splitlines())
    assert "[document-separator]" in result.stderr
    assert result.code == 1


@pytest.mark.parametrize("other", [("--fix",), ("-o", "json")])
def test_a_diff_is_no_other_thing_at_the_same_time(file: Path, other: tuple[str, ...]) -> None:
    file.write_text(_BROKEN)
    assert allot("lint", str(file), "--diff", *other).code == 2
    assert file.read_text() == _BROKEN


def test_stdin_cannot_be_fixed_but_diffed() -> None:
    assert allot("lint", "-", "--fix", stdin=_BROKEN).code == 2
    assert "+---" in allot("lint", "-", "--diff", stdin=_BROKEN).stdout


# --- the rules ---


def test_rules_can_be_listed() -> None:
    listed = allot("lint", "--list-rules").stdout
    assert all(rule.name in listed for rule in RULES)


def test_the_page_describes_every_rule_and_no_other() -> None:
    page = (_ROOT / "docs/reference/commands/lint.md").read_text()
    headings = re.findall(r"^#### `([a-z-]+)` \((error|warning|note)\)$", page, re.MULTILINE)
    assert headings == [(rule.name, rule.severity.value) for rule in RULES]
    topics = re.findall(r"^### (.+)$", page, re.MULTILINE)
    assert topics == list(dict.fromkeys(rule.topic for rule in RULES))


def test_every_rule_is_found_in_its_example_on_the_page(tmp_path: Path) -> None:
    page = (_ROOT / "docs/reference/commands/lint.md").read_text()
    sections = re.split(r"^#### ", page.partition("## The rules")[2], flags=re.MULTILINE)[1:]
    for number, section in enumerate(sections):
        name = section[1 : section.index("`", 1)]
        blocks = re.findall(r"^```yaml\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
        assert blocks, name
        options = re.search(r"with `(--[a-z]+ [^`]+)`", section)
        example = tmp_path / f"{number}.yaml"
        example.write_text(blocks[0])
        given = options[1].split() if options else []
        (document,) = allot("lint", str(example), "-o", "json", *given).lines
        assert name in {finding["rule"] for finding in document["findings"]}, (name, document)

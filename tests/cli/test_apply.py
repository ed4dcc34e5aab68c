"""`allot apply`: converted, linted and applied in the right order."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import yaml

from allot.cli.converting.applying import in_order
from allot.store.memory import MemoryStore
from apiserver.live import live_server
from cli.command import Result, allot

POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: pod
spec:
  containers:
  - name: main
    image: example.com/app
    resources:
      claims:
      - name: card
  resourceClaims:
  - name: card
    source:
      resourceClaimTemplateName: card
"""
TEMPLATE = """\
apiVersion: resource.k8s.io/v1beta1
kind: ResourceClaimTemplate
metadata:
  name: card
spec:
  spec:
    devices:
      requests:
      - name: card
        deviceClassName: cards.example.com
"""
CLASS = """\
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata:
  name: cards.example.com
spec:
  selectors:
  - cel:
      expression: device.driver == "cards.example.com"
"""
TEXT = "---\n".join((POD, TEMPLATE, CLASS))
CUSTOM = """\
apiVersion: example.com/v1
kind: Widget
metadata:
  name: first
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.example.com
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
"""


def test_a_dry_run_of_the_client_needs_no_cluster() -> None:
    result = allot("apply", "-f", "-", "--dry-run=client", stdin=TEXT)
    assert (result.code, result.stdout.splitlines()) == (
        0,
        [
            "deviceclass.resource.k8s.io/cards.example.com created (dry run)",
            "resourceclaimtemplate.resource.k8s.io/card created (dry run)",
            "pod/pod created (dry run)",
        ],
    )
    assert "source was removed in Kubernetes 1.31 (certain)" in result.stderr


def test_what_is_only_likely_is_not_applied_unless_accepted() -> None:
    text = TEXT.replace("resourceClaimTemplateName", "resourceClaimTemplate")
    result = allot("apply", "-f", "-", "--dry-run=client", stdin=text)
    assert (result.code, result.stdout) == (1, "")
    assert "error: one change is less certain than certain; nothing was applied" in result.stderr
    assert allot("apply", "-f", "-", "--dry-run=client", "--accept", "likely", stdin=text).code == 0


def test_errors_of_lint_stop_everything() -> None:
    text = TEXT.replace("    image: example.com/app\n", "")
    result = allot("apply", "-f", "-", "--dry-run=client", stdin=text)
    assert (result.code, result.stdout) == (1, "")
    assert "nothing was applied" in result.stderr
    assert allot("apply", "-f", "-", "--dry-run=client", "--no-lint", stdin=text).code == 0


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        (CLASS.replace("  name: cards.example.com\nspec", "  labels: {}\nspec"), ["--no-lint"], "no metadata.name"),
        (
            POD.replace("name: pod", "name: pod\n  namespace: a"),
            ["-n", "b", "--no-lint"],
            "expected b, the namespace of -n",
        ),
        (f"{CLASS}---\nfree: text\n", ["--no-lint"], "a document is not an object"),
    ],
)
def test_what_cannot_be_applied_is_refused_before_anything_is(text: str, arguments: list[str], said: str) -> None:
    result = allot("apply", "-f", "-", "--dry-run=client", *arguments, stdin=text)
    assert result.code == 2
    assert said in result.stderr


def test_files_may_be_named_as_for_the_other_commands() -> None:
    result = allot("apply", "--file", "-", "--dry-run=client", "-o", "json", stdin=CLASS)
    made = {"resource": "deviceclass.resource.k8s.io", "name": "cards.example.com", "namespace": ""}
    assert result.lines == [{"objects": [{**made, "result": "created", "message": ""}]}]


def test_without_a_kubeconfig_nothing_is_said_of_dumps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    result = allot("apply", "-f", "-", stdin=CLASS)
    assert result.code == 2
    assert result.stderr.splitlines()[-1] == "hint: set a kubeconfig with --kubeconfig; --dry-run=client needs none"


def test_what_others_need_comes_first_and_equals_keep_their_order() -> None:
    kinds = [
        "Pod",
        "Gadget",
        "Job",
        "ResourceClaim",
        "Widget",
        "DeviceClass",
        "Namespace",
        "CustomResourceDefinition",
    ]
    assert [value["kind"] for value in in_order([{"kind": kind} for kind in kinds])] == [
        "CustomResourceDefinition",
        "Namespace",
        "DeviceClass",
        "ResourceClaim",
        "Gadget",
        "Widget",
        "Job",
        "Pod",
    ]


@pytest.mark.slow
async def test_objects_are_created_configured_or_left_and_refusals_do_not_stop_the_others(tmp_path: Path) -> None:
    async with live_server(tmp_path, MemoryStore()) as server:

        async def apply(text: str, *options: str) -> Result:
            arguments = ("apply", "-f", "-", "--kubeconfig", str(server.kubeconfig), *options)
            return await asyncio.to_thread(allot, *arguments, stdin=text)

        dry = await apply(CLASS, "--dry-run=server")
        assert dry.stdout == "deviceclass.resource.k8s.io/cards.example.com created (server dry run)\n"
        first = await apply(TEXT)
        assert [line.split()[1] for line in first.stdout.splitlines()] == ["created"] * 3
        changed = TEXT.replace("name: card\nspec", "name: card\n  labels: {a: b}\nspec")
        assert [line.split()[1] for line in (await apply(changed)).stdout.splitlines()] == [
            "unchanged",
            "configured",
            "unchanged",
        ]
        namespace = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: team\n"
        made = json.loads((await apply(f"{TEMPLATE}---\n{namespace}", "-n", "team", "-o", "json")).stdout)
        assert [(each["resource"], each["namespace"], each["result"]) for each in made["objects"]] == [
            ("namespace", "", "created"),
            ("resourceclaimtemplate.resource.k8s.io", "team", "created"),
        ]
        misspelt = await apply(TEMPLATE.replace("cards.", "card."))
        assert (misspelt.code, misspelt.stdout) == (1, "")
        assert 'device class "card.example.com" does not exist' in misspelt.stderr
        assert 'fix: did you mean "cards.example.com"?' in misspelt.stderr
        # The template is known only in the namespace that it was applied to.
        assert (await apply(POD, "-n", "team", "--dry-run=server")).code == 0
        assert (await apply(POD, "-n", "kube-system", "--dry-run=server")).code == 1
        custom = await apply(CUSTOM)
        assert custom.stdout.splitlines()[1] == "widget.example.com/first created"
        unknown = CLASS.replace("resource.k8s.io/v1", "example.com/v1").replace("DeviceClass", "Gadget")
        refused = await apply(f"{unknown}---\n{CLASS}", "--no-lint")
        assert (refused.code, refused.stdout.split()[-1]) == (1, "unchanged")
        assert "does not serve kind 'Gadget' in apiVersion 'example.com/v1'" in refused.stderr
        stranger = yaml.safe_load(Path(server.kubeconfig).read_text())
        stranger["users"][0]["user"] = {"token": "unknown"}
        kubeconfig = tmp_path / "stranger"
        kubeconfig.write_text(yaml.safe_dump(stranger))
        unknown_user = await apply(CLASS, "--kubeconfig", str(kubeconfig))
        assert (unknown_user.code, unknown_user.stdout) == (3, "")

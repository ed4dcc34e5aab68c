"""Files, folders and lists become objects with an origin."""

from __future__ import annotations

from pathlib import Path

import pytest

from allot.reading.errors import Unreadable
from allot.reading.manifests import Manifest, check_unique, manifests_in, read_manifests


def read(text: str) -> list[Manifest]:
    return list(manifests_in(text.encode(), "f.yaml"))


def failure(text: str) -> str:
    with pytest.raises(Unreadable) as caught:
        read(text)
    return caught.value.message


NODE = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n"


def test_an_object_knows_where_it_came_from() -> None:
    (first, second) = read(f"# two nodes\n{NODE}---\n{NODE.replace('n1', 'n2')}")
    assert str(first) == "Node n1"
    assert str(first.origin) == "f.yaml document 1, line 2"
    assert str(second.origin) == "f.yaml document 2, line 6"


def test_a_list_as_kubectl_prints_it_is_expanded() -> None:
    text = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Node\n  metadata: {name: a}\n- {apiVersion: v1, kind: Node}\n"
    (first, second) = read(text)
    assert (str(first), str(first.origin)) == ("Node a", "f.yaml document 1, line 4, items[0]")
    assert (str(second), str(second.origin)) == ("Node without a name", "f.yaml document 1, line 7, items[1]")


def test_members_of_a_typed_list_get_its_kind() -> None:
    text = '{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSliceList", "items": [{"metadata": {"name": "s"}}]}'
    (manifest,) = read(text)
    assert (manifest.api_version, manifest.kind, manifest.name) == ("resource.k8s.io/v1", "ResourceSlice", "s")


def test_lists_in_lists_are_expanded_in_order() -> None:
    inner = "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Node, metadata: {name: b}}]}"
    text = f"apiVersion: v1\nkind: List\nitems:\n- {{apiVersion: v1, kind: Node, metadata: {{name: a}}}}\n- {inner}\n"
    assert [manifest.name for manifest in read(text)] == ["a", "b"]


def test_an_empty_list_has_no_members() -> None:
    assert read("{apiVersion: v1, kind: List, items: []}") == []
    assert read("{apiVersion: v1, kind: List, items: null}") == []


def test_a_document_that_is_no_object_is_refused() -> None:
    assert "is a list: expected a Kubernetes object" in failure("- 1\n- 2\n")
    assert "is text: expected a Kubernetes object" in failure("just words")
    assert "kind is missing" in failure("apiVersion: v1\n")
    assert "apiVersion is 5" in failure("apiVersion: 5\nkind: Node\n")


def test_a_list_member_that_is_no_object_is_refused_by_its_index() -> None:
    assert "items[1]: is a number" in failure("{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Node}, 5]}")


def test_a_folder_is_searched_in_name_order(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "b.yaml").write_text(NODE)
    (tmp_path / "a.yml").write_text(NODE.replace("n1", "n0"))
    (tmp_path / "sub" / "c.json").write_text('{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2"}}')
    (tmp_path / "notes.txt").write_text("not a manifest")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "d.yaml").write_text("not meant")
    assert [manifest.name for manifest in read_manifests([str(tmp_path)])] == ["n0", "n1", "n2"]


def test_a_folder_without_manifests_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="directory without manifests"):
        read_manifests([str(tmp_path)])


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match=r"none\.yaml: no such file or directory"):
        read_manifests([str(tmp_path / "none.yaml")])


def test_a_name_that_no_file_can_have_is_refused() -> None:
    for name in ("a\0b", ""):
        with pytest.raises(Unreadable, match="not a file name"):
            read_manifests([name])


def test_two_objects_of_one_name_are_refused() -> None:
    with pytest.raises(
        Unreadable, match=r"Node n1: defined twice, in f\.yaml document 1, line 1 and in f\.yaml document 2"
    ):
        check_unique(read(f"{NODE}---\n{NODE}"))


def test_generated_names_may_repeat() -> None:
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {generateName: p-}\n"
    check_unique(read(f"{pod}---\n{pod}"))


def test_one_name_in_two_namespaces_is_two_objects() -> None:
    claim = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: c, namespace: NS}\n"
    check_unique(read(f"{claim.replace('NS', 'a')}---\n{claim.replace('NS', 'b')}"))

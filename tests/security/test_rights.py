"""Nobody gets in without a credential, and nobody gets further than theirs."""

from __future__ import annotations

import pytest

from security.servers import POWERLESS_TOKEN, Both

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/version"])
def test_without_a_credential_one_sees_that_the_server_lives(both: Both, path: str) -> None:
    assert both.send("GET", path, who=None).status == 200


def test_a_wrong_token_is_refused_and_not_taken_for_nobody(both: Both) -> None:
    assert both.send("GET", "/version", who="token:wrong").status == 401


def test_edit_in_one_namespace_ends_at_its_border(both: Both, namespace: str) -> None:
    editor = both.grant(f"editor-of-{namespace}", namespace)
    assert both.send("GET", f"/api/v1/namespaces/{namespace}/secrets", who=editor).status == 200
    assert both.send("GET", "/api/v1/namespaces/kube-system/secrets", who=editor).status == 403
    assert both.send("GET", "/api/v1/secrets", who=editor).status == 403
    bindings = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings"
    assert both.send("POST", bindings, {"metadata": {"name": "more"}}, who=editor).status == 403


def test_a_token_gives_the_rights_of_its_user_alone(both: Both) -> None:
    assert both.send("GET", "/api/v1/secrets", who=f"token:{POWERLESS_TOKEN}").status == 403

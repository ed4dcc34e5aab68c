"""Every namespace gets its service account and the server's certificates, whatever admission does to another one."""

from __future__ import annotations

import pytest

from apiserver.live import LiveServer
from apiserver.webhook_server import Webhook
from waiting import until

GROUP = "/apis/admissionregistration.k8s.io/v1"


def namespace(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


async def has(server: LiveServer, name: str, *objects: str) -> bool:
    return all([(await server.get(f"/api/v1/namespaces/{name}/{each}")).status == 200 for each in objects])


ACCOUNT, MAP = "serviceaccounts/default", "configmaps/kube-root-ca.crt"


@pytest.mark.parametrize("code", [403, 404, 500])
async def test_what_admission_refuses_in_one_namespace_keeps_no_other_one_waiting_and_comes_later(
    server: LiveServer, webhook: Webhook, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    webhook.decide = lambda asked: {
        "allowed": asked["namespace"] != "shut",
        "status": {"code": code, "message": "shut for repairs"},
    }
    made = webhook.configuration("ValidatingWebhookConfiguration")
    assert (await server.post(f"{GROUP}/validatingwebhookconfigurations", made)).status == 201
    for name in ("shut", "open"):
        assert (await server.post("/api/v1/namespaces", namespace(name))).status == 201
    assert await until(lambda: has(server, "open", ACCOUNT, MAP))
    assert await has(server, "shut", ACCOUNT) and not await has(server, "shut", MAP)
    assert "namespace shut: configmap kube-root-ca.crt cannot be created, trying again: " in caplog.text
    assert "shut for repairs" in caplog.text and "Traceback" not in caplog.text
    webhook.decide = lambda _: {"allowed": True}
    assert await until(lambda: has(server, "shut", MAP))

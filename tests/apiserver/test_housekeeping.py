"""What the server does for its store from time to time."""

from __future__ import annotations

from allot.apiserver.housekeeping import last_seen, sweep_events_once
from apiserver.live import LiveServer

EVENTS = "/api/v1/namespaces/default/events"


async def test_events_are_forgotten_an_hour_after_they_were_last_seen(server: LiveServer) -> None:
    involved = {"kind": "Pod", "name": "p", "namespace": "default"}
    for name, seen in (("old", "2020-01-01T00:00:00Z"), ("new", None)):
        event = {"metadata": {"name": name}, "involvedObject": involved, "lastTimestamp": seen}
        assert (await server.post(EVENTS, event)).status == 201
    context = server.live.server.context
    # Both were created now; only one hour from now will they be old.
    await sweep_events_once(context)
    assert len((await server.get(EVENTS)).json["items"]) == 2


def test_an_event_is_as_old_as_its_last_sign_of_life() -> None:
    created = {"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}}
    assert last_seen(created) == "2026-01-01T00:00:00Z"
    assert last_seen({**created, "lastTimestamp": "2026-01-02T00:00:00Z"}) == "2026-01-02T00:00:00Z"
    series = {"lastObservedTime": "2026-01-03T00:00:00.000000Z"}
    assert last_seen({**created, "series": series}) == "2026-01-03T00:00:00.000000Z"


async def test_status_belongs_to_nobody_who_writes_the_object(server: LiveServer) -> None:
    path = "/apis/apps/v1/namespaces/default/deployments"
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    spec = {"selector": {"matchLabels": {"app": "x"}}, "template": template}
    body = {"metadata": {"name": "d"}, "spec": spec, "status": {"replicas": 5}}
    answer = await server.post(path, body)
    (entry,) = answer.json["metadata"]["managedFields"]
    assert "f:status" not in entry["fieldsV1"]

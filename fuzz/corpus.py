"""What a server serves, and valid objects of every kind, found out by asking it.

Kinds come from discovery, schemas from OpenAPI; an example is what the server accepts in a dry run, so that new kinds need
nothing here. Manifests that the project has are taken too.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from fuzz.examples import Schema, Schemas, repaired
from fuzz.targets import NODE_NAME
from fuzz.wire import Ask, Request

NAMESPACES = ("fuzz-a", "fuzz-b")
_REPAIRS_MAX = 40
_GROWTHS = 6
_DISCOVERY = "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io"
_ROOT = Path(__file__).resolve().parents[1]

Object = dict[str, Any]

_WIDGET_SCHEMA: Object = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 0, "maximum": 100},
                "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
                "pattern": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 20},
                "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "either": {"x-kubernetes-int-or-string": True},
                "ports": {
                    "type": "array",
                    "maxItems": 10,
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {"name": {"type": "string"}, "port": {"type": "number"}},
                    },
                },
                "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}, "maxItems": 20},
            },
            "x-kubernetes-validations": [{"rule": "self.size >= 0 && (!has(self.tags) || self.tags.size() < 20)"}],
        },
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
    },
}
# What has to be there so that requests mean something; put back when a request has taken it away.
FURNITURE: tuple[tuple[str, Object], ...] = (
    *(
        ("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for name in NAMESPACES
    ),
    # Made by a controller elsewhere; pods need it.
    *((f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}}) for name in NAMESPACES),
    (
        f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACES[0]}/rolebindings",
        {
            "metadata": {"name": "editor"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "fuzz-editor"}],
        },
    ),
    ("/api/v1/nodes", {"metadata": {"name": NODE_NAME}}),
    (
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        {
            "metadata": {"name": "widgets.fuzz.example.com"},
            "spec": {
                "group": "fuzz.example.com",
                "scope": "Namespaced",
                "names": {"plural": "widgets", "kind": "Widget"},
                "versions": [
                    {
                        "name": "v1",
                        "served": True,
                        "storage": True,
                        "schema": {"openAPIV3Schema": _WIDGET_SCHEMA},
                        "subresources": {
                            "status": {},
                            "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.replicas"},
                        },
                        "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
                    }
                ],
            },
        },
    ),
    *(
        (
            f"/api/v1/namespaces/{NAMESPACES[0]}/pods",
            {
                "metadata": {"name": f"on-{node}", "namespace": NAMESPACES[0]},
                "spec": {
                    "nodeName": node,
                    "containers": [{"name": "main", "image": "busybox:1"}],
                    "tolerations": [{"operator": "Exists"}],
                },
            },
        )
        for node in (NODE_NAME, "no-such-node")
    ),
)


class Subresource(msgspec.Struct, frozen=True):
    """A part of a resource."""

    name: str
    verbs: tuple[str, ...]
    api_version: str
    kind: str


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """A resource that is served."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    verbs: tuple[str, ...]
    subresources: tuple[Subresource, ...]
    schema: Mapping[str, Any]
    # Objects as JSON.
    examples: list[bytes] = msgspec.field(default_factory=list)

    @property
    def api_version(self) -> str:
        """Group and version."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "") -> str:
        """Of all objects, or of one."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        inside = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return f"{root}{inside}/{self.plural}{'/' if name else ''}{name}"

    def example(self, dice: random.Random) -> Object:
        """One of the examples, or what the kind requires to be there at all."""
        if not self.examples:
            return {"apiVersion": self.api_version, "kind": self.kind, "metadata": {"name": "fuzz-0"}}
        found: Object = msgspec.json.decode(dice.choice(self.examples))
        return found


class Corpus(msgspec.Struct, frozen=True):
    """What is known about a server."""

    resources: list[Resource]
    schemas: Schemas
    # Parts of any of them end up in any other.
    donors: list[Any]
    sites: list[str]
    # Parameters that these take.
    site_options: tuple[str, ...] = ("verbose", "exclude", "hash", "timeout")

    def with_examples(self) -> int:
        """How many kinds have a valid example."""
        return sum(bool(resource.examples) for resource in self.resources)


async def furnish(ask: Ask) -> None:
    """Make what has to be there."""
    for path, value in FURNITURE:
        await ask(_json("POST", path, value))


async def collect(ask: Ask, seed: int) -> Corpus:
    """Ask a server what it has."""
    schemas = Schemas()
    index = msgspec.json.decode((await ask(Request(method="GET", path="/openapi/v3"))).body)
    sites = [*_SITES, *(f"/openapi/v3/{path}" for path in index["paths"])]
    for path in index["paths"]:
        schemas.add(msgspec.json.decode((await ask(Request(method="GET", path=f"/openapi/v3/{path}"))).body))
    resources = []
    for path in ("/api", "/apis"):
        listed = await ask(Request(method="GET", path=path, headers=[("Accept", _DISCOVERY)]))
        resources += list(_resources(msgspec.json.decode(listed.body), schemas))
    manifests = list(_manifests())
    for resource in resources:
        if "create" in resource.verbs:
            await _find_examples(ask, resource, schemas, manifests, random.Random(f"{seed}/{resource.path()}"))
        sites.append(resource.path().rpartition("/")[0])
    donors = [msgspec.json.decode(example) for resource in resources for example in resource.examples]
    return Corpus(resources, schemas, donors, sorted(set(sites)))


_SITES = (
    *(
        "/",
        "/api",
        "/apis",
        "/version",
        "/healthz",
        "/livez",
        "/readyz",
        "/livez/ping",
        "/readyz/etcd",
        "/healthz/poststarthook/x",
    ),
    *(
        "/openapi/v2",
        "/openapi/v3",
        "/metrics",
        "/.well-known/openid-configuration",
        "/openid/v1/jwks",
        "/swagger.json",
        "/logs/",
    ),
    *("/debug/pprof/", "/apis/resource.k8s.io", "/apis/apps", "/configz", "/statusz", "/flagz", "/favicon.ico"),
)


def _resources(discovery: Mapping[str, Any], schemas: Schemas) -> Iterator[Resource]:
    for item in discovery["items"]:
        group = item["metadata"].get("name", "")
        for version in item["versions"]:
            for told in version["resources"]:
                kind = told["responseKind"]["kind"]
                yield Resource(
                    group=group,
                    version=version["version"],
                    plural=told["resource"],
                    kind=kind,
                    namespaced=told["scope"] == "Namespaced",
                    verbs=tuple(told.get("verbs", ())),
                    subresources=tuple(
                        _subresource(each, group, version["version"], kind) for each in told.get("subresources", ())
                    ),
                    schema=schemas.of_kind(group, version["version"], kind),
                )


def _subresource(told: Mapping[str, Any], group: str, version: str, kind: str) -> Subresource:
    response = told.get("responseKind") or {"group": group, "version": version, "kind": kind}
    group, version = response.get("group") or "", response.get("version") or version
    return Subresource(
        told["subresource"], tuple(told["verbs"]), f"{group}/{version}" if group else version, response["kind"]
    )


def _manifests() -> Iterator[Object]:
    """Objects of the project's examples and, where they are, of the vectors."""
    named = os.environ.get("ALLOT_VECTORS")
    vectors = Path(named) if named else _ROOT.parent / "shared" / "vectors"
    for folder in (_ROOT / "fuzz", _ROOT / "examples", vectors / "api"):
        for path in sorted(folder.rglob("*.yaml")):
            try:
                documents = list(yaml.safe_load_all(path.read_text()))
            except yaml.YAMLError:
                continue
            yield from (each for each in documents if isinstance(each, dict) and "kind" in each)


async def _find_examples(
    ask: Ask, resource: Resource, schemas: Schemas, manifests: list[Object], dice: random.Random
) -> None:
    schema = resource.schema
    found: Object = {} if not schema else schemas.example(schema, dice)
    found |= {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": "fuzz-0"}}
    if "spec" in schema.get("properties", {}):
        found.setdefault("spec", schemas.example(schema["properties"]["spec"], dice))
    if await _accepted(ask, resource, found, schemas, dice):
        resource.examples.append(msgspec.json.encode(found))
        for _ in range(_GROWTHS):
            found = await _grown(ask, resource, found, schemas, schema, dice)
    for manifest in manifests:
        if manifest.get("apiVersion") == resource.api_version and manifest["kind"] == resource.kind:
            resource.examples.append(msgspec.json.encode(manifest, enc_hook=str))


async def _accepted(ask: Ask, resource: Resource, value: Object, schemas: Schemas, dice: random.Random) -> bool:
    """Whether the server takes an object after it was repaired by what the server says."""
    tried: dict[str, int] = {}
    path = resource.path(NAMESPACES[0])
    for _ in range(_REPAIRS_MAX):
        answer = await ask(_json("POST", path, value, [("dryRun", "All"), ("fieldValidation", "Strict")]))
        if answer.status in (200, 201):
            return True
        try:
            status = msgspec.json.decode(answer.body)
        except msgspec.DecodeError:
            return False
        causes = (status.get("details") or {}).get("causes") or []
        if not causes:
            return False
        repaired(value, schemas, resource.schema, causes, tried, dice)
        metadata = value.get("metadata")
        if not isinstance(metadata, dict) or "name" not in metadata:
            value["metadata"] = {"name": "fuzz-0"}
    return False


async def _grown(
    ask: Ask, resource: Resource, value: Object, schemas: Schemas, schema: Schema, dice: random.Random
) -> Object:
    """The object with another part that it need not have, if the server takes that too; kept as an example."""
    larger: Object = msgspec.json.decode(msgspec.json.encode(value))
    properties = {
        name: inner
        for name, inner in schema.get("properties", {}).items()
        if name not in ("apiVersion", "kind", "metadata")
    }
    if not properties:
        return value
    name = dice.choice(sorted(properties))
    holder, inner = larger, schemas.resolved(properties[name])
    if isinstance(larger.get(name), dict) and inner.get("properties"):
        holder, properties = larger[name], inner["properties"]
        name = dice.choice(sorted(properties))
        inner = schemas.resolved(properties[name])
    holder[name] = schemas.example(inner, dice, optional=0.5, name=name, depth=2)
    if not await _accepted(ask, resource, larger, schemas, dice):
        return value
    encoded = msgspec.json.encode(larger)
    if encoded not in resource.examples:
        resource.examples.append(encoded)
    return larger


def _json(method: str, path: str, value: Any, query: list[tuple[str, str]] | None = None) -> Request:
    headers = [("Content-Type", "application/json")]
    return Request(method=method, path=path, query=query or [], headers=headers, body=msgspec.json.encode(value))


# What an agent serves, of a pod that runs and of others.
_POD = "on-fuzz-node"
_AGENT_SITES = (
    *(
        "/healthz",
        "/pods",
        "/metrics",
        "/metrics/resource",
        "/metrics/cadvisor",
        "/stats/summary",
        "/configz",
        "/logs/",
        "/",
    ),
    *(
        f"/{verb}/{NAMESPACES[0]}/{pod}/{name}"
        for verb in ("containerLogs", "exec", "attach")
        for pod in (_POD, "none")
        for name in ("main", "x")
    ),
    *(
        f"/{verb}/{NAMESPACES[0]}/{_POD}/0a0a0a0a-0000-4000-8000-000000000000/main"
        for verb in ("exec", "attach", "run")
    ),
    *(f"/portForward/{NAMESPACES[0]}/{pod}" for pod in (_POD, "none")),
)
_AGENT_OPTIONS = (
    *(
        "command",
        "input",
        "output",
        "error",
        "tty",
        "stdin",
        "port",
        "follow",
        "tailLines",
        "sinceSeconds",
        "sinceTime",
    ),
    *("limitBytes", "stream", "previous", "timestamps"),
)


def of_agent() -> Corpus:
    """What is asked of a node."""
    return Corpus([], Schemas(), [{}], list(_AGENT_SITES), _AGENT_OPTIONS)

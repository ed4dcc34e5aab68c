"""Requests in sequences: each is about one object, which is created, read, changed, mistreated and deleted.

A sequence is a function of corpus, seed and number alone. Most requests have one to four things wrong with them, in the body,
the query, the path, the headers, the encoded bytes or the HTTP around them; some have none, so that there is something to
mistreat. Names come from a small set, so that the number of stored objects is bounded.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec

from fuzz.bodies import JSON, PROTOBUF, YAML, as_json, as_protobuf, as_yaml
from fuzz.corpus import NAMESPACES, Corpus, Object, Resource, Subresource
from fuzz.findings import Case
from fuzz.targets import NODE_NAME, USERS
from fuzz.values import CONTAINERS, TEXTS, copied, havoc, mutate, odd_value, places
from fuzz.wire import Request

STEPS = 10
NAMES = ("fuzz-0", "fuzz-1", "fuzz-2")
_PATCHES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
_TYPES = (
    *(
        JSON,
        YAML,
        PROTOBUF,
        *_PATCHES.values(),
        "text/plain",
        "",
        "application/cbor",
        "application/json; charset=utf-16",
    ),
    *(
        "application/json;;",
        "*/*",
        "a",
        "application/apply-patch+cbor",
        "APPLICATION/JSON",
        "application/x-www-form-urlencoded",
    ),
)
_ACCEPTS = (
    *(
        "*/*",
        JSON,
        YAML,
        PROTOBUF,
        "application/json;as=Table;v=v1;g=meta.k8s.io",
        "application/yaml;as=Table;v=v1;g=meta.k8s.io",
    ),
    *(
        "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    ),
    *(
        "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io",
        "application/json;q=nan",
        "application/json;q=1e400",
    ),
    *(
        PROTOBUF,
        "application/json;stream=watch",
        "a/b;c",
        ";",
        ",,,",
        "application/json;as=Table;v=v9;g=x",
        "application/cbor",
        "text/html,*/*;q=0.1",
    ),
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
)
_QUERIES: dict[str, tuple[str, ...]] = {
    "dryRun": ("All", "all", "", "None", "All,All"),
    "fieldManager": ("fuzz", "", "x" * 129, "a\0b"),
    "fieldValidation": ("Strict", "Warn", "Ignore", "", "x"),
    "force": ("true", "false", "x", "1"),
    "pretty": ("true", "1", "x"),
    "limit": ("1", "0", "-1", "500", "9223372036854775808", "x", "²"),
    "continue": (
        "",
        "a",
        "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhIn0",
        "e30",
        "bnVsbA",
        "W10",
        "MQ",
        "²",
        "=" * 10,
    ),
    "resourceVersion": ("", "0", "1", "999999999", "-1", "x", "9223372036854775808", "²", "1.5"),
    "resourceVersionMatch": ("Exact", "NotOlderThan", "", "x"),
    "labelSelector": (
        "a=b",
        "a in (b,c)",
        "!a",
        "a,,b",
        "a in (",
        "a>1",
        "a>²",
        "a==b,c!=d",
        "((",
        "a notin ()",
        "=b",
        "é=é",
        "a=b" * 300,
    ),
    "fieldSelector": (
        "metadata.name=fuzz-0",
        "status.phase=Running",
        "x=y",
        "metadata.name",
        "a\\,b=c",
        "=",
        "metadata.name!=a,metadata.namespace=b",
    ),
    "watch": ("true", "1", "false", "x", ""),
    "allowWatchBookmarks": ("true", "x"),
    "sendInitialEvents": ("true", "false", "x"),
    "timeoutSeconds": ("1", "0", "-1", "9223372036854775808", "x", "1.5"),
    "timeout": ("1s", "0", "-1s", "x", "1e400s", "9" * 400 + "h", "²s", "1µs", "5", ".s", "1h" * 40, "1ms", "100us"),
    "includeObject": ("None", "Metadata", "Object", "x"),
    "gracePeriodSeconds": ("0", "-1", "30", "x", "9223372036854775808"),
    "propagationPolicy": ("Foreground", "Background", "Orphan", "x"),
    "orphanDependents": ("true", "false", "x"),
    "ignoreStoreReadErrorWithClusterBreakingPotential": ("true", "x"),
    "shardSelector": ("a", "shardRange(object.metadata.uid,'0x0','0x8')"),
    "container": ("main", "x", "", "a/b"),
    "follow": ("true", "x"),
    "tailLines": ("1", "-1", "x", "²"),
    "sinceSeconds": ("1", "0", "x", "9" * 30),
    "sinceTime": ("2026-01-01T00:00:00Z", "x"),
    "limitBytes": ("1", "0", "x"),
    "stream": ("Stdout", "All", "x"),
    "command": ("true", ""),
    "stdin": ("true", "x"),
    "tty": ("true", "x"),
    "ports": ("80", "x", "70000", "²"),
    "port": ("80", "1", "x", "0", "70000", "²", "80,81"),
    "input": ("1", "x"),
    "output": ("1",),
    "error": ("1",),
    "previous": ("true",),
    "timestamps": ("true",),
    "path": ("/", "a", "../x", "http://a/"),
    "verbose": ("", "1"),
    "exclude": ("ping", "x"),
    "hash": ("a", ""),
    "audiences": ("a",),
}
_SUBRESOURCE_BODIES: dict[str, tuple[Object, ...]] = {
    "eviction": (
        {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "fuzz-0"},
            "deleteOptions": {"gracePeriodSeconds": 0},
        },
    ),
    "binding": (
        {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "fuzz-0"},
            "target": {"kind": "Node", "name": NODE_NAME},
        },
    ),
    "token": (
        {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "audiences": ["a"],
                "expirationSeconds": 600,
                "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "on-fuzz-node"},
            },
        },
    ),
    "scale": (
        {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {"name": "fuzz-0", "namespace": "fuzz-a"},
            "spec": {"replicas": 2},
        },
    ),
    "finalize": (
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "fuzz-2"},
            "spec": {"finalizers": ["kubernetes"]},
        },
    ),
    "resize": (
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "fuzz-0"},
            "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]},
        },
    ),
    "ephemeralcontainers": (
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "fuzz-0"},
            "spec": {"ephemeralContainers": [{"name": "debug", "image": "busybox:1"}]},
        },
    ),
    "approval": (
        {
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": "fuzz-0"},
            "status": {"conditions": [{"type": "Approved", "status": "True", "reason": "a", "message": "b"}]},
        },
    ),
}
_DELETE_OPTIONS: Object = {
    "apiVersion": "v1",
    "kind": "DeleteOptions",
    "gracePeriodSeconds": 0,
    "propagationPolicy": "Background",
    "preconditions": {"uid": "0a0a0a0a-0000-4000-8000-000000000000", "resourceVersion": "1"},
    "dryRun": [],
}
# An agent's own.
_UPGRADING = ("/exec/", "/attach/", "/portForward/")
# Of a node, a pod or a service: others answer, or nobody.
_PASSED_ON = ("log", "exec", "attach", "portforward", "proxy")
_WEBSOCKET = (
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
)
_PROTOCOLS = (
    "v5.channel.k8s.io",
    "v4.channel.k8s.io",
    "channel.k8s.io",
    "base64.channel.k8s.io",
    "SPDY/3.1+portforward.k8s.io",
    "x",
    "",
)
_ODD_SEGMENTS = (
    *(
        "%00",
        "%2F",
        "..",
        ".",
        "%2e%2e",
        "%",
        "%zz",
        "%ff",
        "%c0%af",
        "%ED%A0%80",
        "a%0d%0aX: 1",
        ";a=b",
        "+",
        "*",
        "~",
        "@",
        "%20",
    ),
    *(
        "a" * 254,
        "a" * 9000,
        "é",
        "%F0%9F%98%80",
        "\u202e",
        "x:443",
        "https:fuzz-0:443",
        "fuzz-0:²",
        "-",
        "_",
        "A",
        "namespaces",
        "watch",
        "status",
    ),
)
_METHODS = (
    "GET",
    "POST",
    "PUT",
    "PATCH",
    "DELETE",
    "HEAD",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "get",
    "LIST",
    "WATCH",
    "X" * 300,
    "PRI",
)
_HEADERS: tuple[tuple[str, str], ...] = (
    ("Accept-Encoding", "gzip"),
    ("Accept-Encoding", "gzip;q=0, br"),
    ("Content-Encoding", "gzip"),
    ("Content-Encoding", "deflate"),
    ("Expect", "100-continue"),
    ("Connection", "close"),
    ("Connection", "Upgrade"),
    ("Upgrade", "h2c"),
    ("Upgrade", "websocket"),
    ("Upgrade", "SPDY/3.1"),
    ("If-None-Match", '"a"'),
    ("Range", "bytes=0-"),
    ("Host", "evil.example.com"),
    ("Authorization", "Basic YTpi"),
    ("Authorization", "Bearer "),
    ("Authorization", "Bearer a.b.c"),
    ("Authorization", "Bearer é\u0301"),
    ("Authorization", "Bearer eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOlsxXSwiZXhwIjoiYSIsInN1YiI6MX0.AAAA"),
    ("Impersonate-User", "fuzz-editor"),
    ("Impersonate-User", ""),
    ("Impersonate-Group", "system:masters"),
    ("Impersonate-Uid", "a"),
    ("Impersonate-Extra-a%2fb", "c"),
    ("Impersonate-Extra-%zz", "c"),
    ("X-Remote-User", "admin"),
    ("X-Forwarded-For", "127.0.0.1"),
    ("X-Stream-Protocol-Version", "v4.channel.k8s.io"),
    ("Sec-WebSocket-Protocol", "base64url.bearer.authorization.k8s.io.YWJj, v4.channel.k8s.io"),
    ("Sec-WebSocket-Protocol", "base64url.bearer.authorization.k8s.io.²"),
    ("User-Agent", "é" * 300),
    ("User-Agent", "curl/8"),
    ("User-Agent", "x" * 5000),
    ("Audit-ID", "a b"),
    ("Cookie", "a=b"),
    ("Traceparent", "00-x-y-01"),
)


class Sequences:
    """Makes the requests of a run."""

    def __init__(self, corpus: Corpus, seed: int) -> None:
        self._corpus = corpus
        self._seed = seed
        self._texts = [text for text in TEXTS if isinstance(text, str)]

    def sequence(self, number: int) -> list[Case]:
        """The cases of a sequence."""
        dice = random.Random(f"{self._seed}/{number}")
        first = number * STEPS
        if not self._corpus.resources or dice.random() < 0.06:
            return [self._case(first + step, self._site(dice), dice) for step in range(STEPS)]
        resource = dice.choice(self._corpus.resources)
        namespace = dice.choice(NAMESPACES) if resource.namespaced else ""
        name = dice.choice(NAMES)
        cases = []
        for step in range(STEPS):
            request = self._request(resource, namespace, name, step, dice)
            cases.append(self._case(first + step, request, dice))
        return cases

    # --- what is asked for ---

    def _request(self, resource: Resource, namespace: str, name: str, step: int, dice: random.Random) -> Request:
        wrong = dice.random() < (0.5 if step == 0 else 0.85)
        verbs = ["create"] if step == 0 and "create" in resource.verbs else [*resource.verbs, *_usual(resource)]
        if step == STEPS - 1 and "delete" in resource.verbs:
            verbs = ["delete"]
        if resource.subresources and step and dice.random() < 0.3:
            request = self._subresource(
                resource, dice.choice(resource.subresources), namespace, name, dice, wrong=wrong
            )
        else:
            request = self._verb(dice.choice(verbs), resource, namespace, name, dice, wrong=wrong)
        request.user = _user(dice)
        request.headers[:0] = USERS[request.user]
        if wrong and dice.random() < 0.35:
            dice.choice((self._odd_query, self._odd_query, self._odd_path, self._odd_headers, self._odd_method))(
                request, dice
            )
        return request

    def _verb(
        self, verb: str, resource: Resource, namespace: str, name: str, dice: random.Random, *, wrong: bool
    ) -> Request:
        one, all_ = resource.path(namespace, name), resource.path(namespace)
        match verb:
            case "create":
                return self._with_body("POST", all_, self._object(resource, namespace, name, dice), dice, wrong=wrong)
            case "update":
                return self._with_body("PUT", one, self._object(resource, namespace, name, dice), dice, wrong=wrong)
            case "patch":
                return self._patch(one, self._object(resource, namespace, name, dice), dice, wrong=wrong)
            case "delete" | "deletecollection":
                path = one if verb == "delete" else all_
                if dice.random() < 0.5:
                    return Request(
                        method="DELETE",
                        path=path,
                        query=_options(dice, "gracePeriodSeconds", "propagationPolicy", "dryRun"),
                    )
                options = {key: copied(item) for key, item in _DELETE_OPTIONS.items() if dice.random() < 0.6}
                return self._with_body("DELETE", path, options, dice, wrong=wrong)
            case "get":
                return Request(
                    method="GET", path=one, query=_options(dice, "pretty", "resourceVersion"), headers=_accept(dice)
                )
            case "watch":
                query = [
                    ("watch", "1"),
                    *_options(
                        dice,
                        "timeoutSeconds",
                        "resourceVersion",
                        "allowWatchBookmarks",
                        "sendInitialEvents",
                        "labelSelector",
                    ),
                ]
                headers = _accept(dice)
                if dice.random() < 0.1:
                    headers += _WEBSOCKET
                return Request(method="GET", path=all_, query=query, headers=headers)
        query = _options(
            dice, "limit", "continue", "resourceVersion", "resourceVersionMatch", "labelSelector", "fieldSelector"
        )
        return Request(method="GET", path=all_, query=query, headers=_accept(dice))

    def _subresource(
        self, resource: Resource, part: Subresource, namespace: str, name: str, dice: random.Random, *, wrong: bool
    ) -> Request:
        verb = dice.choice(part.verbs)
        if part.name in _PASSED_ON:
            name = dice.choice((name, "on-fuzz-node", "on-no-such-node", NODE_NAME, "none"))
            path = f"{resource.path(namespace, name)}/{part.name}"
            if part.name == "proxy" and dice.random() < 0.5:
                path += dice.choice(("/", "/healthz", "/a/b?c=d", "/%2e%2e/x"))
            headers = [*_WEBSOCKET, ("Sec-WebSocket-Protocol", dice.choice(_PROTOCOLS))] if dice.random() < 0.4 else []
            query = _options(
                dice, "container", "command", "stdin", "tty", "follow", "tailLines", "sinceTime", "ports", "path"
            )
            return Request(method="POST" if verb == "create" else "GET", path=path, query=query, headers=headers)
        path = f"{resource.path(namespace, name)}/{part.name}"
        value: Object = copied(dice.choice(_SUBRESOURCE_BODIES.get(part.name, ({},))))
        if not value:
            value = self._object(resource, namespace, name, dice)
            if part.name == "status" or dice.random() < 0.3:
                status = resource.schema.get("properties", {}).get("status", {})
                value["status"] = self._corpus.schemas.example(status, dice, optional=0.5, name="status", depth=1)
        if verb == "patch":
            return self._patch(path, value, dice, wrong=wrong)
        if verb in ("create", "update"):
            return self._with_body("POST" if verb == "create" else "PUT", path, value, dice, wrong=wrong)
        return Request(method="DELETE" if verb == "delete" else "GET", path=path, headers=_accept(dice))

    def _site(self, dice: random.Random) -> Request:
        path = dice.choice(self._corpus.sites)
        request = Request(
            method="GET", path=path, headers=_accept(dice), query=_options(dice, *self._corpus.site_options)
        )
        if path.startswith(_UPGRADING) and dice.random() < 0.7:
            request.method = dice.choice(("GET", "POST"))
            request.headers += [*_WEBSOCKET, ("Sec-WebSocket-Protocol", dice.choice(_PROTOCOLS))]
        elif dice.random() < 0.1:
            request.method, request.body = "POST", as_json(odd_value(dice))
        request.user = _user(dice)
        request.headers[:0] = USERS[request.user]
        if dice.random() < 0.7:
            dice.choice((self._odd_query, self._odd_path, self._odd_headers, self._odd_method))(request, dice)
        return request

    # --- bodies ---

    def _object(self, resource: Resource, namespace: str, name: str, dice: random.Random) -> Object:
        value = resource.example(dice)
        metadata = value.setdefault("metadata", {})
        if "name" in metadata and resource.plural not in ("customresourcedefinitions", "apiservices"):
            metadata["name"] = name
        if namespace and dice.random() < 0.7:
            metadata["namespace"] = namespace
        else:
            metadata.pop("namespace", None)
        properties = resource.schema.get("properties", {})
        if properties and dice.random() < 0.12:
            field = dice.choice(sorted(properties))
            value[field] = self._corpus.schemas.example(
                properties[field], dice, optional=dice.choice((0.2, 0.5, 0.9)), name=field, depth=1
            )
        return value

    def _mutated(self, value: Any, dice: random.Random) -> Any:
        for _ in range(dice.choice((1, 1, 1, 2, 4))):
            try:
                value = mutate(value, dice, self._corpus.donors)
            except (IndexError, KeyError):
                # Two mutations got into each other's way.
                continue
        return value

    def _with_body(self, method: str, path: str, value: Any, dice: random.Random, *, wrong: bool) -> Request:
        content_type = dice.choice((JSON, JSON, JSON, YAML, PROTOBUF))
        query = _options(dice, "dryRun", "fieldManager", "fieldValidation", "pretty", "timeout")
        if wrong and dice.random() < 0.85:
            value = self._mutated(value, dice)
        if content_type == PROTOBUF:
            body = as_protobuf(value)
            # Not every kind has that form, and not every mutant.
            content_type = PROTOBUF if body.startswith(b"k8s") else JSON
        else:
            body = as_json(value) if content_type == JSON else as_yaml(value, dice)
        return self._finished(method, path, query, content_type, body, dice, wrong=wrong)

    def _patch(self, path: str, value: Any, dice: random.Random, *, wrong: bool) -> Request:
        sort = dice.choice(tuple(_PATCHES))
        query = _options(dice, "dryRun", "fieldValidation", "force")
        if sort == "apply" or dice.random() < 0.3:
            query.append(("fieldManager", dice.choice(("fuzz", "other", ""))))
        if sort == "json":
            value = self._operations(value, dice)
        elif sort != "apply" and isinstance(value, dict) and dice.random() < 0.7:
            keep = dice.choice(sorted(value))
            value = {keep: value[keep]}
            if sort == "strategic" and dice.random() < 0.3:
                container, key = dice.choice(places(value))
                container[key] = copied(dice.choice(CONTAINERS[12:18]))
        if wrong:
            value = self._mutated(value, dice)
        body = as_yaml(value, dice) if sort == "apply" else as_json(value)
        return self._finished("PATCH", path, query, _PATCHES[sort], body, dice, wrong=wrong)

    def _operations(self, value: Any, dice: random.Random) -> list[Object]:
        pointers = _pointers(value)
        found = []
        for _ in range(dice.choice((1, 1, 2, 5, 40))):
            operation: Object = {"op": dice.choice(("add", "remove", "replace", "test", "copy", "move", "add"))}
            operation["path"] = dice.choice(
                (*pointers, "", "/", "/metadata/labels/a~1b", "/metadata/annotations/~2", "/spec/-", "/x/99999999999")
            )
            if operation["op"] in ("copy", "move"):
                operation["from"] = dice.choice(pointers)
            if operation["op"] in ("add", "replace", "test"):
                operation["value"] = odd_value(dice) if dice.random() < 0.5 else {"a": "b"}
            found.append(operation)
        return found

    def _finished(
        self,
        method: str,
        path: str,
        query: list[tuple[str, str]],
        content_type: str,
        body: bytes,
        dice: random.Random,
        *,
        wrong: bool,
    ) -> Request:
        if wrong and dice.random() < 0.1:
            body = havoc(body, dice)
        if wrong and dice.random() < 0.05:
            content_type = dice.choice(_TYPES)
        headers = [("Content-Type", content_type), *_accept(dice)]
        return Request(method=method, path=path, query=query, headers=headers, body=body)

    # --- around bodies ---

    def _odd_query(self, request: Request, dice: random.Random) -> None:
        for _ in range(dice.choice((1, 1, 2, 5))):
            name = dice.choice(tuple(_QUERIES))
            request.query.append(
                (name, dice.choice(_QUERIES[name]) if dice.random() < 0.8 else dice.choice(self._texts)[:3000])
            )

    def _odd_path(self, request: Request, dice: random.Random) -> None:
        segments = request.path.split("/")
        at = dice.randrange(len(segments))
        match dice.randrange(5):
            case 0:
                segments[at] = dice.choice(_ODD_SEGMENTS)
            case 1:
                segments.insert(at, dice.choice(_ODD_SEGMENTS))
            case 2:
                del segments[at]
            case 3:
                segments[at] = "".join(f"%{byte:02x}" for byte in segments[at].encode())
            case _:
                segments.append(
                    dice.choice(
                        ("status", "scale", "x", "", "..", "proxy", "log", "watch", "finalize", "binding", "eviction")
                    )
                )
        request.path = "/".join(segments) or "/"
        if not request.path.startswith("/"):
            request.path = dice.choice(("/", "", "http://a/", "*")) + request.path

    def _odd_headers(self, request: Request, dice: random.Random) -> None:
        for _ in range(dice.choice((1, 1, 2, 4))):
            name, text = dice.choice(_HEADERS)
            if name == "Accept-Encoding" or dice.random() < 0.9:
                request.headers.append((name, text))
            else:
                request.headers.append((name, text * dice.choice((2, 50))))

    def _odd_method(self, request: Request, dice: random.Random) -> None:
        request.method = dice.choice(_METHODS)

    # --- bytes ---

    def _case(self, number: int, request: Request, dice: random.Random) -> Case:
        upgrades = any(name.lower() in ("upgrade", "connection", "expect") for name, _ in request.headers)
        waits = any(f"/{part}" in request.path for part in _PASSED_ON)
        case = Case(
            number=number,
            user=request.user,
            pieces=(request.raw(),),
            method=request.method,
            fresh=upgrades,
            waits=waits,
        )
        if dice.random() < 0.04:
            return dice.choice(_RAW)(case, request, dice)
        if upgrades and dice.random() < 0.5:
            return msgspec.structs.replace(case, pieces=(*case.pieces, dice.choice(_FRAMES)))
        return case


def _usual(resource: Resource) -> tuple[str, ...]:
    """Writing is where most is to be found."""
    return tuple(verb for verb in ("create", "update", "update", "patch", "patch", "patch") if verb in resource.verbs)


def _user(dice: random.Random) -> str:
    return dice.choices(tuple(USERS), weights=(80, 9, 7, 3, 1))[0]


def _accept(dice: random.Random) -> list[tuple[str, str]]:
    """What is understood mostly: the first ones."""
    if dice.random() > 0.3:
        return []
    return [("Accept", dice.choice(_ACCEPTS[:7] if dice.random() < 0.8 else _ACCEPTS))]


def _options(dice: random.Random, *names: str) -> list[tuple[str, str]]:
    """Valid values mostly: the first ones."""
    return [
        (name, _QUERIES[name][0] if dice.random() < 0.7 else dice.choice(_QUERIES[name]))
        for name in names
        if dice.random() < 0.15
    ]


def _pointers(value: Any) -> list[str]:
    found = [""]
    waiting = [("", value)]
    while waiting:
        path, inner = waiting.pop()
        items = inner.items() if isinstance(inner, dict) else enumerate(inner)
        for key, item in items:
            pointer = f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}"
            found.append(pointer)
            if isinstance(item, dict | list):
                waiting.append((pointer, item))
    return found


# --- HTTP itself ---

_FRAMES = (
    *(
        b"\x81\x85\0\0\0\0hello",
        b"\x82\x81\0\0\0\0\x00",
        b"\x88\x80\0\0\0\0",
        b"\x89\x80\0\0\0\0",
        b"\x81\xfe\xff\xff" + b"\0" * 100,
    ),
    *(
        b"\x82\xff" + b"\xff" * 8 + b"\0" * 50,
        b"\x01\x80\0\0\0\0" * 50,
        b"\x00\x00",
        b"\xff" * 20,
        b'\x82\x84\0\0\0\0\x04{"w',
        b"\x80\x03\0\x01\0\0\0\x0c" + b"\0" * 12,
    ),
)


def _replaced(case: Case, *pieces: bytes, due: int = 0) -> Case:
    return msgspec.structs.replace(case, pieces=pieces, due=due, fresh=True)


def _half(case: Case, request: Request, dice: random.Random) -> Case:
    raw = request.raw()
    return msgspec.structs.replace(_replaced(case, raw[: dice.randrange(1, len(raw) + 1)]), leaves=True)


def _dripping(case: Case, request: Request, dice: random.Random) -> Case:
    raw = request.raw()
    cuts = sorted(dice.randrange(len(raw)) for _ in range(3))
    return _replaced(case, *(raw[a:b] for a, b in zip((0, *cuts), (*cuts, len(raw)), strict=True)), due=1)


def _pipelined(case: Case, request: Request, dice: random.Random) -> Case:
    return _replaced(case, request.raw() * dice.choice((2, 3)), due=1)


def _byte_havoc(case: Case, request: Request, dice: random.Random) -> Case:
    return _replaced(case, havoc(request.head(), dice) + b"\r\n\r\n" + (request.body or b""))


def _chunked(case: Case, request: Request, dice: random.Random) -> Case:
    body = request.body or b"{}"
    head = msgspec.structs.replace(request, body=None).head() + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
    middle = len(body) // 2
    whole = b"%x\r\n%b\r\n%x;ext=1\r\n%b\r\n0\r\nX-Trailer: a\r\n\r\n" % (
        middle or len(body),
        body[:middle] or body,
        len(body) - middle if middle else 0,
        body[middle:] if middle else b"",
    )
    if not middle:
        whole = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    if dice.random() < 0.5:
        return _replaced(case, head + whole, due=1)
    if dice.random() < 0.5:
        return _replaced(case, head + havoc(whole, dice))
    odd = (
        b"-1\r\n",
        b"0x5\r\nhello\r\n",
        b"ffffffffffffffff\r\n",
        "²\r\n".encode(),
        b"\r\n",
        b"5\nhello\n",
        b"0\r\n" + b"A: b\r\n" * 3000,
        b" 5\r\nhello\r\n",
        b"5\r\nhelloXX0\r\n\r\n",
    )
    return _replaced(case, head + dice.choice(odd) + b"\r\n")


_ODD_LINES = (
    *(
        b"Content-Length: -1",
        "Content-Length: ²".encode(),
        b"Content-Length: 1, 1",
        b"Content-Length: 99999999999999999999",
        b"Content-Length: 0x5",
        b"Content-Length: +5",
    ),
    *(
        b"Content-Length: 4000000",
        b"Transfer-Encoding: gzip, chunked",
        b"Transfer-Encoding: identity",
        b"Transfer-Encoding:\x0bchunked",
        b"Transfer-Encoding : chunked",
    ),
    *(
        b"Transfer-Encoding: chunked\r\nContent-Length: 5",
        b" folded: a",
        b": empty",
        b"no colon",
        b"A: \x00",
        b"A: \xff\xfe",
        b"A: b\nC: d",
        b"A: b\rC: d",
        b"\xff: a",
        b"A" * 70_000 + b": b",
    ),
    *(
        b"A: " + b"b" * 66_000,
        b"\r\n".join(b"A%d: b" % number for number in range(3000)),
        b"Host: a\r\nHost: b",
        b"Content-Length: 5\r\nContent-Length: 6",
        b"Expect: 200-ok",
        b"Connection: keep-alive, close",
    ),
)


def _odd_line(case: Case, request: Request, dice: random.Random) -> Case:
    head = request.head()
    lines = head.split(b"\r\n")
    lines.insert(dice.randrange(1, len(lines) + 1), dice.choice(_ODD_LINES))
    return _replaced(case, b"\r\n".join(lines) + b"\r\n\r\n" + (request.body or b""))


def _odd_request_line(case: Case, request: Request, dice: random.Random) -> Case:
    first, rest, tail = request.raw().partition(b"\r\n")
    method, _, target = first.rpartition(b" ")[0].partition(b" ")
    lines = (
        *(
            method + b" " + target,
            method + b" " + target + b" HTTP/2.0",
            method + b"\t" + target + b" HTTP/1.1",
            b" " + first,
            first + b" ",
            method + b"  " + target + b" HTTP/1.1",
        ),
        *(
            method + b" " + target + b" HTTP/1.0",
            method + b" " + target + b" HTTP/1.9",
            method + b" " + target + b"\0 HTTP/1.1",
            method + b" " + target + b"\xff HTTP/1.1",
            b"\x16\x03\x01\0\x05hello",
        ),
        *(
            b"PRI * HTTP/2.0",
            method + b" http://[::1 HTTP/1.1",
            method + b" //a/b HTTP/1.1",
            method + b" * HTTP/1.1",
            method + b" /" + b"a" * 70_000 + b" HTTP/1.1",
            b"",
            b"\r\n\r\n" + first,
        ),
    )
    return _replaced(case, dice.choice(lines) + rest + tail)


_RAW: tuple[Callable[[Case, Request, random.Random], Case], ...] = (
    *(
        _half,
        _dripping,
        _pipelined,
        _byte_havoc,
        _byte_havoc,
        _chunked,
        _chunked,
        _odd_line,
        _odd_line,
        _odd_request_line,
    ),
)

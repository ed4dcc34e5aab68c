"""Requests in sequences: each is about one object, which is created, read, changed, mistreated and deleted.

A sequence is a function of corpus, seed and number alone. Most requests have one to four things wrong with them, in the body,
the query, the path, the headers, the encoded bytes or the HTTP around them; some have none, so that there is something to
mistreat. Names come from a small set, so that the number of stored objects is bounded.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec

from fuzz.bodies import JSON, PROTOBUF, YAML, as_json, as_protobuf, as_yaml
from fuzz.corpus import NAMESPACES, Corpus, Object, Resource, Subresource
from fuzz.findings import Case
from fuzz.framing import FRAMES, RAW
from fuzz.oddities import (
    ACCEPTS,
    DELETE_OPTIONS,
    HEADERS,
    METHODS,
    ODD_SEGMENTS,
    PASSED_ON,
    PATCHES,
    PROTOCOLS,
    QUERIES,
    SUBRESOURCE_BODIES,
    TYPES,
    UPGRADING,
    WEBSOCKET,
)
from fuzz.targets import NODE_NAME, USERS
from fuzz.values import CONTAINERS, TEXTS, copied, havoc, mutate, odd_value, places
from fuzz.wire import Request

STEPS = 10
NAMES = ("fuzz-0", "fuzz-1", "fuzz-2")
_NAMED_BY_CONTENT = ("customresourcedefinitions", "apiservices", "ipaddresses")


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
                options = {key: copied(item) for key, item in DELETE_OPTIONS.items() if dice.random() < 0.6}
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
                    headers += WEBSOCKET
                return Request(method="GET", path=all_, query=query, headers=headers)
        query = _options(
            dice, "limit", "continue", "resourceVersion", "resourceVersionMatch", "labelSelector", "fieldSelector"
        )
        return Request(method="GET", path=all_, query=query, headers=_accept(dice))

    def _subresource(
        self, resource: Resource, part: Subresource, namespace: str, name: str, dice: random.Random, *, wrong: bool
    ) -> Request:
        verb = dice.choice(part.verbs)
        if part.name in PASSED_ON:
            name = dice.choice((name, "on-fuzz-node", "on-no-such-node", NODE_NAME, "none"))
            path = f"{resource.path(namespace, name)}/{part.name}"
            if part.name == "proxy" and dice.random() < 0.5:
                path += dice.choice(("/", "/healthz", "/a/b?c=d", "/%2e%2e/x"))
            headers = [*WEBSOCKET, ("Sec-WebSocket-Protocol", dice.choice(PROTOCOLS))] if dice.random() < 0.4 else []
            query = _options(
                dice, "container", "command", "stdin", "tty", "follow", "tailLines", "sinceTime", "ports", "path"
            )
            return Request(method="POST" if verb == "create" else "GET", path=path, query=query, headers=headers)
        path = f"{resource.path(namespace, name)}/{part.name}"
        value: Object = copied(dice.choice(SUBRESOURCE_BODIES.get(part.name, ({},))))
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
        if path.startswith(UPGRADING) and dice.random() < 0.7:
            request.method = dice.choice(("GET", "POST"))
            request.headers += [*WEBSOCKET, ("Sec-WebSocket-Protocol", dice.choice(PROTOCOLS))]
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
        if "name" in metadata and resource.plural not in _NAMED_BY_CONTENT:
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
        sort = dice.choice(tuple(PATCHES))
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
        return self._finished("PATCH", path, query, PATCHES[sort], body, dice, wrong=wrong)

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
            content_type = dice.choice(TYPES)
        headers = [("Content-Type", content_type), *_accept(dice)]
        return Request(method=method, path=path, query=query, headers=headers, body=body)

    # --- around bodies ---

    def _odd_query(self, request: Request, dice: random.Random) -> None:
        for _ in range(dice.choice((1, 1, 2, 5))):
            name = dice.choice(tuple(QUERIES))
            request.query.append(
                (name, dice.choice(QUERIES[name]) if dice.random() < 0.8 else dice.choice(self._texts)[:3000])
            )

    def _odd_path(self, request: Request, dice: random.Random) -> None:
        segments = request.path.split("/")
        at = dice.randrange(len(segments))
        match dice.randrange(5):
            case 0:
                segments[at] = dice.choice(ODD_SEGMENTS)
            case 1:
                segments.insert(at, dice.choice(ODD_SEGMENTS))
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
            name, text = dice.choice(HEADERS)
            if name == "Accept-Encoding" or dice.random() < 0.9:
                request.headers.append((name, text))
            else:
                request.headers.append((name, text * dice.choice((2, 50))))

    def _odd_method(self, request: Request, dice: random.Random) -> None:
        request.method = dice.choice(METHODS)

    # --- bytes ---

    def _case(self, number: int, request: Request, dice: random.Random) -> Case:
        upgrades = any(name.lower() in ("upgrade", "connection", "expect") for name, _ in request.headers)
        waits = any(f"/{part}" in request.path for part in PASSED_ON)
        case = Case(
            number=number,
            user=request.user,
            pieces=(request.raw(),),
            method=request.method,
            fresh=upgrades,
            waits=waits,
        )
        if dice.random() < 0.04:
            return dice.choice(RAW)(case, request, dice)
        if upgrades and dice.random() < 0.5:
            return msgspec.structs.replace(case, pieces=(*case.pieces, dice.choice(FRAMES)))
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
    return [("Accept", dice.choice(ACCEPTS[:7] if dice.random() < 0.8 else ACCEPTS))]


def _options(dice: random.Random, *names: str) -> list[tuple[str, str]]:
    """Valid values mostly: the first ones."""
    return [
        (name, QUERIES[name][0] if dice.random() < 0.7 else dice.choice(QUERIES[name]))
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

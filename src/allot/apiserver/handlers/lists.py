"""Lists: revision, selection and paging.

A list is consistent: all pages show the objects as of the revision of the first. The continue token holds that revision and
where the next page starts; it is Kubernetes' own format, so that tokens mean the same to every server on one store.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Iterator, Sequence

import msgspec

from allot.apiserver.errors import StatusError, bad_request, expired, too_large_resource_version
from allot.apiserver.objects.options import ListOptions
from allot.apiserver.objects.selection import Selection
from allot.apiserver.registry import Served, run_for
from allot.apiserver.request import ApiList
from allot.store.port import Compacted, Entry, FutureRevision, Page, Store

_TOKEN_VERSION = "meta.k8s.io/v1"
_CHUNK_MIN = 500
_STEP_BYTES_MAX = 2 * 1024 * 1024
# The revision in a token that continues with whatever is newest.
_NEWEST = -1
_LIST_EXPIRED = "The resourceVersion for the provided list is too old."
_TOKEN_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without the "
    "continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing "
    "with the provided token results in an inconsistent list - objects that were created, modified, or deleted between "
    "the time the first chunk was returned and now may show up in the list."
)


class _Token(msgspec.Struct, frozen=True):
    v: str
    rv: int
    start: str


class _Start(msgspec.Struct, frozen=True):
    """Where and when a list begins."""

    revision: int | None = None
    key: str = ""


def parse_resource_version(text: str) -> int:
    """A resourceVersion as a number; 400 for anything else."""
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        told = (
            f'resourceVersion: Invalid value: "{text[:100]}": strconv.ParseUint: parsing "{text[:100]}": invalid syntax'
        )
        raise bad_request(f"invalid resource version: {told}")
    return int(text)


async def list_objects(
    store: Store, served: Served, namespace: str, options: ListOptions, selection: Selection
) -> ApiList:
    """The objects that a request selects, in the version of the row."""
    prefix = served.prefix(namespace)
    start = await _start(store, prefix, options)
    if selection.name and start == _Start() and (namespace or not served.resource.namespaced):
        page = await _single(store, served.key(namespace, selection.name))
        page = msgspec.structs.replace(page, entries=await chosen(page.entries, selection, served))
    else:
        page = await _read(store, served, prefix, start, options, selection)
    token = encode_token(page.revision, page.continue_key, prefix) if page.continue_key else ""
    resource = served.resource
    return ApiList(
        api_version=resource.api_version,
        kind=resource.list_kind,
        entries=page.entries,
        resource_version=str(page.revision),
        continue_token=token,
        remaining=page.remaining if token and selection.everything else None,
    )


async def chosen(entries: Sequence[Entry], selection: Selection, served: Served) -> tuple[Entry, ...]:
    """The selected entries, in the version of the row, letting other requests run in between."""
    if selects_by_version(selection, served):
        return await _selected(await _presented(entries, served), selection)
    found = tuple(entries) if selection.everything else await _selected(entries, selection)
    return await _presented(found, served) if served.convert_needed else found


def selects_by_version(selection: Selection, served: Served) -> bool:
    """Whether entries must be in the version of the row to be matched: each version of a custom resource has its own fields."""
    return served.custom and served.convert_needed and selection.by_content


async def _selected(entries: Sequence[Entry], selection: Selection) -> tuple[Entry, ...]:
    found: list[Entry] = []
    for few in in_steps(entries, max(_CHUNK_MIN // selection.terms, 1)):
        found += filter(selection.matches_entry, few)
        await asyncio.sleep(0)
    return tuple(found)


async def _presented(entries: Sequence[Entry], served: Served) -> tuple[Entry, ...]:
    shown: list[Entry] = []
    for few in in_steps(entries, _CHUNK_MIN):
        shown += await run_for(served, served.present_entries, few)
        await asyncio.sleep(0)
    return tuple(shown)


def in_steps(entries: Sequence[Entry], step: int) -> Iterator[Sequence[Entry]]:
    """The entries in batches, smaller for large entries: each about ten milliseconds of work."""
    start = size = 0
    for position, entry in enumerate(entries):
        if position - start == step or size > _STEP_BYTES_MAX:
            yield entries[start:position]
            start, size = position, 0
        size += entry.size_bytes
    if start < len(entries):
        yield entries[start:]


async def _start(store: Store, prefix: str, options: ListOptions) -> _Start:
    if options.continue_token:
        if options.resource_version and options.resource_version != "0":
            raise bad_request("specifying resource version is not allowed when using continue")
        token = decode_token(options.continue_token)
        return _Start(None if token.rv == _NEWEST else token.rv, prefix + token.start)
    if options.resource_version in ("", "0"):
        return _Start()
    revision = parse_resource_version(options.resource_version)
    # A list in pages at a given revision has always meant exactly that revision.
    if options.resource_version_match == "Exact" or (not options.resource_version_match and options.limit):
        return _Start(revision)
    current = await store.revision()
    if revision > current:
        raise too_large_resource_version(revision, current)
    return _Start()


async def _single(store: Store, key: str) -> Page:
    # The revision comes first: what is read afterwards is at least as new.
    revision = await store.revision()
    entry = await store.get(key)
    return Page((entry,) if entry is not None else (), max(revision, entry.revision) if entry is not None else revision)


async def _read(
    store: Store, served: Served, prefix: str, start: _Start, options: ListOptions, selection: Selection
) -> Page:
    try:
        if options.limit and not selection.everything:
            return await _read_chosen(store, served, prefix, start, options.limit, selection)
        page = await store.list(prefix, limit=options.limit, continue_key=start.key, revision=start.revision)
    except Compacted:
        raise _expired(prefix, start) from None
    except FutureRevision as error:
        raise too_large_resource_version(start.revision or 0, error.current) from None
    return msgspec.structs.replace(page, entries=await chosen(page.entries, selection, served))


async def _read_chosen(
    store: Store, served: Served, prefix: str, start: _Start, limit: int, selection: Selection
) -> Page:
    """A full page of selected objects, however many are skipped."""
    found: list[Entry] = []
    key, revision = start.key, start.revision
    while True:
        chunk = max(_CHUNK_MIN, limit)
        page = await store.list(prefix, limit=chunk, continue_key=key, revision=revision)
        revision = page.revision
        for entry in await chosen(page.entries, selection, served):
            found.append(entry)
            if len(found) == limit:
                last = entry.key == page.entries[-1].key
                if last and not page.continue_key:
                    return Page(tuple(found), revision)
                return Page(tuple(found), revision, page.continue_key if last else entry.key + "\0")
        if not page.continue_key:
            return Page(tuple(found), revision)
        key = page.continue_key


def _expired(prefix: str, start: _Start) -> StatusError:
    if not start.key:
        return expired(_LIST_EXPIRED)
    answer = expired(_TOKEN_EXPIRED)
    answer.continue_token = encode_token(_NEWEST, start.key, prefix)
    return answer


# --- tokens ---


def encode_token(revision: int, key: str, prefix: str) -> str:
    """The token of the page that starts at a key."""
    token = _Token(_TOKEN_VERSION, revision, key.removeprefix(prefix))
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode().rstrip("=")


def decode_token(text: str) -> _Token:
    """What a token says; 400 if it was not made here."""
    try:
        padded = text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4)
        token = msgspec.json.decode(base64.b64decode(padded, altchars=b"-_", validate=True), type=_Token)
    except (binascii.Error, ValueError) as error:
        raise _bad_token(f"continue key is not valid: {error}") from None
    if token.v != _TOKEN_VERSION:
        raise _bad_token(f"continue key is not valid: server does not recognize this encoded version {token.v}")
    if token.rv == 0:
        raise _bad_token("continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
    if not token.start:
        raise _bad_token("continue key is not valid: encoded start key empty (version meta.k8s.io/v1)")
    if token.start.startswith("/") or "/../" in f"/{token.start}/" or "/./" in f"/{token.start}/":
        raise _bad_token(f"continue key is not valid: {token.start}")
    return token


def _bad_token(text: str) -> StatusError:
    return bad_request(f"invalid continue token: {text}")


def list_items(entries: Sequence[Entry], served: Served) -> list[bytes]:
    """The JSON of the items of a list. Those of built-in kinds carry no type, as upstream."""
    if served.custom:
        return [entry.encoded for entry in entries]
    start = served.type_prefix
    length = len(start)
    items = [entry.encoded for entry in entries]
    return [b"{" + item[length:] if item.startswith(start) else item for item in items]

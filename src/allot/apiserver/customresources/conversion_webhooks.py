"""Conversion of custom resources by webhooks.

Elsewhere, conversion is a pure step in the middle of others. Here it must wait for an answer: so all work
that may convert such objects runs in separate threads (`Conversions.run`), which call the webhook through the event loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

import msgspec

from allot.apiserver.admission.webhook_calls import CallFailed, WebhookCalls
from allot.apiserver.errors import internal
from allot.apiserver.resources import Object
from allot.core.customresources.conversion import ConversionFailed, converted, kind_text, review
from allot.process.ids import Ids

P = ParamSpec("P")
T = TypeVar("T")

_TIMEOUT_S = 30
_THREADS = 16


class Conversions:
    """Makes the calls, for all definitions."""

    def __init__(self, calls: WebhookCalls, ids: Ids) -> None:
        """Call it in the event loop that will make the calls."""
        self._calls = calls
        self._ids = ids
        self._loop = asyncio.get_running_loop()
        self._home = threading.current_thread()
        self._awaited: set[Future[list[Object]]] = set()
        # Threads are started on demand.
        self._threads = ThreadPoolExecutor(_THREADS, "allot-conversion")

    async def run(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """The result of work that may convert objects."""
        return await self._loop.run_in_executor(self._threads, partial(work, *arguments, **named))

    def webhook(self, definition: Mapping[str, Any]) -> ConversionWebhook:
        """The webhook of a definition."""
        return ConversionWebhook(self, definition["spec"]["conversion"].get("webhook") or {})

    def convert(self, webhook: Mapping[str, Any], objects: Sequence[Object], api_version: str) -> list[Object]:
        """The objects in another version; StatusError 500. Waits, so call it only from threads."""
        assert threading.current_thread() is not self._home, "objects are converted by a webhook beside the event loop"
        answer = asyncio.run_coroutine_threadsafe(self._ask(webhook, objects, api_version), self._loop)
        self._awaited.add(answer)
        try:
            return answer.result()
        finally:
            self._awaited.discard(answer)

    async def _ask(self, webhook: Mapping[str, Any], objects: Sequence[Object], api_version: str) -> list[Object]:
        versions = webhook.get("conversionReviewVersions") or ()
        try:
            asked = review(versions, objects, api_version, self._ids.new_uid())
            raw = await self._calls.post(webhook.get("clientConfig") or {}, asked, _TIMEOUT_S)
            return converted(asked, msgspec.json.decode(raw))
        except (CallFailed, msgspec.DecodeError) as error:
            why = str(error).removeprefix("failed to call webhook: ")
            raise internal(f"conversion webhook for {kind_text(objects[0])} failed: {why}") from error
        except ConversionFailed as error:
            raise internal(str(error)) from error

    def close(self) -> None:
        """Stop: callers are released, and threads end with their work."""
        for answer in tuple(self._awaited):
            answer.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)


class ConversionWebhook:
    """Converts the objects of one definition. Only for use outside the event loop."""

    def __init__(self, conversions: Conversions, webhook: Mapping[str, Any]) -> None:
        self._conversions = conversions
        self._webhook = webhook
        self.run = conversions.run

    def converted(self, objects: Sequence[Object], api_version: str) -> list[Object]:
        """The objects in a version; those already in it are not sent."""
        others = [each for each in objects if each.get("apiVersion") != api_version]
        if not others:
            return list(objects)
        found = iter(self._conversions.convert(self._webhook, others, api_version))
        return [each if each.get("apiVersion") == api_version else next(found) for each in objects]

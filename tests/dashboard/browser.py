"""A real browser for tests: Chromium without a window, driven through a pipe in its own protocol (DevTools).

A library for that would bring a runtime of another language; what tests need of the protocol is a dozen messages.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from waiting import WAIT_S

_CODES = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowDown": 40, "ArrowUp": 38, "ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35}  # fmt: skip
_TEXTS = {"Enter": "\r"}
_OPTIONS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--mute-audio",
    "--force-device-scale-factor=1",
)
# Where Chromium expects its pipes. Out of the way first: one may have the number that the other needs.
_AS_3_AND_4 = """
import fcntl, os, sys
ours = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
for handle, number in zip(ours, (3, 4)):
    os.dup2(handle, number)
    os.close(handle)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find_chromium() -> str | None:
    """The program: $ALLOT_CHROMIUM, or what is on the PATH."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return os.environ.get("ALLOT_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


class Browser:
    """A running Chromium. Messages go through two pipes, so no port is open and no thread runs."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = reading, writing
        self._rest = b""
        self._numbers = itertools.count(1)
        self._answers: dict[int, dict[str, Any]] = {}
        self.pages: dict[str, Page] = {}

    def send(self, method: str, parameters: dict[str, Any] | None = None, session: str = "") -> dict[str, Any]:
        """A command, and what came of it."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters or {}}
        if session:
            message["sessionId"] = session
        os.write(self._writing, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + WAIT_S
        while number not in self._answers:
            assert time.monotonic() < end, f"{method}: no answer from the browser within {WAIT_S:g} s"
            self.listen(0.5)
        answer = self._answers.pop(number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        found: dict[str, Any] = answer["result"]
        return found

    def listen(self, seconds: float) -> None:
        """Take what comes within a time."""
        if not select.select([self._reading], [], [], seconds)[0]:
            return
        data = os.read(self._reading, 1 << 20)
        assert data, "the browser has ended"
        *messages, self._rest = (self._rest + data).split(b"\0")
        for text in messages:
            message = json.loads(text)
            if "id" in message:
                self._answers[message["id"]] = message
            elif message.get("sessionId") in self.pages:
                self.pages[message["sessionId"]].happened(message["method"], message["params"])

    @contextmanager
    def page(self, *, width: int = 1280, height: int = 800, dark: bool = False) -> Iterator[Page]:
        """A page with cookies of its own."""
        context = self.send("Target.createBrowserContext")["browserContextId"]
        target = self.send("Target.createTarget", {"url": "about:blank", "browserContextId": context})["targetId"]
        session = self.send("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = self.pages[session] = Page(self, session)
        try:
            for domain in ("Page", "Runtime", "Log", "Network"):
                page.send(f"{domain}.enable")
            page.resize(width, height)
            page.colour("dark" if dark else "light")
            yield page
        finally:
            del self.pages[session]
            self.send("Target.disposeBrowserContext", {"browserContextId": context})


# Chromium aborts what it is loading when another test adds a network interface to the machine.
_NETWORK_CHANGED = "net::ERR_NETWORK_CHANGED"


class Page:
    """A page. faults: what it complained of; requests: where it sent some."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self.faults: list[str] = []
        self.requests: list[str] = []
        self._is_cut = False

    def send(self, method: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
        """A command to the page."""
        return self._browser.send(method, parameters, self._session)

    def happened(self, method: str, parameters: dict[str, Any]) -> None:
        """For the browser: something has happened on the page."""
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.faults.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded" and _NETWORK_CHANGED in parameters["entry"]["text"]:
            self._is_cut = True
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.faults.append(f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}")
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "assert"):
            self.faults.append(str([each.get("value") for each in parameters["args"]]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])

    def go(self, url: str) -> None:
        """To an address."""
        self.send("Page.navigate", {"url": url})

    def evaluate(self, expression: str) -> Any:
        """What an expression is on the page; promises are awaited."""
        parameters = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        found = self.send("Runtime.evaluate", parameters)
        assert "exceptionDetails" not in found, f"{expression[:200]}: {found['exceptionDetails']}"
        return found["result"].get("value")

    def until(self, expression: str, what: str = "") -> Any:
        """What an expression is as soon as it is true."""
        end = time.monotonic() + WAIT_S
        while True:
            # In between a page may have gone to another.
            parameters = {"expression": expression, "returnByValue": True}
            found = self.send("Runtime.evaluate", parameters)
            value = found["result"].get("value") if "exceptionDetails" not in found else None
            if value:
                return value
            assert time.monotonic() < end, (
                f"{what or expression}: not within {WAIT_S:g} s; the page says: {self.text()[:2000]}\nfaults: {self.faults}"
            )
            self._browser.listen(0.05)
            self._go_on()

    def _go_on(self) -> None:
        """As a person would do if parts of the page itself are missing. What the page asks for later, it asks for again."""
        if self._is_cut:
            self._is_cut = False
            if not self.evaluate("document.documentElement.dataset.ready"):
                self.send("Page.reload")

    def text(self) -> str:
        """What can be read on the page."""
        return str(self.evaluate("document.body.innerText"))

    def shows(self, text: str) -> None:
        """Wait until a text can be read."""
        self.until(f"document.body.innerText.includes({json.dumps(text)})", f"the text {text!r}")

    def at(self, page: str) -> None:
        """Wait until a page of the dashboard is there."""
        self.until(f"document.documentElement.dataset.ready === {json.dumps(page)}", f"page {page}")

    def click(self, selector: str) -> None:
        """On the first element of a selector, as soon as it is there."""
        self.until(f"!!document.querySelector({json.dumps(selector)})", f"element {selector}")
        self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    def press(self, *keys: str) -> None:
        """Keys, one after another."""
        for key in keys:
            code = _CODES.get(key, ord(key.upper()) if len(key) == 1 else 0)
            text = _TEXTS.get(key, key if len(key) == 1 else "")
            common = {"key": key, "windowsVirtualKeyCode": code}
            self.send("Input.dispatchKeyEvent", {"type": "keyDown", "text": text, **common} if text else {"type": "rawKeyDown", **common})  # fmt: skip
            self.send("Input.dispatchKeyEvent", {"type": "keyUp", **common})

    def focused(self) -> str:
        """What has the focus: its text or its label."""
        return str(self.evaluate("(e => e.getAttribute('aria-label') || e.innerText || e.id)(document.activeElement)"))

    def resize(self, width: int, height: int) -> None:
        """The size of the window."""
        parameters = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", parameters)

    def colour(self, scheme: str) -> None:
        """light or dark, as the system would say."""
        self.send("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def picture(self, path: Path) -> None:
        """What can be seen, as PNG."""
        data = self.send("Page.captureScreenshot", {"format": "png"})["data"]
        path.write_bytes(base64.b64decode(data))


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser until the block ends. There must be one: `find_chromium`."""
    program = find_chromium()
    assert program is not None, "no Chromium"
    to_browser, from_us = os.pipe()
    to_us, from_browser = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        options = [*_OPTIONS, f"--user-data-dir={folder}"]
        if os.getuid() == 0:
            # Chromium refuses to run as root with its sandbox; the pages are our own.
            options.append("--no-sandbox")
        process = subprocess.Popen(
            [sys.executable, "-c", _AS_3_AND_4, str(to_browser), str(from_browser), program, *options],
            pass_fds=(to_browser, from_browser),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": folder},
        )
        os.close(to_browser)
        os.close(from_browser)
        try:
            yield Browser(to_us, from_us)
        finally:
            os.close(from_us)
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(to_us)

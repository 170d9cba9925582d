"""A page in headless Chromium, driven by its debugging protocol: what it shows, asks for and complains of."""

from __future__ import annotations

import base64
import json
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import websockets.sync.client as ws
from browser import CHROMIUM

__all__ = ["Page", "page"]


class Page:
    """requests: addresses that it asked for; complaints: errors of its console."""

    def __init__(self, socket: ws.ClientConnection) -> None:
        self._socket = socket
        self._last = 0
        self.requests: list[str] = []
        self.complaints: list[str] = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **given: Any) -> dict[str, Any]:
        """One command; its result.  Events that come meanwhile are noted."""
        self._last += 1
        self._socket.send(json.dumps({"id": self._last, "method": method, "params": given}))
        while True:
            told = json.loads(self._socket.recv(30))
            if told.get("id") == self._last:
                assert "error" not in told, told
                found: dict[str, Any] = told["result"]
                return found
            said = told.get("params", {})
            match told.get("method"):
                case "Network.requestWillBeSent":
                    self.requests.append(said["request"]["url"])
                case "Runtime.exceptionThrown":
                    self.complaints.append(str(said["exceptionDetails"]))
                case "Log.entryAdded" if said["entry"]["level"] == "error":
                    self.complaints.append(said["entry"]["text"])
                case "Runtime.consoleAPICalled" if said["type"] in ("error", "warning", "assert"):
                    self.complaints.append(str(said["args"]))

    def value(self, script: str) -> Any:
        """What a piece of JavaScript gives."""
        told = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def until(self, script: str, seconds: float = 15.0) -> Any:
        """The value of a piece of JavaScript, once it is true."""
        end = time.monotonic() + seconds
        while not (found := self.value(script)):
            assert time.monotonic() < end, f"{script}: {self.value('document.body.innerText')}"
            time.sleep(0.1)
        return found

    def sized(self, width: int, height: int = 900, *, scheme: str = "light") -> None:
        """A window so wide, in one of the colour schemes."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, file: Path) -> None:
        """All of the page as PNG."""
        told = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(told["data"]))


@contextmanager
def page(url: str, home: Path) -> Iterator[Page]:
    """Open a page; the browser is ended afterwards."""
    assert CHROMIUM is not None
    running = subprocess.Popen(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--no-first-run",
         "--disable-background-networking", f"--user-data-dir={home}", "about:blank"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={"HOME": str(home), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    try:
        told, end = home / "DevToolsActivePort", time.monotonic() + 60
        while not (told.exists() and told.read_text().strip()):
            assert time.monotonic() < end
            time.sleep(0.1)
        port = told.read_text().split()[0]
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{port}/json") as listed:
            target = next(each for each in json.load(listed) if each["type"] == "page")
        with ws.connect(target["webSocketDebuggerUrl"], proxy=None, max_size=1 << 26) as socket:
            opened = Page(socket)
            opened.call("Page.navigate", url=url)
            opened.until("location.href !== 'about:blank' && document.readyState === 'complete'")
            yield opened
    finally:
        running.terminate()
        running.wait(20)

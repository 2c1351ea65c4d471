"""A real browser for tests of pages: headless Chromium, driven over its debugging pipe. Needs no package.

    Browser ── file descriptors 3 and 4, JSON messages that end with a zero byte ──▶ chromium

See https://chromedevtools.github.io/devtools-protocol/ for the commands.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LONGEST_S = 120.0
"""How long a command may take before the test fails; far above what one takes on a loaded machine."""


def chromium() -> str | None:
    """Path of a Chromium, if one is installed (Debian: apt-get install chromium)."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One browser process with a profile of its own. Used as a context manager."""

    def __init__(self) -> None:
        program = chromium()
        assert program, "no Chromium is installed"
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs_in, self.out = os.pipe()
        self.into, theirs_out = os.pipe()
        high_in, high_out = (os.dup2(handle, 100 + i) for i, handle in enumerate((theirs_in, theirs_out)))

        def place() -> None:  # in the child
            os.dup2(high_in, 3)
            os.dup2(high_out, 4)

        words = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        words += ["--remote-debugging-pipe", "--hide-scrollbars", f"--user-data-dir={self.profile.name}", "about:blank"]
        self.process = subprocess.Popen(
            [program, *words], pass_fds=(3, 4), preexec_fn=place, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        for handle in (theirs_in, theirs_out, high_in, high_out):
            os.close(handle)
        self.number = 0
        self.rest = b""
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.out)
        os.close(self.into)
        self.profile.cleanup()

    def ask(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; events that come before it are kept."""
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.out, data) :]
        deadline = time.monotonic() + LONGEST_S
        while True:
            for answer in self._messages(deadline):
                if answer.get("id") == self.number:
                    assert "error" not in answer, (method, answer["error"])
                    return answer["result"]
                self.events.append(answer)

    def _messages(self, deadline: float) -> list[dict[str, Any]]:
        ready, _, _ = select.select([self.into], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, "the browser does not answer"
        data = os.read(self.into, 1 << 20)
        assert data, "the browser has ended"
        *whole, self.rest = (self.rest + data).split(b"\0")
        return [json.loads(message) for message in whole]

    def open(self, page: Path, width: int, height: int, *, fragment: str = "", dark: bool = False) -> Tab:
        """A page from disk, in a window of this size."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            tab.ask(f"{domain}.enable")
        tab.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = "dark" if dark else "light"
        tab.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        tab.ask("Page.navigate", url=page.resolve().as_uri() + fragment)
        mark = "document.documentElement?.dataset"
        tab.wait(f"{mark}?.ready === '1' || {mark}?.errors > 0")
        tab.drawn()  # what the address asks for is drawn in the next frame
        return tab


class Tab:
    """One page."""

    def __init__(self, browser: Browser, session: str) -> None:
        self.browser, self.session = browser, session

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.browser.ask(method, self.session, **parameters)

    def value(self, expression: str) -> Any:
        """Of a JavaScript expression."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, expression: str) -> None:
        """Until an expression is true."""
        deadline = time.monotonic() + LONGEST_S
        while not self.value(expression):
            assert time.monotonic() < deadline, f"never: {expression}"
            time.sleep(0.02)

    def drawn(self) -> None:
        """Until what was asked for has been drawn."""
        self.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def key(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.ask("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.drawn()

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """`mouseMoved`, `mousePressed`, `mouseReleased` or `mouseWheel` at a place of the window."""
        self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)
        self.drawn()

    def touch(self, kind: str, *points: tuple[float, float]) -> None:
        """`touchStart`, `touchMove` or `touchEnd` with fingers at these places."""
        held = [{"x": x, "y": y, "id": i} for i, (x, y) in enumerate(points)]
        self.ask("Input.dispatchTouchEvent", type=kind, touchPoints=held)
        self.drawn()

    def problems(self) -> list[str]:
        """Exceptions, console errors and requests to anywhere but the disk."""
        found: list[str] = []
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            told = event.get("params", {})
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(told["exceptionDetails"].get("exception", {}).get("description")))
            elif event["method"] == "Log.entryAdded" and told["entry"]["level"] == "error":
                found.append(told["entry"]["text"])
            elif event["method"] == "Network.requestWillBeSent":
                url = told["request"]["url"]
                if not url.startswith(("file:", "data:", "about:")):
                    found.append(f"asked for {url}")
        return found

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """The page as PNG, also what lies below the window."""
        shot = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

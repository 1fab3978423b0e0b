"""A headless Chromium in a container, spoken to over its standard input and output.

The protocol is Chromium's own (https://chromedevtools.github.io/devtools-protocol): JSON messages
that end with a NUL.
"""

import base64
import json
import os
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import IO, Any, Self

IMAGE = "flashruntime/browser:local"
ANSWER_S = 60.0
# Runs this instead of the container, e.g. a Chromium of the host with the same descriptors.
COMMAND = os.environ.get("PAGE_TEST_BROWSER")


class Browser:
    """One Chromium; use it as a context manager."""

    def __init__(self) -> None:
        self._name = f"flashruntime-browser-{uuid.uuid4().hex[:8]}"
        self._numbers = count(1)
        self._answers: dict[int, SimpleQueue[dict[str, Any]]] = {}
        self._pages: dict[str, Page] = {}

    def __enter__(self) -> Self:
        command = ["sh", "-c", COMMAND] if COMMAND else self._container()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()
        self.call("Browser.getVersion")
        return self

    def _container(self) -> list[str]:
        return [
            "docker", "run", "--rm", "--interactive", "--init", "--name", self._name,
            "--label", "dev.flashruntime.owner=flashruntime", "--network", "host",
            "--read-only", "--tmpfs", "/tmp:size=512m,mode=1777", "--cap-drop", "ALL",
            "--security-opt", "no-new-privileges", "--memory", "1g", IMAGE,
        ]  # fmt: skip

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            subprocess.run(
                ["docker", "rm", "--force", self._name], capture_output=True, check=False
            )

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Call the protocol; AssertionError with the browser's words where it refuses."""
        answer = self.send(method, session, **parameters)
        try:
            found = answer.get(timeout=ANSWER_S)
        except Empty:
            raise AssertionError(f"no answer to {method} within {ANSWER_S:g} s") from None
        assert "error" not in found, f"{method}: {found['error']}"
        result: dict[str, Any] = found["result"]
        return result

    def send(
        self, method: str, session: str | None = None, **parameters: Any
    ) -> SimpleQueue[dict[str, Any]]:
        """Call the protocol without waiting for the answer."""
        number, answer = next(self._numbers), SimpleQueue[dict[str, Any]]()
        self._answers[number] = answer
        message = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\0")
        self._process.stdin.flush()
        return answer

    def _listen(self, stream: IO[bytes]) -> None:
        rest = b""
        while chunk := os.read(stream.fileno(), 1 << 20):
            *messages, rest = (rest + chunk).split(b"\0")
            for text in messages:
                message = json.loads(text)
                if "id" in message:
                    self._answers.pop(message["id"]).put(message)
                elif message.get("sessionId") in self._pages:
                    self._pages[message["sessionId"]].told(message["method"], message["params"])

    @contextmanager
    def page(
        self, width: int = 1440, height: int = 900, *, dark: bool = False, motion: bool = True
    ) -> Iterator["Page"]:
        """Open a page with storage of its own."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call(
            "Target.createTarget", url="about:blank", browserContextId=context
        )["targetId"]  # fmt: skip
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        self._pages[session] = page
        try:
            page.prepare(width, height, dark=dark, motion=motion)
            yield page
        finally:
            self.call("Target.disposeBrowserContext", browserContextId=context)
            del self._pages[session]


class Page:
    """One page: what it loads, what it logs, what stands in it."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self.requested: list[str] = []
        self.complaints: list[str] = []
        self._token = ""
        self._password: str | None = None

    def told(self, method: str, parameters: dict[str, Any]) -> None:
        """Note what the browser reports of the page."""
        if method == "Fetch.requestPaused":
            self._paused(parameters)
        elif method == "Fetch.authRequired":
            self._asked(parameters)
        elif method == "Network.requestWillBeSent":
            self.requested.append(parameters["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(parameters["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in {"error", "warning"}:
            self.complaints.append(json.dumps(parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in {"error", "warning"}:
            self.complaints.append(json.dumps(parameters["entry"]))

    def demand(self, token: str, prefix: str) -> None:
        """Refuse what the page asks for below a path unless it brings this token."""
        self._token = token
        self.call("Fetch.enable", patterns=[{"urlPattern": f"*{prefix}*"}])

    def sign_in(self, password: str) -> None:
        """Answer the browser's own question for a password, as a user would."""
        self._password = password
        self.call("Fetch.enable", handleAuthRequests=True, patterns=[{"urlPattern": "*"}])

    def _asked(self, parameters: dict[str, Any]) -> None:
        answer = {"response": "ProvideCredentials", "username": "", "password": self._password}
        asked = {"requestId": parameters["requestId"], "authChallengeResponse": answer}
        self._browser.send("Fetch.continueWithAuth", self._session, **asked)

    def _paused(self, parameters: dict[str, Any]) -> None:
        headers = {name.lower(): value for name, value in parameters["request"]["headers"].items()}
        answer: dict[str, Any] = {"requestId": parameters["requestId"]}
        known = headers.get("authorization") == f"Bearer {self._token}"
        if known or self._password is not None:
            self._browser.send("Fetch.continueRequest", self._session, **answer)
            return
        body = base64.b64encode(b'{"detail": "this call needs a token", "code": "unauthorized"}')
        answer |= {"responseCode": 401, "body": body.decode()}
        self._browser.send("Fetch.fulfillRequest", self._session, **answer)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call the protocol about this page."""
        return self._browser.call(method, self._session, **parameters)

    def prepare(self, width: int, height: int, *, dark: bool, motion: bool) -> None:
        """Set size and preferences, and begin to listen."""
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.resize(width, height)
        self.prefer(dark=dark, motion=motion)

    def resize(self, width: int, height: int) -> None:
        """Give the page a size in CSS pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def prefer(self, *, dark: bool, motion: bool = True) -> None:
        """Say what the user prefers."""
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "no-preference" if motion else "reduce"},
        ]
        self.call("Emulation.setEmulatedMedia", features=features)

    def open(self, url: str) -> None:
        """Go to an address."""
        assert "errorText" not in self.call("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """Return what a script (an expression, perhaps a promise) gives."""
        done = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def until(self, condition: str, timeout_s: float = 40.0) -> Any:
        """Return the condition's first true value; looked at once a frame."""
        script = """new Promise((found, lost) => {
            const end = performance.now() + %d;
            const look = () => {
                let value = false;
                try { value = %s } catch (error) { value = false }
                if (value) found(value);
                else if (performance.now() > end) lost(new Error("not within its time"));
                else setTimeout(look, 15);
            };
            look();
        })"""
        return self.run(script % (timeout_s * 1000, condition))

    def text(self, selector: str) -> str:
        """Return the text of the first element that a selector finds."""
        return str(self.run(f"document.querySelector({json.dumps(selector)}).textContent"))

    def key(self, name: str, code: int = 0, text: str = "", modifiers: int = 0) -> None:
        """Press and release a key."""
        shared = {
            "key": name, "code": name, "windowsVirtualKeyCode": code, "modifiers": modifiers,
        }  # fmt: skip
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **shared)
        self.call("Input.dispatchKeyEvent", type="keyUp", **shared)

    def type(self, text: str) -> None:
        """Enter text where the focus is."""
        self.call("Input.insertText", text=text)

    def picture(self, to: Path, *, whole: bool = False) -> None:
        """Save what is seen as a PNG."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        to.write_bytes(base64.b64decode(shot["data"]))

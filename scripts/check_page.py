"""Open a page of ``dagsim report`` in a headless Chromium, with the network off, and use it as a reader would.

    python scripts/check_page.py report.html [--pictures FOLDER]

Checks that the charts have ink, that zoom (by keys) and search work, that nothing is asked of any host, that the
console stays silent, that nothing sticks out at 400 and 1,600 pixels, that dark mode changes the page, and that text
keeps a contrast of 4.5. Exits with 1 and says which check failed; without a Chromium it says so and exits with 0.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--remote-debugging-pipe"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"),
)
LIMIT_MS, LIMIT_BYTES = 3000, 100e6
SIZES = ((1600, 1000), (400, 800))

CONTRAST = """(() => {
  const part = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number); return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b); };
  const ground = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (!/, 0\\)$/.test(c)) return c; } return "rgb(255,255,255)"; };
  let worst = [99, ""];
  for (const e of document.querySelectorAll("p,li,td,th,h1,h2,h3,label,button,select,input,summary,pre,caption,.u-label,.u-value,.u-title")) {
    if (!e.textContent.trim() || !e.getClientRects().length) continue;
    const a = light(getComputedStyle(e).color), b = light(ground(e)), c = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (c < worst[0]) worst = [c, e.tagName + " " + e.className];
  }
  return worst;
})()"""  # noqa: E501
INK = """[...document.querySelectorAll("canvas")].map(c => {
  const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data, seen = new Set();
  for (let i = 0; i < d.length; i += 4) seen.add(d[i] << 24 | d[i + 1] << 16 | d[i + 2] << 8 | d[i + 3]);
  return seen.size; })"""


class Browser:
    """A Chromium that is spoken to over a pipe (its DevTools protocol), so that no port is opened."""

    def __init__(self, program: str) -> None:
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        from_us, self._out = os.pipe()
        self._in, to_us = os.pipe()

        def pipes() -> None:
            first, second = os.dup(from_us), os.dup(to_us)
            os.dup2(first, 3)
            os.dup2(second, 4)

        self._process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"],
            preexec_fn=pipes,
            close_fds=False,
            stderr=subprocess.DEVNULL,
        )
        os.close(from_us)
        os.close(to_us)
        self._said, self._count, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.terminate()
        self._process.wait(timeout=20)
        self._profile.cleanup()

    def ask(self, method: str, **given: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; events on the way are kept."""
        self._count += 1
        session = {"sessionId": self._session} if self._session else {}
        text = json.dumps({"id": self._count, "method": method, "params": given, **session})
        os.write(self._out, text.encode() + b"\0")
        while True:
            message = self._next()
            if message.get("id") == self._count:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                return dict(message["result"])
            self.events.append(message)

    def run(self, script: str) -> Any:
        """The value of an expression in the page; promises are awaited."""
        found = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(f"{script[:80]}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def press(self, key: str, text: str = "") -> None:
        """Press a key and let it go."""
        self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, **({"text": text} if text else {}))
        self.ask("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.settle()

    def settle(self) -> None:
        """Wait until the page has been painted."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def open(self, path: Path) -> None:
        """Open a file and wait until its charts are drawn, at most 30 s."""
        self.ask("Page.navigate", url=path.resolve().as_uri())
        until = time.monotonic() + 30
        while time.monotonic() < until and not self.run("document.documentElement?.dataset.drawn"):
            time.sleep(0.03)

    def picture(self, path: Path) -> None:
        """A picture of the whole page."""
        shown = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shown["data"]))

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._said:
            piece = os.read(self._in, 1 << 16)
            if not piece:
                raise RuntimeError("the browser has ended")
            self._said += piece
        text, _, self._said = self._said.partition(b"\0")
        return dict(json.loads(text))


def check(browser: Browser, path: Path, pictures: Path | None) -> list[str]:
    """The checks that failed, in words; measured figures go to standard output."""
    failed: list[str] = []

    def claim(holds: bool, text: str) -> None:
        if not holds:
            failed.append(text)

    for domain in ("Page", "Runtime", "Log", "Network", "Performance"):
        browser.ask(f"{domain}.enable")
    browser.ask("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)
    for width, height in SIZES:
        for scheme in ("light", "dark"):
            browser.ask(
                "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
            )
            browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            browser.open(path)
            where = f"{width} px, {scheme}"
            drawn_ms = browser.run("+document.documentElement.dataset.drawn || -1")
            colours = browser.run(INK)
            claim(0 < drawn_ms <= LIMIT_MS, f"{where}: drawn after {drawn_ms} ms, allowed {LIMIT_MS}")
            claim(bool(colours) and min(colours) > 2, f"{where}: a chart has no ink: colours per chart {colours}")
            out = browser.run("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            claim(out <= 0, f"{where}: the page is {out} px wider than the window")
            contrast, worst = browser.run(CONTRAST)
            claim(contrast >= 4.5, f"{where}: contrast {contrast:.2f} of {worst}, AA is 4.5")
            ground = browser.run("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number)")
            claim((max(ground) < 100) == (scheme == "dark"), f"{where}: background {ground}")
            print(f"{where}: drawn after {drawn_ms} ms, worst contrast {contrast:.1f}, {len(colours)} charts")
            if pictures is not None:
                browser.picture(pictures / f"{path.stem}-{width}-{scheme}.png")
    if browser.run("!!document.getElementById('gantt')"):
        _use(browser, claim)
    heap = next(
        each["value"] for each in browser.ask("Performance.getMetrics")["metrics"] if each["name"] == "JSHeapUsedSize"
    )
    print(f"heap: {heap / 1e6:.1f} MB")
    claim(heap < LIMIT_BYTES, f"heap of {heap / 1e6:.0f} MB")
    asked = [
        event["params"]["request"]["url"]
        for event in browser.events
        if event.get("method") == "Network.requestWillBeSent"
    ]
    outside = [url for url in asked if not url.startswith(("file:", "data:", "blob:"))]
    claim(not outside, f"requests to {outside}")
    noise = [event for event in browser.events if event.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown")]
    claim(not noise, f"the console says {json.dumps(noise)[:600]}")
    return failed


def _use(browser: Browser, claim: Any) -> None:
    """Zoom by keys, search a job, colour by tenant, and walk through the controls by Tab."""
    browser.run("document.getElementById('gantt').focus()")
    span = "+document.getElementById('gantt').dataset.spanS"
    whole = browser.run(span)
    browser.press("+", "+")
    zoomed = browser.run(span)
    print(f"zoom drawn in {browser.run('document.getElementById(`gantt`).dataset.drawnMs')} ms")
    claim(zoomed < whole, f"'+' did not zoom in: {whole} s to {zoomed} s")
    browser.press("0", "0")
    claim(abs(browser.run(span) - whole) <= 1e-6 * whole, "'0' did not show the whole run")
    browser.run(
        "(() => { const at = document.getElementById('search'); at.focus(); at.value = 'no such job at all'; "
        "at.dispatchEvent(new Event('input')); })()"
    )
    browser.settle()
    claim(
        browser.run("document.getElementById('told').textContent").startswith("0 jobs"),
        "search found what is not there",
    )
    order = []
    browser.run("document.getElementById('colour').focus()")
    for _ in range(7):
        order.append(browser.run("document.activeElement.id"))
        browser.press("Tab")
    claim(
        order == ["colour", "search", "zoom-to", "zoom-in", "zoom-out", "reset", "gantt"], f"Tab goes through {order}"
    )


def main() -> int:
    """Check the page; 0 where all is well."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("page", type=Path)
    parser.add_argument("--pictures", type=Path, help="folder for a picture at each size, light and dark")
    given = parser.parse_args()
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        print("check_page: skipped, there is no chromium")
        return 0
    if given.pictures is not None:
        given.pictures.mkdir(parents=True, exist_ok=True)
    with Browser(program) as browser:
        failed = check(browser, given.page, given.pictures)
    for text in failed:
        print(f"FAILED {text}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

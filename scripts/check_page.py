"""Use pages as a reader would, in a headless Chromium: those of ``dagsim report`` from disk, those of ``dagsim serve``.

    python scripts/check_page.py report.html [--pictures FOLDER]     one page, by file or address
    python scripts/check_page.py --demo                              pages of every kind, made for the purpose
    python scripts/check_page.py --docs                              the same, and the pictures of README and docs anew

At 1,600 and 400 pixels, light and dark, it checks that the page is drawn within 3 s, that every chart has ink, no text
has less contrast than 4.5 (AA), nothing is wider than the window, Tab reaches every control, zoom and search work, the
heap stays below 100 MB, no other host is asked (for files the network is off), and the console stays silent. It exits
with 1 and says which check failed; without Playwright or Chromium it says so and exits with 0.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from PIL import Image

from dagsim.config.schema import load_config
from dagsim.experiment.run_store import RunStore
from dagsim.experiment.simulate import run_policy
from dagsim.experiment.training_log import TrainingLog

SIZES = ((1600, 1000), (400, 800))
SCHEMES = ("light", "dark")
LIMIT_MS, LIMIT_BYTES, AA = 3000, 100e6, 4.5
DOCS = Path(__file__).parent.parent / "docs" / "images"

CONTRAST = """() => {
  const part = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number); return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b); };
  const ground = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (!/, 0\\)$/.test(c)) return c; } return "rgb(255,255,255)"; };
  let worst = [99, ""];
  for (const e of document.querySelectorAll("p,li,td,th,h1,h2,h3,label,button,select,input,summary,pre,caption,a,span,svg text,.u-label,.u-value,.u-title")) {
    if (!e.textContent.trim() || !e.getClientRects().length || e.disabled || e.className === "unseen") continue;
    const style = getComputedStyle(e), a = light(e.closest("svg") ? style.fill : style.color), b = light(ground(e)), c = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (c < worst[0]) worst = [c, `${e.tagName} ${e.className} ${e.textContent.slice(0, 30)}`];
  }
  return worst;
}"""  # noqa: E501
INK = """() => [...document.querySelectorAll("canvas")].filter(c => c.getClientRects().length).map(c => {
  const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data, seen = new Set();
  for (let i = 0; i < d.length; i += 4) seen.add(d[i] << 24 | d[i + 1] << 16 | d[i + 2] << 8 | d[i + 3]);
  return seen.size; }).concat([...document.querySelectorAll("svg")].filter(s => s.getClientRects().length).map(s => s.querySelectorAll("rect,path,circle,line,text").length))"""  # noqa: E501
CONTROLS = """() => { let count = 0;
  for (const e of document.querySelectorAll("a[href],button,input,select,summary,[tabindex='0']")) {
    if (e.disabled || !e.checkVisibility()) continue;
    e.dataset.control = String(count++);
  }
  return count; }"""


CUT = """() => [...document.querySelectorAll("caption")]
  .filter(caption => caption.getBoundingClientRect().right > innerWidth).map(caption => caption.textContent)"""


class Checked:
    """Failed checks of a page."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def claim(self, holds: bool, text: str) -> None:
        """Record ``text`` as failed unless the check holds."""
        if not holds:
            self.failed.append(text)


def check(browser: Any, address: str, pictures: Path | None = None) -> list[str]:
    """Return the failed checks in words. Measured figures go to standard output."""
    checked = Checked()
    offline = address.startswith("file:")
    name = Path(urlsplit(address).path).stem or "list"
    for width, height in SIZES:
        for scheme in SCHEMES:
            context = browser.new_context(
                viewport={"width": width, "height": height}, color_scheme=scheme, offline=offline
            )
            page = context.new_page()
            asked: list[str] = []
            messages: list[str] = []
            page.on("request", lambda request, asked=asked: asked.append(request.url))
            page.on("console", lambda message, messages=messages: messages.append(message.text))
            page.on("pageerror", lambda error, messages=messages: messages.append(str(error)))
            where = f"{name}, {width} px, {scheme}"
            page.goto(address)
            page.wait_for_function("() => document.documentElement.dataset.drawn", timeout=30_000)
            _look(page, checked, where, scheme)
            if (width, scheme) == (1600, "light"):
                _reach(page, checked, where)
            if scheme == "light" and page.query_selector("#gantt"):
                _zoom(page, checked, where)
            if scheme == "light" and page.query_selector("#dag"):
                _graph(page, checked, where)
            if pictures is not None:
                page.screenshot(path=pictures / f"{name}-{width}-{scheme}.png", full_page=True)
            origin = address.split("/")[2]
            outside = [url for url in asked if urlsplit(url).scheme not in ("file", "data", "blob")]
            outside = [url for url in outside if urlsplit(url).netloc != origin]
            checked.claim(not outside, f"{where}: asks for {outside[:3]}")
            checked.claim(not messages, f"{where}: the console says {messages[:3]}")
            context.close()
    return checked.failed


def _look(page: Any, checked: Checked, where: str, scheme: str) -> None:
    """Check drawing time, ink, width, contrast, background colours and heap."""
    drawn_ms = float(page.evaluate("document.documentElement.dataset.drawn"))
    if drawn_ms > LIMIT_MS:  # other work may have had the cores: once more
        page.reload()
        page.wait_for_function("() => document.documentElement.dataset.drawn", timeout=30_000)
        drawn_ms = float(page.evaluate("document.documentElement.dataset.drawn"))
    inks = page.evaluate(INK)
    out = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    cut = page.evaluate(CUT)
    contrast, worst = page.evaluate(CONTRAST)
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number)")
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    figures = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
    heap = figures["JSHeapUsedSize"]
    checked.claim(0 < drawn_ms <= LIMIT_MS, f"{where}: drawn after {drawn_ms:.0f} ms, allowed {LIMIT_MS}")
    checked.claim(all(ink > 2 for ink in inks), f"{where}: a chart has no ink: {inks}")
    checked.claim(out <= 0, f"{where}: the page is {out} px wider than the window")
    checked.claim(not cut, f"{where}: titles of tables are cut: {cut}")
    checked.claim(contrast >= AA, f"{where}: contrast {contrast:.2f} of {worst}, AA is {AA}")
    checked.claim((max(ground) < 100) == (scheme == "dark"), f"{where}: background {ground}")
    checked.claim(heap < LIMIT_BYTES, f"{where}: heap of {heap / 1e6:.0f} MB")
    print(
        f"{where}: drawn after {drawn_ms:.0f} ms, {len(inks)} charts, contrast {contrast:.1f}, heap {heap / 1e6:.1f} MB"
    )


def _reach(page: Any, checked: Checked, where: str) -> None:
    """Check that Tab reaches every control."""
    count = page.evaluate(CONTROLS)
    page.evaluate("document.activeElement.blur(); window.scrollTo(0, 0)")
    reached = set()
    for _ in range(count + 5):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.dataset.control"))
    missing = [
        page.evaluate(f"document.querySelector('[data-control=\"{place}\"]').outerHTML.slice(0, 60)")
        for place in range(count)
        if str(place) not in reached
    ]
    checked.claim(not missing, f"{where}: Tab does not reach {missing[:3]}")


def _zoom(page: Any, checked: Checked, where: str) -> None:
    """Check zoom by keys, and search."""
    span = "() => +document.getElementById('gantt').dataset.spanS"
    settle = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))"
    page.focus("#gantt")
    whole = page.evaluate(span)
    page.keyboard.press("+")
    page.evaluate(settle)
    zoomed = page.evaluate(span)
    print(f"{where}: zoom drawn in {page.evaluate('document.getElementById(`gantt`).dataset.drawnMs')} ms")
    checked.claim(zoomed < whole, f"{where}: '+' did not zoom in: {whole} s to {zoomed} s")
    page.keyboard.press("0")
    page.evaluate(settle)
    checked.claim(abs(page.evaluate(span) - whole) <= 1e-6 * whole, f"{where}: '0' did not show the whole run")
    covered = "() => +document.getElementById('gantt').dataset.covered"
    checked.claim(page.evaluate(covered) > 0, f"{where}: no bar is drawn")
    page.fill("#search", "no such job at all")
    checked.claim(page.text_content("#told").startswith("0 jobs"), f"{where}: search found what is not there")
    page.fill("#search", "1")
    result_text = page.text_content("#told")
    checked.claim("found" in result_text and not result_text.startswith("0 "), f"{where}: search says {result_text!r}")
    page.press("#search", "Enter")
    page.evaluate(settle)
    checked.claim(page.evaluate(span) <= whole * 1.3, f"{where}: what was found is not shown")
    page.fill("#search", "")
    page.click("#reset")


def _graph(page: Any, checked: Checked, where: str) -> None:
    """Check the graph of a job, its critical path, and another job by name."""
    if page.is_hidden("#dag"):
        return
    critical = page.locator("#dag rect.runs.critical").count()
    checked.claim(critical > 0, f"{where}: the graph has no critical path")
    names = page.evaluate("[...document.querySelectorAll('#dag-jobs option')].map(each => each.value)")
    page.fill("#dag-job", names[-1])
    page.click("#dag-show")
    checked.claim(page.text_content("#dag-told").startswith(f"{names[-1]}:"), f"{where}: {names[-1]} is not shown")
    page.fill("#dag-job", "no such job at all")
    page.click("#dag-show")
    checked.claim("No job" in page.text_content("#dag-told"), f"{where}: the graph of a job that is not there")
    page.fill("#dag-job", names[0])
    page.click("#dag-show")


def chromium() -> str | None:
    """The path of this machine's Chromium; None if there is none, or no Playwright to drive it."""
    if find_spec("playwright") is None:
        return None
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@contextmanager
def browser_of(program: str) -> Iterator[Any]:
    """Return the Chromium of this machine."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = ["--disable-quic", "--disable-background-networking", "--disable-gpu"]
        flags += ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=program, args=flags)
        try:
            yield browser
        finally:
            browser.close()


def dagsim(*arguments: str) -> None:
    """Run a command of dagsim."""
    subprocess.run([sys.executable, "-m", "dagsim", *arguments], check=True, stdout=subprocess.DEVNULL)


def make_demo(folder: Path) -> dict[str, Path]:
    """Write a page of each kind: several policies on DAGs, Spark, trainings, a sweep, and 100,000
    runs.
    """
    results = folder / "results"
    quiet = ("--no-plots", "--quiet", "--workers", "1", "-o", str(results))
    policies = [word for name in ("fifo", "sjf", "heft", "eft-wait") for word in ("--policy", name)]
    dagsim("baseline", "--workload", "heterogeneous-dag", "--seeds", "5", *policies, *quiet)
    dagsim("eval", "--system", "spark", "--seeds", "1", "--set", "system.jobs=20", *quiet)
    grid = folder / "load.yaml"
    grid.write_text(
        "set: {workload.count: 30}\nover:\n  policy: [fifo, sjf, heft, eft-wait]\n"
        "  workload.load: [0.5, 0.7, 0.9, 1.1, 1.3]\nseeds: 3\n"
    )
    dagsim("sweep", str(grid), "--quiet", "--on", "local:1", "-o", str(results))
    _interrupted(results)
    _trainings(results)
    dagsim("eval", "--policy", "fifo", "--seeds", "1", *LARGE, *quiet[:-1], str(folder / "large"))
    runs = {"report": "results/*-baseline-*", "spark": "results/*-eval-*", "sweep": "results/sweep-*"}
    runs |= {"training": "results/*-train-*", "large": "large/*"}
    for name, pattern in runs.items():
        dagsim("report", *map(str, sorted(folder.glob(pattern))), "-o", str(folder / f"{name}.html"))
    return {name: folder / f"{name}.html" for name in runs}


LARGE = (
    *("--set", "workload=deadlines", "--set", "workload.count=100000"),
    *("--set", "workload.sizes.instances={kind: constant, value: 1}"),
    *("--set", "cluster.groups=[{name: t4, gpu: T4, count: 8, gpus: 8}]"),
)
"""100,000 runs, one per job, on 64 GPUs."""


def _interrupted(results: Path) -> None:
    """Make a run folder whose process was killed without a message."""
    config = load_config(None, ["workload.count=20", "seeds=4"])
    folder = RunStore.create(results, "tune", config, argv=["dagsim", "tune"], policies=("sjf", "fifo"))
    folder.add(run_policy(config, "sjf", config.seed))


def _trainings(results: Path) -> None:
    """Make three folders with synthetic training logs. They only test pages."""
    rng = np.random.default_rng(1)
    for seed in range(3):
        config = load_config(None, [f"seed={seed}", "train.iterations=60"])
        folder = RunStore.create(results, "train", config, argv=["dagsim", "train", "--seed", str(seed)], label="ppo")
        log = TrainingLog(folder.path)
        for step in range(1, 61):
            learned = 1 - np.exp(-step / 20)
            row = {"iteration": step, "samples": 2000.0 * step, "reward": -9 + 4 * learned + rng.normal(0, 0.3)}
            row |= {"entropy": 2.2 - 1.2 * learned + rng.normal(0, 0.03)}
            row |= {"ratio": 1.4 - 0.55 * learned + rng.normal(0, 0.02)} if step % 5 == 0 else {}
            log.add(row)
        log.close()
        folder.mark("done")


@contextmanager
def served(results: Path) -> Iterator[str]:
    """Return the address of a server of these results."""
    command = [sys.executable, "-m", "dagsim", "serve", str(results), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().split(" ")[0]
        finally:
            server.terminate()


def take_pictures(browser: Any, pages: dict[str, Path], address: str, results: Path) -> None:
    """Write the pictures of README and docs: parts of pages in few colours, and the film."""
    DOCS.mkdir(exist_ok=True)
    for made_up in results.glob("*-train-*"):
        shutil.rmtree(made_up)
    report, sweep = pages["report"].resolve().as_uri(), pages["sweep"].resolve().as_uri()
    shots = (
        ("report", report, "light", 1200, 1190, 0),
        ("report-graph", report, "light", 1200, 330, "#dag-section"),
        ("sweep", sweep, "light", 1200, 800, 0),
        ("serve", address, "light", 1400, 330, 0),
    )
    for name, url, scheme, width, height, place in shots:
        page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        page.goto(url)
        page.wait_for_function("() => document.documentElement.dataset.drawn", timeout=30_000)
        if place:
            page.evaluate("place => document.querySelector(place).scrollIntoView()", place)
        page.wait_for_timeout(500)
        page.screenshot(path=DOCS / f"{name}.png")
        page.close()
        _smaller(DOCS / f"{name}.png")
    (run,) = results.glob("*-baseline-*")
    dagsim("record", str(run), "--run", "19", "--frames", "40", "--width", "600", "-o", str(DOCS / "film.gif"))


def _smaller(path: Path) -> None:
    """Reduce the picture to 96 colours."""
    with Image.open(path) as shown:
        few = shown.convert("RGB").quantize(96, dither=Image.Dither.NONE)
    few.save(path, optimize=True)


def main() -> int:
    """Check the pages. Return 0 if all checks pass."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", help="files or addresses")
    parser.add_argument("--pictures", type=Path, help="folder for a picture at each size, light and dark")
    parser.add_argument("--demo", action="store_true", help="check pages made for the purpose, a server's, too")
    parser.add_argument("--docs", action="store_true", help="make the pictures of README and docs anew")
    options = parser.parse_args()
    program = chromium()
    if program is None:
        print("check_page: skipped, there is no chromium, or no playwright (pip install playwright)")
        return 0
    if options.pictures is not None:
        options.pictures.mkdir(parents=True, exist_ok=True)
    failed = []
    with tempfile.TemporaryDirectory() as folder, browser_of(program) as browser:
        for page in options.pages:
            address = page if "://" in page else Path(page).resolve().as_uri()
            failed += check(browser, address, options.pictures)
        if options.demo or options.docs:
            pages = make_demo(Path(folder))
            results = Path(folder) / "results"
            for page_file in pages.values():
                failed += check(browser, page_file.resolve().as_uri(), options.pictures)
            with served(results) as address:
                run = next(results.glob("*-baseline-*")).name
                for address_of_page in (address, f"{address}runs/{run}"):
                    failed += check(browser, address_of_page, options.pictures)
                if options.docs:
                    take_pictures(browser, pages, address, results)
    for text in failed:
        print(f"FAILED {text}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Text from files is text: names that would be markup, commands, code or formulas where they are shown change nothing
there, whichever field of whichever input they come from.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, fields
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from time import monotonic, sleep
from typing import Any, get_type_hints
from urllib.error import HTTPError
from urllib.request import urlopen
from xml.etree import ElementTree

import check_page
import numpy as np
import pytest
from PIL import Image
from support.command_line import fine, invoke
from support.hostile import BARE, HOSTILE, assert_plain

from dagsim.errors import ModelError
from dagsim.model import Job, Request, Task
from dagsim.text import in_latex, in_markdown, in_spreadsheet, on_one_line
from dagsim.workload.records import FORMAT, VERSION

NOW_S = 1_770_000_000
HARMLESS = {kind: f"name{number}" for number, kind in enumerate(HOSTILE)}
CONFIG = """\
cluster:
  name: {cluster}
  groups:
{groups}
  - {{name: alone, gpu: V100-16, gpus: 8}}
queues:
  tree:
{accounts}
  partitions:
{partitions}
  qos:
{levels}
  reservations:
  - {{name: {cluster}, nodes: [alone], start_s: 1.0e+6, end_s: 2.0e+6}}
  licences: {{{cluster}: 3}}
policy: sjf
"""


def plainly(*words: object) -> str:
    """What a command prints, to standard output and error. It does not fail, and prints plain lines."""
    result = fine(*words)
    assert_plain(result.output)
    return result.stdout


def job_records(names: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Jobs with each of the names in every field for a text, two of each; and some that can never run."""
    for number, name in enumerate(names.values()):
        for copy in range(2):
            tasks = [
                {"name": f"{name}{part}", "work": 50.0 + 10 * number, "gpus": 1, "instances": 1 + copy}
                for part in (1, 2)
            ]
            named = dict.fromkeys(("tenant", "user", "partition", "qos"), name) | {"account": account_of(name)}
            yield {"id": f"{name}{copy}", "arrival_s": 10.0 * number + copy, "tasks": tasks, "edges": [[0, 1]], **named}
        asked = {"array": name, "partitions": [name], "after": [f"start:{name}0"], "licences": [[names["HTML"], 1]]}
        observed = {"observed_nodes": [name], "observed_gpu": name}
        task = {"name": name, "work": 30.0, "manifest": {"note": name}}
        yield {"id": f"{name}-asks", "arrival_s": 400.0, "tasks": [task], **named, "request": asked, **observed}
        for key, value in (
            ("reservation", name),
            ("licences", [[name, 1]]),
            ("level", name),
            ("after", [name]),
            ("nodes", [name]),
            ("excluded", [name]),
            ("together", name),
        ):
            yield {"id": f"{name}-{key}", "arrival_s": 401.0, "tasks": [task], **named, "request": {key: value}}
        task = {"name": name, "work": 30.0, "gpu_types": [name], "speeds": {name: 1.0}, "model": name}
        yield {"id": f"{name}-type", "arrival_s": 402.0, "tasks": [task], **named}
        with suppress(ModelError):  # most are no expression
            asked = asdict(Request(constraint=name))["constraint"]
            yield {"id": f"{name}-feature", "arrival_s": 403.0, "tasks": [task], "request": {"constraint": asked}}


def account_of(name: str) -> str:
    """The name without the sign that separates an account from the one above it."""
    return name.replace("/", "|")


def write_input(folder: Path, names: Mapping[str, str]) -> tuple[Path, Path]:
    """A workload and a configuration with each of the names in every field for a text."""
    header = {"format": FORMAT, "version": VERSION, "meta": {"note": names["HTML"]}}
    lines = [header, *sorted(job_records(names), key=lambda job: job["arrival_s"])]
    folder.mkdir()
    log, config = folder / "jobs.jsonl", folder / "config.yaml"
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def listed(entry: str) -> str:
        forms = ((name, name[:200], account_of(name)) for name in names.values())
        return "".join(f"  - {{{entry.format(*map(json.dumps, form))}}}\n" for form in forms)

    config.write_text(
        CONFIG.format(
            cluster=json.dumps(names["HTML"]),
            groups=listed("name: {0}, gpu: T4, gpus: 1, features: [{1}]"),
            accounts=listed("name: {2}, aliases: [{1}]"),
            partitions=listed("name: {0}"),
            levels=listed("name: {0}"),
        )
    )
    return log, config


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run folder of two policies with hostile names, and one with harmless names."""
    runs = {}
    for what, names in (("hostile", HOSTILE), ("harmless", HARMLESS)):
        root = tmp_path_factory.mktemp(what)
        log, config = write_input(root / "input", names)
        told = plainly(
            *("replay", "--trace", log, "--config", config, "--algo", "sjf", "--reference", "fifo"),
            *("--no-plots", "--out", root / "runs"),
        )
        assert "completed" in told or "policies" in told
        (runs[what],) = (root / "runs").iterdir()
    return runs


def look(made: Path, kind: str) -> list[str]:
    """What the commands that read a run folder print."""
    job = f"{HOSTILE[kind]}0" if "hostile" in str(made) else f"{HARMLESS[kind]}0"
    return [
        *(plainly("compare", made, "--table", table) for table in ("text", "markdown", "latex")),
        *(plainly("why", made, job, "--table", table) for table in ("text", "markdown", "latex")),
    ]


@pytest.mark.parametrize("kind", ["HTML", "LaTeX", "row of LaTeX", "Markdown", "lines", "zero", "spreadsheet"])
def test_tables_of_the_terminal_have_the_shape_that_they_have_with_harmless_names(
    made: dict[str, Path], kind: str
) -> None:
    hostile, harmless = look(made["hostile"], kind), look(made["harmless"], kind)
    for number, (mine, other) in enumerate(zip(hostile, harmless, strict=True)):
        rows = [[re.split(r"(?<!\\)\|", line) for line in text.splitlines()] for text in (mine, other)]
        if number % 3 == 1:  # Markdown: as many cells in each row
            assert [len(row) for row in rows[0] if row[0] == ""] == [len(row) for row in rows[1] if row[0] == ""]
        if number % 3 == 2:  # LaTeX: as many columns and rows, and balanced braces
            cells = [
                [len(re.findall(r"(?<!\\)&", line)) for line in text.splitlines() if line.endswith(r"\\")]
                for text in (mine, other)
            ]
            assert cells[0] == cells[1]
            assert len(re.findall(r"(?<!\\)\{", mine)) == len(re.findall(r"(?<!\\)\}", mine))


@pytest.mark.parametrize("kind", HOSTILE)
def test_markdown_and_latex_hold_no_sign_that_means_more(kind: str) -> None:
    markdown = re.sub(r"\\[\\`*|$~_()#>\[]|&(lt|amp);", "", in_markdown(HOSTILE[kind]))
    assert not re.search(r"[`*|$\n]|~~|<[A-Za-z/!?]|\]\(|&[#A-Za-z]", markdown)
    latex = re.sub(r"\\(text(backslash|asciitilde|asciicircum)\{\}|[&%$#_{}])|\$\\mu\$", "", in_latex(HOSTILE[kind]))
    assert not re.search(r"[\\&%$#_^~\n]", latex)
    assert not latex.startswith(("[", "*"))
    assert_plain(latex + markdown + on_one_line(HOSTILE[kind]))


def test_csv_files_hold_no_formula_and_whole_rows(made: dict[str, Path], tmp_path: Path) -> None:
    plainly("compare", made["hostile"], "--csv", tmp_path / "c.csv")
    tables = [gzip.decompress(file.read_bytes()).decode() for file in made["hostile"].glob("*.csv.gz")]
    assert len(tables) == 2
    for text in (*tables, (tmp_path / "c.csv").read_text()):
        rows = list(csv.reader(io.StringIO(text, newline="")))
        assert {len(row) for row in rows} == {len(rows[0])}
        cells = {cell for row in rows for cell in row}
        assert not [cell for cell in cells if re.match(r"\s*[=+@]", cell)]
    ids = {row[rows[0].index("job")] for rows in [list(csv.reader(io.StringIO(tables[0], newline="")))] for row in rows}
    assert {in_spreadsheet(f"{name}0") for name in HOSTILE.values()} <= ids | jobs_of(tables[1])


def jobs_of(table: str) -> set[str]:
    rows = list(csv.reader(io.StringIO(table, newline="")))
    return {row[rows[0].index("job")] for row in rows}


def test_json_and_perfetto_hold_the_names_themselves(made: dict[str, Path], tmp_path: Path) -> None:
    for name in HOSTILE.values():
        assert json.loads(plainly("why", made["hostile"], "--json", "--", f"{name}0"))["job"] == f"{name}0"
    plainly("plot", made["hostile"], "--perfetto", tmp_path / "p.json")
    text = (tmp_path / "p.json").read_text()
    assert_plain(text)
    threads = {event["args"]["name"] for event in json.loads(text)["traceEvents"] if event["ph"] == "M"}
    assert all(any(name in thread for thread in threads) for name in HOSTILE.values())


class Elements(HTMLParser):
    """Counts elements with the names of their attributes, and collects the text outside scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[tuple[str, ...]] = Counter()
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag, *sorted(name for name, _ in attrs)] += 1
        self.words += [value or "" for _, value in attrs]

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@cache
def page(run: Path) -> str:
    path = run.parent / "page.html"
    plainly("report", run, "-o", path)
    return path.read_text()


def elements(text: str) -> Elements:
    parser = Elements()
    parser.feed(text)
    parser.close()
    return parser


@pytest.mark.family("web")
def test_a_page_has_the_elements_that_it_has_with_harmless_names(made: dict[str, Path]) -> None:
    hostile, harmless = elements(page(made["hostile"])), elements(page(made["harmless"]))
    for page_elements in (hostile, harmless):
        del page_elements.counts[("br",)]  # a name of two lines is shown on two
    assert hostile.counts == harmless.counts
    assert any(HOSTILE["HTML"] in word for word in hostile.words)


def look_at(browser: Any, address: str, server: str = "") -> Any:
    """Draw a page. No name in it runs or loads anything. Return the page."""
    shown, happened = browser.new_page(), []
    shown.on("dialog", lambda dialog: happened.append(dialog.message) or dialog.dismiss())
    shown.on("console", lambda message: happened.append(message.text))
    shown.on("pageerror", lambda error: happened.append(str(error)))
    shown.on("request", lambda request: happened.append(request.url))
    shown.goto(address)
    shown.wait_for_function("() => document.documentElement.dataset.drawn", timeout=30_000)
    assert shown.locator("img").count() == 0
    assert [url for url in happened if not url.startswith((address, server or address))] == []
    assert shown.locator("[onmouseover], [onerror]").count() == 0
    return shown


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if (program := check_page.chromium()) is None:
        pytest.skip("no Chromium, or no Playwright")
    with check_page.browser_of(program) as browser:
        yield browser


@pytest.mark.family("web")
def test_in_chromium_pages_run_no_code_of_names(made: dict[str, Path], browser: Any, tmp_path: Path) -> None:
    page(made["hostile"])
    root = tmp_path / HOSTILE["end of a script"].replace("/", "")
    shutil.copytree(made["hostile"].parent, root)
    look_at(browser, (made["hostile"].parent / "page.html").as_uri()).close()
    with check_page.served(root) as server:
        for path in ("", f"runs/{made['hostile'].name}", f"compare?run={made['hostile'].name}"):
            look_at(browser, f"{server}{path}", server).close()


@pytest.mark.family("web")
def test_what_serve_prints_is_plain(made: dict[str, Path], tmp_path: Path) -> None:
    root = tmp_path / (HOSTILE["escape sequences"] + HOSTILE["right to left"])
    shutil.copytree(made["hostile"].parent, root)
    command = [sys.executable, "-m", "dagsim", "serve", str(root), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        assert server.stdout is not None
        said = server.stdout.readline()
        for path in (
            "",
            "runs/",
            "runs/%1b%5b31m%0d%0aerror",
            "compare?run=%3Cscript%3E",
            f"runs/{made['hostile'].name}",
        ):
            with suppress(HTTPError):
                urlopen(f"{said.split(' ')[0]}{path}", timeout=60).read()
        server.send_signal(signal.SIGINT)
        said += server.stdout.read()
    assert "shows" in said
    assert_plain(said)


@pytest.fixture(scope="module")
def queues(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """A listing of a queue and the configuration of its site, with hostile and with harmless names."""
    files = {}
    for what, names in (("hostile", HOSTILE), ("harmless", HARMLESS)):
        root = tmp_path_factory.mktemp(f"{what}-queue") / "input"
        _, config = write_input(root, names)
        jobs = []
        for number, name in enumerate(names.values()):
            job: dict[str, Any] = dict.fromkeys(
                ("user_name", "partition", "qos", "state_reason", "name", "features", "comment", "licenses"), name
            )
            job |= {"account": account_of(name), "dependency": f"singleton:{name}", "nodes": "", "start_time": 0}
            job |= {"job_id": number, "submit_time": NOW_S - 600, "eligible_time": NOW_S - 600, "time_limit": 50}
            job |= {"node_count": 1, "cpus": 1, "tres_req_str": "cpu=1,mem=2G,node=1,gres/gpu=1", "tres_alloc_str": ""}
            begun = {"job_state": ["RUNNING"], "start_time": NOW_S - 60, "nodes": name}
            jobs.append(job | (begun if number % 4 == 3 else {"job_state": ["PENDING"]}))
        (root / "queue.json").write_text(json.dumps({"jobs": jobs, "last_update": NOW_S, "meta": {"command": names}}))
        files[what] = root / "queue.json", config
    return files


def queue_words(queues: dict[str, tuple[Path, Path]], what: str) -> tuple[object, ...]:
    return "--state", queues[what][0], "--config", queues[what][1], "--policy", "fifo-fit", "--samples", "2"


def planned(names: Mapping[str, str]) -> tuple[str, ...]:
    """Words for the forecast of a job that nobody has submitted, with hostile names where a word may have them."""
    own = {key: names[kind] for key, kind in (("user", "HTML"), ("account", "attribute"), ("qos", "LaTeX"))}
    return "--job", ",".join(
        (
            "gpus=1",
            "time_limit=50s",
            *(f"{key}={account_of(name) if key == 'account' else name}" for key, name in own.items()),
        )
    )


@pytest.fixture(scope="module")
def queue_pages(queues: dict[str, tuple[Path, Path]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages of forecasts, with a row for a job that nobody has submitted."""
    root, pages = tmp_path_factory.mktemp("pages"), {}
    for what, names in (("hostile", HOSTILE), ("harmless", HARMLESS)):
        pages[what] = root / f"{what}.html"
        plainly("eta", *queue_words(queues, what), *planned(names), "--html", pages[what])
    return pages


@pytest.mark.family("forecast", "slurm", "web")
def test_forecasts_of_a_queue_show_hostile_names_as_text(
    queues: dict[str, tuple[Path, Path]], queue_pages: dict[str, Path]
) -> None:
    hostile, harmless = (elements(queue_pages[what].read_text()) for what in ("hostile", "harmless"))
    assert hostile.counts.keys() <= {*harmless.counts, ("br",)}
    assert hostile.counts["script",] == harmless.counts["script",]
    assert any(HOSTILE["HTML"] in word for word in hostile.words)
    forecast = json.loads(plainly("eta", *queue_words(queues, "hostile"), *planned(HOSTILE), "--json"))
    assert {job["user"] for job in forecast["jobs"]} <= set(HOSTILE.values())


@pytest.mark.family("forecast", "slurm", "web")
def test_in_chromium_forecasts_run_no_code_of_names(
    queues: dict[str, tuple[Path, Path]], queue_pages: dict[str, Path], browser: Any, tmp_path: Path
) -> None:
    look_at(browser, queue_pages["hostile"].as_uri()).close()
    shutil.copy(queues["hostile"][0], tmp_path / "now.json")
    words = ("serve", tmp_path, "--config", queues["hostile"][1], "--policy", "fifo-fit", "--samples", 2, "--port", 0)
    command = [sys.executable, "-m", "dagsim", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            server = process.stdout.readline().split(" ")[0]
            until_s = monotonic() + 120
            while monotonic() < until_s and not json.load(urlopen(f"{server}queue.json", timeout=60))["jobs"]:
                urlopen(server, timeout=60).read()  # which asks for the forecast
                sleep(0.2)
            shown = look_at(browser, f"{server}runs/queue", server)
            assert HOSTILE["HTML"] in shown.locator("body").inner_text()
            shown.close()
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def clouds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, Path]]:
    """What ``whatif`` prints of machines on demand in a partition with a hostile name, and its page."""
    answers = {}
    for what, names in (("hostile", {"bare": BARE, **HOSTILE}), ("harmless", {"bare": "bare", **HARMLESS})):
        root = tmp_path_factory.mktemp(f"{what}-cloud")
        log, config = write_input(root / "input", names)
        words = ("--cloud", f"8xT4:{names['bare']},boot=60,idle=60,price=2", "--policy", "sjf", "--out", root / "runs")
        told = plainly("whatif", "--trace", log, "--config", config, *words)
        (run,) = (root / "runs").iterdir()
        answers[what] = told, run / "report.html"
    return answers


@pytest.mark.family("capacity", "web")
def test_an_estimate_of_machines_on_demand_shows_hostile_names_as_text(clouds: dict[str, tuple[str, Path]]) -> None:
    hostile, harmless = (elements(clouds[what][1].read_text()) for what in ("hostile", "harmless"))
    for counted in (hostile, harmless):
        del counted.counts[("br",)]
    assert hostile.counts == harmless.counts
    assert any(BARE.replace("\x1b", "") in word or "x[/b]" in word for word in hostile.words)


@pytest.mark.family("capacity", "web")
def test_in_chromium_an_estimate_runs_no_code_of_names(clouds: dict[str, tuple[str, Path]], browser: Any) -> None:
    look_at(browser, clouds["hostile"][1].as_uri()).close()


@pytest.mark.family("forecast", "slurm")
@pytest.mark.parametrize("table", ["text", "markdown", "latex"])
def test_why_a_job_of_a_queue_waits_is_told_in_plain_lines(queues: dict[str, tuple[Path, Path]], table: str) -> None:
    shown = []
    for what in ("hostile", "harmless"):
        said = fine(*map(str, ("why", *queue_words(queues, what), "--table", table, 4)))
        assert_plain(said.output)
        shown.append([len(re.split(r"(?<!\\)[|&]", line)) for line in said.stdout.splitlines() if line[:1] in "|&"])
    assert shown[0] == shown[1]


def test_every_text_field_of_jobs_is_hostile() -> None:
    def texts(kind: type) -> set[str]:
        types = get_type_hints(kind)
        return {field.name for field in fields(kind) if "str" in str(types[field.name]) and field.init}

    records = list(job_records(HOSTILE))
    asked = {key for record in records for key in record.get("request", ())}
    named = {key for record in records for task in record["tasks"] for key in task}
    assert texts(Job) - {"in_flight", "graph", "request"} <= {key for record in records for key in record}
    assert texts(Request) <= asked
    assert texts(Task) <= named


def test_plots_and_films_are_whole(made: dict[str, Path], tmp_path: Path) -> None:
    plainly("plot", made["hostile"], "--run", 0, "--out", tmp_path, "--format", "svg")
    plainly("plot", made["hostile"], "--out", tmp_path, "--format", "svg")
    drawings = sorted(tmp_path.glob("*.svg"))
    assert {file.stem for file in drawings} >= {"comparison", "gantt"}
    for file in drawings:
        tags = {element.tag.rpartition("}")[2] for element in ElementTree.parse(file).iter()}
        assert not tags & {"script", "image", "a", "foreignObject"}
    plainly("plot", made["hostile"], "--run", 0, "--out", tmp_path)
    plainly("record", made["hostile"], "--out", tmp_path / "f.gif", "--frames", 2)
    for file in (*tmp_path.glob("*.png"), tmp_path / "f.gif"):
        with Image.open(file) as image:
            image.load()
            assert max(image.size) < 5000
            assert len(np.unique(np.asarray(image.convert("L")))) > 1


def test_an_error_about_a_name_is_plain(tmp_path: Path) -> None:
    for name in HOSTILE.values():
        config = tmp_path / "c.yaml"
        config.write_text(f"{json.dumps(name)}: 1\n")
        result = invoke("eval", "--config", config)
        assert result.exit_code == 2
        assert_plain(result.output)
        assert len(result.output) < 2000


def test_half_a_character_is_refused_where_it_stands(tmp_path: Path) -> None:
    log = tmp_path / "jobs.jsonl"
    header = json.dumps({"format": FORMAT, "version": VERSION, "meta": {}})
    log.write_text(f'{header}\n{{"id": "a\\ud800", "arrival_s": 0, "tasks": [{{"name": "t", "work": 1}}]}}\n')
    result = invoke("replay", "--trace", log, "--out", tmp_path)
    assert (
        result.exit_code,
        "jobs.jsonl:2: the line is not valid JSON (the text contains an unpaired surrogate" in result.output,
    ) == (2, True)
    config = tmp_path / "c.yaml"
    config.write_text('cluster: {name: "a\\udc00"}\n')
    result = invoke("eval", "--config", config)
    assert result.exit_code == 2
    assert "c.yaml:1:17: 'a\\udc00' contains an unpaired surrogate" in result.output

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
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from dagsim.cli import app
from dagsim.text import in_latex, in_markdown, in_spreadsheet, printable
from dagsim.workload.records import FORMAT, VERSION

SAMPLES = Path(__file__).parents[1] / "workloads" / "samples"
HOSTILE = {
    "Rich markup": "[bold]x[/b][link=http://example.org]y",
    "closing markup": "[/] [/red] x[/b]",
    "escape sequences": "\x1b[31mred\x1b]0;title\x07\x9b1m",
    "HTML": "<script>alert(1)</script><img src=x onerror=alert(2)>",
    "attribute": '" onmouseover="alert(3)" \'',
    "end of a script": "--> ]]> </script></style><!--",
    "LaTeX": "\\input{/etc/passwd} % $x^2$ & # _ { } ~ ^",
    "row of LaTeX": "[1cm]",
    "formula of matplotlib": "$\\frac{$ and $x$",
    "spreadsheet": '=HYPERLINK("http://example.org")',
    "plus": "+1+cmd|'/C calc'!A0",
    "at": "@SUM(1)",
    "Markdown": "`a` | **b** ](http://example.org) ![i](http://example.org) ~~c~~",
    "right to left": "user\u202etxt.exe \u2066x\u200f",
    "long": "x" * 10_000,
    "lines": "two\nlines\r\nerror: forged\u2028",
    "zero": "a\x00b\x7f",
    "format": "{0} %s %(a)s {a!r}",
    "none": " ",
}
HARMLESS = {kind: f"name{number}" for number, kind in enumerate(HOSTILE)}
CONFIG = """\
cluster:
  name: {cluster}
  groups:
{groups}
policy: sjf
"""


def invoke(*words: object) -> str:
    """What a command prints, to standard output and error. It does not fail, and prints plain lines."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, (words, result.output[-2000:], result.exception)
    assert_plain(result.output)
    return result.stdout


def assert_plain(text: str) -> None:
    wrong = {sign for sign in text if not (sign.isprintable() or sign == "\n")}
    assert not wrong, (wrong, text[:2000])


def write_input(folder: Path, names: Mapping[str, str]) -> tuple[Path, Path]:
    """A workload and a configuration with each of the names in every field for a text."""
    lines: list[dict[str, Any]] = [{"format": FORMAT, "version": VERSION, "meta": {"note": names["HTML"]}}]
    for number, name in enumerate(names.values()):
        for copy in range(2):
            tasks = [
                {"name": f"{name}{part}", "work": 50.0 + 10 * number, "gpus": 1, "instances": 1 + copy}
                for part in (1, 2)
            ]
            job = {"id": f"{name}{copy}", "arrival_s": 10.0 * number + copy, "tasks": tasks, "edges": [[0, 1]]}
            lines.append(job | {"tenant": name, "account": name, "partition": name})
    folder.mkdir()
    log, config = folder / "jobs.jsonl", folder / "config.yaml"
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    groups = "".join(
        f"    - {{name: {json.dumps(name)}, gpu: T4, gpus: 1, features: [{json.dumps(name[:200])}]}}\n"
        for name in names.values()
    )
    config.write_text(CONFIG.format(cluster=json.dumps(names["HTML"]), groups=groups))
    return log, config


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run folder of two policies with hostile names, and one with harmless names."""
    runs = {}
    for what, names in (("hostile", HOSTILE), ("harmless", HARMLESS)):
        root = tmp_path_factory.mktemp(what)
        log, config = write_input(root / "input", names)
        told = invoke(
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
        *(invoke("compare", made, "--table", table) for table in ("text", "markdown", "latex")),
        *(invoke("why", made, job, "--table", table) for table in ("text", "markdown", "latex")),
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
    assert_plain(latex + markdown + printable(HOSTILE[kind]))


def test_csv_files_hold_no_formula_and_whole_rows(made: dict[str, Path], tmp_path: Path) -> None:
    invoke("compare", made["hostile"], "--csv", tmp_path / "c.csv")
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
        assert json.loads(invoke("why", made["hostile"], "--json", "--", f"{name}0"))["job"] == f"{name}0"
    invoke("plot", made["hostile"], "--perfetto", tmp_path / "p.json")
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
    invoke("report", run, "-o", path)
    return path.read_text()


def elements(text: str) -> Elements:
    parser = Elements()
    parser.feed(text)
    parser.close()
    return parser


def test_a_page_has_the_elements_that_it_has_with_harmless_names(made: dict[str, Path]) -> None:
    hostile, harmless = elements(page(made["hostile"])), elements(page(made["harmless"]))
    for page_elements in (hostile, harmless):
        del page_elements.counts[("br",)]  # a name of two lines is shown on two
    assert hostile.counts == harmless.counts
    assert any(HOSTILE["HTML"] in word for word in hostile.words)


def test_in_chromium_a_page_runs_no_code_of_names(made: dict[str, Path]) -> None:
    sync_api = pytest.importorskip("playwright.sync_api")
    page(made["hostile"])
    with sync_api.sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch()
        except sync_api.Error as error:
            pytest.skip(f"no Chromium: {str(error).splitlines()[0]}")
        shown = browser.new_page()
        happened: list[str] = []
        shown.on("dialog", lambda dialog: happened.append(dialog.message) or dialog.dismiss())
        shown.on("console", lambda message: happened.append(message.text))
        shown.on("request", lambda request: happened.append(request.url) if "page.html" not in request.url else None)
        shown.goto((made["hostile"].parent / "page.html").as_uri())
        shown.wait_for_timeout(500)
        assert shown.locator("img").count() == 0
        browser.close()
    assert happened == []


def test_plots_and_films_are_whole(made: dict[str, Path], tmp_path: Path) -> None:
    invoke("plot", made["hostile"], "--run", 0, "--out", tmp_path, "--format", "svg")
    invoke("plot", made["hostile"], "--out", tmp_path, "--format", "svg")
    drawings = sorted(tmp_path.glob("*.svg"))
    assert {file.stem for file in drawings} >= {"comparison", "gantt"}
    for file in drawings:
        tags = {element.tag.rpartition("}")[2] for element in ElementTree.parse(file).iter()}
        assert not tags & {"script", "image", "a", "foreignObject"}
    invoke("plot", made["hostile"], "--run", 0, "--out", tmp_path)
    invoke("record", made["hostile"], "--out", tmp_path / "f.gif", "--frames", 2)
    for file in (*tmp_path.glob("*.png"), tmp_path / "f.gif"):
        with Image.open(file) as image:
            image.load()
            assert max(image.size) < 5000
            assert len(np.unique(np.asarray(image.convert("L")))) > 1


def test_an_error_about_a_name_is_plain(tmp_path: Path) -> None:
    for name in HOSTILE.values():
        config = tmp_path / "c.yaml"
        config.write_text(f"{json.dumps(name)}: 1\n")
        result = CliRunner().invoke(app, ["eval", "--config", str(config)])
        assert result.exit_code == 2
        assert_plain(result.output)
        assert len(result.output) < 2000


def test_half_a_character_is_refused_where_it_stands(tmp_path: Path) -> None:
    log = tmp_path / "jobs.jsonl"
    header = json.dumps({"format": FORMAT, "version": VERSION, "meta": {}})
    log.write_text(f'{header}\n{{"id": "a\\ud800", "arrival_s": 0, "tasks": [{{"name": "t", "work": 1}}]}}\n')
    result = CliRunner().invoke(app, ["replay", "--trace", str(log), "--out", str(tmp_path)])
    assert (result.exit_code, "jobs.jsonl:2: not a line of JSON (half a character" in result.output) == (2, True)
    config = tmp_path / "c.yaml"
    config.write_text('cluster: {name: "a\\udc00"}\n')
    result = CliRunner().invoke(app, ["eval", "--config", str(config)])
    assert result.exit_code == 2
    assert "c.yaml:1:17: 'a\\udc00' is no text" in result.output


READ = "x[/b]\x1b[31m<b>$\\x\u202e=1"
"""A name without the separators of any format."""
_PLAIN = re.compile(r"[A-Za-z][A-Za-z_.@-]*$")
"""Match what may be a name: no number, date or list."""


def changed_json(text: str) -> Iterator[str]:
    """The document, or the lines of documents, with each of its text fields hostile in turn."""
    try:
        documents = [json.loads(text)]
    except ValueError:
        documents = [json.loads(line) for line in text.splitlines() if line.endswith("}") and is_json(line)]
    keys: dict[str, None] = {}

    def walk(value: Any, key: str, wanted: str | None) -> Any:
        if isinstance(value, dict):
            return {name: walk(inner, name, wanted) for name, inner in value.items()}
        if isinstance(value, list):
            return [walk(inner, key, wanted) for inner in value]
        if isinstance(value, str) and _PLAIN.match(value):
            keys[key] = None
            return READ if key == wanted else value
        return value

    walk(documents, "", None)
    for key in list(keys):
        yield "\n".join(json.dumps(walk(document, "", key)) for document in documents) + "\n"


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def changed_table(text: str, delimiter: str) -> Iterator[str]:
    """The table with the names of each of its columns hostile in turn."""
    rows = list(csv.reader(io.StringIO(text), delimiter=delimiter))
    for place in range(max(map(len, rows))):
        other = [
            [READ if at == place and number and _PLAIN.match(cell) else cell for at, cell in enumerate(row)]
            for number, row in enumerate(rows)
        ]
        if other != rows:
            buffer = io.StringIO()
            csv.writer(buffer, delimiter=delimiter, lineterminator="\n").writerows(other)
            yield buffer.getvalue()


def changed(file: Path) -> Iterator[str]:
    text = file.read_text(encoding="utf-8")
    if file.suffix in (".json", ".jsonl"):
        yield from changed_json(text)
    elif file.suffix == ".csv":
        yield from changed_table(text, ",")
    elif "|" in text.partition("\n")[0]:
        yield from changed_table(text, "|")
    else:  # words such as user=alice and machine="a"
        for key in dict.fromkeys(re.findall(r"\b(\w+)=[A-Za-z]", text)):
            yield re.sub(rf"\b{key}=[A-Za-z]\w*", lambda _, key=key: f"{key}={READ}", text)  # type: ignore[misc]


FILES = sorted(
    file
    for file in SAMPLES.rglob("*")
    if file.is_file() and file.suffix in (".csv", ".json", ".jsonl", ".txt", ".acct", "")
)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SAMPLES)))
def test_hostile_names_of_every_reader_reach_the_terminal_as_text(file: Path, tmp_path: Path) -> None:
    root = tmp_path / "in"
    shutil.copytree(SAMPLES / file.relative_to(SAMPLES).parts[0], root)
    copy = root / Path(*file.relative_to(SAMPLES).parts[1:])
    read = next((path for path in (copy, root) if told(path)[0] == 0), None)
    if read is None:
        pytest.skip("is no log, and part of none")
    for text in changed(file):
        copy.write_text(text, encoding="utf-8")
        code, output = told(read)
        assert code in (0, 2), output
        assert_plain(output)


def told(path: Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["trace", "info", str(path), "--no-plot"])
    assert result.exception is None or isinstance(result.exception, SystemExit), (path, result.exception)
    return result.exit_code, result.output

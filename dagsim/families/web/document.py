"""The HTML page: sections, data and scripts, with a Content-Security-Policy that forbids loading
anything from outside."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape, unescape
from importlib.resources import files
from pathlib import Path
from typing import Any

import dagsim
from dagsim.errors import InputError
from dagsim.experiment.explained import explained_waits, used_links
from dagsim.experiment.scenario import workload_label
from dagsim.experiment.store import Store, is_sweep
from dagsim.experiment.training_log import read_log
from dagsim.families.web import run_sections
from dagsim.families.web.answer_charts import chart
from dagsim.families.web.blocking_sections import blocking_tables, rejected_by_beta, rejected_by_cause
from dagsim.families.web.charts import Packer, chart_of, distributions, element, graphs, learning, table
from dagsim.families.web.chosen import Chosen, Shown, choose_runs
from dagsim.families.web.run_sections import SweepView, is_training, report_grid, training_sentences
from dagsim.families.web.wait_sections import Explain, can_explain
from dagsim.files import write_text
from dagsim.metrics.columns import ScheduleColumns, columns
from dagsim.model.log import Schedule
from dagsim.pictures.colours import COLOURS
from dagsim.report.answer import Recommendation, read_answer
from dagsim.report.grid import Grid
from dagsim.report.panels import links_over_time
from dagsim.report.tables import causes_in_words
from dagsim.systems.cluster.network.links import LinkUse

_STYLES = ("uPlot.min.css", "page.css")
_CURVES = '<p id="told" class="told" aria-live="polite"></p><div id="curves"></div>'
_SCRIPTS = ("uPlot.iife.min.js", "gantt.js", "dag.js", "sweep.js", "page.js")
_MOST_TASKS = 60_000
"""Maximum number of tasks for which a page contains job graphs, summed over all runs."""


def write_page(folders: Sequence[Store], path: Path) -> Path:
    """Write the report of the runs to ``path`` as one HTML file and return ``path``.

    Raises:
        InputError: No run is finished, or the file cannot be written.
        RunFolderError: A run cannot be read.
    """
    write_text(path, page(folders))
    return path


def page(folders: Sequence[Store], *, live: Sequence[str] = ()) -> str:
    """Return the report of the runs as HTML. Equal folders give equal text.

    ``live`` are the ids of the runs on the server that shows the page. The page asks the server for
    changes to these runs.

    Raises:
        InputError: No run is finished.
        RunFolderError: A run cannot be read.
    """
    if any(is_training(folder.path) for folder in folders):
        return _of_trainings(folders, live)
    if any(is_sweep(folder.path) for folder in folders):
        return _of_sweep(folders, live)
    chosen = choose_runs(folders)
    packer, charts = Packer(), []
    tables: list[str] = []
    made_of: dict[str, ScheduleColumns] = {}
    for run in chosen.drawn:
        schedule = run.folder.schedule(run.number)
        cols = made_of[run.line.policy] = columns(schedule)
        explain = _explained_by(run, schedule)
        shapes = graphs(cols, schedule, packer, _MOST_TASKS // len(chosen.drawn))
        usage = _links(run, schedule)
        drawn = chart_of(cols, schedule, packer, links_over_time(cols, usage))
        charts.append({"name": run.name, **drawn, "graphs": shapes})
        tables.append(
            _run_section(
                len(tables),
                run.name,
                run_sections.run_tables(cols, run.folder.config.workload.measure, explain)
                + run_sections.links(cols, usage),
            )
        )
    data = packer.packed({"runs": charts, "distributions": distributions(made_of, packer)})
    title = f"{', '.join(dict.fromkeys(workload_label(folder.config) for folder in folders))}: dagsim report"
    # systems that block jobs report these jobs in their own tables
    blocks = chosen.runs[0].folder.config.whole_system.blocked_by is not None
    rejected = [*([] if blocks else rejected_by_cause(made_of)), *rejected_by_beta(made_of)]
    sentences = [
        *run_sections.lacking(chosen),
        *run_sections.reproduction(chosen),
        *run_sections.verdict_sentences(chosen),
    ]
    parts = _of_runs(chosen, folders, "".join(tables), "".join(map(table, rejected)), charts)
    return answered(title, sentences, parts, data, live=live)


def _explained_by(run: Shown, schedule: Schedule) -> Explain | None:
    """Return a function that finds the causes of waits as ``dagsim why`` does, or None if the jobs
    cannot be read again."""
    if not can_explain(schedule):
        return None
    try:
        causes = explained_waits(run.folder, schedule, run.line.policy)
    except InputError:
        return None
    return lambda job, periods: causes_in_words(causes(job, periods))


def _links(run: Shown, schedule: Schedule) -> list[LinkUse]:
    """Return the traffic on the links of a run, or none if its jobs cannot be read again."""
    try:
        return used_links(run.folder, schedule)
    except InputError:
        return []


def _of_trainings(folders: Sequence[Store], live: Sequence[str]) -> str:
    """Return the report on several training runs, with their learning curves in the same charts."""
    if not all(is_training(folder.path) for folder in folders):
        raise InputError("report: training runs and other runs cannot share a page")
    logs = {folder.path.name: read_log(folder.path) for folder in folders}
    packer = Packer()
    charts = learning(logs, packer)
    grids = [report_grid(folder.path.name, folder.path / "report.csv") for folder in folders]
    tables = "".join(table(grid) for grid in grids if grid is not None)
    parts = [_section("Learning curves", _CURVES), part("Results on the test seeds", tables), *_origin(folders)]
    data = packer.packed({"learning": charts})
    return answered("Training runs: dagsim report", training_sentences(logs), parts, data, live=live)


def _of_sweep(folders: Sequence[Store], live: Sequence[str]) -> str:
    """Return the report of one sweep."""
    if len(folders) > 1:
        raise InputError("report: a sweep cannot share a page with other runs")
    if (answer := read_answer(folders[0].path)) is not None:
        return _of_answer(answer, folders, live)
    view, packer = SweepView(folders[0]), Packer()
    if not view.lines:
        raise InputError(f"{folders[0].path}: there is no finished cell")
    parts = [static("sweep.html"), part("Results", view.table()), *_origin(folders)]
    data = packer.packed({"sweep": view.facts(packer)})
    return answered(f"{view.folder.sweep.name}: dagsim sweep", view.verdict(), parts, data, live=live)


def _of_answer(answer: Recommendation, folders: Sequence[Store], live: Sequence[str]) -> str:
    """Return the page that answers a question about a cluster."""
    assumed = "".join(element("li", line) for line in answer.assumptions)
    charts = part("Charts", "".join(map(chart, answer.charts)))
    parts = [
        charts,
        part("Alternatives", table(answer.grid)),
        part("Assumptions", f"<ul>{assumed}</ul>"),
        *_origin(folders),
    ]
    return answered(answer.title, answer.sentences, parts, Packer().packed({}), live=live)


def _origin(folders: Sequence[Store]) -> list[str]:
    """Return the sections at the end of a page, which state what was run and how to run it again."""
    settings, repeat = run_sections.configurations(folders), run_sections.repeat(folders)
    return [part("Settings", settings), part("How to repeat it", repeat)]


def _of_runs(
    chosen: Chosen, folders: Sequence[Store], tables: str, rejected: str, charts: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return the sections of the report on one or several runs."""
    names = "".join(element("option", run.name, value=str(place)) for place, run in enumerate(chosen.drawn))
    drawn = ", ".join(dict.fromkeys(f"seed {run.line.seed}" for run in chosen.drawn))
    of_drawn = element("p", f"Jobs of the runs drawn ({drawn}).", class_="note")
    return [
        part("Results", run_sections.results(chosen)),
        part("RAMP", blocking_tables(chosen)),
        part("Settings and warnings", run_sections.settings(chosen, folders)),
        part("Observed and simulated", run_sections.observed(chosen)),
        f'<div class="bar"><label>Run <select id="run">{names}</select></label></div>',
        static("charts.html"),
        static("dag.html") if any(chart["graphs"] for chart in charts) else "",
        _section("Distributions", of_drawn + '<div id="distributions"></div>'),
        part("Rejected jobs", rejected),
        part("Jobs", tables),
        part("How to repeat it", run_sections.repeat(folders)),
    ]


def page_of_tables(title: str, grids: Sequence[Grid]) -> str:
    """Return tables as one HTML page that loads no other files."""
    parts = [_section(grid.title, table(replace(grid, title=""))) for grid in grids]
    body = f"<header>{element('h1', title)}</header><main>{''.join(parts)}</main>"
    return document(title, body, Packer().packed({}))


def page_of_parts(
    title: str, sentences: Sequence[str], parts: Mapping[str, Sequence[str | Grid]], live: Sequence[str] = ()
) -> str:
    """Return a page with its main result in sentences above its parts. A part has a heading, and
    contains drawings in HTML and tables. ``live`` are the ids of runs for which the page asks its
    server for changes.
    """
    shown = [
        part(head, "".join(one if isinstance(one, str) else table(one) for one in content))
        for head, content in parts.items()
    ]
    return answered(title, sentences, shown, Packer().packed({}), live=live)


_MOST_LINES = 9
"""The number of sentences shown below the main result. The others are folded, except for warnings."""


def answered(title: str, sentences: Sequence[str], parts: Sequence[str], data: str, *, live: Sequence[str] = ()) -> str:
    """Return a page with its main result in sentences above its sections, and warnings above the
    result. A live page updates all of these.
    """
    warnings = [line for line in sentences if line.startswith("warning")]
    first, *rest = [line for line in sentences if not line.startswith("warning")] or [""]
    folded = rest[_MOST_LINES:]
    answer = "".join(element("p", line, class_="warning") for line in warnings)
    answer += element("p", first, class_="verdict") * bool(first)
    answer += "".join(element("p", line) for line in rest[:_MOST_LINES])
    if folded:
        more = element("summary", f"and {len(folded)} more") + "".join(element("p", line) for line in folded)
        answer += f"<details>{more}</details>"
    header = f'<header>{element("h1", title)}<div data-part="answer">{answer}</div></header>'
    footer = f"<footer>{element('p', f'Made by dagsim {dagsim.__version__}. Curves: uPlot (MIT).')}</footer>"
    return document(title, f"{header}<main>{''.join(parts)}</main>{footer}", data, live=live)


def _section(title: str, content: str) -> str:
    return f"<section>{element('h2', title)}{content}</section>"


def part(title: str, content: str) -> str:
    """Return a section with text and tables. It is hidden if it is empty, and a live page updates
    it.
    """
    hidden = "" if content else " hidden"
    return f'<section data-part="{escape(title)}"{hidden}>{element("h2", title)}{content}</section>'


def _run_section(place: int, name: str, content: str) -> str:
    return f'<div class="of-run" data-run="{place}">{element("h3", name)}{content}</div>'


def document(title: str, body: str, data: str, *, live: Sequence[str] = (), waiting: bool = False) -> str:
    """Return a whole page around ``body``.

    ``data`` is the packed data of the charts. A page that is ``waiting`` for results has none.
    """
    attributes = {"data_runs": json.dumps(list(live))} | ({"data_waiting": "1"} if waiting else {})
    more = element("p", "", id="live", class_="live", aria_live="polite", **attributes)
    links = f'<nav><a href="/">All runs</a>{more}</nav>' if live else ""
    scripts = ("live.js",) if waiting else (*_SCRIPTS, "live.js") if live else _SCRIPTS
    packed = f'<script type="application/octet-stream" id="data">{data}</script>'
    return sealed(title, links + body + packed, _STYLES, scripts, connects=bool(live))


_BEFORE_POLICY, _AFTER_POLICY = '<meta http-equiv="Content-Security-Policy" content="', '">'


def sealed(title: str, body: str, styles: Sequence[str], scripts: Sequence[str], *, connects: bool) -> str:
    """Return a page with inline styles and scripts that may load nothing else.

    If ``connects`` is True, its scripts may send requests to the server of the page.
    """
    style, texts = "\n".join(map(static, styles)), [static(name) for name in scripts]
    allowed = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; "
        f"style-src {_hash(style)}; script-src {' '.join(map(_hash, texts))}" + ("; connect-src 'self'" * connects)
    )
    return "".join(
        [
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
            f"{_BEFORE_POLICY}{escape(allowed)}{_AFTER_POLICY}",
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"{element('title', title)}<style>{style}</style></head><body>{body}",
            *(f"<script>{text}</script>" for text in texts),
            "</body></html>\n",
        ]
    )


def content_policy_of(text: str) -> str:
    """Return the Content-Security-Policy of a page that ``sealed`` has built."""
    begin = text.index(_BEFORE_POLICY) + len(_BEFORE_POLICY)
    return unescape(text[begin : text.index(_AFTER_POLICY, begin)])


def static(name: str) -> str:
    """Return the text of a static file of the page, with ``@COLOURS@`` replaced by the common
    palette."""
    text = files("dagsim.families.web").joinpath("static", name).read_text(encoding="utf-8").strip("\n")
    return text.replace("@COLOURS@", " ".join(COLOURS))


def _hash(text: str) -> str:
    """Return the hash of the text in the form that Content-Security-Policy expects."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

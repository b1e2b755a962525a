"""Names that would be markup, commands, code or formulas where they are shown, and inputs that contain them."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from itertools import cycle, repeat
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import yaml

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
BARE = "x[/b]\x1b[31m<b>$\\x\u202e"
"""A name without the separators of any format."""
MARKED = "x[/b]<img>$\\x\u202e"
"""The same for formats that have no control characters."""
MARK = "x[/b]"
"""What the two begin with."""
FILE = "x[b]<img>$\\x\u202e"
"""A name of a file."""
OPENED: dict[str, tuple[str, ...]] = {
    "jsonl": ("jsonl/jobs.jsonl",),
    "plain": ("plain/jobs.csv",),
    "acme": ("acme/trace_kalos.csv", "acme/trace_seren.csv"),
    "alibaba2017": ("alibaba2017/batch_task.csv",),
    "alibaba2018": ("alibaba2018/batch_task.csv",),
    "alibaba2025": ("alibaba2025/disaggregated_DLRM_sample.csv",),
    "alibaba2026": ("alibaba2026/job_info_df.csv",),
    "batsim": ("batsim/delays.json",),
    "dax": ("dax/sample.xml",),
    "eagle": ("eagle/eagle_data.csv",),
    "fdata": ("fdata/21_03.csv",),
    "flux": ("flux/jobs.json",),
    "frontier": ("frontier/frontier-completed-job-info.csv",),
    "gavel": ("gavel/msr.trace", "gavel/shockwave.trace"),
    "google2011": ("google2011",),
    "google2019": ("google2019/csv", "google2019/json", "google2019/kaggle_sample.csv"),
    "gridengine": ("gridengine/accounting",),
    "helios": ("helios/cluster_log.csv",),
    "htcondor": ("htcondor/history", "htcondor/history.json"),
    "itp": ("itp/cluster01.csv", "itp/elastic.csv"),
    "kestrel": ("kestrel/kestrel_jobs.csv",),
    "lsf": ("lsf/lsb.acct",),
    "openb2023": ("openb2023/openb_pod_list_sample.csv",),
    "pai2020": ("pai2020/hydra_sample.csv", "pai2020/pai_job_duration_sample.csv", "pai2020"),
    "philly": ("philly/cluster_job_log", "philly/philly_list.csv"),
    "pipedream": ("pipedream/tiny.txt",),
    "pm100": ("pm100/job_table.csv",),
    "stg": ("stg/rand0.stg",),
    "swf": ("swf/sample.swf",),
    "tiresias": ("tiresias/muri.csv", "tiresias/sia.csv", "tiresias/tiresias.csv"),
    "tpch": ("tpch/tpch_dags.json",),
    "wfcommons": ("wfcommons/v13.json", "wfcommons/v15.json"),
    "kubernetes": ("kubernetes/pods.json", "kubernetes/workloads.json", "kubernetes/cluster"),
    "kubernetes-now": ("kubernetes-now/objects.json",),
    "pbs": ("pbs/20260105", "pbs/qstat-x.json"),
    "qstat": ("qstat/qstat.txt",),
    "sacct": ("sacct/jobs.txt", "sacct/jobs.json"),
    "slurm-events": ("slurm-events/small.events",),
    "squeue": ("squeue/squeue.json",),
}
"""What is opened of each reader's sample: a file, or a folder whose files are all read."""
_NAME = re.compile(r"[A-Za-z][\w.@-]*$")
"""Match what may be a name: no number, date or list."""
_FIELDS = (
    re.compile(r"^(?P<key>\s*[\w.]+ = )(?P<value>[^\n]+)$", re.MULTILINE),
    re.compile(r"(?P<key>\b[\w.-]+=)(?P<value>[^\s,;:()\"\[]+)"),
    re.compile(r"(?P<key>(?<=\s)(?:-[A-Za-z]|--\w+)[ =])(?P<value>[A-Za-z]\S*)"),
    re.compile(r"(?P<key>^[;#]\s*[\w ]+: )(?P<value>[^\n]+)$", re.MULTILINE),
    re.compile(r"(?P<key>^[\w ]+ - ')(?P<value>[^'\n]*)", re.MULTILINE),
    re.compile(r"(?P<key>^(?:create|set) queue )(?P<value>\w+)", re.MULTILINE),
    re.compile(r"(?P<key>^node\d+ -- )(?P<value>[A-Z]\w*)", re.MULTILINE),
)
"""Fields of lines: ``Owner = "ada"``, ``user=ada``, ``--user ada``, ``; Computer: x``, ``Parent - 'x'``,
``create queue x`` and ``node1 -- X``.
"""


def variants(file: Path) -> Iterator[str]:
    """Yield a text file with each of its text fields hostile in turn, then with all of its numbers."""
    text = file.read_text(encoding="utf-8")
    if documents := _documents(text):
        yield from _json_variants(documents, is_lines="\n{" in text.strip() and not _is_json(text))
    elif text.lstrip().startswith("<"):
        yield from _xml_variants(text)
    elif file.suffix in (".yaml", ".yml"):
        yield from (yaml.safe_dump_all(changed) for changed in _tree_variants(list(yaml.safe_load_all(text))))
    else:
        yield from _line_variants(text)


def _documents(text: str) -> list[Any]:
    if _is_json(text):
        return [json.loads(text)]
    lines = [json.loads(line) for line in text.splitlines() if line.endswith("}") and _is_json(line)]
    return lines if lines and text.lstrip().startswith("{") else []


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict | list)
    except ValueError:
        return False


def _json_variants(documents: list[Any], *, is_lines: bool) -> Iterator[str]:
    for changed in _tree_variants(documents):
        yield "\n".join(json.dumps(document) for document in changed) + "\n"
    if not is_lines:
        yield yaml.safe_dump_all(next(_tree_variants(documents)))


def _tree_variants(documents: list[Any]) -> Iterator[list[Any]]:
    """Yield the documents with the texts, and with the names of entries, under each key hostile in turn, with all
    texts at once, and with all numbers at once.
    """
    texts: dict[str, None] = {}
    holders: dict[str, None] = {}

    def walk(value: Any, key: str, wanted: str | None, names: Iterator[str], *, keys: bool = False) -> Any:
        if isinstance(value, dict):
            holders[key] = None
            rename = keys and key == wanted
            return {
                next(names)[:400] if rename else name: walk(inner, name, wanted, names, keys=keys)
                for name, inner in value.items()
            }
        if isinstance(value, list):
            return [walk(inner, key, wanted, names, keys=keys) for inner in value]
        if isinstance(value, str) and _NAME.match(value):
            texts[key] = None
            return next(names) + value if not keys and wanted in (key, "*") else value
        if wanted == "numbers" and isinstance(value, int | float | str):
            return next(names)
        return value

    walk(documents, "", None, cycle(HOSTILE.values()))
    for key in list(texts):
        yield walk(documents, "", key, repeat(BARE))
    for key in list(holders):
        yield walk(documents, "", key, cycle([BARE, *HOSTILE.values()]), keys=True)
    yield walk(documents, "", "*", cycle(HOSTILE.values()))
    yield walk(documents, "", "numbers", cycle(HOSTILE.values()))


def _xml_variants(text: str) -> Iterator[str]:
    def changed(place: tuple[str, str] | None, name: str) -> tuple[str, dict[tuple[str, str], None]]:
        root, places = ElementTree.fromstring(text), {}
        for element in root.iter():
            for key in element.attrib:
                places[element.tag, key] = None
                if place in ((element.tag, key), ("*", "*")):
                    element.set(key, name + element.attrib[key])
        return ElementTree.tostring(root, encoding="unicode"), places

    for place in changed(None, "")[1]:
        yield changed(place, MARKED)[0]
        yield changed(place, HOSTILE["HTML"] + HOSTILE["lines"])[0]
    yield changed(("*", "*"), MARKED)[0]
    yield changed(("*", "*"), HOSTILE["escape sequences"])[0]  # no XML at all


def _line_variants(text: str) -> Iterator[str]:
    first = next((line for line in text.splitlines() if line.strip() and not line.startswith(("#", ";"))), "")
    for delimiter in ("|", "\t", ",", ":"):
        if first.count(delimiter) > 1:
            yield from _table_variants(text, delimiter)
            break
    for field in _FIELDS:
        for key in dict.fromkeys(match["key"] for match in field.finditer(text)):
            yield field.sub(
                lambda match, key=key: key + BARE + match["value"] if match["key"] == key else match[0], text
            )  # type: ignore[misc]
    longest = max((line.count('"') // 2 for line in text.splitlines()), default=0)
    for place in range(min(longest, 60)):
        yield "\n".join(_with_quoted(line, place) for line in text.splitlines()) + "\n"
    yield re.sub(r"(?<![\w.])\d+(\.\d+)?(?![\w.])", lambda _: BARE, text)


def _with_quoted(line: str, place: int) -> str:
    """The line with its quoted text at ``place`` hostile, if there is something in it."""
    parts = re.split(r'("(?:[^"]|"")*")', line)
    at = 2 * place + 1
    if at < len(parts) and len(parts[at]) > 2:
        parts[at] = f'"{BARE}"'
    return "".join(parts)


def _table_variants(text: str, delimiter: str) -> Iterator[str]:
    rows = list(csv.reader(io.StringIO(text), delimiter=delimiter))
    for place in range(max(map(len, rows))):
        other = [
            [BARE + cell if at == place and number and _NAME.match(cell) else cell for at, cell in enumerate(row)]
            for number, row in enumerate(rows)
        ]
        if other != rows:
            yield _table(other, delimiter)
    yield _table([[BARE, *rows[0][1:]], *rows[1:]], delimiter)


def _table(rows: list[list[str]], delimiter: str) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return buffer.getvalue()


def assert_plain(text: str) -> None:
    """Assert that an output has only printable signs and line ends, and no line of a name's own."""
    wrong = {sign for sign in text if not (sign.isprintable() or sign == "\n")}
    assert not wrong, (wrong, text[:2000])
    assert "\nerror: forged" not in f"\n{text}", text[:2000]

"""Commands print and write what was recorded: tables, notes, JSON, CSV, pages and plots of small runs.

A number, a heading or a rule that changes anywhere on the way shows as a difference here. Of plots the values that are
drawn are compared, not the pixels.
"""

from __future__ import annotations

import gzip
import json
import re
import shlex
from collections.abc import Callable, Iterator
from functools import cache
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import Collection
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text
from support.command_line import fine
from support.pinning import digest, plain

from dagsim.families.web.charts import Packer

pytestmark = pytest.mark.whole  # lists and pages name what all families add

ROOT = Path(__file__).parents[2]
Pinned = Callable[[str, Any], None]

DAG = "--workload heterogeneous-dag --set workload.count=16 --set 'workload.tenants=[ann,bob]' --no-plots"
FAULTS = "'failures=[{kind: node_failures, mean_up_s: 9000, mean_down_s: 900}]'"
SITE = "--trace sacct.txt --config slurm.yaml --limit 80 --on local"
MADE = {
    "dag": f"baseline {DAG} --algo sjf --algo srtf --algo fifo --seeds 4 --set estimates.kind=noisy",
    "faulty": (
        f"eval {DAG} --algo 2d-las --seeds 3 --set {FAULTS} --set 'setup={{kind: moving_delay, delay_s: 20}}' "
        "--set 'workload.slack={kind: uniform, low: 1, high: 4}' "
        "--set 'workload.priority={kind: whole, low: 0, high: 2}'"
    ),
    "log": "replay --trace sacct.txt --limit 60 --algo easy --config slurm.yaml --no-plots",
    "sweep": "sweep sweep.yaml",
    "ramp": "baseline --config ramp --set system.jobs=12 --set system.gap_s=0.05 --algo max --algo on_time --seeds 2",
    "spark": "baseline --config spark --set system.jobs=5 --set system.executors=6 --algo fair --algo fifo --seeds 3",
    "whatif": f"whatif {SITE} --policy easy,fifo-fit --add 8xH200:gpu",
    "plan": f"plan {SITE} --policy easy --target 'wait_s.mean<2000'",
}
"""Commands by the folder of the run that they make."""
READING = {
    **{f"compare {run}": f"compare {run}" for run in ("dag", "ramp", "spark")},
    "compare as JSON": "compare dag --json",
    "compare more": "compare dag --metric wait_s.mean --metric makespan_s --wide --csv cells.csv",
    "compare as LaTeX": "compare dag --table latex",
    "compare as Markdown": "compare spark --table markdown --reference fifo",
    "sweep shown": "sweep sweep --show",
    **{f"why {run}": f"why {run} job-3" for run in ("dag", "faulty")},
    "why as JSON": "why faulty job-5 --json",
    "why by number": "why faulty '#7' --show 3 --run 1",
    **{f"report {run}": f"report {run} -o page.html" for run in MADE},
    **{f"plot {run}": f"plot {run}" for run in ("dag", "faulty", "ramp", "spark")},
    "plot perfetto": "plot faulty --perfetto trace.json",
    "record": "record dag --frames 3 --width 200",
    **{f"list {kind}": f"list {kind}" for kind in ("policies", "gpus", "placements", "metrics", "rewards", "traces")},
    **{f"list {kind}": f"list {kind} --json" for kind in ("workloads", "configs", "spark-policies", "ramp-policies")},
    "show": "config show --set policy=easy",
    "check": "config check slurm.yaml",
    "info": "workload info heterogeneous-dag --json",
    "info of a file": "workload info jobs.jsonl",
    "info of a log": "trace info sacct.txt",
    "info of a log as JSON": "trace info sacct.txt --json",
    "nodes": "site import nodes.txt -o nodes.yaml",
    "anonymise": "trace anonymise sacct.txt nodes.txt --to anonymous",
    "convert": "trace convert sacct.txt jobs2.jsonl",
    "sample": "trace sample --to site",
}
"""Commands that read these runs and some files, by a name."""
MOVING = (
    (r"\d{8}T\d{6}Z", "WHEN"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)?", "WHEN"),
    (r"(?<=in )\d+(\.\d+)? s\b", "TIME"),
    (r"Python 3\.\d+\.\d+; [^<]*", "VERSIONS"),
    (r"(?<!\.)\b[0-9a-f]{12,64}(-dirty)?\b", "HASH"),  # not the digits of a fraction
)
"""Patterns of times of day, of what a run took, of versions, and of what depends on the text of the code."""
NOT_PINNED = ("manifest.json", "progress.jsonl", "status.json", "timing.jsonl")
"""Files with clock times and the versions of packages."""
WRITTEN = (".csv", ".csv.gz", ".json", ".jsonl", ".html", ".tex", ".yaml")


def artists(figure: Figure) -> Iterator[Any]:
    """What a figure shows: places, sizes, colours and texts."""
    yield figure.get_size_inches()
    for artist in figure.findobj():
        match artist:
            case Text():
                yield artist.get_text(), artist.get_position(), artist.get_fontsize(), artist.get_color()
            case Line2D():
                yield artist.get_xydata(), artist.get_color(), artist.get_linewidth(), artist.get_linestyle()
            case Collection():
                paths = [path.vertices for path in artist.get_paths()]
                yield paths, artist.get_facecolor(), artist.get_linewidth(), artist.get_offsets()
            case Patch():
                yield (
                    artist.get_path().vertices,
                    artist.get_transform().transform([(0, 0), (1, 1)]),
                    artist.get_facecolor(),
                )
            case AxesImage():
                yield artist.get_array(), artist.get_extent()
    for axes in figure.axes:
        yield axes.get_xlim(), axes.get_ylim(), axes.get_position().bounds, axes.get_xticks(), axes.get_yticks()


def stable_text(text: str, home: Path) -> str:
    """A text without paths and times of day, and with numbers of six digits: the last ones depend on the processor."""
    for pattern, word in MOVING:
        text = re.sub(pattern, word, text)
    text = re.sub(r"(?<=\d)\.0\b", "", text)  # demands that are equal are shared, and one may have whole numbers
    text = re.sub(r"-?\d+\.\d{6,}(e[-+]?\d+)?", lambda match: f"{float(match[0]):.6g}", text)
    return "\n".join(line.rstrip() for line in text.replace(str(home), "HOME").splitlines())


def packed(packer: Packer, facts: dict[str, Any]) -> str:
    """The charts of a page as text; packed, the last digits would be in it."""
    arrays = [np.frombuffer(data, f"<{dtype}") for dtype, data in packer._places]
    return json.dumps([plain(facts), *(plain(array) for array in arrays)]).replace("<", "")


def run(line: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a command prints, and digests of the files and figures that it makes."""
    drawn: dict[str, str] = {}

    def save(figure: Figure, path: Any, **_: Any) -> None:
        drawn[Path(path).name.removeprefix(".").removesuffix(".part")] = digest(list(artists(figure)))
        Path(path).write_bytes(b"drawn")

    monkeypatch.setattr(Figure, "savefig", save)
    monkeypatch.setattr(Packer, "packed", packed)
    monkeypatch.setattr("dagsim.experiment.cell.code_digest", lambda: "code")  # which orders the cells of a sweep
    for clock in ("perf_counter", "process_time"):  # one decision takes a millisecond
        monkeypatch.setattr(f"dagsim.experiment.simulate.{clock}", (number / 1000 for number in count()).__next__)
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.setattr("sys.argv", ["dagsim", *shlex.split(line)])
    monkeypatch.chdir(home)
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    done = fine(*shlex.split(line))
    files = sorted(
        f"{stable_text(str(path.relative_to(home)), home)}: "
        f"{sha256(stable_text(content(path), home).encode()).hexdigest()[:8]}"
        for path in sorted(home.rglob("*"))
        if path.is_file()
        and path.name.endswith(WRITTEN)
        and path.name not in NOT_PINNED
        and path.read_bytes() != before.get(path)
    )
    shown = stable_text(done.stdout, home)
    return [
        *(shown.splitlines() if len(shown) < 3000 else [digest(shown)]),
        *files,
        *map(" ".join, sorted(drawn.items())),
    ]


def content(path: Path) -> str:
    raw = path.read_bytes()
    return (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    site = ROOT / "workloads" / "site"
    (folder / "sacct.txt").write_bytes(gzip.decompress((site / "sacct.txt.gz").read_bytes()))
    for name in ("slurm.yaml", "nodes.txt"):
        (folder / name).write_bytes((site / name).read_bytes())
    (folder / "jobs.jsonl").write_bytes((ROOT / "workloads" / "dag-50.jsonl").read_bytes())
    (folder / "sweep.yaml").write_text(
        "set: {workload.count: 8, seeds: 2}\nover: {policy: [sjf, fifo], workload.load: [0.5, 1]}\n"
    )
    return folder


@pytest.fixture(scope="module")
def output_of(home: Path) -> Callable[[str], list[str]]:
    """What the command that makes a run prints and writes; each is made once, when it is asked for."""

    @cache
    def make(name: str) -> list[str]:
        with pytest.MonkeyPatch.context() as monkeypatch:
            output = run(f"{MADE[name]} --out . --name {name} --quiet", home, monkeypatch)
        (folder,) = (path for path in home.iterdir() if path.is_dir() and name in path.name)
        folder.rename(home / name)
        return output

    return make


@pytest.mark.parametrize("name", MADE)
def test_a_command_makes_the_run_that_was_recorded(
    output_of: Callable[[str], list[str]], name: str, pinned: Any
) -> None:
    pinned(name, output_of(name))


@pytest.mark.parametrize("name", READING)
def test_a_command_says_of_a_run_what_was_recorded(
    home: Path, output_of: Callable[[str], list[str]], name: str, monkeypatch: pytest.MonkeyPatch, pinned: Any
) -> None:
    for word in READING[name].split():
        if word in MADE:
            output_of(word)
    pinned(f"reading: {name}", run(READING[name], home, monkeypatch))

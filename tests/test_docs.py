"""What the pages in ``docs/`` say is so."""

from __future__ import annotations

import inspect
import json
import re
import shlex
from pathlib import Path

import make_pages
import pytest
from sources import WHOLE
from typer.testing import CliRunner

from dagsim.cli import app
from dagsim.cli.options import READ_KEYS
from dagsim.config.schema import load_config
from dagsim.experiment.simulate import run_policy
from dagsim.model import Cluster, Job, Kind, Task
from dagsim.systems.cluster import ClusterKernel, ClusterPolicy
from dagsim.systems.cluster.policies import POLICIES
from dagsim.testing import check_policy
from dagsim.traces import READERS, TraceOptions

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "reference" / "policies.md").read_text(encoding="utf-8")
COSTS: dict[str, float] = json.loads((ROOT / "results" / "baselines" / "cost.json").read_text())["us_per_decision"]
TABLED = re.findall(r"^\| `([a-z0-9][a-z0-9-]*)` \|", PAGE.partition("## Placements")[0], re.MULTILINE)
SPECS = dict.fromkeys(re.findall(r'--algo "([^"]+)"', PAGE))


MADE = make_pages.pages()


@WHOLE
@pytest.mark.parametrize("page", MADE, ids=lambda page: page.stem)
def test_tables_are_those_of_registries_and_results(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert make_pages.renewed(text) == text, "run scripts/make_pages.py"


def test_every_table_stands_on_some_page() -> None:
    assert sorted(name for names in MADE.values() for name in names) == sorted(make_pages.TABLES)


@pytest.mark.parametrize(
    "page",
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("results/**/*.md"),
        ROOT / "dagsim" / "ARCHITECTURE.md",
    ],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", prose):
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in headings], link


def test_every_page_is_in_the_index_of_all_pages() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    listed = {(ROOT / "docs" / link).resolve() for link in re.findall(r"\]\(([^)#]+\.md)\)", index)}
    assert {path for path in ROOT.glob("docs/**/*.md") if path.name != "README.md"} <= listed


def test_a_figure_that_differs_from_its_file_is_noticed() -> None:
    text = next(text for text in (page.read_text(encoding="utf-8") for page in MADE) if "| `fifo` | 1347.7 |" in text)
    changed = text.replace("| `fifo` | 1347.7 |", "| `fifo` | 1347.8 |")
    assert make_pages.renewed(changed) == text


@WHOLE
def test_a_decision_costs_little_unless_its_definition_forces_more() -> None:
    dear = {name for name, cost in COSTS.items() if cost > 50}
    assert dear <= {entry.name for entry in POLICIES.describe() if "costly" in entry.tags}
    assert set(COSTS) == set(POLICIES.names())


@WHOLE
def test_the_page_lists_every_policy() -> None:
    assert sorted(TABLED) == sorted(POLICIES.names())  # tests/test_testing.py runs each


@pytest.mark.parametrize("algo", SPECS)
def test_every_algo_of_the_page_runs(algo: str) -> None:
    config = load_config(None, ["workload=heterogeneous-dag", "workload.count=8", f"policy={algo}"])
    assert run_policy(config, algo, 1).summary.jobs_completed == 8


def written_out(name: str) -> type[ClusterPolicy]:
    """A policy that the page writes out."""
    names: dict[str, type[ClusterPolicy]] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(code, names)
    return names[name]


def test_the_page_shows_a_policy_that_preempts() -> None:
    jobs = [Job.single("long", Task("t", 10.0)), Job.single("short", Task("t", 1.0), 3.0)]
    schedule = ClusterKernel(Cluster.of({"T4": 1}), jobs).run(written_out("Shortest")())
    # Three of ten seconds are done when the short one comes; it runs from 3 to 4, the rest from 4 to 11.
    assert [(row.time_s, row.job) for row in schedule.log if row.kind == Kind.COMPLETED] == [(4, 1), (11, 0)]
    check_policy(written_out("Shortest"))
    check_policy(written_out("Oracle"))


def test_the_page_on_traces_says_what_replay_takes() -> None:
    page = (ROOT / "docs" / "reference" / "traces.md").read_text(encoding="utf-8")
    options, keys = set(re.findall(r"`--([a-z-]+)", page)), set(re.findall(r"`--read ([a-z_]+)=", page))
    assert keys == set(READ_KEYS)
    assert set(TraceOptions.__dataclass_fields__) - keys <= options
    assert set(re.findall(r"^\| `([a-z0-9][a-z0-9-]*)` \| ", page, re.MULTILINE)) == set(READERS.names())


def commands(*names: str) -> list[str]:
    pages = [(ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in names]
    lines = [line for page in pages for line in page.splitlines()]
    return [line.removeprefix("$ ").partition("   #")[0].strip() for line in lines if line.startswith("$ ")]


@pytest.mark.parametrize("command", commands("reference/traces"))
def test_every_command_on_traces_runs(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "workloads").symlink_to(ROOT / "workloads")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, shlex.split(command)[1:])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("command", commands("reference/schedulers"))
def test_every_command_on_schedulers_runs(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "workloads").symlink_to(ROOT / "workloads")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, [*shlex.split(command)[1:], "--limit", "150"])
    assert result.exit_code == 0, result.output
    assert "observed and simulated waits" in result.output


def test_the_queues_of_the_page_are_read_and_its_options_exist(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reference" / "schedulers.md").read_text(encoding="utf-8")
    queues = re.search(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert queues is not None
    nodes = (ROOT / "workloads" / "site" / "slurm.yaml").read_text(encoding="utf-8").partition("queues:")[0]
    (tmp_path / "site.yaml").write_text(nodes + queues[1], encoding="utf-8")
    config = load_config(tmp_path / "site.yaml")
    assert config.queues is not None
    assert config.queues.partitions[0].nodes == ("ant01", "ant02", "fox01", "fox02", "fox03")
    parameters = set(inspect.signature(POLICIES.get("slurm-multifactor")).parameters)  # type: ignore[arg-type]
    names = set(re.findall(r"`([a-z_]+)(?:=[a-z_]+)?`", page.partition("## `kueue`")[0]))
    assert parameters <= names


@pytest.mark.family("learning")
def test_the_first_program_of_the_guide_on_learning_prints_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs" / "learning.md").read_text(encoding="utf-8")
    code, shown = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", text, re.DOTALL).groups()  # type: ignore[union-attr]
    exec(compile(code, "learning.md", "exec"), {})
    assert capsys.readouterr().out == shown

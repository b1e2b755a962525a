"""What the pages in ``docs/`` say is so."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import shlex
import subprocess
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import make_pages
import pytest
import yaml
from support.command_line import fine
from support.sources import WHOLE, trees

from dagsim.cli.options import READ_KEYS
from dagsim.config.schema import load_config
from dagsim.experiment.simulate import run_policy
from dagsim.family import families
from dagsim.model import Cluster, Job, Kind, Task
from dagsim.systems.cluster import ClusterKernel, ClusterPolicy
from dagsim.systems.cluster.policies import POLICIES
from dagsim.testing import check_policy
from dagsim.traces import READERS, TraceOptions

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "policies.md").read_text(encoding="utf-8")
COSTS: dict[str, float] = json.loads((ROOT / "results" / "baselines" / "cost.json").read_text())["us_per_decision"]
TABLED = re.findall(r"^\| `([a-z0-9][a-z0-9-]*)` \|", PAGE.partition("## Placements")[0], re.MULTILINE)
SPECS = dict.fromkeys(re.findall(r'--policy "([^"]+)"', PAGE))


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
        ROOT / "workloads" / "README.md",
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


NAMING = (
    ROOT / "CONTRIBUTING.md",
    ROOT / "README.md",
    ROOT / "dagsim" / "ARCHITECTURE.md",
    *ROOT.glob("docs/**/*.md"),
    *ROOT.glob("results/**/*.md"),
    ROOT / "workloads" / "README.md",
    *ROOT.glob("scripts/**/*.md"),
    *ROOT.glob("scripts/**/*.py"),
    *ROOT.glob("dagsim/**/*.py"),
)
"""The texts whose names of files and modules are checked: pages whole, of code the docstrings and comments."""
HOMES = (ROOT, ROOT / "dagsim", ROOT / "dagsim" / "families")
OTHERS_FILES = re.compile(
    r"(path/to/|my_|\.|file\.py$|gone\.|golden/|references/|replay/|size/|simulator/models\.py|doc/PERF|scripts/train/)"
)
"""Files of the reader, of run folders, of data outside the repository, and of other programs."""
OTHERS_NAMES = re.compile(
    r"(cluster\.groups|config\.precision|model\.predict|scores\.batch|workflow\.|options\.draw|answer\.start|state\.t$"
    r"|.*\.(bak|conf|csv|gz|jsonl?|md|png|py|txt|yaml)$)"
)
"""Keys, and attributes of variables that have the name of a module."""
PLACEHOLDER = re.compile(r"\b[A-Z]+\b")


def texts_of(path: Path) -> str:
    """A page whole; of code the docstrings and comments."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    strings = [
        node.value.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    return "\n".join([*strings, *re.findall(r"^\s*#.*$", text, re.MULTILINE)])


@cache
def repository() -> tuple[frozenset[Path], frozenset[str]]:
    """All files, and the folders that hold one; and the names of all Python files and pages."""
    parts = ("dagsim", "tests", "scripts", "docs", "configs", "workloads", "results")
    files = [path for part in parts for path in (ROOT / part).rglob("*.*") if path.is_file()]
    files = [path for path in files if "__pycache__" not in path.parts] + list(ROOT.iterdir())
    folders = {folder for path in files for folder in path.parents}
    return frozenset({*files, *folders}), frozenset(path.name for path in files)


def dead_paths(text: str, page: Path) -> list[str]:
    """The paths in backticks that lead nowhere, from the root, the package, its families or the folder of the page."""
    known, names = repository()
    spans = re.findall(r"`+([^`\n]+)`+", text)
    words = [word.rstrip(".,:;").partition(":")[0] for span in spans for word in re.split(r"[\s\"'()\[\],=|]+", span)]
    dead = []
    for word in dict.fromkeys(words):
        starts = re.match(r"(dagsim|tests|scripts|docs)/", word) and not re.search(r"-v\d$", word)
        whole = re.fullmatch(r"[\w./-]+(\.py|\.md|\w/)", word)
        if not (starts or whole) or OTHERS_FILES.match(word) or re.search(r"[<{$*]", word):
            continue
        if "/" not in word and (word in names or PLACEHOLDER.match(word)):
            continue
        homes = (*HOMES, *(folder for folder in page.parents if ROOT in folder.parents))
        if PLACEHOLDER.search(word):
            found = any(path in known for home in homes for path in home.glob(PLACEHOLDER.sub("*", word.rstrip("/"))))
        else:
            found = any(home / word in known for home in homes)
        if not found:
            dead.append(word)
    return dead


@cache
def groups() -> frozenset[str]:
    """The groups of entry points, from the registries."""
    code = "".join(path.read_text(encoding="utf-8") for path in trees())
    return frozenset(re.findall(r'group="(dagsim\.\w+)"', code))


def dead_names(text: str) -> list[str]:
    """The dotted names of ``dagsim`` that are neither modules, nor in one, nor groups of entry points."""
    names = dict.fromkeys(re.findall(r"(?<![\w./-])dagsim(?:\.[A-Za-z_]\w*)+", text))
    return [name for name in names if name not in groups() and name != "dagsim.schema.json" and not exists(name)]


@cache
def sources() -> dict[str, list[tuple[str, str]]]:
    """The dotted names of all modules with their texts, by last part."""
    modules: dict[str, list[tuple[str, str]]] = {}
    for path in trees():
        parts = path.relative_to(ROOT).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        modules.setdefault(parts[-1], []).append((".".join(parts), path.read_text(encoding="utf-8")))
    return modules


def dead_short_names(text: str) -> list[str]:
    """The dotted names in backticks that begin with a module, but lead to no module that has the rest as words."""
    names = dict.fromkeys(re.findall(r"`([a-z_]\w*(?:\.[A-Za-z_]\w*)+)`", text))
    modules = [name for name in names if name.partition(".")[0] in sources() and not OTHERS_NAMES.match(name)]
    return [name for name in modules if not leads_somewhere(name.split("."))]


def leads_somewhere(parts: list[str]) -> bool:
    for end in range(len(parts), 0, -1):
        beginning = "." + ".".join(parts[:end])
        for module, source in sources().get(parts[end - 1], ()):
            if f".{module}".endswith(beginning) and all(re.search(rf"\b{part}\b", source) for part in parts[end:]):
                return True
    return False


def exists(name: str) -> bool:
    """Whether the longest importable beginning of a dotted name has the rest as attributes."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            attribute: object = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        return all((attribute := getattr(attribute, part, None)) is not None for part in parts[end:])
    return False


@WHOLE
def test_texts_name_files_and_modules_that_exist() -> None:
    dead = []
    for page in NAMING:
        text = texts_of(page)
        dead += [f"{page.relative_to(ROOT)}: {name}" for name in dead_paths(text, page) + dead_names(text)]
        if page.suffix == ".py":
            dead += [f"{page.relative_to(ROOT)}: {name}" for name in dead_short_names(text)]
    assert not dead, "\n".join(dead)


@WHOLE
def test_the_table_of_families_lists_each() -> None:
    page = (ROOT / "dagsim" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| (`.*?) \|", page.partition("## Layers")[0], re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(cells))) == sorted(families())


@WHOLE
def test_names_that_lead_nowhere_are_noticed() -> None:
    page = ROOT / "dagsim" / "ARCHITECTURE.md"
    gone = ["systems/cluster/lane/", "tests/network/test_max_min.py", "gavel_ledger.py", "families/NAME/gone.py"]
    assert dead_paths(" ".join(f"`{name}`" for name in gone), page) == gone
    assert dead_paths("`python scripts/judge_agents.py report`, `cli/`, `families/NAME/`", page) == [
        "scripts/judge_agents.py"
    ]
    assert dead_short_names("``rules.MOVE``, ``kernel.MOVE``, ``compiled.las``, ``systems.cluster.choice``") == [
        "kernel.MOVE",
        "systems.cluster.choice",
    ]
    assert dead_names("dagsim.systems.gone, dagsim.policies, dagsim.model.Gone, dagsim.model.Job") == [
        "dagsim.systems.gone",
        "dagsim.model.Gone",
    ]


def test_every_page_is_in_the_index_of_all_pages() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    listed = {(ROOT / "docs" / link).resolve() for link in re.findall(r"\]\(([^)#]+\.md)\)", index)}
    assert {path for path in ROOT.glob("docs/**/*.md") if path.name != "README.md"} <= listed


def tracked(*folders: str) -> list[Path]:
    """The files below these folders that git has, or skip the test where there is no repository."""
    listed = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=False)
    if not listed.stdout:
        pytest.skip("this is no checkout of the repository")
    return [path for line in listed.stdout.splitlines() if (path := ROOT / line).exists()]


def unnamed(file: Path) -> bool:
    """True if neither the README beside a file nor the one above names it, or a pattern such as ``cells/*.yaml``."""
    for folder in (file.parent, file.parent.parent):
        page = folder / "README.md"
        if folder == ROOT or not page.exists():
            continue
        words = {word.rstrip(".") for word in re.findall(r"[\w*./-]+", page.read_text(encoding="utf-8"))}
        names = [file.relative_to(home).as_posix() for home in (folder, ROOT)]
        if any(fnmatchcase(name, word) for word in words if word.strip("*./") for name in names):
            return False
    return True


def test_each_result_and_picture_is_named_in_the_readme_beside_it() -> None:
    files = [file for file in tracked("results", "docs/images") if file.name != "README.md"]
    assert [str(file.relative_to(ROOT)) for file in files if unnamed(file)] == []
    assert unnamed(ROOT / "results" / "ramp" / "nobody.json")
    assert unnamed(ROOT / "results" / "nobody" / "nobody.json")


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
    assert sorted(TABLED) == sorted(POLICIES.names())  # tests/testing/test_testing.py runs each


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


@WHOLE
def test_the_page_on_traces_says_what_replay_takes() -> None:
    page = (ROOT / "docs" / "reference" / "traces.md").read_text(encoding="utf-8")
    options, keys = set(re.findall(r"`--([a-z-]+)", page)), set(re.findall(r"`--read ([a-z_]+)=", page))
    assert keys == set(READ_KEYS)
    names = {"limit": "max-jobs"}  # of options that are called otherwise on the command line
    assert {names.get(field, field) for field in TraceOptions.__dataclass_fields__} - keys <= options
    assert set(re.findall(r"^\| `([a-z0-9][a-z0-9-]*)` \| ", page, re.MULTILINE)) == set(READERS.names())


def commands(*names: str) -> list[str]:
    pages = [(ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in names]
    lines = [line for page in pages for line in page.splitlines()]
    return [line.removeprefix("$ ").partition("   #")[0].strip() for line in lines if line.startswith("$ ")]


@pytest.mark.family("formats", "site", "slurm")
@pytest.mark.parametrize("command", commands("reference/traces"))
def test_every_command_on_traces_runs(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "workloads").symlink_to(ROOT / "workloads")
    monkeypatch.chdir(tmp_path)
    fine(*shlex.split(command)[1:])


@pytest.mark.family("kubernetes", "slurm")
@pytest.mark.parametrize("command", commands("reference/schedulers"))
def test_every_command_on_schedulers_runs(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "workloads").symlink_to(ROOT / "workloads")
    monkeypatch.chdir(tmp_path)
    result = fine(*shlex.split(command)[1:], "--limit", "150")
    assert "observed and simulated waits" in result.output


@pytest.mark.family("slurm")
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


def test_blocks_of_code_keep_their_lines() -> None:
    """Prose is wrapped; a block that was wrapped with it has no valid YAML, or a command in the middle of a line."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    block = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
    blocks = [(page, *each) for page in pages for each in block.findall(page.read_text(encoding="utf-8"))]
    for page, kind, text in blocks:
        if kind == "yaml":
            assert isinstance(yaml.safe_load(text), dict | list | None), f"{page}: {text}"
        assert not re.search(r"\S +\$ dagsim ", text), f"{page}: {text}"
    assert {"yaml", "console"} <= {kind for _, kind, _ in blocks}
    for page in pages:  # a block that is only indented looks like prose to whoever wraps it
        prose = block.sub("", page.read_text(encoding="utf-8"))
        assert not re.search(r"^    (?:\$ )?(?:dagsim|pip|python) ", prose, re.MULTILINE), page

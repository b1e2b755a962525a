"""The modules that a default run enters: a reader who follows it opens these files."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from support.sources import PACKAGE

MOST = 98
"""With throughputs.py and estimates.py, which were part of runtime.py, with knowledge.py (what policies are told),
incomplete.py (unfinished jobs), services.py and job_sources.py, and with preparation.py and down_nodes.py, frontier.py
and cluster_state.py, which were parts of kernel.py, state.py and nodes.py, export.py, which was part of jct.py,
configuring.py, running.py and telling.py, which were one file, dumping.py and layers.py, which were parts of schema.py,
cell.py, which was part of plan.py, folder_files.py, schedule_files.py and aside.py, which were parts of cell_run.py and
store.py, process_pool.py, which was part of executors.py, specs.py, which was part of registry.py, and arrived.py and
jobs_to_come.py, which were parts of job_stream.py, kept_work.py, which was part of failures.py, and tagged_union.py,
which was part of distributions.py, and array_tools.py, which was part of arrays.py,
and stops.py, which was part of the same file as standard_streams.py.
"""
COUNTING = """
import sys
from pathlib import Path

root, entered = sys.argv.pop(1), set()

def note(frame, event, argument):
    code = frame.f_code
    # CO_NEWLOCALS: a function, and no module or class body. Comprehensions are part of what they stand in.
    if event == "call" and code.co_flags & 2 and (not code.co_name.startswith("<") or code.co_name == "<lambda>"):
        entered.add(code.co_filename)

sys.setprofile(note)
try:
    from dagsim.cli import main
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
finally:
    sys.setprofile(None)
print(*sorted(str(Path(file).relative_to(root)) for file in entered if file.startswith(root)), sep="\\n")
stated = {"dagsim.families.fabric", "dagsim.families.fabric.family"}  # only what the family adds
unused = ("dagsim.traces", "dagsim.families.fabric")
print(*[name for name in sys.modules if name.startswith(unused) and name not in stated], sep="\\n")
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The files in which a default run enters a function, then modules that it imports and should not."""
    folder = tmp_path_factory.mktemp("run")
    command = ["eval", "--policy", "sjf", "--workers", "1", "--no-plots", "--quiet", "--out", str(folder)]
    ended = subprocess.run(
        [sys.executable, "-c", COUNTING, str(PACKAGE), *command], capture_output=True, text=True, check=True, cwd=folder
    )
    return ended.stdout.split()


def test_a_default_run_enters_few_files_and_imports_no_traces_and_no_networks(printed: list[str]) -> None:
    assert "systems/cluster/kernel.py" in printed
    assert [name for name in printed if name.startswith("dagsim.")] == []
    assert len(printed) <= MOST, "\n".join(printed)


def test_a_default_run_enters_each_file_of_the_walk_on_the_architecture_page(printed: list[str]) -> None:
    page = (PACKAGE / "ARCHITECTURE.md").read_text(encoding="utf-8")
    walk = re.findall(r"^\d+\. `([\w/]+\.py)`: ", page.partition("## The idea")[0], re.MULTILINE)
    assert (walk[0], walk[-1]) == ("cli/evaluate.py", "model/log.py")
    assert set(walk) <= set(printed)

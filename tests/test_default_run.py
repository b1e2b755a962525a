"""The modules that a default run enters: a reader who follows it opens these files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import dagsim

MOST = 74  # with knowledge.py (what policies are told), incomplete.py (unfinished jobs), services.py and job_sources.py
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


def test_a_default_run_enters_few_files_and_imports_no_traces_and_no_networks(tmp_path: Path) -> None:
    command = ["eval", "--algo", "sjf", "--workers", "1", "--no-plots", "--quiet", "--out", str(tmp_path)]
    root = str(Path(dagsim.__file__).parent)
    ended = subprocess.run(
        [sys.executable, "-c", COUNTING, root, *command], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    files = ended.stdout.split()
    assert "systems/cluster/kernel.py" in files
    assert [name for name in files if name.startswith("dagsim.")] == []
    assert len(files) <= MOST, "\n".join(files)

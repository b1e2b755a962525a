"""The recorder of real Slurm runs: what it changes of a configuration, and one run where Slurm is at hand."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from record_slurm import configuration, hindrance, node_lists, read_plan

from dagsim.errors import InputError

SCRIPT = Path(__file__).parents[3] / "scripts" / "record_slurm.py"
CONF = """
ClusterName=pond
SlurmctldHost=real-head
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityWeightFairshare=2000
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=60,\\
    bf_continue
AccountingStorageEnforce=associations
AccountingStorageTRES=gres/gpu
DefMemPerCPU=2000
ProctrackType=proctrack/cgroup
Prolog=/etc/prolog.sh  # of the site
NodeName=c[1-3] CPUs=8 Sockets=1 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=32000 State=UNKNOWN
NodeName=g1 CPUs=16 Sockets=1 CoresPerSocket=16 ThreadsPerCore=1 RealMemory=64000 Gres=gpu:a100:4 State=UNKNOWN
PartitionName=batch Nodes=c[1-3],g1 Default=YES MaxTime=04:00:00 DefaultTime=30 State=UP
PartitionName=gpu Nodes=g1 MaxTime=04:00:00 DefaultTime=30 State=UP AllowAccounts=red,blue
"""
ASSOCIATIONS = """
sacctmgr -i add account red Fairshare=60
sacctmgr -i add account blue Fairshare=40
sacctmgr -i add user ann account=red
sacctmgr -i add user ben account=blue
"""
HEAD = "at_s\tkey\twhat\tuser\trun_s\targs"


def fifty_jobs() -> str:
    rng = random.Random(7)
    lines, at_s = [HEAD], 60
    for key in range(50):
        at_s += rng.randrange(5, 40)
        run_s = rng.choice([60, 120, 300, 600])
        limit = run_s // 60 * rng.choice([1, 2, 3]) + 1
        asked = (
            f"-p gpu --gres=gpu:a100:{rng.choice([1, 2, 4])} -c 2"
            if rng.random() < 0.25
            else (f"-p batch -c {rng.choice([1, 2, 4, 8])}")
        )
        lines.append(f"{at_s}\t{key}\tsubmit\t{rng.choice(['ann', 'ben'])}\t{run_s}\t{asked} -t {limit}")
    return "\n".join(lines) + "\n"


def test_settings_of_hosts_and_hardware_are_replaced_and_rules_are_kept() -> None:
    assert node_lists(CONF) == ["c[1-3]", "g1"]
    conf, gres = configuration(CONF, {"c[1-3]": ["c1", "c2", "c3"], "g1": ["g1"]})
    assert "SlurmctldHost=head01(127.0.0.1)" in conf
    assert "real-head" not in conf
    assert "Prolog" not in conf
    assert "proctrack/linuxproc" in conf
    assert "cgroup" not in conf
    assert "SchedulerParameters=bf_interval=60,bf_continue" in conf
    nodes = [line for line in conf.splitlines() if line.startswith("NodeName=")]
    assert [line.split()[0] for line in nodes] == ["NodeName=c1", "NodeName=c2", "NodeName=c3", "NodeName=g1"]
    ports = [part for line in nodes for part in line.split() if part.startswith("Port=")]
    assert len(set(ports)) == 4
    assert "PartitionName=gpu Nodes=g1 MaxTime=04:00:00 DefaultTime=30 State=UP AllowAccounts=red,blue" in conf
    assert gres == "AutoDetect=off\nNodeName=g1 Name=gpu Type=a100 File=/mnt/devices/g1_gpu_a100_[0-3]\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\n", ":1: expected the columns at_s, key"),
        (f"{HEAD}\nsoon\t0\tsubmit\tann\t60\t-n1\n", ":2: expected 6 cells"),
        (f"{HEAD}\n0\t0\tsubmit\tann\t60\n", ":2: expected 6 cells"),
        (f"{HEAD}\n0\t0\tsend\tann\t60\t-n1\n", "'send' is none of submit"),
    ],
)
def test_a_wrong_list_of_submissions_is_an_error_that_names_the_line(tmp_path: Path, text: str, message: str) -> None:
    plan = tmp_path / "plan.tsv"
    plan.write_text(text)
    with pytest.raises(InputError, match=message):
        read_plan(plan)


@pytest.mark.timeout(1500)
@pytest.mark.skipif(bool(hindrance()), reason=f"no Slurm can be recorded here: {hindrance()}")
def test_fifty_jobs_are_recorded_and_simulated(tmp_path: Path) -> None:
    site, plan, out = tmp_path / "site", tmp_path / "plan.tsv", tmp_path / "out"
    site.mkdir()
    (site / "slurm.conf").write_text(CONF)
    (site / "associations.sh").write_text(ASSOCIATIONS)
    plan.write_text(fifty_jobs())
    words = [sys.executable, str(SCRIPT), str(site), str(plan), str(out), "--rate", "60", "--hours", "2"]
    result = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "TZ": "UTC"})
    assert result.returncode == 0, result.stderr
    assert "median |log ratio| of waits" in result.stdout
    rows = (out / "sacct-aDX.txt").read_text().splitlines()
    assert len(rows) == 51
    assert len((out / "submit.tsv").read_text().splitlines()) == 51
    for name in ("squeue.tsv.gz", "sacctmgr-dump.txt", "scontrol-show-nodes.txt", "slurmctld.log.gz", "snap"):
        assert (out / name).exists(), name

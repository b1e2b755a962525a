"""Record what a real Slurm does with a list of submissions, and compare a simulation with it.

    python scripts/record_slurm.py SITE SUBMISSIONS OUT [--rate 40] [--hours 24] [--begin 2026-03-02T06:00:00]

SITE is a folder with ``slurm.conf``, and with ``associations.sh`` (``sacctmgr`` commands) or ``sacctmgr-dump.txt`` if
the site limits or shares by account. SUBMISSIONS is a table with tabs: ``at_s`` (seconds from the start), ``key`` (a
number of the job, ``@KEY`` in arguments stands for its id), ``what`` (``submit``, ``submit-fail``, ``cancel``,
``admin``), ``user``, ``run_s`` (of each task of an array, with commas) and ``args`` (of ``sbatch``, or the command of
``admin``).

Debian's slurmctld, slurmdbd and slurmd run, with one slurmd for each node and batch scripts that sleep, on a clock that
is ``--rate`` times as fast (``slurm_clock.c``). Needs root, Linux, and the packages slurm-wlm, slurmdbd,
mariadb-server, munge and gcc. All of it happens in OUT and in namespaces of its own: nothing listens outside, and
nothing is left running. Settings of ``slurm.conf`` about hardware, hosts and plug-ins around jobs are replaced
(``REPLACED``).

OUT gets the log and the configuration as Slurm prints them (``sacct-aDX.txt``, ``scontrol-show-*.txt``,
``sacctmgr-*.txt``, ...), the queue every minute (``squeue.tsv.gz``), hourly ``snap/``, ``submit.tsv`` and
``events.tsv``. At the end the distance to dagsim's simulation of the same jobs is printed (``validate_site.py``).
"""

from __future__ import annotations

import gzip
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, NamedTuple

import command

from dagsim.errors import InputError

PROGRAMS = ("slurmctld", "slurmdbd", "slurmd", "sbatch", "sacctmgr", "munged", "mariadbd", "unshare", "gcc", "ip")
CLOCK = Path(__file__).with_name("slurm_clock.c")
HOST, USERS_FROM = "head01", 3001
FIRST_PORT = 18000
DEVICES = "/mnt/devices"
"""A folder of empty files in the place of GPUs."""

REPLACED = {
    "SlurmctldHost": f"{HOST}(127.0.0.1)", "SlurmUser": "root", "SlurmdUser": "root", "AuthType": "auth/munge",
    "CommunicationParameters": "DisableIPv6", "StateSaveLocation": "/var/spool/slurmctld",
    "SlurmdSpoolDir": "/var/spool/slurmd.%n", "SlurmctldPidFile": "/run/slurmctld.pid",
    "SlurmdPidFile": "/run/slurmd.%n.pid", "SlurmctldLogFile": "/var/log/slurmctld.log",
    "SlurmdLogFile": "/var/log/slurmd.%n.log", "SlurmctldDebug": "info", "SlurmdDebug": "info",
    "ProctrackType": "proctrack/linuxproc", "TaskPlugin": "task/none", "MpiDefault": "none",
    "SlurmdParameters": "config_overrides", "SlurmctldTimeout": "36000", "SlurmdTimeout": "36000",
    "MessageTimeout": "900", "TCPTimeout": "60", "BatchStartTimeout": "3600", "ReturnToService": "1",
    "JobAcctGatherType": "jobacct_gather/none", "AccountingStorageType": "accounting_storage/slurmdbd",
    "AccountingStorageHost": "127.0.0.1", "AccountingStoreFlags": "job_comment", "MinJobAge": "7200",
}  # fmt: skip
"""Settings that the recording replaces or adds. Time-outs are long because the clock is fast."""
DROPPED = (
    "ControlMachine", "ControlAddr", "BackupController", "BackupAddr", "SlurmctldPort", "SlurmdPort", "Prolog",
    "Epilog", "PrologSlurmctld", "EpilogSlurmctld", "PrologFlags", "TaskProlog", "TaskEpilog", "SrunProlog",
    "SrunEpilog", "HealthCheckProgram", "HealthCheckInterval", "JobSubmitPlugins", "CliFilterPlugins", "JobCompType",
    "JobCompHost", "JobCompLoc", "AcctGatherEnergyType", "AcctGatherNodeFreq", "LaunchParameters", "PlugStackConfig",
    "RebootProgram", "ResumeProgram", "SuspendProgram", "SuspendTime", "ResumeTimeout", "SuspendTimeout", "MailProg",
    "AccountingStoragePort", "AccountingStorageUser", "AccountingStoragePass", "AccountingStorageBackupHost",
    "SlurmSchedLogFile", "X11Parameters", "JobContainerType", "AuthAltTypes", "AuthAltParameters",
    "ConstrainCores", "ConstrainRAMSpace", "include", "UnkillableStepProgram", "SwitchType", "SrunPortRange",
    "FederationParameters",
)  # fmt: skip
"""Settings that are left out: other hosts, ports, power saving, and programs around jobs."""
COLUMNS = (
    "JobIDRaw,JobID,User,Account,Partition,QOS,State,Submit,Eligible,Start,End,ElapsedRaw,Suspended,TimelimitRaw,NNodes,"
    "NCPUS,ReqTRES,AllocTRES,Priority,Reason,Flags,NodeList"
)
MORE_COLUMNS = (
    "JobIDRaw,JobID,JobName,ReqCPUS,ReqMem,ReqNodes,Constraints,Reservation,ExitCode,DerivedExitCode,Reserved,"
    "SubmitLine"
)
AT_THE_START = {
    "scontrol-show-nodes.txt": "scontrol show nodes", "scontrol-o-show-nodes.txt": "scontrol -o show nodes",
    "scontrol-show-partition.txt": "scontrol -a show partition", "sinfo.txt": "sinfo",
    "scontrol-show-reservation.txt": "scontrol show reservation", "scontrol-show-config.txt": "scontrol show config",
    "scontrol-show-licenses.txt": "scontrol show licenses", "sacctmgr-qos.txt": "sacctmgr -P show qos",
    "sacctmgr-assoc.txt": "sacctmgr -P show assoc format=cluster,account,user,partition,share,grptres,grptresmins,"
    "grpjobs,grpsubmit,qos,defaultqos,maxjobs,maxsubmit,maxtres,maxtresmins,priority",
    "sacctmgr-tres.txt": "sacctmgr -P show tres",
}  # fmt: skip
AT_THE_END = {
    "scontrol-show-reservation-end.txt": "scontrol show reservation", "scontrol-show-job-end.txt": "scontrol show job",
    "scontrol-show-nodes-end.txt": "scontrol show nodes", "squeue-end.txt": "squeue -a", "sdiag.txt": "sdiag",
    "sinfo-N.txt": "sinfo -N -e -h -o %N|%P|%t|%c|%m|%G|%f|%w", "sshare.txt": "sshare -a -l -P",
    "version.txt": "sacct -V",
}  # fmt: skip
IN_A_SNAPSHOT = {
    "squeue-start.txt": "squeue -a --start", "sprio-l.txt": "sprio -l", "sshare.txt": "sshare -a -l -P",
    "sdiag.txt": "sdiag", "squeue.json.gz": "squeue -a --json", "scontrol-show-job.txt.gz": "scontrol show job",
    "scontrol-o-show-nodes.txt": "scontrol -o show nodes", "scontrol-show-reservation.txt": "scontrol show reservation",
}  # fmt: skip


def hindrance() -> str:
    """Return why nothing can be recorded here; an empty text if it can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "it needs Linux and root"
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        packages = "slurm-wlm, slurmdbd, mariadb-server, munge, gcc and iproute2"
        return f"{', '.join(missing)} missing (Debian's packages {packages})"
    words = ["unshare", "-m", "-u", "-n", "-p", "-f", "--mount-proc", "true"]
    if subprocess.run(words, capture_output=True).returncode:
        return "this machine lets nobody make namespaces (unshare)"
    return ""


class Submission(NamedTuple):
    """A line of the plan."""

    at_s: float
    key: str
    what: str
    user: str
    run_s: str
    args: str


def read_plan(path: Path) -> list[Submission]:
    """Read the submissions, in the order of their times.

    Raises:
        InputError: A line cannot be read.
    """
    try:
        first, *rest = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    if first.split("\t") != list(Submission._fields):
        raise InputError(f"{path}:1: expected the columns {', '.join(Submission._fields)} with tabs")
    plan = []
    for number, line in enumerate(rest, 2):
        cells = line.split("\t")
        try:
            plan.append(Submission(float(cells[0]), *cells[1:]))
            [float(part) for part in plan[-1].run_s.split(",") if part]
        except (TypeError, ValueError):
            raise InputError(
                f"{path}:{number}: expected {len(Submission._fields)} cells, with numbers of seconds"
            ) from None
        if plan[-1].what not in ("submit", "submit-fail", "cancel", "admin"):
            raise InputError(f"{path}:{number}: {plan[-1].what!r} is none of submit, submit-fail, cancel, admin")
    return sorted(plan, key=lambda one: one.at_s)


def configuration(text: str, expanded: Mapping[str, list[str]]) -> tuple[str, str]:
    """Return ``slurm.conf`` and ``gres.conf`` for the recording. ``expanded`` are the names of each list of nodes."""
    own = {name.lower() for name in (*REPLACED, *DROPPED)}
    lines, devices = [f"{name}={value}" for name, value in REPLACED.items()], ["AutoDetect=off"]
    joined = re.sub(r"\\\n\s*", " ", re.sub(r",\\\n\s*", ",", text))
    for line in (part.partition("#")[0].strip() for part in joined.splitlines()):
        key = re.split(r"[=\s]", line, maxsplit=1)[0]
        if key.lower() == "nodename":
            lines += _nodes(line, expanded, devices, len(lines))
        elif line and key.lower() not in own and key.lower() not in ("downnodes", "frontendname"):
            lines.append(line)
    if not any(line.lower().startswith("clustername=") for line in lines):
        lines.insert(0, "ClusterName=site")
    return "\n".join(lines) + "\n", "\n".join(devices) + "\n"


def _nodes(line: str, expanded: Mapping[str, list[str]], devices: list[str], used: int) -> Iterator[str]:
    """Yield a line for each node, with a port of its own on loopback."""
    settings = dict(part.partition("=")[::2] for part in shlex.split(line))
    names = settings.pop(next(key for key in settings if key.lower() == "nodename"))
    if names.lower() == "default":
        yield line
        return
    kept = {key: value for key, value in settings.items() if key.lower() not in ("nodeaddr", "nodehostname", "port")}
    for number, name in enumerate(expanded[names]):
        stated = " ".join(f"{key}={value}" for key, value in kept.items())
        port = FIRST_PORT + used + number
        yield f"NodeName={name} NodeAddr=127.0.0.1 NodeHostname={HOST} Port={port} {stated}"
        gres = next((value for key, value in kept.items() if key.lower() == "gres"), "")
        for kind, type_, count in re.findall(r"(\w+)(?::([\w.-]+))?:(\d+)(?:\([^)]*\))?(?:,|$)", gres):
            file = f"{DEVICES}/{name}_{kind}_{type_}_[0-{int(count) - 1}]"
            devices.append(f"NodeName={name} Name={kind}{f' Type={type_}' if type_ else ''} File={file}")


def node_lists(text: str) -> list[str]:
    """The lists of nodes that a ``slurm.conf`` defines."""
    found = re.findall(r"^\s*NodeName=(\S+)", text, re.MULTILINE | re.IGNORECASE)
    return [names for names in found if names.lower() != "default"]


class Recorder:
    """One recording, inside the namespaces."""

    def __init__(
        self, site: Path, plan: list[Submission], out: Path, rate: float, hours: float, begin_s: float
    ) -> None:
        self.site, self.plan, self.out, self.rate, self.hours, self.begin_s = site, plan, out, rate, hours, begin_s
        self.environment = dict(os.environ)
        self.ids: dict[str, str] = {}
        self.zero_s = 0.0
        self.over = threading.Event()

    def run(self) -> None:
        """Set everything up, submit, and keep what Slurm prints."""
        try:
            self._private_files()
            self._database()
            self._fast_clock()
            self._daemons()
            self._submit()
            self._results()
        except BaseException:
            shutil.copytree("/var/log", self.out / "logs", dirs_exist_ok=True)
            raise

    def now(self) -> float:
        """The time of the fast clock."""
        return self.begin_s + (time.time() - self.real0) * self.rate

    def nap(self, until: float) -> None:
        """Wait until a moment of the fast clock."""
        if (left := until - self.now()) > 0:
            time.sleep(left / self.rate)

    def slurm(self, words: str | list[str]) -> subprocess.CompletedProcess[str]:
        """Run a command of Slurm; times are printed as seconds."""
        listed = shlex.split(words) if isinstance(words, str) else words
        return subprocess.run(listed, env=self.environment, capture_output=True, text=True)

    def keep(self, name: str, words: str) -> None:
        """Write what a command prints."""
        text = self.slurm(words).stdout
        path = self.out / name
        if path.suffix == ".gz":
            with gzip.open(path, "wt") as file:
                file.write(text)
        else:
            path.write_text(text)

    def wait(self, words: str, what: str, seconds: float = 120.0, expected: str | None = None) -> None:
        """Wait until a command succeeds, and prints ``expected``.

        Raises:
            InputError: It never does.
        """
        deadline = time.monotonic() + seconds
        while True:
            result = self.slurm(words)
            if not result.returncode and (expected is None or result.stdout.strip() == expected):
                return
            if time.monotonic() > deadline:
                raise InputError(
                    f"{what}: {(result.stderr or result.stdout).strip()[-300:]} (see {self.out}/record.log)"
                )
            time.sleep(0.3)

    def _private_files(self) -> None:
        call("hostname", HOST)
        call("ip", "link", "set", "lo", "up")
        call("ip", "addr", "add", "10.77.0.1/32", "dev", "lo")  # or nothing resolves: loopback alone does not count
        for folder in ("/var/spool", "/var/log", "/var/lib/mysql", "/run", "/etc/slurm", "/root", "/mnt"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            call("mount", "-t", "tmpfs", "none", folder)
        for folder, owner in (("/run/munge", "munge"), ("/var/log/munge", "munge"), ("/run/mysqld", "mysql"),
                              ("/var/lib/mysql", "mysql"), ("/var/spool/slurmctld", "root")):  # fmt: skip
            Path(folder).mkdir(exist_ok=True)
            shutil.chown(folder, owner)
        users = dict.fromkeys(one.user for one in self.plan if one.user and one.user != "root")
        own = "".join(f"{user}:x:{USERS_FROM + number}:100::/tmp:/bin/sh\n" for number, user in enumerate(users))
        bind("/etc/passwd", Path("/etc/passwd").read_text() + own)
        bind("/etc/hosts", f"127.0.0.1 localhost {HOST}\n")

    def _database(self) -> None:
        words = ["mysql_install_db", "--user=mysql", "--auth-root-authentication-method=normal", "--skip-test-db",
                 "--tmpdir=/run/mysqld"]  # fmt: skip
        call(*words)
        options = ["--user=mysql", "--skip-networking", "--tmpdir=/run/mysqld", "--innodb-flush-log-at-trx-commit=0"]
        self._start("mariadbd", *options, "--innodb-buffer-pool-size=64M")
        key = Path("/mnt/munge.key")
        key.write_bytes(os.urandom(64))
        shutil.chown(key, "munge")
        key.chmod(0o600)
        Path("/mnt").chmod(0o755)
        call("su", "-s", "/bin/sh", "munge", "-c", f"munged --key-file={key} --num-threads=4")
        self.wait("mysqladmin ping", "MariaDB did not start")

    def _fast_clock(self) -> None:
        library = Path("/mnt/slurm_clock.so")
        call("gcc", "-O2", "-shared", "-fPIC", "-o", str(library), str(CLOCK), "-ldl", "-lpthread")
        self.real0 = time.time()
        self.environment |= {
            "CLOCK_REAL0": f"{self.real0:.6f}",
            "CLOCK_SHOWN0": f"{self.begin_s:.6f}",
            "CLOCK_RATE": f"{self.rate:g}",
            "LD_PRELOAD": str(library),
            "TZ": "UTC",
        }

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        with open("/var/log/daemons.log", "ab") as log:
            return subprocess.Popen(words, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _daemons(self) -> None:
        text = (self.site / "slurm.conf").read_text()
        conf = Path("/etc/slurm/slurm.conf")
        conf.write_text(f"ClusterName=site\nSlurmctldHost={HOST}\n")  # without one, scontrol expands no list
        lists = {names: call("scontrol", "show", "hostnames", names).split() for names in node_lists(text)}
        settings, devices = configuration(text, lists)
        Path("/etc/slurm/gres.conf").write_text(devices)
        Path(DEVICES).mkdir()
        for stem, last in re.findall(r"File=(\S+)\[0-(\d+)\]", devices):
            for number in range(int(last) + 1):
                Path(f"{stem}{number}").touch()
        for name in ("topology.conf",):
            if (self.site / name).exists():
                shutil.copy(self.site / name, "/etc/slurm/")
        (self.out / "slurm.conf").write_text(settings)
        (self.out / "gres.conf").write_text(devices)
        # Partitions may name accounts and QOS that are made only now: a first start does without them.
        conf.write_text(re.sub(r"\s(Allow|Deny)(Accounts|Qos|Groups)=\S+|\sQOS=\S+", "", settings, flags=re.IGNORECASE))
        database = {"AuthType": "auth/munge", "DbdHost": "localhost", "SlurmUser": "root", "StorageUser": "root",
                    "LogFile": "/var/log/slurmdbd.log", "PidFile": "/run/slurmdbd.pid", "MessageTimeout": "900",
                    "StorageType": "accounting_storage/mysql", "StorageLoc": "slurm_acct"}  # fmt: skip
        path = Path("/etc/slurm/slurmdbd.conf")
        path.write_text("".join(f"{name}={value}\n" for name, value in database.items()))
        path.chmod(0o600)
        self._start("slurmdbd", "-D")
        self.wait("sacctmgr -n show cluster", "slurmdbd did not start")
        cluster = re.search(r"^ClusterName=(\S+)", settings, re.MULTILINE | re.IGNORECASE)
        self.cluster = cluster[1] if cluster else "site"
        self.slurm(f"sacctmgr -i add cluster {self.cluster}")
        first = self._start("slurmctld", "-i", "-D")
        self.wait("scontrol ping", "slurmctld did not start")
        self._associations()
        first.terminate()
        first.wait(60)
        conf.write_text(settings)
        shutil.rmtree("/var/spool/slurmctld")
        Path("/var/spool/slurmctld").mkdir()
        self._start("slurmctld", "-i", "-D")
        self.wait("scontrol ping", "slurmctld did not start again")
        names = list(dict.fromkeys(name for listed in lists.values() for name in listed))
        for name in names:
            Path(f"/var/spool/slurmd.{name}").mkdir()
            self._start("slurmd", "-D", "-N", name)
        idle = "sh -c 'sinfo -h -N -t idle -o %N | sort -u | wc -l'"
        self.wait(idle, "not every node came up", 300.0, str(len(names)))

    def _associations(self) -> None:
        script, dump = self.site / "associations.sh", self.site / "sacctmgr-dump.txt"
        if script.exists():
            shutil.copy(script, self.out / script.name)
            self.slurm(["bash", str(script)])
        elif dump.exists():
            self.slurm(f"sacctmgr -i load file={dump} cluster={self.cluster}")
        else:
            self.slurm("sacctmgr -i add account all")
            for user in dict.fromkeys(one.user for one in self.plan if one.user and one.user != "root"):
                self.slurm(f"sacctmgr -i add user {user} account=all")

    def _submit(self) -> None:
        self.environment |= {"SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
        self.zero_s = self.now()
        (self.out / "t0").write_text(f"{self.zero_s:.3f}\n")
        observer = threading.Thread(target=self._observe)
        with (
            open(self.out / "submit.tsv", "w", buffering=1) as submitted,
            open(self.out / "events.tsv", "w", buffering=1) as events,
        ):
            submitted.write("epoch\tplanned_s\tkey\tjobid\tuser\trun_s\targs\n")
            events.write("epoch\tplanned_s\tkey\tevent\tresult\n")
            for one in self.plan:
                self.nap(self.zero_s + one.at_s)
                if one.what != "admin" and observer.ident is None:
                    for name, words in AT_THE_START.items():
                        self.keep(name, words)
                    self.slurm(f"sacctmgr -i dump {self.cluster} File={self.out}/sacctmgr-dump.txt")
                    observer.start()
                self._carry_out(one, submitted, events)
                if self.now() > self.zero_s + self.hours * 3600:
                    break
        end_s = self.zero_s + self.hours * 3600
        while self.now() < end_s and self.slurm("squeue -a -h -o %i").stdout.strip():
            self.nap(min(end_s, self.now() + 120))
        self.over.set()
        if observer.ident is not None:
            observer.join(60)

    def _carry_out(self, one: Submission, submitted: IO[str], events: IO[str]) -> None:
        now = self.now()

        def note(event: str, result: str = "") -> None:
            events.write(f"{now:.3f}\t{one.at_s:g}\t{one.key}\t{event}\t{' '.join(result.split())}\n")

        if one.what == "admin":
            done = self.slurm(one.args)
            note(one.args, done.stdout + done.stderr)
            return
        if one.what == "cancel":
            if job := self.ids.get(one.key):
                note(f"scancel {job}", self.slurm(f"scancel {job}").stderr)
            return
        words = shlex.split(one.args)
        if unknown := {key for word in words for key in re.findall(r"@(\d+)", word)} - self.ids.keys():
            note(f"skipped: {', '.join(sorted(unknown))} was rejected")
            return
        words = [re.sub(r"@(\d+)", lambda match: self.ids[match[1]], word) for word in words]
        parts = one.run_s.split(",")
        script = (
            f"sleep {parts[0]}"
            if len(parts) == 1
            else (f"set -- {' '.join(parts)}; shift $SLURM_ARRAY_TASK_ID; sleep $1")
        )
        script += "; exit 3" if one.what == "submit-fail" else ""
        own = ["sbatch", "--parsable", f"--uid={one.user}", "-D", "/tmp", "-o", "/dev/null", "--wrap", script]
        done = self.slurm([*own, *words])
        job = done.stdout.strip().partition(";")[0] or "REJECTED"
        if job != "REJECTED":
            self.ids[one.key] = job
        if done.stderr.strip():
            note("rejected" if job == "REJECTED" else "warning", done.stderr)
        shown = f"{shlex.join(words)} --wrap {shlex.quote(script)}"
        submitted.write(f"{now:.3f}\t{one.at_s:g}\t{one.key}\t{job}\t{one.user}\t{one.run_s}\t{shown}\n")

    def _observe(self) -> None:
        """Write the queue every minute, and everything every hour."""
        due_s, snapshot_s, states = 60.0, 0.0, ""
        with gzip.open(self.out / "squeue.tsv.gz", "wt") as queue, gzip.open(self.out / "sinfo.tsv.gz", "wt") as nodes:
            queue.write("epoch|jobid|state|priority|reason|start_or_estimate|time_left|sched_nodes|nodes\n")
            nodes.write("epoch|nodes|state\n")
            while not self.over.is_set():
                self.nap(self.zero_s + due_s)
                now = self.now()
                listed = self.slurm("squeue -a -h -t PD,R,CG,S -o %i|%t|%Q|%r|%S|%L|%Y|%N").stdout
                queue.writelines(f"{now:.0f}|{line}\n" for line in listed.splitlines())
                if (seen := self.slurm("sinfo -a -h -o %N|%T").stdout) != states:
                    states = seen
                    nodes.writelines(f"{now:.0f}|{line}\n" for line in sorted(set(seen.splitlines())))
                if now - self.zero_s >= snapshot_s:
                    snapshot_s = now - self.zero_s + 3600
                    folder = self.out / "snap" / f"{int(now - self.zero_s):06}"
                    folder.mkdir(parents=True)
                    for name, words in IN_A_SNAPSHOT.items():
                        self.keep(f"snap/{folder.name}/{name}", words)
                    (folder / "epoch").write_text(f"{now:.3f}\n{self.now():.3f}\n")
                due_s = max(due_s + 60, self.now() - self.zero_s)

    def _results(self) -> None:
        for name, words in AT_THE_END.items():
            self.keep(name, words)
        day = 86400
        first, last = (datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d") for at in
                       (self.begin_s - day, self.now() + 2 * day))  # fmt: skip
        span = f"-S {first} -E {last}"
        self.keep("sacct-aDX.txt", f"sacct -aDX --noconvert -P {span} -o {COLUMNS}")
        self.keep("sacct-extra.txt", f"sacct -aDX --noconvert -P {span} -o {MORE_COLUMNS}")
        del self.environment["SLURM_TIME_FORMAT"]
        self.keep("sacct-aDX-iso.txt", f"sacct -aDX -P {span} -o {COLUMNS}")
        log = Path("/var/log/slurmctld.log")
        with gzip.open(self.out / "slurmctld.log.gz", "wb") as kept:
            kept.write(log.read_bytes() if log.exists() else b"")


def call(*words: str) -> str:
    """Run a program that has to succeed, and return what it prints.

    Raises:
        InputError: It fails.
    """
    result = subprocess.run(words, capture_output=True, text=True)
    if result.returncode:
        raise InputError(f"{words[0]} failed: {(result.stderr or result.stdout).strip()[-500:]}")
    return result.stdout


def bind(path: str, text: str) -> None:
    """Put another text in the place of a file, in this namespace only."""
    own = Path("/mnt", Path(path).name)
    own.write_text(text)
    call("mount", "--bind", str(own), path)


def _enter(arguments: list[str], out: Path) -> int:
    """Record in namespaces of its own, which end with this process."""
    words = ["unshare", "-m", "-u", "-n", "-p", "-f", "--mount-proc", "--kill-child=KILL"]
    with open(out / "record.log", "wb") as log:
        inner = [sys.executable, str(Path(__file__).resolve()), *arguments, "--inside"]
        return subprocess.run([*words, *inner], stdout=log, stderr=subprocess.STDOUT).returncode


def _work(options: command.Options, say: command.Say) -> object:
    out: Path = options.out_folder.resolve()
    plan = read_plan(options.submissions)
    if not (options.site / "slurm.conf").is_file():
        raise InputError(f"{options.site}: there is no slurm.conf")
    begin_s = datetime.fromisoformat(options.begin).replace(tzinfo=UTC).timestamp()
    if options.inside:
        Recorder(options.site.resolve(), plan, out, options.rate, options.hours, begin_s).run()
        return {}
    if why := hindrance():
        raise InputError(f"nothing can be recorded: {why}")
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        raise InputError(f"{out} is not empty")
    shutil.copy(options.submissions, out / "plan.tsv")
    code = _enter(sys.argv[1:], out)
    log = (out / "record.log").read_text(errors="replace").strip()
    if code:
        raise InputError(f"the recording failed; the end of {out}/record.log: {log[-600:]}")
    (out / "record.log").unlink()
    from validate_site import error, fidelity

    waits = fidelity(out)
    total = waits["total"]
    say(f"recorded {total['jobs']} jobs that started in {out}")
    for name, pair in {"all": total, **waits["by_tenant"]}.items():
        observed_s, simulated_s = pair["observed_s"]["mean"], pair["simulated_s"]["mean"]
        distance = f"{error(pair):+.1%}" if observed_s else f"{simulated_s - observed_s:+.0f} s"
        say(f"  {name}: {pair['jobs']} jobs waited {observed_s:,.0f} s, simulated {simulated_s:,.0f} s ({distance})")
    say(f"  median |log ratio| of waits: {waits['median_abs_log_ratio']:.3f}")
    return {"jobs": total["jobs"], "waits": waits}


def main() -> int:
    """Record the site named on the command line."""
    parser = command.arguments(__doc__)
    parser.add_argument("site", type=Path, metavar="SITE")
    parser.add_argument("submissions", type=Path, metavar="SUBMISSIONS")
    parser.add_argument("out_folder", type=Path, metavar="OUT")
    parser.add_argument("--rate", type=float, default=40.0, help="the factor of the clock (default: 40)")
    parser.add_argument("--hours", type=float, default=24.0, help="longest time, in hours of the cluster (default: 24)")
    parser.add_argument("--begin", default="2026-03-02T06:00:00", help="the cluster's time at the start, UTC")
    parser.add_argument("--inside", action="store_true", help="for the script itself")
    return command.run(parser, _work)


if __name__ == "__main__":
    sys.exit(main())

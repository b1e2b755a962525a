"""The Slurm family and everything that it registers."""

from dagsim.family import Entry, Family

FAMILY = Family(
    "Slurm's scheduler, logs and sites",
    needs=("site",),
    uses=("compiled",),
    adds={
        "policies": (
            Entry(
                "slurm-multifactor",
                ".scheduler.multifactor:SlurmMultifactor",
                "based on Slurm: multifactor priority, main loop and backfill",
                ("estimates", "preemptive", "costly"),
            ),
        ),
        "compiled_sources": (Entry("slurm_times", "scheduler/slurm_times.py", "when a job fits on nodes"),),
        "node_lists": (
            Entry("scontrol show nodes", ".site.slurm_nodes:SCONTROL"),
            Entry("scontrol show nodes --json", ".site.slurm_nodes:SCONTROL_JSON"),
            Entry("sinfo -N -e -h -o '%N|%P|%t|%c|%m|%G|%f'", ".site.slurm_nodes:SINFO"),
        ),
        "sites": (Entry("Slurm", ".site.slurm_site_files:read_slurm_site", "slurm.conf or `scontrol show partition`"),),
        "services": (
            Entry("listed_users", ".scheduler.slurm_priority:listed_users"),
            Entry("scheduler_settings", ".scheduler.slurm_settings:slurm_settings"),
        ),
        "site_rules": (Entry("Slurm", ".scheduler.slurm_waits:rules_of_site"),),
        "anonymised": (Entry("sacct", ".accounting.anonymised_log:sacct_lines"),),
        "readers": (
            Entry("sacct", ".accounting.sacct:Sacct"),
            Entry("slurm-events", ".accounting.slurm_events:SlurmEvents"),
            Entry("squeue", ".queue.squeue:Squeue"),
        ),
        "writers": (
            Entry("sacct", ".accounting.log_writers:SACCT"),
            Entry("slurm-events", ".accounting.log_writers:SLURM_EVENTS"),
        ),
    },
)

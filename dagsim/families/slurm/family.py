"""The family of Slurm, and what it adds."""

from dagsim.family import Entry, Family

FAMILY = Family(
    "Slurm's scheduler, logs and sites",
    needs=("site",),
    adds={
        "policies": (
            Entry(
                "slurm-multifactor",
                ".multifactor:SlurmMultifactor",
                "after Slurm: multifactor priority, main loop and backfill",
                ("estimates", "preemptive", "costly"),
            ),
        ),
        "compiled_sources": (Entry("slurm_times", "slurm_times.py", "when nodes have room"),),
        "readers": (
            Entry("sacct", ".sacct:Sacct"),
            Entry("slurm-events", ".slurm_events:SlurmEvents"),
            Entry("squeue", ".squeue:Squeue"),
        ),
    },
)

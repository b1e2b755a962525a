"""Compute the mean completion time of the jobs in a log on clusters of three sizes.

python docs/examples/sizes.py
"""

from dagsim import Job, Task, simulate

LOG = [Job.single(f"job-{n}", Task("train", 600.0 + 60 * (n % 7), gpus=1 + n % 4), 90.0 * n) for n in range(60)]
"""Replace these jobs with your own. The work of a task is in seconds on the reference GPU."""

if __name__ == "__main__":
    for gpus in (16, 24, 32):
        summary = simulate(LOG, {"V100-16": gpus}, "easy").summary
        print(f"{gpus} GPUs: mean completion time {summary.jct_s.mean:.0f} s, utilisation {summary.utilization:.0%}")

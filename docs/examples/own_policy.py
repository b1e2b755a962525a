"""Write your own policy, check it, and compare it with two built-in policies.

python docs/examples/own_policy.py
"""

from collections.abc import Iterator

from dagsim import ClusterView, Start, simulate
from dagsim.testing import check_policy


class LeastWorkLeft:
    """Start ready tasks wherever they fit, beginning with the job that has the shortest remaining path."""

    def decide(self, view: ClusterView) -> Iterator[Start]:
        for task in sorted(view.ready, key=lambda task: (task.rank_s, task.order)):
            if placement := view.fit(task):
                yield Start(task, placement)


if __name__ == "__main__":
    check_policy(LeastWorkLeft, workloads=2)
    for policy in ("fifo", "sjf", LeastWorkLeft()):
        outcome = simulate("heterogeneous-dag", policy=policy, seed=1)
        name = policy if isinstance(policy, str) else type(policy).__name__
        print(f"{name:14} mean completion time {outcome.summary.jct_s.mean:.0f} s")

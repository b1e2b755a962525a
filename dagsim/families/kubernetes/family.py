"""The family of Kubernetes, and what it adds."""

from dagsim.family import Entry, Family

FAMILY = Family(
    "kube-scheduler, Kueue, and their logs and sites",
    needs=("site",),
    adds={
        "policies": (
            Entry(
                "kueue",
                ".kueue.kueue_policy:Kueue",
                "after Kueue: quotas, borrowing and reclaim in cohorts",
                ("preemptive",),
            ),
            Entry(
                "kube-default",
                ".kube.kube_default:KubeDefault",
                "after Kubernetes: by priority, on the best node",
                ("preemptive",),
            ),
        ),
        "services": (Entry("waiting_workloads", ".kubectl:waiting_workloads", "jobs that wait, each with its reason"),),
        "readers": (Entry("kubernetes", ".kubectl:Kubernetes"), Entry("kubernetes-now", ".kubectl:KubernetesNow")),
    },
)

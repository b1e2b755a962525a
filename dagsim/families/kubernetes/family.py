"""The Kubernetes family and everything that it registers."""

from dagsim.family import Entry, Family

FAMILY = Family(
    "kube-scheduler, Kueue, and their logs and sites",
    needs=("site",),
    adds={
        "policies": (
            Entry(
                "kueue",
                ".kueue.kueue_policy:Kueue",
                "based on Kueue: quotas, borrowing and reclaim in cohorts",
                ("preemptive", "costly"),
            ),
            Entry(
                "kube-default",
                ".kube.kube_default:KubeDefault",
                "based on kube-scheduler: by priority, on the best node",
                ("preemptive", "costly"),
            ),
        ),
        "programs": (
            Entry("kube-scheduler", ".kube.kube_scheduler:KubeScheduler", "the real kube-scheduler, at simulated time"),
            Entry("kueue-manager", ".kueue.kueue_manager:KueueManager", "the real manager of Kueue, at simulated time"),
        ),
        "keys": (Entry("queues.kueue", ".kueue.kueue_objects:KueueObjects"),),
        "services": (Entry("changed_queues", ".kueue.changes:changed_queues"),),
        "node_lists": (Entry("kubectl get nodes -o json (or yaml)", ".kube.kube_nodes:KUBECTL"),),
        "sites": (Entry("Kueue", ".kueue.kueue_site:read_kueue_site", "Kueue's ClusterQueues"),),
        "site_rules": (Entry("Kueue", ".kueue.kueue_policy:rules_of_site"),),
        "readers": (Entry("kubernetes", ".kubectl:Kubernetes"), Entry("kubernetes-now", ".kubectl_now:KubernetesNow")),
    },
)

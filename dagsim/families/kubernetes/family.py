"""The Kubernetes family, and what it registers."""

from dagsim.family import Entry, Family

FAMILY = Family(
    "kube-scheduler, Kueue, and their logs and sites",
    needs=("site",),
    adds={
        "policies": (
            Entry(
                "kueue",
                ".kueue.kueue_policy:Kueue",
                "modelled on Kueue: quotas, borrowing and reclaim in cohorts",
                ("preemptive",),
            ),
            Entry(
                "kube-default",
                ".kube.kube_default:KubeDefault",
                "modelled on kube-scheduler: by priority, on the best node",
                ("preemptive",),
            ),
        ),
        "keys": (Entry("queues.kueue", ".kueue_objects:KueueObjects"),),
        "node_lists": (Entry("kubectl get nodes -o json (or yaml)", ".kube_nodes:KUBECTL"),),
        "sites": (Entry("Kueue", ".kueue_site:read_kueue_site", "Kueue's ClusterQueues"),),
        "readers": (Entry("kubernetes", ".kubectl:Kubernetes"), Entry("kubernetes-now", ".kubectl:KubernetesNow")),
    },
)

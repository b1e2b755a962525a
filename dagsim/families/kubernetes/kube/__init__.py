"""The default scheduler of Kubernetes: kube-scheduler 1.35 with its default plugins.

``objects`` reads pods and nodes from manifests, ``profile`` a KubeSchedulerConfiguration.
``node_columns`` holds the nodes in columns, ``plugins`` filters and scores them, ``cycle`` decides
for one pod, and ``kube_default`` calls it for one pod after the other in simulated time.
"""

from dagsim.families.kubernetes.kube.kube_default import KubeDefault, NodeScorer

__all__ = ["KubeDefault", "NodeScorer"]

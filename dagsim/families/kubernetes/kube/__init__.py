"""The default scheduler of Kubernetes: kube-scheduler 1.35 with its default plugins.

``nodes`` imports the nodes of a site. ``objects`` reads pods and nodes from manifests, and
``profile`` reads a KubeSchedulerConfiguration. ``node_columns`` stores the nodes in columns,
``plugins`` filters and scores them, ``cycle`` makes the decision for one pod, and ``kube_default``
calls it for each pod in turn as simulated time passes.
"""

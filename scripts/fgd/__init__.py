"""The placement experiment of "Beware of Fragmentation" (Weng et al., ATC 2023), rule by rule as their simulator has
it: kube-scheduler 1.20 with its own plugins (github.com/hkust-adsl/kubernetes-scheduler-simulator).

``go_random`` draws the numbers that it draws, ``pods`` and ``nodes`` are the cluster, ``policies`` and
``fragmentation`` the six ways to choose a node and a GPU. ``scripts/validate_fgd.py`` runs the experiment.

Plain arrays instead of dagsim's kernel: no time passes here, nothing ends and nothing waits, so that all there is to
do is to score every node for every pod.
"""

"""Kubernetes: kube-scheduler and Kueue as policies, pods and workloads as traces, and the
configuration of sites."""

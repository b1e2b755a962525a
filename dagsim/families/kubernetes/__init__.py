"""Kubernetes: kube-scheduler and Kueue as policies, readers that turn pods and workloads into
traces, and readers for a site's configuration."""

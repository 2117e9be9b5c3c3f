"""Doing a run's tasks on workers of Dask: a cluster on this machine, or one that exists.

- `connect`: reaching the workers
- `agreement`: they have the same packages, the same catalogue and the same results folder
- `worker`: what runs in them
- `executor`: a sliding window of tasks, done again when a worker is lost
"""

from kvwall.sweep.cluster.connect import Cluster, cluster_asked

__all__ = ["Cluster", "cluster_asked"]

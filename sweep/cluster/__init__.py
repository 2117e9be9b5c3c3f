"""Doing a run's tasks on workers of Dask: a cluster on this machine, or one that exists.

- `connect`: reaching the workers
- `agreement`: what a worker compares with the driver before its first task
- `worker`: what runs in it
- `roster`: which workers are there, and which of them agree
- `window`: a sliding window of tasks, done again when a worker is lost
- `executor`: these together, as a run needs them
"""

from kvwall.sweep.cluster.connect import Cluster, cluster_asked

__all__ = ["Cluster", "cluster_asked"]

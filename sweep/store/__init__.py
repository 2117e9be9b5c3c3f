"""Results on disk: the folder of a sweep, its shards, the view over them, the exact front and the summary."""

from kvwall.sweep.store.folder import ResultsFolder
from kvwall.sweep.store.front_file import CERTIFICATE
from kvwall.sweep.store.opening import STORED_DAMAGED, check_stored, open_front, open_results, open_summary
from kvwall.sweep.store.shards import Shard, ShardPlan, shard_plan

__all__ = [
    "CERTIFICATE",
    "STORED_DAMAGED",
    "check_stored",
    "ResultsFolder",
    "Shard",
    "ShardPlan",
    "open_front",
    "open_results",
    "open_summary",
    "shard_plan",
]

"""The register of remedy families: a line adds one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvwall.sweep.remedies.eviction import Eviction
from kvwall.sweep.remedies.family import Family
from kvwall.sweep.remedies.paging import Paging
from kvwall.sweep.remedies.parallelism import Parallelism
from kvwall.sweep.remedies.parking import Parking
from kvwall.sweep.remedies.prefix_sharing import PrefixSharing
from kvwall.sweep.remedies.quantization import Quantization
from kvwall.sweep.remedies.read_sparsity import ReadSparsity
from kvwall.sweep.remedies.speculation import Speculation
from kvwall.sweep.remedies.tiering import Tiering
from kvwall.sweep.remedies.weight_quantization import WeightQuantization

_ALL: Final = (
    Quantization(),
    Eviction(),
    ReadSparsity(),
    Paging(),
    PrefixSharing(),
    Tiering(),
    Parking(),
    WeightQuantization(),
    Speculation(),
    Parallelism(),
)
FAMILIES: Final[Mapping[str, Family]] = {family.name: family for family in _ALL}
"""By name: remedies of the KV cache first, then the levers next to them."""

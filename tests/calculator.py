"""What evaluates printed arithmetic, and figures assumed for designs whose arithmetic is printed."""

from __future__ import annotations

import math

CALCULATOR = {
    "min": min, "max": max, "ceil": math.ceil, "floor": math.floor, "sqrt": math.sqrt, "ln": math.log, "exp": math.exp,
}  # fmt: skip
ASSUMED = {
    "host_link_bandwidth": "64 GB/s", "cxl_link_bandwidth": "30 GB/s", "nvme_link_bandwidth": "12 GB/s",
    "remote_link_bandwidth": "25 GB/s", "scale_out_bandwidth": "50 GB/s", "host_capacity": "256 GB",
    "nvme_link_devices": "8", "memory_domains": "4", "cxl_energy": "10 pJ/bit", "nvme_energy": "14 pJ/bit",
    "remote_energy": "20 pJ/bit",
}  # fmt: skip

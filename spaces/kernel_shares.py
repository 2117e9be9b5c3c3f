"""What kernels alone reach on a chip with an engine, from their record: where the calibration of whole steps starts."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np

from kvwall.spaces.achieved import ByBits, ByCache, ByDevices, ByWeight
from kvwall.spaces.hardware import Hardware
from kvwall.spaces.kernel_record import EffectTable, KernelRecord, KernelTables, load_kernel_record

_FABRIC = 100e9
"""Bandwidth in B/s, one direction, above which a scale-up link is a fabric of the chips' own and not the host's bus."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class KernelShares:
    """Shares of datasheet peaks, and seconds, as in `achieved.Achieved`."""

    weights: ByWeight
    compute: ByBits
    attention: ByCache
    latent: ByCache
    latent_compute: ByCache
    link: ByDevices
    collective: ByDevices


def kernel_shares(chip: Hardware, engine: str) -> KernelShares:
    """What kernels of this engine of their record reach; engine "" has no rows of its own and gets the mean."""
    record = load_kernel_record()
    collectives = _collectives(record, chip)

    def of(table: EffectTable | None, form: str) -> np.float64:
        if table is None:
            raise TypeError("the record of kernels lacks a table")
        return np.float64(table.reached(chip.name, engine, form).value)

    gemm, attention = record.gemm, record.attention
    return KernelShares(
        weights=ByWeight(*(of(gemm.bandwidth, form) for form in ("w16", "fp8", "w8a16", "nvfp4", "w4a16"))),
        compute=ByBits(*(of(gemm.compute, form) for form in ("w16", "fp8", "nvfp4"))),
        attention=ByCache(*(of(attention.bandwidth, form) for form in ("kv16", "kv8"))),
        latent=ByCache(*(of(attention.bandwidth, form) for form in ("latent16", "latent8"))),
        latent_compute=ByCache(*(of(attention.compute, form) for form in ("latent16", "latent8"))),
        link=ByDevices(*(of(collectives.bandwidth, devices) for devices in ("2", "4", "8"))),
        collective=ByDevices(*(of(collectives.fixed, devices) for devices in ("2", "4", "8"))),
    )


def _collectives(record: KernelRecord, chip: Hardware) -> KernelTables:
    link = chip.scale_up_bandwidth
    return record.all_reduce if link is not None and link.value >= _FABRIC else record.all_reduce_pcie

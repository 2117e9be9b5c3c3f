"""What the datasheet of a chip promises to the kernels that are measured on it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from kvwall.spaces.architectures import load_architectures
from kvwall.spaces.figures import Figure
from kvwall.spaces.hardware import load_hardware


@dataclass(frozen=True)
class Chip:
    """Peaks of one device, in B/s and FLOP/s, one direction of its link."""

    name: str
    architecture: str
    memory_bandwidth: float
    flops_16: float
    flops_8: float
    flops_4: float
    link_bandwidth: float

    def peak(self, bits: int) -> float:
        """FLOP/s of arithmetic in this format."""
        return {16: self.flops_16, 8: self.flops_8, 4: self.flops_4}[bits]


@cache
def chip_of(name: str) -> Chip:
    """The chip of this name; where it lacks a format, arithmetic runs in the next wider one."""
    known = load_architectures()
    hardware = load_hardware(name)
    sixteen = _value(hardware.bf16_flops, 0.0)
    eight = _value(hardware.fp8_flops, sixteen)
    four = _value(hardware.fp4_flops, eight)
    link = _value(hardware.scale_up_bandwidth, 0.0)
    return Chip(name, known.of(name), hardware.memory_bandwidth.value, sixteen, eight, four, link)


def _value(figure: Figure | None, otherwise: float) -> float:
    return otherwise if figure is None else figure.value

"""Kernels: time of one decode attention, one matrix product, one all-reduce, from what the kernel reaches.

Bandwidths and peaks here are those *reached*: the datasheet's times the share of `catalog/calibration/kernels.json`.
"""

from __future__ import annotations

from kvwall.spaces.units import Bytes, BytesPerSecond, Count, Flop, FlopPerSecond, Ratio, Seconds

SHARPNESS = 3.0
"""Exponent with which transfer and arithmetic add: 1 is one after the other, infinity is the slower of both."""


def overlapped(first: Seconds, second: Seconds, sharpness: Ratio = SHARPNESS) -> Seconds:
    """Time of two things that overlap, though not wholly: (first^p + second^p)^(1/p).

    Source: p = 3 fits published matrix products from one token to thousands best, `catalog/measured/gemm.parquet`.

    >>> overlapped(3.0, 4.0, 2.0)
    5.0
    """
    return (first**sharpness + second**sharpness) ** (1 / sharpness)


def attention_time(
    read: Bytes,
    flop: Flop,
    bandwidth: BytesPerSecond,
    peak: FlopPerSecond,
    fixed: Seconds,
    one_after_another: Seconds = 0.0,
) -> Seconds:
    """Time of one layer's decode attention on one device.

    Args:
        read: bytes of KV.
        flop: of both products.
        bandwidth: reached, of memory.
        peak: reached, of arithmetic in the format of the KV.
        fixed: what a call costs besides.
        one_after_another: context times the seconds per token of a kernel that does not divide a sequence's tokens
            among its workers; 0 of all others.

    Source: fitted to published kernel times, `catalog/measured/attention.parquet`.

    >>> round(attention_time(4e9, 0.0, 2e12, 1e15, 1e-3), 9)
    0.003
    """
    return fixed + overlapped(overlapped(read / bandwidth, flop / peak), one_after_another)


def gemm_time(moved: Bytes, flop: Flop, bandwidth: BytesPerSecond, peak: FlopPerSecond, fixed: Seconds) -> Seconds:
    """Time of one matrix product on one device.

    Args:
        moved: bytes of the weights, of the vectors that come in and of those that go out.
        flop: of the product.
        bandwidth: reached, of memory.
        peak: reached, of arithmetic in the format that does it.
        fixed: what a product costs besides: small matrices reach little of the bandwidth because of it.

    Source: fitted to published kernel times, `catalog/measured/gemm.parquet`.

    >>> round(gemm_time(0.0, 8e12, 2e12, 1e15, 1e-3), 9)
    0.009
    """
    return fixed + overlapped(moved / bandwidth, flop / peak)


def all_reduce_time(message: Bytes, devices: Count, link: BytesPerSecond, fixed: Seconds) -> Seconds:
    """Time of one all-reduce among devices: fixed + 2 (n - 1)/n message / link.

    Args:
        message: bytes that every device has and gets.
        devices: that take part.
        link: bandwidth reached, of one device in one direction.
        fixed: what a call costs besides; nearly the same for 2 and for 8 devices behind one switch.

    Source: fitted to published times, `catalog/measured/allreduce.parquet`.

    >>> round(all_reduce_time(4e6, 4.0, 6e9, 1e-3), 9)
    0.002
    """
    return fixed + 2 * (devices - 1) / devices * message / link

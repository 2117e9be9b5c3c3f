"""Numbers as people read them: SI prefixes, few digits, plain ASCII."""

from __future__ import annotations

import math
from typing import Final

_DIGITS: Final = 4
_PREFIXES: Final = ("", "k", "M", "G", "T", "P", "E")


def prefixed(value: float, symbol: str, digits: int = 4) -> str:
    """The value with an SI prefix.

    >>> prefixed(139.025e9, "B"), prefixed(-17.64e9, "B"), prefixed(0.0, "B")
    ('139 GB', '-17.64 GB', '0 B')
    """
    power = 0
    while power < len(_PREFIXES) - 1 and abs(float(f"{value / 1000**power:.{digits}g}")) >= 1000:
        power += 1
    return f"{value / 1000**power:.{digits}g} {_PREFIXES[power]}{symbol}".rstrip()


def bytes_text(value: float) -> str:
    """Bytes with an SI prefix (GB is 1e9)."""
    return prefixed(value, "B")


def seconds_text(value: float, digits: int = _DIGITS) -> str:
    """Seconds, or milli- and microseconds below one.

    >>> seconds_text(0.03083), seconds_text(2.5), seconds_text(4.2e-5)
    ('30.83 ms', '2.5 s', '42 us')
    """
    for factor, symbol in ((1.0, "s"), (1e3, "ms"), (1e6, "us")):
        if abs(value) * factor >= 1 or value == 0:
            return f"{value * factor:.{digits}g} {symbol}"
    return f"{value * 1e9:.{digits}g} ns"


def tokens_text(value: float) -> str:
    """A count of tokens: exact below ten thousand, three digits or more above.

    >>> tokens_text(13351.4), tokens_text(427246), tokens_text(950.0)
    ('13.4k tokens', '427.2k tokens', '950 tokens')
    """
    if value < 10_000:
        return f"{value:,.0f} tokens"
    if value >= 1e9:
        return f"{value:.3g} tokens"
    scaled, prefix = (value / 1e3, "k") if value < 999_950 else (value / 1e6, "M")
    return f"{scaled:,.1f}{prefix} tokens"


def number_text(value: float | int | str | bool) -> str:
    """An axis's value.

    >>> number_text(131072), number_text(8.0), number_text(True), number_text("native")
    ('131,072', '8', 'true', 'native')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:g}" if isinstance(value, float) else value


def rounded_text(value: float) -> str:
    """A number at four significant digits, without an exponent.

    >>> rounded_text(85.899), rounded_text(21_000.4), rounded_text(7.7), rounded_text(0.23)
    ('85.9', '21,000', '7.7', '0.23')
    """
    return f"{float(f'{value:.4g}'):,.10g}"


def metric_text(value: float, unit: str, name: str, digits: int = _DIGITS) -> str:
    """A metric in a readable unit.

    >>> metric_text(0.0308, "s", "time_per_output_token"), metric_text(1037.97, "s-1", "tokens_per_second")
    ('30.8 ms', '1,038 tok/s')
    """
    match unit:
        case "byte":
            return bytes_text(value)
        case "byte s-1":
            return prefixed(value, "B/s")
        case "s":
            return seconds_text(value, digits)
        case "s-1":
            return f"{_significant(value, digits)} tok/s"
        case "FLOP byte-1":
            return f"{_significant(value)} FLOP/B"
        case "J":
            return f"{value:.4g} J"
        case "USD":
            return f"{_significant(value, digits)} USD"
        case _:
            return _dimensionless(value, name)


_BAND_DIGITS: Final = 3


def band_text(value: float, band: tuple[float, float], unit: str, name: str) -> str:
    """A metric with its bounds, which repeat the unit only where it differs.

    >>> band_text(0.03821, (0.03311, 0.04402), "s", "time_per_output_token")
    '38.2 ms (33.1 to 44)'
    """
    shown, *ends = (metric_text(each, unit, name, _BAND_DIGITS) for each in (value, *band))
    symbol = f" {shown.partition(' ')[2]}"
    if all(end.endswith(symbol) for end in ends):
        ends = [end.removesuffix(symbol) for end in ends]
    return f"{shown} ({ends[0]} to {ends[1]})"


_TOKENS = frozenset(
    {"max_context", "crossover_context_bytes", "crossover_context_time", "break_even_context", "kv_pool_tokens"}
)
_COUNTS = frozenset({"max_batch", "kv_pool_blocks", "messages_per_step"})


def _dimensionless(value: float, name: str) -> str:
    if name.endswith("perplexity"):
        return f"{value:.3g} ln"
    if name.startswith("quality_loss"):
        return f"{100 * value:.3g} %"
    if name in _TOKENS:
        return f"{value:,.0f} tokens"
    return f"{value:,.0f}" if name in _COUNTS else f"{value:.4g}"


def _significant(value: float, digits: int = _DIGITS) -> str:
    """So many digits, thousands separated, never an exponent for numbers people count with."""
    if value == 0 or not 1e-3 <= abs(value) < 1e12:
        return f"{value:.{digits}g}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"

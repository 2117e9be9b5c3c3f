"""Records of an explanation: equations that carry their numbers, and inputs that carry their source."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kvwall.sweep.quality.nearest import Published, text_lines, to_json
from kvwall.sweep.readable import bytes_text, seconds_text, tokens_text

FUNCTIONS: Final = frozenset({"min", "max", "ceil", "floor", "sqrt", "ln", "exp"})
"""Words of a formula that are not symbols."""
_IN_BYTES: Final = re.compile(r"B(?!/)\b")
_SYMBOL: Final = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Input:
    """A number that enters, and where it is from."""

    symbol: str
    value: float
    meaning: str
    source: str


@dataclass(frozen=True)
class Equation:
    """A formula, its symbols' numbers, and the result that the laws gave (it is not computed here)."""

    section: str
    symbol: str
    formula: str
    numbers: Mapping[str, float]
    result: float
    unit: str

    @property
    def substituted(self) -> str:
        """The formula with numbers for symbols: plain arithmetic and the words of `FUNCTIONS`."""
        return _SYMBOL.sub(lambda match: self._number(match[0]), self.formula)

    def _number(self, word: str) -> str:
        if word in FUNCTIONS:
            return word
        value = self.numbers[word]
        return f"({digits(value)})" if value < 0 else digits(value)

    def lines(self) -> tuple[str, str, str]:
        """The equation for a terminal: formula, numbers, result."""
        margin = " " * len(self.symbol)
        return (
            f"  {self.symbol} = {self.formula}",
            f"  {margin} = {self.substituted}",
            f"  {margin} = {digits(self.result)} {self.unit}".rstrip() + self._readable(),
        )

    def _readable(self) -> str:
        if _IN_BYTES.match(self.unit) and abs(self.result) >= 1000:
            return f"  ({bytes_text(self.result)})"
        if re.match(r"s\b", self.unit):
            return f"  ({seconds_text(self.result)})"
        return f"  ({tokens_text(self.result)})" if self.unit.startswith("tokens") and self.result >= 10_000 else ""

    def to_json(self) -> dict[str, Any]:
        """The equation as plain JSON types."""
        return {
            "section": self.section,
            "symbol": self.symbol,
            "formula": self.formula,
            "substituted": self.substituted,
            "result": self.result,
            "unit": self.unit,
        }


@dataclass(frozen=True)
class Explanation:
    """The equations of one design in the order of computation, the inputs they use, and what could not be computed."""

    equations: tuple[Equation, ...]
    inputs: tuple[Input, ...]
    notes: tuple[str, ...]
    nearest: tuple[Published, ...] = ()
    """Published results on quality nearest to the design."""

    def to_json(self) -> dict[str, Any]:
        """The explanation as plain JSON types."""
        return {
            "equations": [equation.to_json() for equation in self.equations],
            "inputs": [vars(each) for each in self.inputs],
            "notes": list(self.notes),
            "nearest": to_json(self.nearest),
        }

    def lines(self) -> list[str]:
        """The explanation for a terminal."""
        written: list[str] = []
        section = ""
        for equation in self.equations:
            if equation.section != section:
                section = equation.section
                written += ["", section]
            written += equation.lines()
        sources = list(dict.fromkeys(each.source for each in self.inputs))
        written += ["", "Inputs, with the number of their source"]
        for each in self.inputs:
            written.append(f"  [{sources.index(each.source) + 1}] {each.symbol} = {digits(each.value)}: {each.meaning}")
        written += ["", "Sources"]
        written += [f"  [{number}] {source}" for number, source in enumerate(sources, start=1)]
        written += ["", *(f"Note: {note}" for note in self.notes)]
        return [*written, "", *text_lines(self.nearest)] if self.nearest else written


def digits(value: float) -> str:
    """A number at nine digits, whole numbers without exponent.

    >>> digits(327680.0), digits(0.1), digits(139025055744.0)
    ('327680', '0.1', '139025055744')
    """
    return f"{value:.0f}" if float(value).is_integer() and abs(value) < 1e15 else f"{value:.9g}"


def bracketed(terms: Sequence[str]) -> str:
    """A sum as a factor.

    >>> bracketed(["a"]), bracketed(["a", "b"])
    ('a', '(a + b)')
    """
    return terms[0] if len(terms) == 1 else f"({' + '.join(terms)})"


def product(*factors: str) -> str:
    """A product without its empty factors, which stand for 1.

    >>> product("a", "", "b"), product("")
    ('a*b', '1')
    """
    return "*".join(factor for factor in factors if factor) or "1"


def over(amount: str, *divisors: str) -> str:
    """An amount divided by what is not empty.

    >>> over("a", "n", ""), over("a", "")
    ('a/n', 'a')
    """
    return "/".join([amount, *(divisor for divisor in divisors if divisor)])


def largest(terms: Sequence[str]) -> str:
    """The largest of some terms.

    >>> largest(["a"]), largest(["a", "b"])
    ('a', 'max(a, b)')
    """
    return terms[0] if len(terms) == 1 else f"max({', '.join(terms)})"


class Sheet:
    """Equations being written; every symbol must be an input or an earlier result."""

    def __init__(self, renamed: frozenset[str] = frozenset(), suffix: str = "") -> None:
        """`renamed`: symbols that get the suffix wherever they stand, until `renaming_no_more`."""
        self._renamed, self._suffix = renamed, suffix
        self.equations: list[Equation] = []
        self.notes: list[str] = []
        self._inputs: dict[str, Input] = {}
        self._known: dict[str, float] = {}
        self._used: dict[str, None] = {}

    def given(self, symbol: str, value: Any, meaning: str, source: str) -> None:
        """Declare an input; it is listed only if an equation uses it."""
        self._inputs[symbol] = Input(symbol, float(value), meaning, source)
        self._known[symbol] = float(value)

    def add(self, section: str, symbol: str, formula: str, result: Any, unit: str) -> None:
        """Add an equation whose result the laws gave. Raises KeyError for a symbol that is not known."""
        symbol, formula = (_SYMBOL.sub(lambda word: self._name(word[0]), text) for text in (symbol, formula))
        symbols = [word for word in _SYMBOL.findall(formula) if word not in FUNCTIONS]
        self._used |= dict.fromkeys(symbols)
        numbers = {word: self._known[word] for word in symbols}
        self.equations.append(Equation(section, symbol, formula, numbers, float(result), unit))
        self._known[symbol] = float(result)

    def renaming_no_more(self) -> Sheet:
        """The sheet itself, whose symbols are from now on as they are written."""
        self._renamed = frozenset()
        return self

    def _name(self, symbol: str) -> str:
        return f"{symbol}{self._suffix}" if symbol in self._renamed else symbol

    def explanation(self) -> Explanation:
        """What was written, with the inputs that were used."""
        used = tuple(self._inputs[symbol] for symbol in self._used if symbol in self._inputs)
        return Explanation(tuple(self.equations), used, tuple(self.notes))

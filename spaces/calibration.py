"""The calibration of estimates: a versioned record, fitted to measured steps, and what it says of an engine on a chip.

The record is data (`catalog/calibration/estimate.json`, with the covariance of its numbers beside it), written by
`kvwall calibrate`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from kvwall.spaces.achieved import Achieved, Calibrated, Reached
from kvwall.spaces.architectures import load_architectures
from kvwall.spaces.errors import Faults, InputError
from kvwall.spaces.generations import generation_of_engine, load_generations
from kvwall.spaces.hardware import Hardware
from kvwall.spaces.kernel_record import load_kernel_record
from kvwall.spaces.kernel_shares import KernelShares, kernel_shares
from kvwall.spaces.terms import LEVELS, MACHINE, TERMS, Level, achieved

RECORD: Final = Path(__file__).parent / "catalog" / "calibration" / "estimate.json"
COVARIANCE: Final = "lower_triangle"
"""The one column of the file beside a record."""
_LARGEST: Final = 100.0
"""Standard deviation of a logarithm beyond which it says nothing."""
TYPICAL: Final = ("vllm", "sglang", "trtllm")
"""Generations whose mean stands for an engine that is not calibrated, the ideal one among them."""

CACHE_FORMATS: Final = 6
"""Most KV formats that a generation can have been measured with."""

_STRICT = ConfigDict(extra="forbid")


@with_config(_STRICT)
@dataclass(frozen=True)
class Effect:
    """One part of a term."""

    value: float
    """Added to the logarithm."""
    sd: float
    rows: int
    """It rests on."""


@with_config(_STRICT)
@dataclass(frozen=True)
class TermEffects:
    """A term's parts, as logarithms; members that no row speaks for are absent."""

    meaning: str
    unit: str
    mean: Effect
    engine: Mapping[str, Effect]
    architecture: Mapping[str, Effect]
    chip: Mapping[str, Effect]
    machine: Mapping[str, Effect]
    """By generation and chip, as "vllm/h100-sxm"; of users' own records only."""

    @property
    def effects(self) -> tuple[Effect, ...]:
        """All of them, in the order of a record."""
        return (self.mean, *(effect for level in LEVELS for effect in getattr(self, level).values()))


@with_config(_STRICT)
@dataclass(frozen=True)
class Reach:
    """What the fitted rows cover: outside of it an estimate is extrapolated."""

    context: Mapping[str, int]
    """Longest, in tokens, by generation of the engine and chip, as "vllm/h100-sxm"."""
    batch: Mapping[str, int]
    """Largest, likewise."""
    pairs: tuple[str, ...]
    """Generations of engines and chips that there are rows of."""
    cache_bits: Mapping[str, tuple[float, ...]]
    """Generation -> bits of a KV element."""

    def of(self, engines: Collection[str], chip: str) -> Reached:
        """What the rows cover of an engine that these generations stand for, on a chip."""
        bits = sorted({each for engine in engines for each in self.cache_bits.get(engine, ())}, reverse=True)
        padded = [*bits, *[0.0] * (CACHE_FORMATS - len(bits))]
        return Reached(
            engine=any(pair.partition("/")[0] in engines for pair in self.pairs),
            chip=any(f"{engine}/{chip}" in self.pairs for engine in engines),
            cache_bits=tuple(np.float64(each) for each in padded),
            context=np.float64(self.longest(engines, chip)),
            batch=np.float64(self.largest(engines, chip)),
        )

    def longest(self, engines: Collection[str], chip: str) -> int:
        """Longest context, in tokens, that one of these generations was measured at on the chip.

        Of the generations on any chip where none was, and of all where none was on any.
        """
        return _most_of(self.context, engines, chip)

    def largest(self, engines: Collection[str], chip: str) -> int:
        """Largest batch, likewise."""
        return _most_of(self.batch, engines, chip)


def _most_of(of_pair: Mapping[str, int], engines: Collection[str], chip: str) -> int:
    pairs = {f"{engine}/{chip}" for engine in engines}
    here = [number for pair, number in of_pair.items() if pair in pairs]
    elsewhere = [number for pair, number in of_pair.items() if pair.partition("/")[0] in engines]
    return max(here or elsewhere or of_pair.values())


@with_config(_STRICT)
@dataclass(frozen=True)
class Calibration:
    """The whole record."""

    version: str
    fitted: str
    rows: int
    sources: Mapping[str, int]
    """Source -> rows."""
    model_spread: float
    """Standard deviation of ln time among dense models, on rows left out of the fit."""
    expert_spread: float
    """The same of models with routed experts."""
    reach: Reach
    terms: Mapping[str, TermEffects]
    own: tuple[str, ...] = ()
    """Ids of a user's rows that it has been told."""
    covariance: tuple[tuple[float, ...], ...] = ()
    """Of all effects, in the order of `names`; kept in a file of its own."""

    @cached_property
    def names(self) -> tuple[tuple[str, str, str], ...]:
        """(term, level or "mean", member) of every effect, in the order of the record."""
        found: list[tuple[str, str, str]] = []
        for term, effects in self.terms.items():
            found.append((term, "mean", ""))
            found += [(term, level, member) for level in LEVELS for member in getattr(effects, level)]
        return tuple(found)

    @cached_property
    def values(self) -> NDArray[np.float64]:
        """Every effect, in the order of `names`."""
        return np.array([effect.value for term in self.terms.values() for effect in term.effects])

    def members(self, engine: str, chip: str) -> Mapping[Level, Mapping[str, float]]:
        """Which members of each level speak for an engine's generation on a chip, with their weights."""
        known = load_generations()
        engines = {engine: 1.0} if engine in known else {each: 1 / len(TYPICAL) for each in TYPICAL}
        machines = {f"{each}/{chip}": weight for each, weight in engines.items()}
        architecture = {load_architectures().of(chip): 1.0}
        return {"engine": engines, "architecture": architecture, "chip": {chip: 1.0}, "machine": machines}

    def spoken(self, engine: str, chip: str) -> NDArray[np.float64]:
        """Matrix (terms, effects): a term's value is its row times `values`."""
        members = self.members(engine, chip)
        place = {term: row for row, term in enumerate(self.terms)}
        matrix = np.zeros((len(self.terms), len(self.names)))
        for column, (term, level, member) in enumerate(self.names):
            matrix[place[term], column] = 1.0 if level == "mean" else members[level].get(member, 0.0)  # type: ignore[index]
        return matrix

    def unseen(self, engine: str, chip: str) -> NDArray[np.float64]:
        """Per term, the variance of members that no row speaks for."""
        members = self.members(engine, chip)
        found = np.zeros(len(self.terms))
        for row, (name, effects) in enumerate(self.terms.items()):
            for level, spread in TERMS[name].spread.items():
                if level == MACHINE:
                    continue  # how much machines differ is part of how much models do
                there = sum(weight for member, weight in members[level].items() if member in getattr(effects, level))
                alone = level == "engine" and len(members[level]) > 1
                found[row] += spread**2 * (1.0 if alone else 1 - there)
        return found

    def calibrated(self, engine: str, chip: Hardware) -> Calibrated:
        """What a generation achieves on a chip, with its uncertainty; NumPy float64."""
        spoken = self.spoken(engine, chip.name)
        spread = spoken @ np.array(self.covariance) @ spoken.T + np.diag(self.unseen(engine, chip.name))
        generation = load_generations().get(engine)
        kernels = kernel_shares(chip, generation.kernels if generation else "")
        with jax.enable_x64(True):
            steps = root_of(spread).T
            best, turns = _achieved(tuple(self.terms), kernels, spoken @ self.values, steps)
        number: Any = np.float64
        return Calibrated(
            achieved=jax.tree.map(number, best),
            directions=jax.tree.map(np.asarray, turns),
            model_spread=number(self.model_spread),
            expert_spread=number(self.expert_spread),
            reached=self.reach.of(self.members(engine, chip.name)["engine"], chip.name),
        )


@partial(jax.jit, static_argnums=0)
def _achieved(terms: tuple[str, ...], kernels: KernelShares, values: Any, steps: Any) -> tuple[Achieved, Achieved]:
    """What is achieved at these values of the terms, and how each of some steps from them changes it."""

    def of(values: Any) -> Achieved:
        return achieved(kernels, dict(zip(terms, values, strict=True)))

    def changed(step: Any) -> Achieved:
        found: Achieved = jax.jvp(of, (values,), (step,))[1]
        return found

    return of(values), jax.vmap(changed)(steps)


def root_of(covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """A matrix whose product with its own transpose is the covariance, which may be singular by rounding."""
    variance, direction = np.linalg.eigh(covariance)
    found: NDArray[np.float64] = direction * np.sqrt(np.maximum(variance, 0.0))
    return found


def calibrated_engine(record: Calibration, engine: str, chip: Hardware) -> Calibrated:
    """What a value of the axis `engine` achieves on a chip."""
    return record.calibrated(generation_of_engine(engine), chip)


@cache
def load_calibration(path: Path = RECORD) -> Calibration:
    """The record at `path`, by default the shipped one. Raises InputError naming every fault of the files."""
    beside = path.parent / f"{path.stem}.parquet"
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        found = TypeAdapter(Calibration).validate_python(table | {"covariance": _covariance(beside)})
    except ValidationError as fault:
        raise InputError(
            f"{path}: {'.'.join(map(str, each['loc']))}: {each['msg']}; run `kvwall calibrate` again"
            for each in fault.errors()
        ) from fault
    except FileNotFoundError as fault:
        missing = path if not path.exists() else beside
        raise InputError(f"{missing}: no such file: a record is a JSON file and a Parquet file beside it") from fault
    except (OSError, ValueError, TypeError, KeyError) as fault:
        raise InputError(f"{path}: not a calibration record ({fault}); run `kvwall calibrate` again") from fault
    _check(found, path)
    return found


def _belongs(found: Calibration) -> bool:
    """Whether the covariance is that of the record's effects: their standard deviations, to the digits of the files."""
    effects = [each for term in found.terms.values() for each in term.effects]
    covariance = np.array(found.covariance)
    if covariance.shape != (len(effects), len(effects)) or not np.all(np.isfinite(covariance)):
        return False
    stated = np.array([effect.sd for effect in effects])
    return bool(np.allclose(np.sqrt(np.maximum(np.diag(covariance), 0.0)), stated, rtol=1e-3, atol=1e-9))


def _covariance(path: Path) -> list[list[float]]:
    import pyarrow.parquet  # takes a fifth of a second, which a refused command need not wait for

    column = pyarrow.parquet.ParquetFile(path).read()[COVARIANCE].to_numpy().astype(np.float64)
    size = int((np.sqrt(8 * len(column) + 1) - 1) / 2)
    lower = np.zeros((size, size))
    lower[np.tril_indices(size)] = column
    full: list[list[float]] = (lower + np.tril(lower, -1).T).tolist()
    return full


def calibration_hash(record: Calibration) -> str:
    """SHA-256 of what estimates follow from: the record with its covariance, and the record of kernels."""
    parts = (json.dumps(asdict(record), sort_keys=True), json.dumps(asdict(load_kernel_record()), sort_keys=True))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def lower_triangle(covariance: NDArray[np.float64]) -> NDArray[np.float32]:
    """A covariance as its file holds it."""
    return covariance[np.tril_indices(len(covariance))].astype(np.float32)


def _check(found: Calibration, path: Path) -> None:
    faults = Faults()
    if tuple(found.terms) != tuple(TERMS):
        faults.add(f"{path}: its terms are not those of this version: {', '.join(TERMS)}; run `kvwall calibrate` again")
    if not _belongs(found):
        faults.add(f"{path}: the covariance in {path.with_suffix('.parquet').name} is not its own: keep both together")
    for name in ("model_spread", "expert_spread"):
        if not 0 < getattr(found, name) < _LARGEST:
            faults.add(f"{path}: {name} = {getattr(found, name)} must be above 0 and below {_LARGEST:g}")
    if not (found.reach.pairs and found.reach.context and found.reach.batch):
        faults.add(f"{path}: reach states no rows")
    for engine, bits in found.reach.cache_bits.items():
        if len(bits) > CACHE_FORMATS:
            faults.add(f"{path}: reach.cache_bits of {engine} has {len(bits)} formats: at most {CACHE_FORMATS}")
    if not np.all(np.isfinite(found.values)):
        faults.add(f"{path}: an effect is not finite")
    faults.raise_if_any()

"""A study: a design space, what is asked of it, and which results are kept; read from a TOML file."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

from kvwall.spaces.axes import Value
from kvwall.spaces.calibration import calibration_hash
from kvwall.spaces.columns import Catalogue, Columns, load_catalogue
from kvwall.spaces.confidence import Confidence, by_row
from kvwall.spaces.engines import load_engine
from kvwall.spaces.errors import InputError, nearest
from kvwall.spaces.hardware import Hardware
from kvwall.spaces.modes import DEFAULT_MODE
from kvwall.spaces.quality_tasks import TASK_NAMES, task_rows
from kvwall.spaces.record_columns import reported_capacity
from kvwall.spaces.space import Space
from kvwall.spaces.transfer import load_transfer_curve
from kvwall.spaces.vetoes import VetoRules, load_traits
from kvwall.sweep.canonical import sha256
from kvwall.sweep.keeping import DEFAULT_PROFILE, FULL, STORES
from kvwall.sweep.objective import Constraint, Objective
from kvwall.sweep.quality_budget import Budget, asks_for_hard_retrieval, confidence_with
from kvwall.sweep.study_file.decode import decode
from kvwall.sweep.study_file.read import read_study_file
from kvwall.sweep.study_file.write import axis_values_written, study_text

SHIPPED = Path(__file__).parent / "studies"

DEFAULT_OBJECTIVES = (
    Objective("tokens_per_second_per_device", "maximize"),
    Objective("quality_loss_upper", "minimize"),
)


@dataclass(frozen=True, kw_only=True)
class Study:
    """A checked study. Every name in it is known, every bound is a number in SI."""

    name: str
    mode: str = DEFAULT_MODE
    calibration: str = ""
    """Path of a record of `kvwall calibrate`, for estimates; the shipped one where it is blank."""
    space: Space
    assume: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Chip -> figure -> quantity, for figures that the catalogue has no source for."""
    task: str = "aggregate"
    confidence: float = 0.9
    """Of upper quality curves, but those of budgets that state their own."""
    allow_veto: tuple[str, ...] = ()
    """Vetoes that are not imposed; the label still names them."""
    budgets: tuple[Budget, ...] = ()
    """The most that may be lost on tasks; each is a constraint as well."""
    quality_curves: str = ""
    """Path of a record of `kvwall calibrate --quality`; the shipped one where it is blank."""
    objectives: tuple[Objective, ...] = DEFAULT_OBJECTIVES
    """The first one is what `optimize` calls best."""
    constraints: tuple[Constraint, ...] = ()
    """All that is imposed: those stated, then those of the budgets."""
    store: str = FULL
    """What the results folder holds; see `kvwall.sweep.keeping`."""
    profile: str = DEFAULT_PROFILE
    """How stored points are rounded and compressed; see `kvwall.sweep.keeping`."""
    keep: tuple[str, ...] = tuple(objective.metric for objective in DEFAULT_OBJECTIVES)
    """Metrics and labels stored for every point of the slice, with the status; nothing where no point is stored."""
    slice: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    """Dimension -> the values stored, in grid order; dimensions not named are stored whole."""
    trials: int = 2000
    continuous: bool = False
    text: str = ""
    """The file's text."""

    def __post_init__(self) -> None:
        stated = {constraint.metric: constraint for constraint in self.constraints}
        for budget in self.budgets:
            if stated.get(budget.metric, budget.constraint) != budget.constraint:
                raise InputError(f"{budget.task} has a budget and another constraint on {budget.metric}: keep one")
        missing = tuple(budget.constraint for budget in self.budgets if budget.metric not in stated)
        object.__setattr__(self, "constraints", (*self.constraints, *missing))
        if not STORES[self.store].points:
            object.__setattr__(self, "keep", ())

    @classmethod
    def load(cls, path_or_name: str | Path) -> Study:
        """The study of a TOML file, or of a shipped study's name. Raises InputError with every fault of the file.

        >>> Study.load("paper").space.dims
        ('hardware', 'batch', 'context', 'key_bits', 'retention')
        """
        path = _locate(path_or_name)
        origin = str(path_or_name)
        try:
            raw = path.read_bytes()
        except (OSError, ValueError) as fault:
            reason = getattr(fault, "strerror", None) or str(fault)
            raise InputError(
                f"{origin}: cannot be read ({reason}): give a TOML file, or one of {', '.join(study_names())}"
            ) from fault
        return cls.from_text(decode(raw, origin), origin)

    @classmethod
    def from_text(cls, text: str, origin: str = "study") -> Study:
        """The study that a TOML text states; `origin` names it in faults. Raises InputError with every fault."""
        file = read_study_file(text, origin)
        objectives = file.objectives or DEFAULT_OBJECTIVES
        keep = file.keep or tuple(objective.metric for objective in objectives if STORES[file.store].points)
        return cls(**{**vars(file), "objectives": objectives, "keep": keep, "text": text})

    @cached_property
    def catalogue(self) -> Catalogue:
        """The models, chips and quality curves it names."""
        return load_catalogue(
            self.space, self.assume, self.confidences, self.mode, self.calibration, self.vetoes, self.quality_curves
        )

    @property
    def confidences(self) -> Confidence:
        """Of the upper quality curves, task by task where budgets say so."""
        return confidence_with(self.confidence, self.budgets)

    @property
    def stated_constraints(self) -> tuple[Constraint, ...]:
        """The constraints that no budget imposes."""
        of_budgets = {budget.metric for budget in self.budgets}
        return tuple(constraint for constraint in self.constraints if constraint.metric not in of_budgets)

    @property
    def task_confidence(self) -> float:
        """The confidence that `quality_loss_upper` holds at, as a budget of its task may have one of its own."""
        levels = by_row(self.confidences, {name: task_rows(name) for name in TASK_NAMES})
        return min(levels[row] for row in task_rows(self.task))

    @property
    def vetoes(self) -> VetoRules:
        """What decides which vetoes are imposed."""
        asked = [*(one.metric for one in self.objectives), *(one.metric for one in self.constraints)]
        return VetoRules(self.allow_veto, asks_for_hard_retrieval(self.task, asked))

    def columns(self) -> Columns:
        """The space as numeric columns."""
        return Columns(self.space, self.catalogue)

    def resolved(self) -> str:
        """The study as TOML with every axis expanded and every default written out; reads back as the same study."""
        return study_text(self)

    def spec(self) -> dict[str, Any]:
        """What decides the results, in types that JSON has. Equal specs give equal results."""
        space = self.space
        return {
            "version": _version(),
            "mode": self.mode,
            "axes": axis_values_written(space),
            "dims": list(space.dims),
            "ties": dict(space.leader),
            "assume": {chip: dict(figures) for chip, figures in self.assume.items()},
            "task": self.task,
            "confidence": self.confidence,
            "allow_veto": list(self.allow_veto),
            "budgets": [dataclasses.asdict(budget) for budget in self.budgets],
            "objectives": [dataclasses.asdict(objective) for objective in self.objectives],
            "constraints": [dataclasses.asdict(constraint) for constraint in self.constraints],
            "store": self.store,
            "profile": self.profile,
            "keep": list(self.keep),
            "slice": {name: list(values) for name, values in self.slice.items()},
            "catalogue": self._record_hashes(),
            "laws": _laws_hash(),
        }

    @cached_property
    def spec_hash(self) -> str:
        """SHA-256 of the canonical JSON of `spec()`, in hexadecimal."""
        return sha256(self.spec())

    def _record_hashes(self) -> dict[str, Any]:
        catalogue, engines = self.catalogue, self.space.values("engine")
        return {
            "model": self._hash_each("model", [dataclasses.asdict(model) for model in catalogue.models]),
            "hardware": self._hash_each("hardware", [_chip_record(chip) for chip in catalogue.hardware]),
            "engine": self._hash_each("engine", [dataclasses.asdict(load_engine(str(name))) for name in engines]),
            "quality": sha256(dataclasses.asdict(catalogue.curves)),
            "model_traits": sha256({name: dataclasses.asdict(trait) for name, trait in load_traits().items()}),
            "transfer": sha256(dataclasses.asdict(load_transfer_curve())),
            **({"calibration": calibration_hash(catalogue.calibration)} if catalogue.calibration else {}),
        }

    def _hash_each(self, axis: str, records: Sequence[object]) -> dict[str, str]:
        named = zip(self.space.values(axis), records, strict=True)
        return {str(name): sha256(record) for name, record in named}


def _chip_record(chip: Hardware) -> dict[str, Any]:
    """All that the laws read of a chip: its figures, and what its driver reports."""
    return dataclasses.asdict(chip) | {"reported_capacity": reported_capacity(chip)}


def study_names() -> tuple[str, ...]:
    """Names of the shipped studies.

    >>> study_names()
    ('memory-wall', 'overnight', 'paper')
    """
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.toml")))


def _locate(path_or_name: str | Path) -> Path:
    names = study_names()
    if path_or_name in names:
        return SHIPPED / f"{path_or_name}.toml"
    path = Path(path_or_name)
    if path.suffix == ".toml" or len(path.parts) > 1 or isinstance(path_or_name, Path):
        return path
    if _is_file(path):
        return path
    raise InputError(
        f'"{path_or_name}" is no shipped study{nearest(str(path_or_name), names)}: '
        f"give {', '.join(names)}, or the path of a TOML file"
    )


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name too long is no path
        return False


def _version() -> str:
    try:
        return metadata.version("kvwall")
    except metadata.PackageNotFoundError:  # imported from a checkout that was never installed
        return "not installed"


@cache
def _laws_hash() -> str:
    """SHA-256 of the code that decides a design's numbers: a run of other code must not be finished by this one.

    Laws, and the engine that compiles them, decides their last bits and keeps its state.
    """
    package = Path(__file__).parent.parent
    engine = (package / "sweep").glob("*.py")
    files = sorted([*(package / "objectives").rglob("*.py"), *(package / "spaces").rglob("*.py"), *engine])
    found = hashlib.sha256()
    for file in files:
        found.update(file.relative_to(package).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return found.hexdigest()

"""The parts of a study file that depend on its space: axes, the records they name, assumptions and the slice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvwall.spaces.axes import AXES, Value, axis_named
from kvwall.spaces.errors import InputError, nearest
from kvwall.spaces.hardware import load_hardware
from kvwall.spaces.models.load import load_model
from kvwall.spaces.space import Space, make_space
from kvwall.spaces.values import axis_values
from kvwall.sweep.study_file.lines import LocatedFaults

MOST_DIMENSIONS = 32
"""A netCDF4 variable has no more."""
MOST_POINTS = 2**63 - 1
"""A grid index is a 64-bit integer."""

_STAND_IN: Mapping[str, object] = {"model": "any", "hardware": "any", "context": 1}
"""Required axes, so that one axis can be checked by itself."""


@dataclass(frozen=True)
class CheckedSpace:
    """The space of the axes without faults, so that what names them can be checked in the same pass."""

    space: Space
    faulty: frozenset[str]
    """Axes left out for their faults, and those tied to one."""


def check_space(stated: Mapping[str, Any], faults: LocatedFaults) -> CheckedSpace:
    """The space of [space], its faults collected."""
    faulty = set()
    for name in stated:
        for fault in _axis_faults(name, stated):
            faults.add(("space", name), fault)
            faulty.add(name)
    for fault in _faults_of({name: value for name, value in _STAND_IN.items() if name in stated}):
        faults.add(("space",), fault)
    faulty |= {name for name, what in stated.items() if isinstance(what, str) and what in faulty}
    sound = {name: what for name, what in stated.items() if name not in faulty}
    missing = {name: value for name, value in _STAND_IN.items() if name not in sound}
    space = make_space({**missing, **sound})
    if space.size > MOST_POINTS:
        faults.add(("space",), f"the grid has {space.size:.3g} points, the most is {MOST_POINTS:.3g}: shorten an axis")
    return CheckedSpace(space, frozenset(faulty))


def _axis_faults(name: str, stated: Mapping[str, Any]) -> tuple[str, ...]:
    """What is wrong with one axis by itself; a tied one is seen with its leader, whose own faults are not its."""
    what = stated[name]
    tied = name in AXES and isinstance(what, str) and what in AXES and what != name
    if not tied:
        return _faults_of({**_STAND_IN, name: what})
    leader = {what: stated[what]} if what in stated else {}
    found = _faults_of({**_STAND_IN, **leader, name: what})
    return tuple(fault for fault in found if fault.startswith(f"{name} "))


def _faults_of(stated: Mapping[str, object]) -> tuple[str, ...]:
    try:
        make_space(stated)
    except InputError as error:
        return error.faults
    except OverflowError:
        return (f"{list(stated)[-1]}: its values exceed what a number holds: shorten the range",)
    return ()


def check_records(stated: Mapping[str, Any], faults: LocatedFaults) -> None:
    """Load every model and chip that [space] names."""
    loaders: Mapping[str, Callable[[str], object]] = {"model": load_model, "hardware": load_hardware}
    for axis, load in loaders.items():
        for position, name in enumerate(_names(stated.get(axis))):
            try:
                load(name)
            except InputError as error:
                faults.absorb(("space", axis, position), error)


def _names(what: object) -> list[str]:
    listed = what if isinstance(what, list) else [what]
    return [name for name in listed if isinstance(name, str) and name and name not in AXES]


def check_assumptions(
    stated: Mapping[str, Any], hardware: object, faults: LocatedFaults
) -> Mapping[str, Mapping[str, str]]:
    """[assume]: chip -> figure -> quantity or tier -> technology, for chips that the hardware axis states."""
    checked: dict[str, dict[str, str]] = {}
    chips = _names(hardware)
    for chip, figures in stated.items():
        if not isinstance(figures, dict):
            faults.add(("assume", chip), f'{chip} = {figures!r}: write "{chip}".figure = "quantity"')
            continue
        if chip not in chips:
            close = nearest(chip, chips)
            faults.add(("assume", chip), f'"{chip}" is not on the hardware axis{close}: add it there or drop this')
            continue
        checked[chip] = {}
        for figure, quantity in figures.items():
            if not isinstance(quantity, str):
                fault = f'{figure} = {quantity!r}: write a quantity in quotes, e.g. "64 GB/s"'
                faults.add(("assume", chip, figure), fault)
                continue
            checked[chip][figure] = quantity
        _check_figures(chip, checked[chip], faults)
    return {chip: figures for chip, figures in checked.items() if figures}


def _check_figures(chip: str, figures: Mapping[str, str], faults: LocatedFaults) -> None:
    """Every fault of a chip's assumptions, at the line of the figure that has it by itself."""
    if _chip_faults(chip, {}):
        return  # reported where the hardware axis names it
    left = dict.fromkeys(_chip_faults(chip, figures))
    for figure, quantity in figures.items():
        for fault in _chip_faults(chip, {figure: quantity}):
            if fault in left:
                faults.add(("assume", chip, figure), fault)
                del left[fault]
    for fault in left:
        faults.add(("assume", chip), fault)


def _chip_faults(chip: str, assume: Mapping[str, str]) -> tuple[str, ...]:
    try:
        load_hardware(chip, assume)
    except InputError as error:
        return error.faults
    return ()


def check_slice(stated: object, checked_space: CheckedSpace, faults: LocatedFaults) -> Mapping[str, tuple[Value, ...]]:
    """[sweep.slice]: dimension -> the values stored, each on the grid, in grid order; none unless it is a table."""
    checked: dict[str, tuple[Value, ...]] = {}
    space = checked_space.space
    for name, what in stated.items() if isinstance(stated, dict) else ():
        path = ("sweep", "slice", name)
        try:
            values = axis_values(axis_named(name), what).values
        except InputError as error:
            faults.absorb(path, error)
            continue
        if name in checked_space.faulty:
            continue
        fault = _slice_fault(name, values, space)
        if fault:
            faults.add(path, fault)
            continue
        checked[name] = tuple(value for value in space.values(name) if value in values)
    stored = [dim for dim in space.dims if len(checked.get(dim, space.values(dim))) > 1]
    if len(stored) > MOST_DIMENSIONS:
        fault = f"{len(stored)} axes are stored with several values, the most is {MOST_DIMENSIONS}: fix or slice some"
        faults.add(("space",), fault)
    return checked


def _slice_fault(name: str, values: Sequence[Value], space: Space) -> str:
    if name in space.leader:
        return f"{name} moves with {space.leader[name]}: slice that axis"
    if name not in space.dims:
        return f"{name} holds one value on this grid, so nothing can be left out: drop it from the slice"
    missing = [value for value in values if value not in space.values(name)]
    if not missing:
        return ""
    grid = space.values(name)
    shown = ", ".join(f"{value}" for value in grid[:8]) + (f" ... {grid[-1]}" if len(grid) > 8 else "")
    return f"{name} = {', '.join(map(str, missing[:5]))} is not on the grid: it holds {shown}"

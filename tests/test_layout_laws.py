"""How KV grows with contexts, devices, bits and eviction: laws that hold for every model."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import jax
import numpy as np
import pytest

from kvwall.objectives.step import evaluate_step
from kvwall.spaces.axes import AXES, Value
from kvwall.spaces.columns import Columns, load_catalogue
from kvwall.spaces.models.layers import Model
from kvwall.spaces.models.load import load_model, loadable_model_names
from kvwall.spaces.space import make_space

UNSEEN = Path(__file__).parent / "data" / "models"
SHARED = str(UNSEEN / "gemma-3n-e4b.json")
EVERY = [*loadable_model_names(), str(UNSEEN / "mistral-7b-v0.1.json"), SHARED]

Ledgers: TypeAlias = dict[str, tuple[np.ndarray, np.ndarray]]

DEVICES = np.array([*range(1, 17), 32, 64, 128, 256])
BITS = (1.0, 1.58, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 15.9)
VARIANTS: dict[str, list[dict[str, Value]]] = {
    "contexts": [{"context": tokens} for tokens in (64, 128, 2**20, 2**21)],
    "devices": [{"tensor_parallel": int(devices)} for devices in DEVICES],
    "evicted": [{"context": 10**5, "retention": kept} for kept in (1.0, 0.5)],
    "read": [{"context": tokens, "retention": kept} for tokens in (1, 100, 5000, 10**6) for kept in (1.0, 0.3)],
    **{
        f"{part} {group}": [{f"{part}_bits": bits, "kv_group_size": group, "residual_window": 32} for bits in BITS]
        for part in ("key", "value")
        for group in (0, 64)
    },
}
"""Designs that the laws are about, each evaluated for every model."""


@pytest.fixture(scope="module")
def loaded() -> list[Model]:
    """Every model, in the order of EVERY."""
    return [load_model(name) for name in EVERY]


@pytest.fixture(scope="module")
def ledgers() -> Ledgers:
    """Of each set of variants KV bytes of one device, read and stored: one row a model, in the order of EVERY."""
    plain = {"hardware": "b200-sxm", "context": 1000}
    stated = [plain | one for variants in VARIANTS.values() for one in variants]
    axes = dict.fromkeys(axis for one in stated for axis in one)
    values = {axis: [one.get(axis, AXES[axis].neutral) for one in stated] for axis in axes}
    space = make_space({axis: list(dict.fromkeys(column)) for axis, column in values.items()} | {"model": EVERY})
    places = {axis: np.array([space.values(axis).index(value) for value in values[axis]]) for axis in axes}
    positions = {name: places[name][:, None] if name in axes else np.arange(len(EVERY))[None] for name in space.dims}
    with jax.enable_x64(True):
        ledger = evaluate_step(Columns(space, load_catalogue(space)).design(positions)).ledger
        read, stored = (np.asarray(found).T for found in (ledger.kv_read, ledger.kv_stored))
    assert read.shape == stored.shape == (len(EVERY), len(values["hardware"]))
    ends = np.cumsum([len(variants) for variants in VARIANTS.values()])[:-1]
    pairs = zip(np.split(read, ends, axis=1), np.split(stored, ends, axis=1), strict=True)
    return dict(zip(VARIANTS, pairs, strict=True))


def test_stored_bytes_grow_by_the_models_bytes_per_token(loaded: list[Model], ledgers: Ledgers) -> None:
    """All layers up to the smallest window, the growing ones past the largest: windowed KV saturates."""
    for name, model, (few, more, many, most) in zip(EVERY, loaded, ledgers["contexts"][1], strict=True):
        assert (more - few) / 64 == pytest.approx(model.kv_bytes_per_token_all_layers, rel=1e-12), name
        assert (most - many) / 2**20 == pytest.approx(model.kv_bytes_per_token_growing, rel=1e-12), name
        fixed = few - 64 * model.kv_bytes_per_token_all_layers
        assert fixed == pytest.approx(model.state_bytes_per_sequence, abs=1e-3), name


def test_devices_past_the_kv_heads_never_lower_a_devices_kv(loaded: list[Model], ledgers: Ledgers) -> None:
    """Heads are replicated and latents always; only a recurrent state goes on dividing."""
    for name, model, found in zip(EVERY, loaded, ledgers["devices"][0], strict=True):
        attention = found - model.state_bytes_per_sequence / DEVICES
        heads = max((group.kv_heads for group in model.groups if group.key_dim), default=1)
        past = attention[heads <= DEVICES]
        np.testing.assert_allclose(past, past[0], rtol=1e-12, atol=1e-3, err_msg=name)
        assert np.all(np.diff(attention) <= 1e-3), name
        if heads == 1:
            np.testing.assert_allclose(attention, attention[0], rtol=1e-12, atol=1e-3, err_msg=name)


@pytest.mark.parametrize("part", ["key", "value"])
@pytest.mark.parametrize("group", [0, 64])
def test_bytes_strictly_increase_in_bits_below_16(loaded: list[Model], ledgers: Ledgers, part: str, group: int) -> None:
    for found in ledgers[f"{part} {group}"]:
        for name, model, steps in zip(EVERY, loaded, np.diff(found, axis=1), strict=True):
            holds = any(getattr(store, f"{part}_dim") for store in model.groups)
            assert np.all(steps > 0) if holds else np.all(steps == 0), name


def test_no_step_reads_more_than_is_stored(loaded: list[Model], ledgers: Ledgers) -> None:
    """Unless layers share a store."""
    for name, model, read, stored in zip(EVERY, loaded, *ledgers["read"], strict=True):
        if all(group.readers == 1 for group in model.groups):
            assert np.all(read <= stored), name
        else:
            assert name == SHARED
            assert np.all(read > stored)


def test_eviction_leaves_windows_and_states_alone(loaded: list[Model], ledgers: Ledgers) -> None:
    for name, model, (whole, half) in zip(EVERY, loaded, ledgers["evicted"][1], strict=True):
        evicted = [group for group in model.groups if group.evictable]
        freed = 0.5 * 10**5 * float(sum(group.bytes_per_token for group in evicted))
        assert whole - half == pytest.approx(freed, rel=1e-9, abs=1e-3), name

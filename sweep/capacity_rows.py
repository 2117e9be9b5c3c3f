"""Rows of engines' start-up logs: read, checked, their labels looked up; a row that cannot be used says why."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kvwall.spaces.engines import Engine, load_engine
from kvwall.spaces.errors import Faults, InputError
from kvwall.spaces.labels import Device, device_of_label, engine_of_labels, model_of_label, tower_bytes
from kvwall.spaces.models.layers import LayerGroup, Model
from kvwall.spaces.models.load import load_model
from kvwall.spaces.models.refused import draft_layers
from kvwall.spaces.models.stored_as import stored_as
from kvwall.sweep import capacity_cells as cell
from kvwall.sweep.single import attempt

_QUANTITIES: Final[Mapping[str, tuple[str, ...]]] = {
    "bytes": ("bytes_per_token",),
    "pool": ("kv_pool_bytes", "kv_pool_bytes_given_parts"),
    "concurrency": ("max_concurrency",),
    "refusal": ("refusal",),
}
"""Word of the column `usable_for` -> quantities it vouches for."""
_OLD_COUNT: Final = "vllm-0.20"
_SAME_COUNT: Final = 0.02
_LABELS: Final = ("engine", "engine_version", "model", "gpu", "weight_dtype", "kv_cache_dtype", "trust")


@dataclass(frozen=True)
class Asked:
    """What an engine was started with; None where the row leaves it to the engine."""

    tensor: int
    pipeline: int
    data: int
    context_parallel: int
    utilisation: float | None
    max_model_length: float | None
    block_size: float | None
    sequences: float | None
    batched_tokens: float | None
    key_bits: float
    state_bits: float
    model_bits: float
    prefix_caching: bool
    draft_tokens: int
    draft_layers: int
    eager: bool


@dataclass(frozen=True)
class Logged:
    """What the engine printed, bytes where it is memory; None where it was not posted."""

    total: float | None
    before: float | None
    after: float | None
    weights: float | None
    activations: float | None
    non_torch: float | None
    graphs: float | None
    pool: float | None
    bytes_per_token: float | None
    max_concurrency: float | None
    refused: bool


@dataclass(frozen=True)
class CapacityRow:
    """One start-up: what was asked for, and what was logged."""

    id: str
    engine: Engine
    model: Model
    device: Device | None
    asked: Asked
    logged: Logged
    tower_bytes: float
    """Encoders beside the language model."""
    counted: frozenset[str]
    """Quantities that the row's collector says it can judge."""
    labels: Mapping[str, str]


def read_rows(path: Path) -> tuple[list[CapacityRow], list[dict[str, str]]]:
    """The usable rows of a CSV file, and the others with reasons. Raises InputError where there is no table at all."""
    rows: list[CapacityRow] = []
    refused: list[dict[str, str]] = []
    seen: set[str] = set()
    for line, cells in _cells(path):
        name = cells.get("id", "")
        try:
            if not name:
                raise InputError("id is blank: give the row a name of its own")
            if name in seen:
                raise InputError(f'id "{name}" stands in an earlier row as well: give each row its own')
            seen.add(name)
            rows.append(row_of(cells))
        except InputError as error:
            refused.append({"id": name or f"line {line}", "reason": "; ".join(error.faults)})
    return rows, refused


def _cells(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.DictReader(stream)
            for cells in reader:
                yield reader.line_num, {key: value.strip() for key, value in cells.items() if key and value}
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}): give the path of a CSV file") from error
    except (UnicodeDecodeError, ValueError) as error:
        raise InputError(f"{path}: not UTF-8 text: save the file as UTF-8") from error
    except csv.Error as error:
        raise InputError(f"{path}: not a CSV file ({error})") from error


def row_of(cells: Mapping[str, str]) -> CapacityRow:
    """The row that these cells state. Raises InputError with every fault."""
    faults = Faults()
    number, size = cell.numbers(cells, faults), cell.sizes(cells, faults)
    engine = attempt(faults, lambda: _engine(cells, number))
    model = attempt(faults, lambda: _model(cells))
    words = cells.get("kv_cache_dtype", "")
    weights = cells.get("weight_dtype", "")
    key_bits = attempt(faults, lambda: cell.cache_bits(words, number["kv_elem_bytes"], weights))
    device = attempt(faults, lambda: device_of_label(cells.get("gpu", "")))
    drafts = cell.draft_tokens(cells, faults)
    faults.raise_if_any()
    if engine is None or model is None or key_bits is None:
        raise InputError("the row cannot be read")
    head = min((group.key_dim for group in model.groups if group.key_dim), default=0)
    asked = Asked(
        tensor=size["tp"],
        pipeline=size["pp"],
        data=size["dp"],
        context_parallel=size["dcp"],
        utilisation=number["mem_fraction"],
        max_model_length=number["max_model_len"] or model.max_positions,
        block_size=number["block_size"],
        sequences=number["max_num_seqs"],
        batched_tokens=number["max_num_batched_tokens"],
        key_bits=key_bits + cell.scale_bits(words, head),
        state_bits=cell.state_bits(words),
        model_bits=32.0 if "32" in weights else 16.0,
        prefix_caching=cell.says(cells, "prefix_caching", r"prefix caching on"),
        draft_tokens=drafts,
        draft_layers=min(draft_layers(model.flags), 1) if drafts else 0,
        eager=cell.says(cells, "enforce_eager", r"\beager\b"),
    )
    labels = {name: cells.get(name, "") for name in _LABELS}
    language_only = cell.says(cells, "language_model_only", r"language-model-only|text-only")
    tower = 0.0 if language_only else tower_bytes(labels["model"])
    logged, counted = _logged(cells, number), _counted(cells)
    return CapacityRow(cells["id"], engine, model, device, asked, logged, tower, counted, labels)


def _engine(cells: Mapping[str, str], number: Mapping[str, float | None]) -> Engine:
    """The band of the row's version. Where it states none, the printed count tells which meaning it has."""
    engine, stated = engine_of_labels(cells.get("engine", ""), cells.get("engine_version", ""))
    tokens, requests, length = number["kv_tokens"], number["max_concurrency"], number["max_model_len"]
    if stated or engine.engine != "vllm" or tokens is None or requests is None or length is None:
        return engine
    by_requests = abs(tokens / (requests * length) - 1) < _SAME_COUNT
    return engine if by_requests else load_engine(_OLD_COUNT)


def _model(cells: Mapping[str, str]) -> Model:
    label = cells.get("model", "")
    if not label:
        raise InputError("model is blank: give a model of the catalogue")
    model = stored_as(load_model(model_of_label(label)), cell.known(cells.get("weight_dtype", "")))
    if any(group.kind == "compressed" for group in model.groups):
        raise InputError(f'model "{label}": how engines lay out compressed caches is not modelled')
    part = re.search(r"\((full|sliding) layers\)", label)
    if part is None:
        return model
    groups = tuple(group for group in model.groups if _is_part(group, part[1]))
    if not groups:
        raise InputError(f'model "{label}": it has no {part[1]} layers: leave out "{part[0]}" for the whole model')
    return replace(model, groups=groups)


def _is_part(group: LayerGroup, part: str) -> bool:
    return group.kind != "recurrent" and (group.window is None) == (part == "full")


def _logged(cells: Mapping[str, str], number: Mapping[str, float | None]) -> Logged:
    pool, tokens = number["kv_pool_GiB"], number["kv_tokens"]
    per_token = pool / tokens if pool is not None and pool > 0 and tokens is not None else number["bytes_per_token"]
    told = f"{cells.get('usable_for', '')} {cells.get('verdict', '')}"
    return Logged(
        total=number["device_total_GiB"],
        before=number["avail_before_GiB"],
        after=number["avail_after_GiB"],
        weights=number["weights_GiB"],
        activations=number["activation_peak_GiB"],
        non_torch=number["non_torch_GiB"],
        graphs=number["cuda_graph_GiB"],
        pool=pool,
        bytes_per_token=per_token,
        max_concurrency=number["max_concurrency"],
        refused="refus" in told,
    )


def _counted(cells: Mapping[str, str]) -> frozenset[str]:
    """Quantities of the overall score: those vouched for, all where the file has no such column; none of trust C."""
    if cells.get("trust", "") == "C":
        return frozenset()
    words = cells.get("usable_for", "bytes+pool+concurrency+refusal").split("+")
    return frozenset(quantity for word in words for quantity in _QUANTITIES.get(word, ()))

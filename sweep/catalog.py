"""What the catalogue holds, as plain records: hardware, models, tiers, engines, studies, axes, metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from fractions import Fraction
from typing import Any, Final

from kvwall.objectives.register import LABELS, label_register, metric_register
from kvwall.spaces.axes import AXES, Axis, axis_named
from kvwall.spaces.engines import Engine, engine_figure, engine_names, load_engine
from kvwall.spaces.errors import InputError, nearest
from kvwall.spaces.figures import FIGURES, Figure, Measure, shown
from kvwall.spaces.hardware import Hardware, hardware_names, load_hardware
from kvwall.spaces.models.layers import Model
from kvwall.spaces.models.load import load_model, model_names
from kvwall.spaces.modes import CEILING, ESTIMATE
from kvwall.spaces.tiers import KINDS, TIER_FIGURES, TierTechnology, load_tier, tier_names
from kvwall.sweep.study import Study, study_names

Entry = dict[str, Any]

_CLASSES: Final = ("query_output", "key_value", "ffn", "router", "head", "embedding")


def section_named(name: str) -> Section:
    """The section of this name. Raises InputError with the nearest names."""
    if name not in SECTIONS:
        raise InputError(f'catalog has no section "{name}"{nearest(name, SECTIONS)}: use one of {", ".join(SECTIONS)}')
    return SECTIONS[name]


def hardware_list() -> list[Entry]:
    """Every device with its main figures; null where no source states one."""
    return [_hardware_line(load_hardware(name)) for name in hardware_names()]


def _hardware_line(chip: Hardware) -> Entry:
    main = ("memory_capacity", "memory_bandwidth", "bf16_flops", "scale_up_bandwidth", "host_link_bandwidth")
    figures: dict[str, Figure | None] = {field: getattr(chip, field) for field in main}
    values = {field: figure.value if figure else None for field, figure in figures.items()}
    return {"name": chip.name, "product": chip.product, "status": chip.status} | values


def hardware_entry(name: str) -> Entry:
    """One device: every figure with value, unit, source and note; null where no source states it."""
    chip = load_hardware(name)
    described = {key: value for key, value in vars(chip).items() if isinstance(value, str)}
    figures = {field: _figure(measure, getattr(chip, field)) for field, measure in FIGURES.items()}
    return described | {"figures": figures, "flags": list(chip.flags)}


def _figure(measure: Measure, figure: Figure | None) -> Entry | None:
    if figure is None:
        return None
    written = {"unit": measure.unit, "shown": shown(measure, figure.value)}
    return {"value": figure.value} | written | {"source": figure.source, "note": figure.note}


def tier_list() -> list[Entry]:
    """Every technology of a tier or link with its figures; null where no source states one."""
    kinds = list(KINDS)
    tiers = [load_tier(name) for name in tier_names()]
    return [_tier_line(tier) for tier in sorted(tiers, key=lambda tier: kinds.index(tier.kind))]


def _tier_line(tier: TierTechnology) -> Entry:
    figures: dict[str, Figure | None] = {field: getattr(tier, field) for field in TIER_FIGURES}
    values = {field: figure.value if figure else None for field, figure in figures.items()}
    return {"name": tier.name, "kind": tier.kind, "unit": tier.unit, "status": tier.status} | values


def tier_entry(name: str) -> Entry:
    """One technology: every figure with value, unit, source and note; null where no source states it."""
    tier = load_tier(name)
    described = {key: value for key, value in vars(tier).items() if isinstance(value, str)}
    figures = {field: _figure(measure, getattr(tier, field)) for field, measure in TIER_FIGURES.items()}
    return described | {"meaning": KINDS[tier.kind], "figures": figures}


def model_list() -> list[Entry]:
    """Every model; one whose layout is not supported yet says why."""
    return [_model_line(name) for name in model_names()]


def _model_line(name: str) -> Entry:
    try:
        model = load_model(name)
    except InputError as error:
        return {"name": name, "supported": False, "reason": "; ".join(error.faults).removeprefix(f"{name}: ")}
    return {
        "name": name,
        "supported": True,
        **_counts(model),
        "layers": model.decoder_layers,
        "max_positions": model.max_positions,
        "weight_bits": model.weight_payload_bits,
        "flags": list(model.flags),
    }


def model_entry(name: str) -> Entry:
    """One model, counted from its architecture; KV at 16 bits per element."""
    model = load_model(name)
    return {
        "name": model.name,
        "model_type": model.model_type,
        "source": model.source,
        **_counts(model),
        "weight_bits": model.weight_payload_bits,
        "weight_bits_stored": _stored_bits(model),
        "parameters_by_class": _by_class(model),
        "experts": None if model.experts is None else asdict(model.experts),
        "decoder_layers": model.decoder_layers,
        "layers": [asdict(group) | {"bytes_per_token": _plain(group.bytes_per_token)} for group in model.groups],
        "hidden": model.hidden,
        "intermediate": model.intermediate,
        "vocab": model.vocab,
        "max_positions": model.max_positions,
        "tied_embeddings": model.tied_embeddings,
        "flags": list(model.flags),
    }


def _counts(model: Model) -> Entry:
    return {
        "parameters_total": model.parameters_total,
        "parameters_active": model.parameters_active,
        "kv_bytes_per_token_growing": model.kv_bytes_per_token_growing,
        "kv_bytes_per_token_all_layers": model.kv_bytes_per_token_all_layers,
        "state_bytes_per_sequence": model.state_bytes_per_sequence,
    }


def _plain(number: Fraction) -> float:
    """A whole number as one."""
    return int(number) if number.denominator == 1 else float(number)


def _stored_bits(model: Model) -> Entry:
    """Bits per element with scales, of the classes that the model has."""
    bits = {each: getattr(model, f"{each}_bits") for each in _CLASSES if getattr(model, each)}
    return bits | ({"experts": model.experts.bits} if model.experts else {})


def _by_class(model: Model) -> Entry:
    return {each: getattr(model, each) for each in (*_CLASSES, "vectors", "layer_embedding")}


def engine_list() -> list[Entry]:
    """The engines whose memory rules exist, and their bands of versions."""
    return [_engine_line(name, load_engine(name)) for name in engine_names()]


def _engine_line(name: str, engine: Engine) -> Entry:
    """An engine's own name is its newest band; "from_version" is the first version of the band."""
    version = ".".join(map(str, engine.from_version)) if any(engine.from_version) else None
    return {"name": name, "band": engine.name, "from_version": version, "meaning": engine.meaning}


def engine_entry(name: str) -> Entry:
    """One engine: what its memory fraction means, and every figure with its source."""
    engine = load_engine(name)
    figures = {
        key: {"value": figure.value, "shown": engine_figure(key, figure.value)}
        | {"source": figure.source, "note": figure.note}
        for key, figure in engine.figures.items()
    }
    return _engine_line(name, engine) | {"figures": figures}


def study_list() -> list[Entry]:
    """The shipped studies."""
    return [_study_line(Study.load(name)) for name in study_names()]


def _study_line(study: Study) -> Entry:
    objectives = [f"{each.sense} {each.metric}" for each in study.objectives]
    return {"name": study.name, "points": study.space.size, "mode": study.mode, "objectives": objectives}


def study_entry(name: str) -> Entry:
    """One study: its grid, objectives and constraints, and its text."""
    study = Study.load(name)
    grid = dict(zip(study.space.dims, study.space.shape, strict=True))
    constraints = [str(each) for each in study.constraints]
    return _study_line(study) | {"dimensions": grid, "constraints": constraints, "text": study.text}


def axis_list() -> list[Entry]:
    """The axes of a design."""
    return [_axis_line(axis) for axis in AXES.values()]


def axis_entry(name: str) -> Entry:
    """One axis."""
    return _axis_line(axis_named(name.replace("-", "_")))


def _axis_line(axis: Axis) -> Entry:
    described = {"name": axis.name, "kind": axis.kind, "neutral": axis.neutral}
    return described | {"required": axis.required, "allowed": axis.allowed, "meaning": axis.meaning}


def metric_list() -> list[Entry]:
    """Metrics and labels of every mode: `modes` says which have them, `evidence` what a ceiling's number rests on."""
    ceilings, estimates = (metric_register("aggregate", mode) for mode in (CEILING, ESTIMATE))
    metrics: list[Entry] = [
        {
            "name": name,
            "unit": metric.unit,
            "evidence": ceilings.get(name, metric).evidence,
            "evidence_in_estimates": metric.evidence,
            "modes": [CEILING, ESTIMATE] if name in ceilings else [ESTIMATE],
            "meaning": metric.meaning,
        }
        for name, metric in estimates.items()
    ]
    for entry in metrics[:]:
        if entry["name"] in {"quality_loss", "quality_loss_upper"}:
            entry["meaning"] = entry["meaning"].replace("task aggregate", "the asked task")
    labels = [
        {
            "name": name,
            "values": list(label.meanings),
            "modes": [CEILING, ESTIMATE] if name in label_register(CEILING) else [ESTIMATE],
            "meaning": label.meaning,
        }
        for name, label in LABELS.items()
    ]
    return [*metrics, *labels]


def metric_entry(name: str) -> Entry:
    """One metric or label."""
    entries = {entry["name"]: entry for entry in metric_list()}
    if name not in entries:
        raise InputError(f'metric "{name}" is unknown{nearest(name, entries)}: `kvwall catalog metrics` lists them')
    return entries[name]


Section = tuple[Callable[[], list[Entry]], Callable[[str], Entry]]
"""How a section is listed, and how one entry is read."""

SECTIONS: Final[Mapping[str, Section]] = {
    "hardware": (hardware_list, hardware_entry),
    "models": (model_list, model_entry),
    "tiers": (tier_list, tier_entry),
    "engines": (engine_list, engine_entry),
    "studies": (study_list, study_entry),
    "axes": (axis_list, axis_entry),
    "metrics": (metric_list, metric_entry),
}

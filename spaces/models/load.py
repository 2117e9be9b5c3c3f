"""A `Model` from a catalogue id or from the path of a Hugging Face `config.json`."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

from kvwall.spaces.errors import InputError, nearest
from kvwall.spaces.models.assemble import assemble
from kvwall.spaces.models.config import Config, parse_object
from kvwall.spaces.models.formats import WeightFormat, read_format
from kvwall.spaces.models.language import language_model
from kvwall.spaces.models.layers import Model
from kvwall.spaces.models.precision import read_dtype_bits
from kvwall.spaces.models.refused import flag_drafts, refuse_foreign_keys

FORMAT_IN_NAME = re.compile(r"(?i:NVFP4|MXFP4|FP8|INT8|INT4|W4A16|W8A8|AWQ|GPTQ)")
"""A weight format that a checkpoint's name states."""

CATALOGUE = Path(__file__).resolve().parent.parent / "catalog" / "models"
LARGEST_FILE = 4 * 1024 * 1024
"""Bytes of a config.json, with room to spare for the longest lists of unquantized modules."""
MODELOPT_FILE = "hf_quant_config.json"
"""NVIDIA ModelOpt states the weight format in this file beside the config, not inside it."""


@cache
def model_names() -> tuple[str, ...]:
    """Ids of all models in the catalogue, those whose layout is refused included."""
    files = (path.stem for path in CATALOGUE.glob("*.json") if not path.name.endswith(f".{MODELOPT_FILE}"))
    return tuple(sorted(stem.replace("--", "/", 1) for stem in files))


@cache
def loadable_model_names() -> tuple[str, ...]:
    """Ids of the models in the catalogue whose layout is supported."""
    return tuple(name for name in model_names() if _loads(name))


def load_model(name_or_path: str) -> Model:
    """The model of a catalogue id, or of a `config.json` (or the folder that holds one).

    Raises InputError, with every fault of the file, for an unknown name, an unreadable or malformed
    file, missing or impossible values, and layouts that are not supported yet.
    """
    if name_or_path in model_names():
        return _from_catalogue(name_or_path)
    path = Path(name_or_path)
    if _is_there(path):
        file = path / "config.json" if path.is_dir() else path
        return _from_file(file, file.with_name(MODELOPT_FILE), name_or_path, str(file))
    if path.suffix == ".json":
        raise InputError(f"{name_or_path}: no such file: give the path of a config.json or a catalogue name")
    raise InputError(
        f"model '{name_or_path}' is not in the catalogue{nearest(name_or_path, model_names())}: "
        "give a catalogue name or the path of a config.json"
    )


def read_model(text: str, name: str, source: str, modelopt: str | None = None) -> Model:
    """The model that the text of a config.json describes; `modelopt` is the sibling file's text.

    Raises InputError with every fault found.
    """
    root = Config(parse_object(text, name), name)
    language, model_type, construct = language_model(root)
    architecture = construct(language)
    refuse_foreign_keys(language)
    flag_drafts(language)
    dtype_bits = read_dtype_bits(root, language)
    sibling = None if modelopt is None else Config(parse_object(modelopt, MODELOPT_FILE), MODELOPT_FILE, root)
    weight_format = read_format(root, language, sibling)
    _flag_name(root, name, weight_format)
    root.settle()
    model = assemble(root, architecture, dtype_bits, weight_format)
    return replace(model, name=name, model_type=model_type, source=source, flags=tuple(dict.fromkeys(root.flags)))


def _flag_name(root: Config, name: str, weight_format: WeightFormat | None) -> None:
    found = FORMAT_IN_NAME.search(name)
    if found and weight_format is None:
        root.flags.append(
            f"the name says {found.group()} but neither config.json nor {MODELOPT_FILE} states a weight format: "
            "plain dtype taken"
        )


@cache
def _from_catalogue(name: str) -> Model:
    file = CATALOGUE / f"{name.replace('/', '--', 1)}.json"
    return _from_file(file, file.with_suffix(f".{MODELOPT_FILE}"), name, _sources().get(file.name, file.name))


def _from_file(file: Path, sibling: Path, name: str, source: str) -> Model:
    modelopt = _read_text(sibling, name) if _is_there(sibling) else None
    return read_model(_read_text(file, name), name, source, modelopt)


def _read_text(file: Path, name: str) -> str:
    try:
        if not file.is_file():  # a folder, a pipe or a device has no end, or none that is worth waiting for
            raise InputError(f"{name}: cannot read {file}: it is no regular file: give the path of a config.json")
        with file.open("rb") as stream:
            content = stream.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise InputError(f"{name}: {file} is larger than {LARGEST_FILE} bytes: give a config.json, not its weights")
        return content.decode("utf-8")
    except OSError as fault:
        raise InputError(f"{name}: cannot read {file}: {fault.strerror}") from fault
    except UnicodeDecodeError as fault:
        raise InputError(f"{name}: {file} is not UTF-8 text: give a config.json") from fault


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long, or with a null byte, is no path
        return False


@cache
def _sources() -> dict[str, str]:
    with (CATALOGUE / "sources.csv").open(newline="", encoding="utf-8") as lines:
        return {row["file"]: f"{row['kind']}: {row['source']}" for row in csv.DictReader(lines)}


def _loads(name: str) -> bool:
    try:
        load_model(name)
    except InputError:
        return False
    return True

"""Labels that need no alias: catalogue names, paths of a user's own records, and names of the same matrices.

A fine-tuned checkpoint has the matrices of the one it started from, so words that only say how it was tuned are left
out when a model is looked up; a name that states a weight format is taken as it stands.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from kvwall.spaces.hardware import hardware_names
from kvwall.spaces.models.load import FORMAT_IN_NAME, model_names

_TUNING: Final = frozenset({"meta", "base", "chat", "gguf", "hf", "instruct", "it", "pt"})
_NOMINAL: Final = "paper/"


def own_hardware(label: str) -> str:
    """The label itself where it is a name of the catalogue or the path of a chip's file; '' elsewhere.

    >>> own_hardware("h100-sxm"), own_hardware("my laptop")
    ('h100-sxm', '')
    """
    known = label in _hardware_names() or (label.endswith(".toml") and _is_file(Path(label)))
    return label if known else ""


def own_model(label: str) -> str:
    """The catalogue id, or the path of a config.json, that a label stands for by itself; '' where there is none.

    >>> own_model("meta-llama/Llama-3.1-8B-Instruct")
    'meta-llama/Meta-Llama-3.1-8B'
    >>> own_model("some-org/Llama-3.1-8B-FP8")
    ''
    """
    if not label or label in model_names():
        return label
    path = Path(label)
    if _is_file(path if path.suffix == ".json" else path / "config.json"):
        return label
    return "" if FORMAT_IN_NAME.search(label) else _by_matrices().get(_matrices(label), "")


def _matrices(name: str) -> str:
    """What is left of a name without its owner and the words of its tuning."""
    words = name.rstrip("/").rpartition("/")[2].lower().split("-")
    return "-".join(word for word in words if word not in _TUNING)


@cache
def _by_matrices() -> dict[str, str]:
    """Names without tuning -> the catalogue's only id of that name; formats and nominal models left out."""
    found: dict[str, str] = {}
    for name in model_names():
        if not (name.startswith(_NOMINAL) or FORMAT_IN_NAME.search(name)):
            key = _matrices(name)
            found[key] = "" if key in found else name
    return found


@cache
def _hardware_names() -> frozenset[str]:
    return frozenset(hardware_names())


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name too long, or with a null byte, is no path
        return False

"""The language model inside a config: where it sits, its family, and that family's constructor."""

from __future__ import annotations

from kvwall.spaces.errors import nearest
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.generic import generic
from kvwall.spaces.models.refused import REFUSED_TYPES
from kvwall.spaces.models.register import ALIASES, CONSTRUCTORS, FLAT_WRAPPERS, REUSED, WRAPPERS, Constructor

_PARTS = ("text_config", "llm_config", "language_config")
_INHERITED = ("tie_word_embeddings",)
"""Keys at the top of a multimodal config that hold for its language part."""

UNVERIFIED = "unverified_architecture"


def language_model(root: Config) -> tuple[Config, str, Constructor]:
    """The part of the config that describes the language model, its model_type, and its constructor.

    Raises InputError at once where the type is missing or refused: no other key means anything then.
    """
    model_type = root.text("model_type")
    language = root
    part = next((part for part in _PARTS if isinstance(root.values.get(part), dict)), None)
    if model_type in WRAPPERS and (part or model_type not in FLAT_WRAPPERS):
        root.flags.append(WRAPPERS[model_type])
        language = _inner(root, part or _PARTS[0])
        model_type = language.text("model_type")
    elif model_type in FLAT_WRAPPERS:
        root.flags.append(WRAPPERS[model_type])
        model_type = FLAT_WRAPPERS[model_type]
    elif model_type not in CONSTRUCTORS and model_type not in REFUSED_TYPES and part and _known_type(root, part):
        root.flags.append(f"{UNVERIFIED}: model_type '{model_type}' is not known, its {part} is counted")
        language = _inner(root, part)
        model_type = language.text("model_type")
    if model_type is None:
        root.missing.append("model_type")
    elif model_type in REFUSED_TYPES:
        root.refuse(f"{REFUSED_TYPES[model_type]} (model_type '{model_type}')")
    root.settle()
    return language, str(model_type), _constructor(language, str(model_type))


def _inner(root: Config, part: str) -> Config:
    language = root.section(part)
    stated = {key: root.values[key] for key in _INHERITED if root.states(key)}
    return language.with_values(stated) if stated else language


def _known_type(root: Config, part: str) -> bool:
    inner = root.section(part).values.get("model_type")
    return isinstance(inner, str) and ALIASES.get(inner, inner) in CONSTRUCTORS


def _constructor(language: Config, model_type: str) -> Constructor:
    key, other = REUSED.get(model_type, ("", None))
    if other is not None and language.states(key):
        return other
    family = ALIASES.get(model_type, model_type)
    if family in CONSTRUCTORS:
        return CONSTRUCTORS[family]
    known = sorted({*CONSTRUCTORS, *WRAPPERS} - {"nominal"}, key=str.lower)
    language.flags.append(f"{UNVERIFIED}: model_type '{model_type}' is not known{nearest(model_type, known)}")
    return generic

"""Native bits per weight of each tensor class, module by module where a format spares some of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import translate

from kvwall.spaces.errors import InputError
from kvwall.spaces.models.architecture import Architecture, Projection, TensorClass
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.formats import WeightFormat

DTYPE_BITS = {"bfloat16": 16, "float16": 16, "half": 16, "float32": 32, "float": 32}
MOST_PATTERNS = 1_000
"""Wildcards and regular expressions are tried on every matrix."""
_PREFIXES = ("model.", "model.language_model.", "language_model.model.", "language_model.")
_NOT_COUNTED = re.compile(r"norm|vision|projector|tower|embed|visual|lm_head|gate$|router|mtp|bias|conv1d")


def read_dtype_bits(root: Config, language: Config) -> int:
    """Bits of the checkpoint's own dtype: `dtype` or `torch_dtype`, at the top or in the language part."""
    for holder in (root, language):
        name = holder.text("dtype") or holder.text("torch_dtype")
        if name is not None:
            bits = DTYPE_BITS.get(name.removeprefix("torch."))
            if bits is None:
                holder.faults.add(f"{holder.where}: dtype '{name}' is not known: supported are {', '.join(DTYPE_BITS)}")
            return bits or 16
    root.flags.append("weight format not stated: 16-bit assumed")
    return 16


@dataclass(frozen=True)
class ClassBits:
    """Bits of one tensor class: stored on average, and the payload that most of its parameters have."""

    stored: float
    payload: int


class NativeBits:
    """The bits of an architecture's matrices under a checkpoint's format (None: plain dtype).

    Raises InputError on creation when the format's list of unquantized modules holds a broken
    regular expression.
    """

    def __init__(self, architecture: Architecture, dtype_bits: int, weight_format: WeightFormat | None) -> None:
        self._architecture = architecture
        self._dtype = ClassBits(dtype_bits, dtype_bits)
        self._format = weight_format
        self._kept = KeptModules(weight_format.kept if weight_format else ())

    def of_class(self, tensor_class: TensorClass) -> ClassBits:
        """Average over all layers' matrices of the class, each quantized unless the format keeps it.

        Routers stay in the checkpoint's dtype: formats leave them alone, often without saying so.
        """
        parameters = self._architecture.parameters(tensor_class)
        form = self._format
        if form is None or not parameters or tensor_class == "router" or not form.reaches(tensor_class):
            return self._dtype
        kept = sum(
            matrix.elements
            for module, matrix in self._matrices()
            if matrix.tensor_class == tensor_class and (matrix.plain or module in self._kept)
        )
        payload, overhead = form.bits_of(tensor_class)
        stored = (kept * self._dtype.stored + (parameters - kept) * (payload + overhead)) / parameters
        return ClassBits(stored, self._dtype.payload if 2 * kept > parameters else payload)

    def of_head(self) -> ClassBits:
        """The LM head: plain unless the format reaches it; a tied head is the embedding, never quantized."""
        reached = self._format is not None and self._format.head and "lm_head" not in self._kept
        if self._format is None or not reached or self._architecture.tied_embeddings:
            return self._dtype
        return ClassBits(self._format.payload_bits + self._format.overhead_bits, self._format.payload_bits)

    def flags(self) -> list[str]:
        """A flag for entries of the list that name no counted matrix (another naming, a typing error)."""
        strays = [
            entry
            for entry in self._kept.strays(module for module, _ in self._matrices())
            if not _NOT_COUNTED.search(entry)
        ]
        if not strays:
            return []
        return [f"{len(strays)} entries of the list of unquantized modules name no counted matrix, e.g. {strays[0]}"]

    def _matrices(self) -> Iterator[tuple[str, Projection]]:
        for matrix in self._architecture.model_matrices:
            yield matrix.module, matrix
        for number, layer in enumerate(self._architecture.layers):
            for matrix in layer.projections:
                yield f"{self._architecture.layer_path}.{number}.{matrix.module}", matrix


class KeptModules:
    """Modules a format leaves alone, in the three spellings in use.

    An entry is a module's name or a run of its dotted parts; a wildcard; or a regular expression after
    "re:". A name is also tried under the prefixes that multimodal wrappers put before it.

    >>> "model.layers.3.self_attn.q_proj" in KeptModules(["model.layers.3.self_attn", "lm_head"])
    True
    >>> "model.layers.33.self_attn.q_proj" in KeptModules(["model.layers.3.self_attn", "lm_head"])
    False
    """

    def __init__(self, entries: Iterable[str]) -> None:
        self._patterns: dict[str, re.Pattern[str]] = {}
        plain: list[str] = []
        for entry in entries:
            if len(self._patterns) == MOST_PATTERNS:
                raise InputError(f"more than {MOST_PATTERNS} patterns in the list of unquantized modules")
            if entry.startswith("re:"):
                self._patterns[entry] = _compiled(entry)
            elif "*" in entry:
                self._patterns[entry] = re.compile(f"{translate(entry)}|{translate(entry + '.*')}")
            else:
                plain.append(entry)
        self._plain = dict.fromkeys(plain)
        self._found: dict[str, set[str]] = {}

    def __contains__(self, module: str) -> bool:
        return bool(self._matching(module))

    def strays(self, modules: Iterable[str]) -> list[str]:
        """Entries that keep none of `modules`."""
        used: set[str] = set()
        for module in modules:
            used.update(self._matching(module))
        return [entry for entry in (*self._plain, *self._patterns) if entry not in used]

    def _matching(self, module: str) -> set[str]:
        if module not in self._found:
            self._found[module] = self._search(module)
        return self._found[module]

    def _search(self, module: str) -> set[str]:
        names = {module, *(prefix + module.removeprefix("model.") for prefix in _PREFIXES)}
        found = {run for name in names for run in _runs(name)} & self._plain.keys() if self._plain else set()
        found |= {entry for entry, pattern in self._patterns.items() if any(map(pattern.match, names))}
        return found


def _runs(name: str) -> Iterator[str]:
    parts = name.split(".")
    for start in range(len(parts)):
        for stop in range(start + 1, len(parts) + 1):
            yield ".".join(parts[start:stop])


def _compiled(entry: str) -> re.Pattern[str]:
    try:
        return re.compile(entry.removeprefix("re:"))
    except re.error as fault:
        raise InputError(f"'{entry}' in the list of unquantized modules is no regular expression: {fault}") from fault

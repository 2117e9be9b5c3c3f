"""Which designs of a study a veto is about, told from their axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kvwall.spaces.vetoes import scores_blindly, smallest_key_bits, smallest_naive_bits
from kvwall.sweep.study import Study

_Columns: TypeAlias = Mapping[str, NDArray[Any]]


def concerned_by(veto: str, study: Study) -> Callable[[_Columns], NDArray[np.bool_]]:
    """Says of each of some designs, axis -> values, whether the veto applies to it."""
    models = dict(zip(map(str, study.space.values("model")), study.catalogue.models, strict=True))

    def too_few(axes: Sequence[str], smallest: Callable[..., float], by: Sequence[str]) -> Callable[..., Any]:
        def concerned(at: _Columns) -> Any:
            bits = np.min([np.asarray(at[axis], np.float64) for axis in axes], axis=0)
            rows = zip(*(map(str, at[axis]) for axis in by), strict=True)
            return bits < np.array([smallest(models[name], *others) for name, *others in rows], np.float64)

        return concerned

    def drops_blindly(at: _Columns) -> Any:
        named = zip(at["evictor"], at["question_visible"], strict=True)
        return (at["retention"] < 1) & np.array([scores_blindly(str(by), bool(seen)) for by, seen in named], bool)

    return {
        "k_outliers": too_few(["key_bits"], smallest_key_bits, ["model"]),
        "naive_low_bits": too_few(["key_bits", "value_bits"], smallest_naive_bits, ["model", "quantizer"]),
        "blind_retrieval": drops_blindly,
    }[veto]

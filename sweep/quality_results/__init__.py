"""Results of evaluation programs as quality rows: a user's own, in the columns of the published tables.

`read` is the entry; `formats` the register, `format` what each of its entries can do: `own_columns`, `lm_eval` (with
`lm_eval_run`) and `kvpress` (with `kvpress_run`). `document` reads files; `result` is one score as a format finds it;
`stated` what the user says beside the files; `pairing` sets scores beside their baselines; `assemble` makes the rows,
whose columns are in `cells`.
"""

from kvwall.sweep.quality_results.cells import COLUMNS, QualityCells, Refusal
from kvwall.sweep.quality_results.formats import FORMATS
from kvwall.sweep.quality_results.read import read_results
from kvwall.sweep.quality_results.stated import OPTIONS

__all__ = ["COLUMNS", "FORMATS", "OPTIONS", "QualityCells", "Refusal", "read_results"]

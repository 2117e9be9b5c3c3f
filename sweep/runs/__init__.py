"""Results of benchmark programs as measured rows, whatever program wrote them.

`read` is the entry; `formats` the register: one file per format says how a result is recognised and what it states;
`documents` reads the results of a file; `result` is one result field by field, and what was found in it; `stated` joins
what the user states; `assemble` makes the rows; `serving` and `table` are what several formats share.
"""

from kvwall.sweep.runs.read import Runs, read_runs
from kvwall.sweep.runs.stated import OPTIONS

__all__ = ["OPTIONS", "Runs", "read_runs"]

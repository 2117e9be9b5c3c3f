"""Remedies of the memory wall: what each family is worth at a design, the best combination, and where each pays.

`answer` is the entry; `family` the abstract class, one file per family, `register` the dict of them; `outcome`
evaluates designs, `choose` picks a family's setting, `combine` searches all families together, `map` goes over context
and batch, `sentences` says why, `page` and `table` show it.
"""

from kvwall.sweep.remedies.answer import RemediesReport, remedies

__all__ = ["RemediesReport", "remedies"]

"""The page a person looks at: `report.html`, self-contained and offline."""

from kvwall.sweep.report.page import write_report

__all__ = ["write_report"]

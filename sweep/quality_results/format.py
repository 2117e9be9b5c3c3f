"""What a format of evaluation results is: how a file of it is recognised, and read."""

from __future__ import annotations

from abc import ABC, abstractmethod

from kvwall.sweep.quality_results.document import Document
from kvwall.sweep.quality_results.result import Sheet
from kvwall.sweep.quality_results.stated import Stated


class Format(ABC):
    """A format; one file beside this one each, one line in `formats.FORMATS`."""

    @abstractmethod
    def recognises(self, document: Document) -> bool:
        """Whether the file is of this format; no file is of two."""

    @abstractmethod
    def read(self, document: Document, stated: Stated) -> Sheet:
        """The scores of the file, and what is no score. Raises InputError where the file as a whole is none."""

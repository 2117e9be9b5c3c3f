"""Files of evaluation results as quality rows; each file's format is told by what is in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kvwall.spaces.errors import Faults, InputError
from kvwall.sweep.quality_results.assemble import Assembling
from kvwall.sweep.quality_results.cells import QualityCells, Refusal
from kvwall.sweep.quality_results.document import files_of, read_document
from kvwall.sweep.quality_results.formats import FORMATS, format_of
from kvwall.sweep.quality_results.pairing import Pairing
from kvwall.sweep.quality_results.result import Result, Sheet
from kvwall.sweep.quality_results.stated import Stated, option, read_stated


def read_results(paths: Sequence[Path], stated: Mapping[str, str]) -> tuple[list[QualityCells], list[Refusal]]:
    """The quality rows of files in any of the formats of `FORMATS`, and what is none with the reasons.

    Every compressed result is set beside the 16-bit, full-cache result of the same model, benchmark, subtask and
    context: of its own row, of any file of the call, or of the file stated as `baseline`. A result without one is
    refused, as is one that was evaluated otherwise than its baseline, or that is there already.

    Args:
        paths: files, or folders of results of evaluation programs; each is read once.
        stated: what files leave open, by the names of `OPTIONS`: "method", "bits_k", "retention", "baseline", ... It
            speaks for every file that does not say itself that nothing was compressed, but for the baseline.

    Raises:
        InputError: with every fault of every file, each after its file's name: what cannot be read, whose format is not
            known; and where no file holds a compressed result.
    """
    user = read_stated(stated)
    faults = Faults()
    if not paths:
        faults.add("no file is named: give the results of an evaluation")
    given = {_same(path) for path in user.baselines}
    sheets: list[Sheet] = []
    for path in _once((*_files(paths, faults), *user.baselines)):
        try:
            sheets.append(_read(path, user, _same(path) in given))
        except InputError as error:
            faults.absorb(error)
    faults.raise_if_any()
    refused = [each for sheet in sheets for each in sheet.refused]
    pairing = Pairing(user)
    pairing.pair([each for sheet in sheets for each in sheet.results])
    made = Assembling(user)
    made.add(pairing.pairs)
    refused += [*pairing.refused, *made.refused]
    if not made.rows and not refused:
        raise InputError(
            f"no file holds a compressed result: all were taken as baselines; say what was compressed with "
            f"{option('method')} and {option('bits_k')}, {option('bits_v')} or {option('retention_ratio')}, and which "
            f"file is the baseline with {option('baseline')}"
        )
    return made.rows, refused


def _read(path: Path, stated: Stated, is_baseline: bool) -> Sheet:
    document = read_document(path)
    sheet = FORMATS[format_of(document)].read(document, stated)
    if not is_baseline:
        return sheet
    results: tuple[Result, ...] = tuple(replace(each, given_baseline=True) for each in sheet.results)
    return Sheet(results, sheet.refused)


def _files(paths: Iterable[Path], faults: Faults) -> Iterable[Path]:
    for path in paths:
        try:
            yield from files_of(path)
        except InputError as error:
            faults.absorb(error)


def _once(paths: Iterable[Path]) -> Iterable[Path]:
    """Each file the first time it is named."""
    found: dict[Path, Path] = {}
    for path in paths:
        found.setdefault(_same(path), path)
    return found.values()


def _same(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, ValueError, RuntimeError):
        return path

"""Write `docs/ceiling.md`: published decode speeds against the ceiling; `--check` only compares.

Run `python docs/ceiling.py [--check]`.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median

from kvwall.spaces.aliases import load_aliases
from kvwall.sweep.ceiling_check import Cause, CeilingCheck, Comparison, ceiling_check, load_causes
from kvwall.sweep.measured_rows import read_rows

PAGE = Path(__file__).parent / "ceiling.md"
_NO_PRECISION = "not stated"

_HEAD = """# Measured decode speeds against the ceiling

Written by `python docs/ceiling.py`; do not edit.

The ceiling is a bound: perfect overlap at datasheet peaks. Published measurements must not beat it. The rows are those
of `spaces/catalog/measured/decode.parquet`: results of others, each with its source, whose batch, parallelism and
precision are known. `spaces/catalog/aliases/decode.toml` says which catalogue entries their labels stand for and what
is taken where they state no precision.

- Each row is compared in its own metric; the table shows measured speed over the ceiling's, so 1 is the ceiling.
- Time per token is taken at the mean context of the output, input + output/2. Rows that include prefill, their own or
  that of other requests, are slower than decode alone. A latency is compared with output - 1 steps: the first token
  comes out of prefill.
- Where a source leaves something open, the faster reading is taken: scales of narrow formats left out, all-reduces in
  the format of the activations, an 8-bit KV cache where the engine may have one.
- A time per token at a batch that does not fit the memory is no time of that batch, and refused. A throughput there is
  kept: fewer sequences at once have a lower ceiling.
- Repeated measurements of one configuration count once, by the fastest. Most configurations come from three sources, so
  the medians describe these, not engines in general.
- Lengths of InferenceX rows are nominal: they vary, and are a tenth shorter on average.
"""


def page(check: CeilingCheck, causes: Sequence[Cause]) -> str:
    """The whole page."""
    return "\n".join([_HEAD, *_totals(check), *_groups(check, causes), *_exceptions(check, causes), *_refused(check)])


def _totals(check: CeilingCheck) -> Iterator[str]:
    rows, configurations = len(check.compared), len(check.fastest)
    ratios = [each.ratio for each in check.fastest]
    yield f"{rows:,} rows compared, {configurations:,} configurations; {len(check.refused):,} rows refused."
    yield f"Median {median(ratios):.2f} of the ceiling. {len(check.beating)} rows beat it, for causes listed below."
    faster = sum(each.ratio > 1 for each in check.too_large)
    yield f"Of the {len(check.too_large)} rows refused because their batch does not fit, {faster} would.\n"


def _groups(check: CeilingCheck, causes: Sequence[Cause]) -> Iterator[str]:
    groups: dict[tuple[str, str, str], list[Comparison]] = defaultdict(list)
    for each in check.fastest:
        row = each.usable.row
        precision = row.weight_precision.partition(" (")[0] or _NO_PRECISION
        groups[str(each.usable.axes["hardware"]), each.usable.framework, precision].append(each)
    listed = {row for cause in causes for row in cause.rows}
    yield "## By hardware, framework and weight precision\n"
    yield "| hardware | framework | weights | configurations | median | highest | highest but for the exceptions |"
    yield "| --- | --- | --- | ---: | ---: | ---: | ---: |"
    for key, members in sorted(groups.items()):
        ratios = [each.ratio for each in members]
        others = max((f"{each.ratio:.2f}" for each in members if each.id not in listed), default="")
        cells = (*key, str(len(members)), f"{median(ratios):.2f}", f"{max(ratios):.2f}", others)
        yield "| " + " | ".join(cells) + " |"
    yield ""


def _exceptions(check: CeilingCheck, causes: Iterable[Cause]) -> Iterator[str]:
    beating = {each.id: each for each in check.beating}
    yield "## Exceptions\n"
    for cause in causes:
        yield f"### {cause.cause[0].upper()}{cause.cause[1:]}\n"
        yield f"{cause.explanation.strip()}\n"
        yield "| row | hardware | framework | devices | batch | input/output | measured/ceiling |"
        yield "| --- | --- | --- | ---: | ---: | ---: | ---: |"
        for each in (beating[row] for row in cause.rows if row in beating):
            row = each.usable.row
            lengths = f"{row.input_tokens}/{row.output_tokens}"
            cells = (each.id, str(each.usable.axes["hardware"]), each.usable.framework, str(row.n_devices))
            yield "| " + " | ".join((*cells, str(row.batch_or_concurrency), lengths, f"{each.ratio:.2f}")) + " |"
        yield ""


def _refused(check: CeilingCheck) -> Iterator[str]:
    counts = Counter(reason for reasons in check.refused.values() for reason in reasons)
    yield "## Refused rows\n"
    yield "A row may have several reasons.\n"
    yield "| reason | rows |"
    yield "| --- | ---: |"
    for reason, count in sorted(counts.items(), key=lambda each: (-each[1], each[0])):
        yield f"| {reason} | {count} |"
    yield "\n## Defaults for rows that state no KV precision\n"
    yield "The first that holds.\n"
    yield "| rows | bits | because |"
    yield "| --- | ---: | --- |"
    for default in load_aliases().kv_default:
        conditions = [default.text, *default.model, *default.hardware, *default.framework, *default.weights]
        yield f"| {', '.join(filter(None, conditions)) or 'all others'} | {default.bits:g} | {default.because} |"
    yield "\n## Defaults for rows that do not state how devices split the model\n"
    yield "| rows | axis | because |"
    yield "| --- | --- | --- |"
    for split in load_aliases().split_default:
        yield f"| {split.framework} {split.version} | {split.split} | {split.because} |"
    yield ""


def main() -> None:
    """Write or check the page."""
    now = page(ceiling_check(read_rows()), load_causes())
    if "--check" in sys.argv:
        sys.exit("docs/ceiling.md is out of date: python docs/ceiling.py" if now != PAGE.read_text() else 0)
    PAGE.write_text(now, encoding="utf-8")


if __name__ == "__main__":
    main()

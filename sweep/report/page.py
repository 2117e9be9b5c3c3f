"""The page: header, figures and footer in one file that asks nothing of any network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path

from plotly.offline import get_plotlyjs

from kvwall.sweep.progress import Silent, Watch
from kvwall.sweep.report.accuracy import accuracy_sections
from kvwall.sweep.report.best import best_designs
from kvwall.sweep.report.by_context import context_section
from kvwall.sweep.report.caveats import caveats
from kvwall.sweep.report.choices import Choices
from kvwall.sweep.report.data import Results, read_results
from kvwall.sweep.report.footer import provenance_section, source_section
from kvwall.sweep.report.front_plot import front_section
from kvwall.sweep.report.header import BADGES, SPEEDS, answer, asked, chip_answers, tiles
from kvwall.sweep.report.laws import Laws
from kvwall.sweep.report.losses import loss_sections
from kvwall.sweep.report.marginals import marginal_section
from kvwall.sweep.report.parts import Section, section_html, table_html
from kvwall.sweep.report.phase_map import phase_section
from kvwall.sweep.report.roofline import roofline_section
from kvwall.sweep.report.speedup import speedup_section
from kvwall.sweep.store.atomic import write_atomically

NAME = "report.html"
_HERE = Path(__file__).parent
# No source of anything but the page itself: a browser then refuses every request, whoever makes it.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


def write_report(folder: str | Path, watch: Watch | None = None) -> Path:
    """Write `report.html` into a results folder and return its path; `watch` follows its sections.

    Raises InputError where the folder holds no results, or cannot be written to.
    """
    results = read_results(Path(folder))
    path = results.folder / NAME
    write_atomically(path, page(results, watch).encode())
    return path


def page(results: Results, watch: Watch | None = None) -> str:
    """The page as HTML."""
    now, watch = datetime.now(UTC).isoformat(timespec="seconds"), watch or Silent()
    watch.stage("searching the grid for the best of each chip and context", 1, "study")
    choices = Choices(results, Laws(results.study), best_designs(results.study))
    watch.update(1)
    makers: tuple[Callable[[], Iterable[Section]], ...] = (
        lambda: [context_section(choices)],
        lambda: [front_section(choices)],
        lambda: [phase_section(choices)],
        lambda: [speedup_section(choices)],
        lambda: loss_sections(choices.laws),
        lambda: [roofline_section(choices)],
        lambda: [marginal_section(choices)],
        lambda: accuracy_sections(results.study),
        lambda: [caveats(choices), source_section(results), provenance_section(results, now)],
    )
    watch.stage("drawing", len(makers), "parts of the page")
    sections: list[Section] = []
    for done, make in enumerate(makers, 1):
        sections += make()
        watch.update(done)
    return _document(choices, sections)


def _document(choices: Choices, sections: Sequence[Section]) -> str:
    name = escape(choices.study.name)
    header = f"""<p class="badge">{BADGES[choices.study.mode]}</p>
<h1>{name}: where the memory wall stands</h1>
{tiles_html(tiles(choices))}
{_answer_html(choices)}
<p class="note">{SPEEDS[choices.study.mode]} Losses of quality are calibrated on
published results. What the numbers leave out or go beyond: <a href="#caveats">assumptions and flags</a>.</p>
<details open><summary>What was asked</summary>{table_html(asked(choices))}</details>"""
    return document(f"{choices.study.name}: where the memory wall stands", header, sections)


def document(title: str, header: str, sections: Sequence[Section]) -> str:
    """A page with this header (HTML), links to its sections, and the sections; it asks nothing of any network."""
    titles = {section.name: section.title.split(":")[0] for section in sections}
    links = "".join(f'<a href="#{escape(anchor)}">{escape(title)}</a>' for anchor, title in titles.items())
    body = "\n".join(section_html(section) for section in sections)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{escape(title)}</title>
<style>{(_HERE / "page.css").read_text(encoding="utf-8")}</style>
</head>
<body>
<header>
{header}
<nav>{links}</nav>
</header>
<noscript><p>The figures need JavaScript; the tables do not.</p></noscript>
<main>
{body}
</main>
<script>{get_plotlyjs()}</script>
<script>{(_HERE / "page.js").read_text(encoding="utf-8")}</script>
</body>
</html>
"""


def _answer_html(choices: Choices) -> str:
    paragraphs = "".join(f"<p>{escape(text)}</p>" for text in answer(choices))
    chips = "".join(f"<li>{escape(text)}</li>" for text in chip_answers(choices))
    return f'<div class="answer">{paragraphs}{f"<ul>{chips}</ul>" if chips else ""}</div>'


def tiles_html(cells: Iterable[tuple[str, str, str]]) -> str:
    """Boxes of (number, what it is, remark)."""
    boxes = "".join(
        f'<div class="tile"><b>{escape(number)}</b><span>{escape(what)}</span><small>{escape(remark)}</small></div>'
        for number, what, remark in cells
    )
    return f'<div class="tiles">{boxes}</div>'

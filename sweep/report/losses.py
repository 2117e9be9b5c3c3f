"""What the study's remedies lose: the curves that losses are read from, beside the results they are fitted to."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import cycle

from kvwall.spaces.quality_tasks import task_named
from kvwall.spaces.vetoes import trait_names
from kvwall.sweep.report.laws import Laws
from kvwall.sweep.report.loss_asked import (
    LOG_RATIO,
    MOST_NAMES,
    Limit,
    Remedy,
    confidence_of,
    limits_of,
    remedies_of,
    shown_tasks,
    tasks_of,
)
from kvwall.sweep.report.loss_plot import COLOURS, EASIER, WORSE, Kind, Look, loss_plot
from kvwall.sweep.report.loss_points import Points, tally_text
from kvwall.sweep.report.parts import LegendEntry, Panel, Section, Selector
from kvwall.sweep.report.style import INK, MUTED
from kvwall.sweep.report.wording import listed, short_name
from kvwall.sweep.study import Study

_LEAD = (
    "What a remedy loses by how far it goes, and the published results that its curve is fitted to. Each figure is of "
    "one remedy, the others neutral; losses of several together, which the results compose, are not in it. Results "
    "scatter: benchmarks of a class differ in how hard they are, models and implementations too. The upper curve is "
    "what a new source stays under, so it rests on results like these."
)


def loss_sections(laws: Laws) -> tuple[Section, ...]:
    """The section; none of a study that compresses nothing."""
    remedies = remedies_of(laws.study)
    return (_section(laws, remedies),) if remedies else ()


def kinds_of(study: Study) -> tuple[Kind, ...]:
    """The study's models by the traits that their losses depend on."""
    found: dict[frozenset[str], list[str]] = {}
    for name, model in zip(map(str, study.space.values("model")), study.catalogue.models, strict=True):
        found.setdefault(trait_names(model), []).append(name)
    return tuple(Kind(traits, tuple(models)) for traits, models in found.items())


def _section(laws: Laws, remedies: Sequence[Remedy]) -> Section:
    study = laws.study
    tasks, limits = shown_tasks(study), limits_of(study)
    panels, points = [], list[Points]()
    for shown in (tuple(t for t in tasks if t != LOG_RATIO), tuple(t for t in tasks if t == LOG_RATIO)):
        if shown:
            panel, found = _panel(laws, remedies, shown, limits)
            panels.append(panel)
            points += found
    return Section(
        "losses", "What is lost, and what was measured", (_LEAD,), tuple(panels), tuple(_notes(study, remedies, points))
    )


def _panel(
    laws: Laws, remedies: Sequence[Remedy], tasks: Sequence[str], limits: Sequence[Limit]
) -> tuple[Panel, list[Points]]:
    """Figures of tasks whose losses have one unit."""
    kinds = kinds_of(laws.study)
    plots, points = [], list[Points]()
    methods = list(dict.fromkeys((each.methods, name) for each in remedies for name in each.names))
    colours = dict(zip(methods, cycle(COLOURS), strict=False))
    look = Look(colours, "-ln" if tasks[0] == LOG_RATIO else "")
    for remedy in remedies:
        own = kinds if remedy.remedy == "quantizer" else kinds[:1]
        plot, found = loss_plot(laws, remedy, own, tasks, limits, look)
        plots.append(plot)
        points += found
    drawn = {trace.name.split()[0] for plot in plots for trace in plot.figure.data}
    legend = [*_method_legend(colours), *_legend(laws.study, tasks, drawn, points)]
    selectors = []
    if len(tasks) > 1:
        selectors.append(Selector("task", "task", tuple((task, task.replace("_", " ")) for task in tasks), tasks[0]))
    if len(kinds) > 1 and any(each.remedy == "quantizer" for each in remedies):
        options = tuple((kind.key, listed(short_name(str(name)) for name in kind.models)) for kind in kinds)
        selectors.append(Selector("kind", "models, for KV bits", options, options[0][0]))
    return Panel(tuple(plots), tuple(selectors), tuple(legend)), points


def _method_legend(colours: Mapping[tuple[str, str], str]) -> Iterator[LegendEntry]:
    for (axis, name), colour in colours.items():
        yield LegendEntry(colour, f"{axis.replace('_', ' ')} {name}", "line", "method", f"{axis} {name}")


def _legend(
    study: Study, tasks: Sequence[str], drawn: Collection[str], points: Sequence[Points]
) -> Iterator[LegendEntry]:  # fmt: skip
    """What lines and marks mean, those that are drawn; `drawn` has the first words of the traces' names."""
    levels = {task: confidence_of(study, task) for task in tasks_of(study) if task in tasks}
    named = [f"{100 * level:g} % ({task})" for task, level in levels.items()]
    named = named if len(set(levels.values())) > 1 else [f"{100 * next(iter(levels.values())):g} %"]
    yield LegendEntry(MUTED, f"upper curve, at {listed(named)} confidence", "dashed")
    if "vetoed" in drawn:
        yield LegendEntry(MUTED, "vetoed: known to collapse, whatever the curve says", "dotted")
    shown = [point for each in points for point in each.drawn]
    if any(point.name and point.own_kind for point in shown):
        yield LegendEntry(MUTED, "published result of the method", "dot")
    if WORSE in tasks and any(point.row.task == EASIER for point in shown):
        yield LegendEntry(MUTED, f"the same of {EASIER}, where {WORSE} is shown", "square")
    if any(not (point.name and point.own_kind) for point in shown):
        yield LegendEntry(MUTED, "open: of the family only, or of another kind of model or scales", "ring")
    if any(point.uneven for point in shown):
        yield LegendEntry(MUTED, "K and V of different bits, at their mean", "diamond")
    if any(point.vetoed for point in shown):
        yield LegendEntry(MUTED, "result of a design that is vetoed", "x")
    yield LegendEntry(INK, "setting of the study", "triangle-up")
    if "limit" in drawn:
        yield LegendEntry(INK, "the most that may be lost", "line")


def _notes(study: Study, remedies: Sequence[Remedy], points: Sequence[Points]) -> Iterator[str]:
    yield (
        "The vertical scale is near linear up to a loss of 1 % and near logarithmic beyond; below 0 the compressed "
        "model scored better, and results that gained more than 5 % are drawn at 5 %. Points of one setting lie a "
        "little beside each other, so that they do not hide each other."
    )
    yield tally_text(points)
    curves = study.catalogue.curves
    whose = f"of {study.quality_curves}, " if study.quality_curves else ""
    own = sum(each.points for each in curves.narrowed.values())
    narrowed = f" They are narrowed by {own} measured points of your own, which are not drawn." if own else ""
    yield (
        f"Curves {whose}version {curves.version}, fitted {curves.fitted} to {curves.rows:,} published results of "
        f"{curves.sources} sources.{narrowed}"
    )
    for task in tasks_of(study):
        made = task_named(task)
        if len(made.rows) > 1:
            how = "the mean of its classes, weighted" if made.weights else "the worse of its classes"
            yield f"Curves of {task} are {how}; points are results of {'it' if made.weights else 'any of them'}."
    for each in remedies:
        count = len(study.space.values(each.methods))
        if count > MOST_NAMES:
            yield f"{each.title}: the first {MOST_NAMES} of {count} methods are shown."
    if any(float(bits) < 16 for bits in study.space.values("activation_bits")):
        yield "Activation bits have no figure: no published result is of them alone."

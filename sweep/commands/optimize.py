"""`kvwall optimize`: the best design of a study and a front, by Optuna; a second call goes on."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from kvwall.sweep.results import FrontTable
    from kvwall.sweep.search import OptimizeResult
    from kvwall.sweep.search.loop import SearchProgress
    from kvwall.sweep.study import Study

_NOTHING_ADMISSIBLE = 3
_INTERRUPTED = 130
_SECONDS_BETWEEN_LINES = 2.0


def command(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="TOML file or name of a shipped study")],
    trials: Annotated[int | None, typer.Option(metavar="N", help="trials in all; default: the study's")] = None,
    seed: Annotated[int, typer.Option(metavar="S", help="the same seed gives the same trials")] = 0,
    cold: Annotated[bool, typer.Option("--cold", help="do not begin from the exact front of a sweep")] = False,
    storage: Annotated[
        str | None, typer.Option(metavar="URL", help="where trials are kept; default: trials.db in the results folder")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="results folder; default outputs/<name>")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object on stdout")] = False,
) -> None:
    """Search a study for the best admissible value of its first objective, and for a front.

    A second call goes on from the trials kept. A front that `kvwall sweep` left in the results folder is where the
    search begins, unless --cold.
    """
    from kvwall.sweep.run import OUTPUTS
    from kvwall.sweep.search import optimize
    from kvwall.sweep.search.exact import MOST_POINTS
    from kvwall.sweep.study import Study

    loaded = Study.load(study)
    folder = out or OUTPUTS / loaded.name
    kept = storage or f"sqlite:///{folder / 'trials.db'}"
    front = _front(folder, loaded)
    try:
        result = optimize(
            loaded,
            trials=trials,
            seed=seed,
            cold=cold,
            storage=kept,
            front=front,
            progress=_reporter(),
            exact_optimum=_announced if loaded.space.size <= MOST_POINTS else None,
        )
    except KeyboardInterrupt:
        typer.echo(f"kvwall: interrupted; finished trials are kept in {kept}, the same command goes on", err=True)
        raise typer.Exit(_INTERRUPTED) from None
    if as_json:
        typer.echo(json.dumps(result.to_json(), allow_nan=False))
    else:
        _print(loaded, result, kept)
    if result.best is None:
        for sentence in result.rejected:
            typer.echo(f"kvwall: {sentence}", err=True)
        raise typer.Exit(_NOTHING_ADMISSIBLE)


def _front(folder: Path, study: Study) -> FrontTable | None:
    """The exact front that a sweep of this very study left in the folder."""
    if not (folder / "front.nc").is_file():
        return None
    import numpy as np

    from kvwall.objectives.register import LABELS
    from kvwall.sweep.results import FrontTable
    from kvwall.sweep.store import open_front

    found = open_front(folder)
    if found.attrs.get("spec_hash") != study.spec_hash:
        typer.echo(f"{folder / 'front.nc'} is of another version of the study: not used", err=True)
        return None
    objectives = [objective.metric for objective in study.objectives]
    return FrontTable(
        grid_index=np.asarray(found["grid_index"].values, np.int64),
        multiplicity=np.asarray(found["multiplicity"].values, np.int64),
        metrics={name: np.asarray(found[name].values) for name in objectives},
        labels={name: np.asarray(found[name].values) for name in LABELS if name in found},
    )


def _announced(study: Study) -> float | None:
    """The exact optimum, from every point of the grid."""
    from kvwall.sweep.progress import watch
    from kvwall.sweep.search.exact import grid_optimum

    with watch() as follower:
        follower.stage("exact optimum, for the regret", study.space.size, "points")
        return grid_optimum(study, lambda done, total: follower.update(done))


def _reporter() -> Callable[[SearchProgress], None]:
    """Lines on stderr: trials, rate, best so far, time left."""
    from kvwall.sweep.progress import duration

    said = [time.monotonic()]

    def report(at: SearchProgress) -> None:
        now = time.monotonic()
        if now - said[0] < _SECONDS_BETWEEN_LINES and at.done < at.total:
            return
        said[0] = now
        rate = at.new / at.seconds if at.seconds > 0 else 0.0
        left = f", {duration((at.total - at.done) / rate)} left" if rate > 0 and at.done < at.total else ""
        best = "nothing admissible yet" if at.best is None else f"best {at.best:.6g}"
        line = f"{at.stage}: {at.done:,} of {at.total:,} trials, {rate:.3g}/s, {best}{left}"
        print(line, file=sys.stderr, flush=True)

    return report


def _print(study: Study, result: OptimizeResult, kept: str) -> None:
    from kvwall.sweep.readable import number_text

    more = f" and {result.front_trials:,} for the front" if result.front_trials else ""
    typer.echo(f"{result.trials:,} trials{more}, kept in {kept}")
    if result.best is not None:
        objectives = [objective.metric for objective in study.objectives]
        asked = dict.fromkeys([*objectives, *(constraint.metric for constraint in study.constraints)])
        typer.echo(f"best of {study.objectives[0].sense} {study.objectives[0].metric}:")
        for name in study.space.dims:
            typer.echo(f"  {name:<30} {number_text(_stated(result.best[name]))}")
        for name in asked:
            typer.echo(f"  {name:<30} {_metric(study, name, result.best)}")
        regret = "not known" if result.regret is None else f"{100 * result.regret:.3g} % of the exact grid optimum"
        typer.echo(f"regret {regret}")
        source = "exact" if result.front_source == "exact" else "as searched"
        typer.echo(f"front {len(result.front):,} designs ({source})")
    if result.reason and result.best is not None:
        typer.echo(result.reason)


def _stated(value: Any) -> Any:
    return "none" if value is None else value


def _metric(study: Study, name: str, design: Mapping[str, Any]) -> str:
    from kvwall.sweep.report.wording import estimate_value

    return "none" if design[name] is None else estimate_value(study, name, lambda each: float(design[each]))

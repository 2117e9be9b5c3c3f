"""`store = "pareto"`: the folder of a study whose front is found by bounds, without evaluating every design."""

from __future__ import annotations

import json

import pytest
import xarray as xr

from kvwall.spaces.errors import InputError
from kvwall.sweep import checkpoint
from kvwall.sweep.branch import BranchSearch
from kvwall.sweep.cli import main
from kvwall.sweep.run import run_sweep, why_nothing
from kvwall.sweep.store import open_front, open_results, open_summary
from kvwall.sweep.study import Study
from tests.compiled_once import compiled_once  # noqa: F401 - a fixture

pytestmark = [pytest.mark.made_fast, pytest.mark.usefixtures("compiled_once")]

TEXT = """
[study]
name = "front-only"
mode = "ceiling"
[space]
model = "meta-llama/Llama-3.3-70B-Instruct"
hardware = ["h100-sxm", "mi300x"]
batch = [1, 4, 16, 64]
context = [8192, 32768]
key_bits = [16, 8, 4]
value_bits = "key_bits"
retention = [1.0, 0.5]
tensor_parallel = [4, 8]
[objectives]
maximize = ["tokens_per_second_per_device"]
minimize = ["quality_loss_upper", "time_per_output_token"]
[constraints]
time_per_output_token = { max = 0.05 }
[sweep]
store = "STORE"
"""


def study_of(store: str) -> Study:
    return Study.from_text(TEXT.replace("STORE", store))


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """(folder, result) by bounds and (folder, result) by evaluating every design."""
    found = []
    for store in ("pareto", "reduced"):
        folder = tmp_path_factory.mktemp(store)
        found.append((folder, run_sweep(study_of(store), folder)))
    return found


def test_front_is_that_of_evaluating_every_design(done):
    (by_bounds, _), (evaluated, _) = done
    one, other = open_front(by_bounds), open_front(evaluated)
    assert one.sizes["point"] > 3
    xr.testing.assert_equal(one, other)


def test_result_says_what_settled_every_design(done):
    (folder, result), (_, evaluated) = done
    settled = result.certificate
    assert result.points == sum(count for name, count in settled.items() if name.endswith("_points"))
    assert (result.feasible, result.admissible, result.points_per_second) == (None, None, None)
    assert settled["infeasible_points"] <= evaluated.points - evaluated.feasible
    assert json.loads(open_front(folder).attrs["certificate"]) == settled
    json.dumps(result.to_json(), allow_nan=False)


def test_a_second_call_finds_it_done(done, monkeypatch):
    folder, result = done[0]
    monkeypatch.setattr(BranchSearch, "of", lambda problem: pytest.fail("searched again"))
    again = run_sweep(study_of("pareto"), folder)
    assert (again.certificate, again.front_size, again.seconds) == (result.certificate, result.front_size, 0.0)


@pytest.mark.parametrize(("opener", "remedy"), [(open_summary, "reduced"), (open_results, "full")])
def test_what_is_not_there_says_why(done, opener, remedy):
    with pytest.raises(InputError, match=f'store = "{remedy}"'):
        opener(done[0][0])


def test_an_interrupted_search_goes_on_from_its_checkpoint(done, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "_SECONDS_BETWEEN", 0.0)
    offer = checkpoint.Keeper.offer

    def interrupted(self, arrays, complete=False):
        offer(self, arrays, complete)
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint.Keeper, "offer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_sweep(study_of("pareto"), tmp_path)
    assert (tmp_path / checkpoint.NAME).exists()
    assert not (tmp_path / "front.nc").exists()
    monkeypatch.setattr(checkpoint.Keeper, "offer", offer)
    result = run_sweep(study_of("pareto"), tmp_path)
    assert not (tmp_path / checkpoint.NAME).exists()
    xr.testing.assert_equal(open_front(tmp_path), open_front(done[0][0]))
    assert result.points == sum(count for name, count in result.certificate.items() if name.endswith("_points"))


def test_nothing_admissible_says_what_rules_it_out(tmp_path):
    study = Study.from_text(TEXT.replace("STORE", "pareto").replace("max = 0.05", "max = 1e-9"))
    result = run_sweep(study, tmp_path)
    assert result.front_size == 0
    (sentence,) = why_nothing(study, tmp_path)
    assert f"reject {result.certificate['rejected_points']:,}" in sentence


def test_the_command_shows_it(done, capsys, tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(TEXT.replace("STORE", "pareto"))
    with pytest.raises(SystemExit) as ended:
        main(["sweep", str(path), "--out", str(done[0][0])])
    assert ended.value.code in (0, None)
    shown = capsys.readouterr().out
    assert "blocks are proven irrelevant" in shown
    assert all(word in shown for word in ("not feasible", "dominated", "front.nc"))

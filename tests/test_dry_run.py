"""What `--dry-run` says of a run, against the run."""

from __future__ import annotations

import pytest

from kvwall.spaces.errors import InputError
from kvwall.sweep import dry_run
from kvwall.sweep.commands.sweep import _shown
from kvwall.sweep.dry_run import plan_run
from kvwall.sweep.run import run_sweep
from kvwall.sweep.stream import Stream
from kvwall.sweep.study import Study
from tests.compiled_once import compiled_once  # noqa: F401 - a fixture

pytestmark = pytest.mark.usefixtures("compiled_once")

TEXT = """
[study]
name = "dry"
mode = "ceiling"
[space]
model = "paper/llama-3-70b"
hardware = ["paper/h100", "paper/b200"]
batch = [1, 2, 4, 8]
context = { geom = [4096, 262144, 13] }
key_bits = [16, 8, 4]
value_bits = "key_bits"
retention = { linear = [0.1, 1.0, 19] }
[objectives]
maximize = ["tokens_per_second_per_device"]
minimize = ["quality_loss_upper"]
[sweep]
WHAT
"""


@pytest.fixture
def study():
    return lambda what: Study.from_text(TEXT.replace("WHAT", what))


def test_disk_and_points_are_those_of_the_run(study, tmp_path):
    asked = study('keep = ["time_per_output_token", "phase"]')
    plan = plan_run(asked, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    result = run_sweep(asked, tmp_path / "out")
    shards = sum(path.stat().st_size for path in (tmp_path / "out" / "shards").iterdir())
    assert (plan.points, plan.stored_points) == (result.points, result.stored_points)
    assert {one.name for one in plan.stored} == {"time_per_output_token", "phase", "status"}
    assert plan.disk_bytes_expected <= shards <= plan.disk_bytes_at_most
    assert plan.seconds_expected == plan.streaming_seconds + plan.storing_seconds
    assert plan.settled_in_trial is None


def test_leaving_a_metric_out_saves_its_cost(study, tmp_path):
    both = plan_run(study('keep = ["time_per_output_token", "memory_margin"]'), tmp_path)
    one = plan_run(study('keep = ["time_per_output_token"]'), tmp_path)
    saved = {cost.name: cost.bytes for cost in both.stored}["memory_margin"]
    assert both.disk_bytes_expected - one.disk_bytes_expected == saved > 0


def test_a_search_by_bounds_is_tried(study, tmp_path, monkeypatch):
    plan = plan_run(study('store = "pareto"'), tmp_path)
    assert (plan.settled_in_trial, plan.streaming_seconds, plan.stored) == (1.0, None, ())
    assert plan.seconds_expected == plan.settling_seconds > 0
    monkeypatch.setattr(dry_run, "_TRIAL_SECONDS", -1.0)
    plan = plan_run(study('store = "pareto"'), tmp_path)
    assert plan.seconds_expected is None
    assert 0 <= plan.settled_in_trial < 1


def test_shares_and_bytes_are_shown_with_their_units():
    assert _shown("settled_in_trial", 0.7512) == "75.1 %"
    assert _shown("disk_bytes_free", 5_000_000) == "5 MB"


def test_more_processes_take_less_time_and_each_keeps_its_own_blocks(study, tmp_path, monkeypatch):
    asked = study('keep = ["time_per_output_token", "memory_margin"]')
    monkeypatch.setattr(dry_run, "_peak_memory", lambda: 0)
    monkeypatch.setattr(Stream, "seconds_expected", lambda stream: 100.0)
    here = plan_run(asked, tmp_path)
    many = plan_run(asked, tmp_path, elsewhere=(90, 1, 50 * dry_run._CORES))
    assert (here.processes, here.streaming_seconds) == (1, 100.0)
    assert (many.processes, many.streaming_seconds) == (90, 2.0)
    points = here.points  # one block: it holds two metrics of four bytes and the status of one
    assert here.memory_bytes_expected == 2 * (dry_run._CORES + 1) * points * 9
    assert many.memory_bytes_expected == 2 * 2 * points * 9


def test_what_the_disk_cannot_hold_is_refused_as_by_the_run(study, tmp_path, monkeypatch):
    asked = study('keep = ["time_per_output_token"]')
    monkeypatch.setattr("kvwall.sweep.store.folder.free_bytes", lambda path: 1000)
    with pytest.raises(InputError) as dry:
        plan_run(asked, tmp_path / "out")
    with pytest.raises(InputError) as real:
        run_sweep(asked, tmp_path / "out")
    assert str(dry.value) == str(real.value)


def test_a_slow_disk_sets_the_time_of_storing(study, tmp_path, monkeypatch):
    monkeypatch.setattr(dry_run, "_flush_seconds_per_byte", lambda folder: 1.0)
    plan = plan_run(study('keep = ["time_per_output_token"]'), tmp_path)
    assert plan.storing_seconds == plan.disk_seconds_expected == plan.disk_bytes_expected


def test_a_dry_run_leaves_nothing(study, tmp_path):
    plan_run(study('keep = ["time_per_output_token"]'), tmp_path)
    assert list(tmp_path.iterdir()) == []

"""Small finished sweeps for tests of what comes after a sweep: report, pareto, export."""

from __future__ import annotations

import atexit
import contextlib
import shutil
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from kvwall.objectives.register import LABELS
from kvwall.spaces.errors import NothingAdmissible
from kvwall.sweep.kernel import Problem
from kvwall.sweep.points import evaluate_designs
from kvwall.sweep.results import FrontTable, Summary
from kvwall.sweep.run import run_sweep
from kvwall.sweep.store import ResultsFolder
from kvwall.sweep.study import Study

SMALL = """
[study]
name = "small"
mode = "ceiling"
[space]
model = "meta-llama/Meta-Llama-3-8B"
hardware = ["h100-sxm", "mi300x"]
batch = [1, 16, 128]
context = [4096, 65536]
key_bits = [16, 8, 4]
value_bits = "key_bits"
retention = [1.0, 0.5]
tensor_parallel = [1, 2]
[objectives]
maximize = ["tokens_per_second_per_device"]
minimize = ["quality_loss_upper"]
[constraints]
time_per_output_token = { max = "100 ms" }
[sweep]
keep = ["tokens_per_second_per_device", "quality_loss_upper", "regime"]
"""

TWO_CHIPS = """
[study]
name = "two-chips"
mode = "ceiling"
[space]
model = "meta-llama/Meta-Llama-3-70B"
hardware = ["h100-sxm", "b200-sxm"]
batch = [1, 8, 64]
context = { geom = [4096, 131072, 6] }
key_bits = [16, 8, 4]
value_bits = "key_bits"
retention = [0.25, 0.5, 1.0]
placement_host = [0.0, 0.5]
tensor_parallel = [1, 8]
[assume]
"b200-sxm".host_link_bandwidth = "64 GB/s"
[objectives]
maximize = ["tokens_per_second_per_device"]
minimize = ["quality_loss_upper", "time_per_output_token"]
[constraints]
quality_loss_upper = { max = 0.1 }
[sweep]
keep = ["tokens_per_second_per_device", "time_per_output_token", "quality_loss_upper", "memory_margin", "phase"]
"""

TWO_MODELS = """
[study]
name = "two-models"
mode = "ceiling"
[space]
model = ["meta-llama/Meta-Llama-3-70B", "paper/llama-3-70b"]
hardware = ["mi300x", "paper/b200"]
context = [4096, 131072]
weight_bits = ["native", 8]
placement_host = [0.0, 0.5]
[objectives]
minimize = ["cost_per_million_tokens", "time_per_output_token"]
[sweep]
keep = ["time_per_output_token"]
"""

NOTHING = """
[study]
name = "nothing"
mode = "ceiling"
[space]
model = "meta-llama/Meta-Llama-3-70B"
hardware = "mi300x"
context = [4096, 131072]
batch = [1, 2]
[objectives]
maximize = ["tokens_per_second_per_device"]
[constraints]
time_per_output_token = { max = 0.000001 }
"""

ONE_DESIGN = """
[study]
name = "one-design"
mode = "ceiling"
[space]
model = "paper/llama-3-70b"
hardware = "paper/h100"
context = 128000
tensor_parallel = 4
"""


def swept(text: str, folder: Path) -> Path:
    """The results of a study in a folder of one's own, admissible designs or not; each study is run once a process."""
    shutil.copytree(_swept_once(text), folder, dirs_exist_ok=True)
    return folder


@cache
def _swept_once(text: str) -> Path:
    parent = Path(tempfile.mkdtemp(prefix="kvwall-test-sweep-"))
    atexit.register(shutil.rmtree, parent, ignore_errors=True)
    with contextlib.suppress(NothingAdmissible):
        run_sweep(Study.from_text(text), parent / "results")
    return parent / "results"


def swept_single(text: str, folder: Path) -> Path:
    """The results of a study of one design, without the engine."""
    study = Study.from_text(text)
    found = evaluate_designs(Problem(study.columns(), study.task, study.objectives, study.constraints), np.array([0]))
    metrics = {name: array for name, array in found.items() if name not in LABELS}
    once = np.ones(1, dtype=np.int64)
    table = FrontTable(
        np.zeros(1, dtype=np.int64), once, metrics, {name: found[name] for name in LABELS if name in found}
    )
    with ResultsFolder.create_or_resume(folder, study) as results:
        results.write_front(table)
        results.write_summary(Summary(1, 1, 1, {}, {}, {}, {}, {}, {}))
    return folder

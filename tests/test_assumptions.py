"""A whole tier assumed by one word: which figures it stands for, their sources, what wins, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

import kvwall as kv
from kvwall.spaces.assumptions import ROLES
from kvwall.spaces.errors import InputError
from kvwall.spaces.figures import FIGURES, Figure
from kvwall.spaces.hardware import Hardware, load_hardware
from kvwall.spaces.tiers import load_tier, tier_names
from kvwall.sweep.cli import run

LLAMA = "meta-llama/Llama-3.3-70B-Instruct"


def device(chip: str = "h100-sxm", **assume: str) -> Hardware:
    """The chip with these assumptions."""
    return load_hardware(chip, assume)


def values(chip: Hardware) -> dict[str, float]:
    """The figures that the chip's file does not have."""
    return {field: getattr(chip, field).value for field in chip.assumed}


def faults(chip: str = "h100-sxm", **assume: str) -> tuple[str, ...]:
    """The faults with which the assumptions are refused."""
    with pytest.raises(InputError) as caught:
        load_hardware(chip, assume)
    return caught.value.faults


@pytest.mark.parametrize("word", ROLES)
def test_every_word_takes_its_example(word: str) -> None:
    kind, example = ROLES[word]
    assert load_tier(example).kind == kind
    assert any(field.startswith((word, "link_energy")) for field in values(device(**{word: example})))


def test_a_drive_gives_the_figures_it_has_with_their_source() -> None:
    chip = device(nvme="nvme-gen6-micron9650")
    assert values(chip) == pytest.approx(
        {"nvme_link_bandwidth": 28e9, "nvme_capacity": 30.72e12, "nvme_energy": 112e-12 * 8}
    )
    assert chip.nvme_link_bandwidth is not None
    assert "svethardware" in chip.nvme_link_bandwidth.source
    assert chip.nvme_link_bandwidth.note.startswith("nvme-gen6-micron9650, no sourced figure; grade B")
    assert set(values(device(nvme="nvme-gen4"))) == {"nvme_link_bandwidth"}


def test_a_network_is_remote_memory_s_link_or_the_scale_out() -> None:
    assert values(device(remote="rdma-400g")) == {"remote_link_bandwidth": 50e9}
    assert values(device(scale_out="2 x rdma-400g")) == {"scale_out_bandwidth": 100e9}


def test_a_link_takes_the_place_of_the_chip_s_own() -> None:
    chip = device(host_link="pcie6-x16")
    assert values(chip) == pytest.approx({"host_link_bandwidth": 128e9, "link_energy": 5.5e-12 * 8})
    assert chip.host_link_bandwidth is not None
    assert "in place of the sourced figure" in chip.host_link_bandwidth.note


def test_figures_stated_by_themselves_win() -> None:
    chip = device(nvme="nvme-gen6-micron9650", nvme_energy="5 pJ/bit", host_link="pcie6-x16", link_energy="1 pJ/bit")
    assert chip.nvme_energy == Figure(pytest.approx(40e-12), "assumed", "no sourced figure")
    assert chip.link_energy == Figure(pytest.approx(8e-12), "assumed", "in place of the sourced figure")
    assert values(chip)["nvme_link_bandwidth"] == 28e9


def test_several_units_add_up_and_devices_that_share_them_have_a_part_each() -> None:
    alone, shared = (
        device(nvme="4 x nvme-gen6-micron9650"),
        device(nvme="4x nvme-gen6-micron9650", nvme_link_devices="8"),
    )
    assert values(alone)["nvme_link_bandwidth"] == values(shared)["nvme_link_bandwidth"] == 4 * 28e9
    assert values(alone)["nvme_capacity"] == pytest.approx(4 * 30.72e12)
    assert values(shared)["nvme_capacity"] == pytest.approx(4 * 30.72e12 / 8)
    assert values(alone)["nvme_energy"] == values(shared)["nvme_energy"]
    assert shared.nvme_capacity is not None
    assert "4 x nvme-gen6-micron9650, each one drive, a part of it for each of 8 devices" in shared.nvme_capacity.note


@pytest.mark.parametrize(
    ("assume", "bandwidth"),
    [
        ({"host": "ddr5-5600-channel"}, 44.8e9),  # slower than PCIe 5.0
        ({"host": "2 x ddr5-5600-channel"}, 64e9),
        ({"host": "2 x ddr5-5600-channel", "host_link": "pcie6-x16"}, 89.6e9),
        ({"host": "ddr5-5600-channel", "host_link_bandwidth": "40 GB/s"}, 40e9),
        ({"host_link": "nvlink-c2c-grace", "host": "grace-lpddr5x"}, 450e9),
    ],
)
def test_host_memory_is_read_as_fast_as_the_slower_of_it_and_its_link(
    assume: Mapping[str, str], bandwidth: float
) -> None:
    chip = device(**assume)
    assert chip.host_link_bandwidth is not None
    assert chip.host_link_bandwidth.value == pytest.approx(bandwidth)


def test_modules_of_host_memory_give_its_size_and_leave_the_link() -> None:
    chip = device(host="8 x ddr5-rdimm-64gb", host_link_devices="4")
    assert chip.host_capacity is not None
    assert chip.host_capacity.value == 2 * 64 * 2**30
    assert chip.host_link_bandwidth == device().host_link_bandwidth


@pytest.mark.parametrize(
    ("assume", "fault"),
    [
        ({"host": "pcie5-x16"}, 'takes kind host, e.g. grace-lpddr5x; write host_link = "pcie5-x16"'),
        ({"nvme": "rdma-400g"}, 'write remote or scale_out = "rdma-400g"'),
        ({"scale_out": "nvme-gen4"}, "scale_out takes kind remote"),
        ({"nvme": "nvme-gen-5"}, "did you mean nvme-gen"),
        ({"nvme": "14 GB/s"}, "or the quantity of a figure: nvme_link_bandwidth, nvme_link_devices, nvme_capacity"),
        ({"nvme": " "}, "write the name of a tier"),
        ({"nvme": "0 x nvme-gen4"}, "is a quantity, not a tier"),
        ({"nvme": "2000 x nvme-gen4"}, "14 TB/s for nvme_link_bandwidth"),
        ({"cxl": "cxl4-bundle"}, "no source states what cxl4-bundle gives a device"),
        ({"flash": "nvme-gen4"}, '"flash" is no figure'),
        ({"nvme_link_bandwidth": "nvme-gen4"}, "is not a quantity in B/s"),
    ],
)
def test_what_cannot_be_is_refused_with_the_remedy(assume: Mapping[str, str], fault: str) -> None:
    (found,) = faults(**assume)
    assert fault in found
    assert found.startswith("h100-sxm: assume: ")


def test_host_memory_needs_the_link_before_it() -> None:
    (fault,) = faults("b200-sxm", host="ddr5-5600-channel")
    assert 'host_link = "pcie5-x16"' in fault
    assert values(device("b200-sxm", host="ddr5-5600-channel", host_link="pcie5-x16"))["host_link_bandwidth"] == 44.8e9


def test_all_faults_of_assumptions_are_reported_together() -> None:
    found = faults(nvme="rdma-400g", cxl="none", host_link_bandwidth="64 TB/s", tpd="7 W")
    assert len(found) == 4


@pytest.mark.parametrize("name", tier_names())
def test_every_tier_can_be_used_or_says_why_not(name: str) -> None:
    tier = load_tier(name)
    word = next(word for word, (kind, _) in ROLES.items() if kind == tier.kind)
    if any(getattr(tier, field) is not None for field in ("bandwidth", "capacity", "energy")):
        found = values(device(**{word: name}))
        assert found
        assert set(found) <= set(FIGURES)
    else:
        assert name in faults(**{word: name})[0]


def test_an_announced_technology_says_so() -> None:
    figure = device(remote="vr-scaleout").remote_link_bandwidth
    assert figure is not None
    assert figure.note.startswith("vr-scaleout, announced, no sourced figure")


def test_a_file_of_one_s_own(tmp_path: Path) -> None:
    path = tmp_path / "my drive.toml"
    path.write_text('kind = "nvme"\nunit = "one drive"\n[bandwidth]\nvalue = "9 GB/s"\n', encoding="utf-8")
    assert values(device(nvme=f"2 x {path}")) == {"nvme_link_bandwidth": 18e9}


def test_a_placement_has_a_time_once_its_tier_is_named() -> None:
    design = {"model": LLAMA, "hardware": "h100-sxm", "tensor_parallel": 8, "context": 65536, "placement_nvme": 0.5}
    unknown = kv.evaluate(mode="ceiling", **design)
    assert unknown.status == "unsourced_input"
    assert "--assume nvme=NAME" in unknown.reasons["tokens_per_second"]
    named = kv.evaluate(mode="ceiling", **design, assume={"nvme": "nvme-gen5-micron9550"})
    assert named.status == "ok"
    stated = kv.evaluate(
        mode="ceiling", **design, assume={"nvme_link_bandwidth": "14 GB/s", "nvme_energy": "223 pJ/bit"}
    )
    assert named.metrics == stated.metrics
    assert "assumed: nvme_link_bandwidth = 14 GB/s (nvme-gen5-micron9550, no sourced figure)" in named.flags


def test_the_command_line_takes_a_tier_in_either_spelling(capsys: pytest.CaptureFixture[str]) -> None:
    design = (
        "evaluate",
        "--mode",
        "ceiling",
        "--model",
        LLAMA,
        "--hardware",
        "b200-sxm",
        "--context",
        "4096",
        "--placement-host",
        "0.1",
    )
    flags = []
    for word in ("host-link", "host_link"):
        assert run([*design, "--assume", f"{word}=pcie5-x16", "--json"]) == 0
        flags.append(json.loads(capsys.readouterr().out)["flags"])
    assert flags[0] == flags[1]
    assert "assumed: host_link_bandwidth = 64 GB/s (pcie5-x16, no sourced figure)" in flags[0]
    assert run([*design, "--assume", "host=pcie5-x16"]) == 2
    assert 'write host_link = "pcie5-x16"' in " ".join(capsys.readouterr().err.split())


STUDY = """
[study]
name = "tiered"
mode = "ceiling"
[space]
model = "meta-llama/Meta-Llama-3-8B"
hardware = ["h100-sxm", "b200-sxm"]
context = [1000, 2000]
placement_nvme = [0.0, 0.5]
[assume]
"h100-sxm".nvme = "nvme-gen5-micron9550"
"b200-sxm".nvme = "4 x nvme-gen6-micron9650"
"b200-sxm".host_link = "pcie5-x16"
"b200-sxm".host = "ddr5-5600-channel"
"""


def test_a_study_takes_tiers_and_reads_back_what_it_writes() -> None:
    study = kv.Study.from_text(STUDY)
    h100, b200 = study.catalogue.hardware
    assert values(h100) == values(device(nvme="nvme-gen5-micron9550"))
    assert values(b200)["host_link_bandwidth"] == 44.8e9
    assert kv.Study.from_text(study.resolved()).spec_hash == study.spec_hash
    other = kv.Study.from_text(STUDY.replace("4 x nvme", "5 x nvme"))
    assert other.spec_hash != study.spec_hash


def test_a_study_s_wrong_tier_is_named_with_its_line() -> None:
    with pytest.raises(InputError) as caught:
        kv.Study.from_text(STUDY.replace("nvme-gen5-micron9550", "rdma-400g"))
    (fault,) = caught.value.faults
    assert "line 11" in fault
    assert 'remote or scale_out = "rdma-400g"' in fault


def test_faults_that_only_figures_together_have_are_found_once() -> None:
    text = STUDY.replace('"b200-sxm".host_link = "pcie5-x16"\n', "")
    with pytest.raises(InputError) as caught:
        kv.Study.from_text(text)
    (fault,) = caught.value.faults
    assert "lies behind the link to the host" in fault

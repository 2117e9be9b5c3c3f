"""The catalogue of tiers: every file loads with its sources, known figures by hand, and every slip is refused."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from kvwall.spaces.assumptions import ROLES
from kvwall.spaces.errors import InputError
from kvwall.spaces.figures import Figure, shown
from kvwall.spaces.hardware import load_hardware
from kvwall.spaces.tiers import KINDS, TIER_FIGURES, TierTechnology, load_tier, tier_names
from kvwall.sweep.cli import run

DRIVE = """
name = "my-drive"
kind = "nvme"
unit = "one drive"
[bandwidth]
value = "7 GB/s"
source = "own measurement"
"""


def write(folder: Path, text: str) -> str:
    """The path of a tier file that holds `text`."""
    path = folder / "drive.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def faults(name_or_path: str) -> tuple[str, ...]:
    """The faults with which loading is refused."""
    with pytest.raises(InputError) as caught:
        load_tier(name_or_path)
    return caught.value.faults


def test_every_figure_of_the_record_declares_its_unit() -> None:
    assert {field.name for field in fields(TierTechnology) if "Figure" in str(field.type)} == set(TIER_FIGURES)


def test_every_kind_has_a_technology() -> None:
    assert {load_tier(name).kind for name in tier_names()} == set(KINDS)


@pytest.mark.parametrize("name", tier_names())
def test_every_file_loads_with_a_source_per_figure(name: str) -> None:
    tier = load_tier(name)
    assert tier.name == name
    assert tier.unit
    assert tier.technology
    assert tier.status in ("shipping", "announced")
    assert tier.grade in ("A", "B", "C")
    found = {field: getattr(tier, field) for field in TIER_FIGURES}
    assert any(found.values()) or "left out" in tier.notes
    for field, figure in found.items():
        if figure is not None:
            assert len(figure.source) > 5, field
            assert figure.source != "not stated", field


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("ddr5-4800-channel", "bandwidth", 4800e6 * 8),
        ("ddr5-8800-channel", "bandwidth", 8800e6 * 8),
        ("ddr5-rdimm-64gb", "capacity", 64 * 2**30),
        ("grace-lpddr5x", "capacity", 480e9),
        ("pcie4-x16", "bandwidth", 32e9),  # 64 is the sum of both directions
        ("pcie5-x16", "bandwidth", 64e9),
        ("pcie5-x16", "energy", 5.5e-12 * 8),
        ("nvlink-c2c-grace", "bandwidth", 450e9),
        ("nvlink-c2c-grace", "energy", 1.3e-12 * 8),
        ("cxl2-x8", "bandwidth", 32e9),
        ("cxl2-x16", "latency", 250e-9),
        ("nvme-gen5-micron9550", "bandwidth", 14e9),
        ("nvme-gen5-micron9550", "write_bandwidth", 10e9),
        ("nvme-gen6-micron9650", "capacity", 30.72e12),
        ("rdma-400g", "bandwidth", 400e9 / 8),
        ("vr-scaleout", "bandwidth", 450e9 / 2),
    ],
)
def test_known_figures(name: str, field: str, value: float) -> None:
    assert getattr(load_tier(name), field).value == pytest.approx(value, rel=1e-12)


def test_energy_of_a_drive_is_the_inverse_of_its_bytes_per_joule() -> None:
    for name, bytes_per_joule in (("nvme-gen5-micron9550", 560e6), ("nvme-gen6-micron9650", 1120e6)):
        energy = load_tier(name).energy
        assert energy is not None
        assert energy.value == pytest.approx(1 / bytes_per_joule, rel=5e-3)


def test_price_of_a_module_is_its_range_over_its_bytes() -> None:
    price = load_tier("ddr5-rdimm-64gb").price
    assert price is not None
    assert 820 < price.value * 64 * 2**30 < 950


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("cxl4-bundle", "bandwidth"),  # direction not stated
        ("nvlink-c2c-vera", "energy"),  # only the link to Grace has a figure
        ("grace-lpddr5x", "energy"),  # LPDDR5X is not LPDDR5
        ("nvme-gen6-micron9650", "price"),
        ("rdma-400g", "energy"),
    ],
)
def test_a_figure_without_a_source_stays_absent(name: str, field: str) -> None:
    assert getattr(load_tier(name), field) is None


def test_links_agree_with_the_chips_that_have_them() -> None:
    for chip, tier in (("h100-sxm", "pcie5-x16"), ("l4", "pcie4-x16"), ("gh200-144", "nvlink-c2c-grace")):
        device, link = load_hardware(chip), load_tier(tier)
        assert device.host_link_bandwidth is not None
        assert link.bandwidth is not None
        assert device.host_link_bandwidth.value == link.bandwidth.value
        assert device.link_energy == link.energy


@pytest.mark.parametrize(("chip", "devices"), [("gh200-144", 1), ("gb200-nvl72", 2), ("gb300-nvl72", 2)])
def test_host_memory_of_a_chip_is_its_part_of_the_cpu_s(chip: str, devices: int) -> None:
    device, memory = load_hardware(chip), load_tier("grace-lpddr5x")
    assert device.host_capacity is not None
    assert memory.capacity is not None
    assert device.host_capacity.value * devices == memory.capacity.value
    assert (device.host_link_devices.value if device.host_link_devices else 1) == devices


@pytest.mark.parametrize(
    ("chip", "domains"),
    [("mi300x", 4), ("mi325x", 4), ("mi300a", 4), ("mi355x", 2), ("mi250x", 2), ("b200-sxm", 2), ("gb300-nvl72", 2),
     ("vr200-nvl72", 2), ("ai100-ultra", 4), ("dgx-spark", 1)],
)  # fmt: skip
def test_memory_domains(chip: str, domains: int) -> None:
    found = load_hardware(chip).memory_domains
    assert found is not None
    assert found.value == domains


def test_a_file_of_one_s_own(tmp_path: Path) -> None:
    tier = load_tier(write(tmp_path, DRIVE))
    assert (tier.name, tier.kind, tier.bandwidth) == ("my-drive", "nvme", Figure(7e9, "own measurement"))


@pytest.mark.parametrize(
    ("right", "wrong", "slip"),
    [
        ('"7 GB/s"', '"7 TB/s"', "bandwidth: did you mean GB/s?"),
        ('"7 GB/s"', '"7 GB"', "is not a quantity in B/s"),
        ('"nvme"', '"nvm"', "did you mean nvme?"),
        ('kind = "nvme"', "", "kind is missing: write one of host"),
        ('unit = "one drive"', "", "unit is missing: write what"),
        ("[bandwidth]", "[bandwith]", '"bandwith" is no key of a tier file (did you mean bandwidth'),
        ("value", "valu", "[bandwidth] has no value"),
        ("[bandwidth]", '[price]\nvalue = "13 USD/byte"\n[bandwidth]', "Plausible values run from"),
        ("[bandwidth]", '[latency]\nvalue = "3 ms/s"\n[bandwidth]', "for latency is not a quantity in us"),
    ],
)
def test_a_slip_is_named(tmp_path: Path, right: str, wrong: str, slip: str) -> None:
    assert DRIVE.count(right) == 1
    assert any(slip in fault for fault in faults(write(tmp_path, DRIVE.replace(right, wrong))))


def test_all_faults_of_a_file_are_reported_together(tmp_path: Path) -> None:
    text = DRIVE.replace('"nvme"', '"disk"').replace("7 GB", "7 PB").replace("name =", "nam =")
    found = faults(write(tmp_path, 'status = "planned"\n' + text))
    for part in ('write "shipping"', 'kind = "disk"', '"nam" is no key', "bandwidth"):
        assert sum(part in fault for fault in found) >= 1, part
    assert all(fault.startswith(str(tmp_path)) for fault in found)


@pytest.mark.parametrize("field", TIER_FIGURES)
def test_figures_outside_their_range_are_refused_and_its_ends_are_not(tmp_path: Path, field: str) -> None:
    measure = TIER_FIGURES[field]
    body = DRIVE.split("[bandwidth]")[0] + f'[{field}]\nsource = "own"\nvalue = '
    for value in (measure.low * 0.5, measure.high * 2):
        (fault,) = faults(write(tmp_path, f'{body}"{value!r} {measure.unit}"'))
        assert f"for {field}: " in fault
    for value in (measure.low, measure.high):
        figure = getattr(load_tier(write(tmp_path, f'{body}"{value!r} {measure.unit}"')), field)
        assert figure.value == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("field", TIER_FIGURES)
def test_the_example_in_a_fault_reads_back(tmp_path: Path, field: str) -> None:
    measure = TIER_FIGURES[field]
    body = DRIVE.split("[bandwidth]")[0] + f'[{field}]\nvalue = "{measure.example}"'
    assert shown(measure, getattr(load_tier(write(tmp_path, body)), field).value) == measure.example


def test_an_unknown_name_suggests_near_ones() -> None:
    assert "did you mean rdma-400g" in faults("rdma400g")[0]
    assert "cannot be read" in faults("none.toml")[0]


@pytest.fixture
def catalog(capsys: pytest.CaptureFixture[str]):
    """`kvwall catalog`: exit code and what it prints."""

    def call(*arguments: str) -> tuple[int, str]:
        code = run(["catalog", *arguments])
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return call


def test_the_command_lists_every_tier_by_kind(catalog) -> None:
    code, out = catalog("tiers", "--json")
    listed = json.loads(out)["tiers"]
    assert code == 0
    assert {entry["name"] for entry in listed} == set(tier_names())
    kinds = [entry["kind"] for entry in listed]
    assert list(dict.fromkeys(kinds)) == list(KINDS)
    assert len(kinds) == len(tier_names()) == sum(kinds.count(kind) for kind in KINDS)
    code, table = catalog("tiers")
    assert code == 0
    assert table.isascii()
    row = next(line for line in table.splitlines() if line.startswith("nvme-gen6-micron9650"))
    assert re.findall(r"[^|\s]+", row)[1:] == ["nvme", "28", "30,720", "-", "112", "-"]
    assert "vr-scaleout *" in table
    assert all(word in table for word in ROLES)


def test_the_command_shows_one_tier_with_sources_and_gaps(catalog) -> None:
    code, out = catalog("tiers", "nvme-gen5-micron9550", "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["kind"], found["unit"], found["grade"]) == ("nvme", "one drive", "B")
    bandwidth = found["figures"]["bandwidth"]
    assert (bandwidth["value"], bandwidth["unit"], bandwidth["shown"]) == (14e9, "byte/s", "14 GB/s")
    assert "svethardware" in bandwidth["source"]
    assert found["figures"]["capacity"] is None
    code, out = catalog("tiers", "nvme-gen5-micron9550")
    assert code == 0
    assert "bandwidth: 14 GB/s" in out
    assert "capacity: no source" in out


def test_the_command_reads_a_file_of_one_s_own_and_refuses_what_is_none(catalog, tmp_path: Path) -> None:
    assert json.loads(catalog("tiers", write(tmp_path, DRIVE), "--json")[1])["name"] == "my-drive"
    code, out = catalog("tiers", "nvme-gen5")
    assert code == 2
    assert "did you mean nvme-gen" in out
    assert "Traceback" not in out

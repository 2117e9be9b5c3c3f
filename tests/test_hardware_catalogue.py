"""The hardware catalogue: every file loads, known figures by hand, and every slip is refused by name."""

from __future__ import annotations

import shutil
from dataclasses import fields
from pathlib import Path

import pytest

from kvwall.spaces import hardware as module
from kvwall.spaces.errors import InputError
from kvwall.spaces.figures import FIGURES, Figure, display
from kvwall.spaces.hardware import Hardware, hardware_names, load_hardware

CHIP = """
name = "my-chip"
[memory_capacity]
value = "80 GB"
[memory_bandwidth]
value = "3.35 TB/s"
source = "own measurement"
"""
PEAKS = ("bf16_flops", "fp8_flops", "int8_ops", "fp6_flops", "fp4_flops")


def write(folder: Path, text: str) -> str:
    """The path of a hardware file that holds `text`."""
    path = folder / "chip.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def faults(name_or_path: str, **assume: str) -> tuple[str, ...]:
    """The faults with which loading is refused."""
    with pytest.raises(InputError) as caught:
        load_hardware(name_or_path, assume)
    return caught.value.faults


def sourced(device: Hardware) -> dict[str, Figure]:
    """The figures that the device has."""
    return {field: figure for field in FIGURES if (figure := getattr(device, field)) is not None}


def test_every_figure_of_the_record_declares_its_unit() -> None:
    assert {field.name for field in fields(Hardware) if "Figure" in str(field.type)} == set(FIGURES)


def test_catalogue_has_every_chip_with_sourced_memory_figures() -> None:
    assert len(hardware_names()) == 93
    assert {"h100-sxm", "b200-sxm", "mi300x", "paper/h100", "paper/b200", "paper/mi300x"} <= set(hardware_names())
    # no source states the bandwidth of these
    assert not {"a100-pcie-40", "jetson-orin-64"} & set(hardware_names())


@pytest.mark.parametrize("name", hardware_names())
def test_every_file_loads_with_a_source_per_figure(name: str) -> None:
    device = load_hardware(name)
    assert device.name == name
    assert device.vendor
    assert device.product
    assert device.status in ("shipping", "announced")
    assert device.grade in ("A", "B", "C")
    for field, figure in sourced(device).items():
        assert len(figure.source) > 5, field
        assert figure.source != "not stated", field


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("h100-sxm", "memory_bandwidth", 3.35e12),
        ("h100-sxm", "memory_capacity", 80 * 2**30),
        ("h100-sxm", "fp8_flops", 1978.9e12),  # 3958 is the sparse headline
        ("h100-sxm", "scale_up_bandwidth", 450e9),  # one direction of 900
        ("h100-sxm", "tco_price", 1.69),
        ("h100-sxm", "all_in_power", 1730),
        ("b200-sxm", "memory_bandwidth", 7.7e12),
        ("b200-sxm", "die_to_die_bandwidth", 10e12),
        ("b300-sxm", "int8_ops", 153.5e12),  # not the FP8 rate
        ("gb200-nvl72", "memory_capacity", 189471 * 2**20),
        ("gb200-nvl72", "scale_up_domain", 72),
        ("l40s", "fp8_flops", 733e12),  # 1466 is sparse
        ("mi300x", "memory_capacity", 192 * 2**30),
        ("mi300x", "compute_dies", 8),
        ("rtx-3090", "bf16_flops", 71e12),  # FP32 accumulate; 142 with FP16
        ("rtx-3090", "memory_capacity", 24 * 2**30),
        ("rtx-4080", "bf16_flops", 97.5e12),  # 76 SM x 2,505 MHz x 512
        ("rtx-6000-ada", "fp8_flops", 728.5e12),  # half of the sparse 1457 of the datasheet
        ("a40", "memory_bandwidth", 696e9),
        ("gh200-96", "memory_bandwidth", 4e12),
        ("mi250-gcd", "memory_bandwidth", 1.638e12),  # half a package
        ("mi250x-gcd", "memory_capacity", 64 * 2**30),
        ("m1", "bf16_flops", 2.275e12),  # seven of eight cores
        ("wse-3", "memory_bandwidth", 21e15),
        ("groq-lpu1", "memory_capacity", 230e6),
        ("paper/h100", "memory_capacity", 80e9),
        ("paper/h100", "memory_bandwidth", 3.35e12),
        ("paper/b200", "memory_bandwidth", 8e12),
        ("paper/b200", "memory_capacity", 192e9),
        ("paper/mi300x", "memory_capacity", 192e9),
        ("paper/mi300x", "memory_bandwidth", 5.3e12),
    ],
)
def test_known_figures(name: str, field: str, value: float) -> None:
    assert getattr(load_hardware(name), field).value == value


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("b200-sxm", "host_link_bandwidth"),  # sources differ
        ("trainium3", "scale_up_bandwidth"),  # direction not stated
        ("mi455x", "scale_up_bandwidth"),
        ("ascend-910c", "scale_up_bandwidth"),
        ("tpu-8i", "scale_up_bandwidth"),
        ("rtx-5090", "fp8_flops"),
        ("mi440x", "bf16_flops"),
        ("h200-nvl", "bf16_flops"),
        ("vr200-nvl72", "tdp"),
    ],
)
def test_a_figure_without_a_source_stays_absent(name: str, field: str) -> None:
    assert getattr(load_hardware(name), field) is None


@pytest.mark.parametrize("name", ["mi455x", "tpu-8t", "tpu-8i", "mtia-300", "mtia-500", "maia-200", "groq3-lpu"])
def test_peaks_of_unknown_sparsity_say_so(name: str) -> None:
    peaks = [figure for field, figure in sourced(load_hardware(name)).items() if field in PEAKS]
    assert peaks
    assert all("does not say whether this peak is dense or sparse" in peak.note for peak in peaks)


def test_announced_devices_load_with_a_flag() -> None:
    assert load_hardware("mi455x").flags == ("announced: vendor target, not a product",)
    assert load_hardware("h100-sxm").flags == ()


@pytest.mark.parametrize(
    ("name", "picojoule_per_bit"),
    [
        ("h100-sxm", 3.0),
        ("b200-sxm", 3.9),
        ("a100-sxm-40", 3.5),
        ("l4", 10.0),
        ("m3-ultra", 6.0),
        ("gh200-144", 3.9),
        ("a100-sxm-80", None),  # HBM2e is neither HBM2 nor HBM3
        ("m4-max", None),  # LPDDR5X is not LPDDR5
        ("rtx-4090", None),  # GDDR6X is not GDDR6
        ("vr200-nvl72", None),  # HBM4: only a goal, of another boundary
        ("wse-3", None),
    ],
)
def test_memory_energy_follows_the_memory_technology(name: str, picojoule_per_bit: float | None) -> None:
    energy = load_hardware(name).memory_energy
    if picojoule_per_bit is None:
        assert energy is None
    else:
        assert energy is not None
        assert energy.value == pytest.approx(picojoule_per_bit * 8e-12, rel=1e-12)
        assert "memory device" in energy.note  # which boundary


def test_link_and_flop_energy_state_their_grade_and_boundary() -> None:
    h100, gb200, rubin = (load_hardware(name) for name in ("h100-sxm", "gb200-nvl72", "vr200-nvl72"))
    assert h100.link_energy is not None
    assert h100.link_energy.value == pytest.approx(44e-12)
    assert "one end" in h100.link_energy.note
    assert gb200.link_energy is not None
    assert gb200.link_energy.value == pytest.approx(10.4e-12)
    assert rubin.link_energy is None  # only the link to Grace has a figure
    assert h100.flop_energy is not None
    assert 0.2197e-12 < h100.flop_energy.value < 0.2376e-12
    assert "grade C" in h100.flop_energy.note


def test_a_user_chip_loads_by_path(tmp_path: Path) -> None:
    device = load_hardware(write(tmp_path, CHIP))
    assert device.name == "my-chip"
    assert device.memory_capacity == Figure(80e9, "not stated")
    assert device.memory_bandwidth == Figure(3.35e12, "own measurement")
    assert set(sourced(device)) == {"memory_capacity", "memory_bandwidth", "flop_energy"}


def test_a_user_chip_may_state_its_own_energy(tmp_path: Path) -> None:
    text = 'memory_type = "HBM3"\n' + CHIP.replace('name = "my-chip"\n', "") + '[memory_energy]\nvalue = "5 pJ/bit"\n'
    device = load_hardware(write(tmp_path, text))
    assert device.name == "chip"
    assert device.memory_energy is not None
    assert device.memory_energy.value == pytest.approx(40e-12)


@pytest.mark.parametrize("field", FIGURES)
def test_every_figure_refuses_values_outside_its_range(field: str) -> None:
    measure = FIGURES[field]
    scale, unit = (1 / 8, "J/bit") if measure.unit == "J/byte" else (1.0, "" if measure.unit == "1" else measure.unit)
    for value in (measure.low * 0.5, measure.high * 2):
        found = faults("h100-sxm", **{field: f"{value * scale!r} {unit}"})
        assert len(found) == 1
        assert field in found[0]
    for value in (measure.low, measure.high):
        assert getattr(load_hardware("h100-sxm", {field: f"{value * scale!r} {unit}"}), field).value == value


@pytest.mark.parametrize("field", FIGURES)
def test_the_example_in_a_fault_is_itself_accepted(field: str) -> None:
    device = load_hardware("h100-sxm", {field: FIGURES[field].example})
    assert getattr(device, field).source == "assumed"
    assert device.assumed == (field,)


@pytest.mark.parametrize(
    ("right", "wrong", "slip"),
    [
        ("3.35 TB/s", "3.35 GB/s", "3.35 GB/s for memory_bandwidth: did you mean TB/s?"),
        ("3.35 TB/s", "3.35 PB/s", "3.35 PB/s for memory_bandwidth: did you mean TB/s?"),
        ("3.35 TB/s", "3350000000 B/s", "3.35 GB/s for memory_bandwidth: did you mean TB/s?"),
        ("80 GB", "80 MB", "80 MB for memory_capacity: did you mean GB?"),
        ("80 GB", "80 TB", "80 TB for memory_capacity: did you mean GB?"),
    ],
)
def test_a_wrong_prefix_is_named(tmp_path: Path, right: str, wrong: str, slip: str) -> None:
    (fault,) = faults(write(tmp_path, CHIP.replace(right, wrong)))
    assert slip in fault


@pytest.mark.parametrize(
    ("field", "wrong", "slip"),
    [
        ("bf16_flops", "989 GFLOP/s", "did you mean TFLOP/s?"),
        ("fp4_flops", "9 EFLOP/s", "did you mean PFLOP/s?"),
        ("tdp", "700 kW", "did you mean W?"),
        ("host_link_bandwidth", "64 TB/s", "did you mean GB/s?"),
        ("list_price", "33.6 USD", "did you mean 33600 USD?"),
        ("cloud_price", "3.9 USD/s", "did you mean 3.9 USD/hour?"),
        ("memory_energy", "3.9 nJ/bit", "did you mean 3.9 pJ/bit?"),
    ],
)
def test_the_likely_slip_is_named_for_other_units(field: str, wrong: str, slip: str) -> None:
    (fault,) = faults("h100-sxm", **{field: wrong})
    assert slip in fault


def test_a_planted_unit_error_in_a_catalogue_file_is_found(tmp_path: Path) -> None:
    text = (Path(module.__file__).parent / "catalog/hardware/h100-sxm.toml").read_text(encoding="utf-8")
    planted = text.replace('value = "3.35e12 B/s"', 'value = "3.35e9 B/s"')
    assert planted != text
    (fault,) = faults(write(tmp_path, planted))
    assert "memory_bandwidth: did you mean TB/s?" in fault


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "-80", "0", "1e400"])
def test_numbers_that_are_no_size_are_refused(tmp_path: Path, number: str) -> None:
    (fault,) = faults(write(tmp_path, CHIP.replace("80 GB", f"{number} GB")))
    assert "memory_capacity: write a finite number above zero" in fault


@pytest.mark.parametrize(
    "written",
    [
        '"80"',
        "80",
        '"80,5 GB"',
        '"80 GB 2"',
        '"80 W"',
        '"80 Hz"',
        '"80 GB/s"',
        '"80 ("',
        '"1/0 GB"',
        '"GB"',
        '""',
        "[]",
    ],
)
def test_text_that_is_no_quantity_is_refused(tmp_path: Path, written: str) -> None:
    (fault,) = faults(write(tmp_path, CHIP.replace('"80 GB"', written)))
    assert "memory_capacity is not a quantity in B" in fault


@pytest.mark.parametrize("written", ["2.5", "true", '"two"', "nan", "-1", "0", "inf", "65"])
def test_counts_are_whole_plausible_numbers(tmp_path: Path, written: str) -> None:
    (fault,) = faults(write(tmp_path, f"{CHIP}[compute_dies]\nvalue = {written}\n"))
    assert "compute_dies" in fault


def test_all_faults_of_a_file_and_of_assume_are_reported_together(tmp_path: Path) -> None:
    text = 'vender = "x"\nstatus = "planned"\nnotes = 3\n' + CHIP
    text = text.replace("80 GB", "80 MB").replace("3.35 TB", "3.35 GB")
    text += '[tdp]\nvalu = "700 W"\n[list_price]\nvalue = "15000 USD"\nsource = 1\n'
    found = faults(write(tmp_path, text), hostlink_bandwidth="64 GB/s")
    expected = (
        "did you mean vendor?",
        "notes = 3 is not text",
        'write "shipping" or "announced"',
        "memory_capacity: did you mean GB?",
        "memory_bandwidth: did you mean TB/s?",
        "did you mean value?",
        "[tdp] has no value",
        "source = 1 of [list_price] is not text",
        "did you mean host_link_bandwidth",
    )
    assert len(found) == len(expected)
    for part in expected:
        assert sum(part in fault for fault in found) == 1, part
    assert all("chip.toml" in fault for fault in found)


def test_memory_figures_are_required_but_may_be_assumed(tmp_path: Path) -> None:
    path = write(tmp_path, 'name = "x"\n')
    assert [fault.split(": ")[1] for fault in faults(path)] == [
        "memory_capacity is missing",
        "memory_bandwidth is missing",
    ]
    device = load_hardware(path, {"memory_capacity": "80 GB", "memory_bandwidth": "2 TB/s"})
    assert device.memory_bandwidth == Figure(2e12, "assumed", "no sourced figure")


def test_an_assumed_figure_takes_the_place_of_a_sourced_one() -> None:
    device = load_hardware("h100-sxm", {"memory_bandwidth": "3 TB/s"})
    assert device.memory_bandwidth == Figure(3e12, "assumed", "in place of the sourced figure")
    assert device.assumed == ("memory_bandwidth",)


def test_a_figure_must_be_a_table(tmp_path: Path) -> None:
    (fault,) = faults(write(tmp_path, 'tdp = "700 W"\n' + CHIP))
    assert "tdp = '700 W' is not a table" in fault


@pytest.mark.parametrize(
    ("text", "line"),
    [(CHIP + "[tdp\n", "line 8"), (CHIP + "a = [1,", "line 8"), (CHIP + CHIP, "line 10")],
)
def test_malformed_toml_names_the_line(tmp_path: Path, text: str, line: str) -> None:
    (fault,) = faults(write(tmp_path, text))
    assert "not valid TOML" in fault
    assert line in fault


def test_a_file_that_cannot_be_read_is_no_traceback(tmp_path: Path) -> None:
    assert "cannot be read" in faults(str(tmp_path / "none.toml"))[0]
    (tmp_path / "folder.toml").mkdir()
    assert "cannot be read" in faults(str(tmp_path / "folder.toml"))[0]
    (tmp_path / "bytes.toml").write_bytes(b'name = "x"\n\xff')
    assert "line 2 is not UTF-8" in faults(str(tmp_path / "bytes.toml"))[0]


def test_an_unknown_name_suggests_near_ones() -> None:
    assert "h100-sxm" in faults("h100sxm")[0]
    assert "paper/h100" in faults("paper-h100")[0]
    assert "no hardware of the catalogue" in faults("../hardware/h100-sxm")[0]


def test_only_the_asked_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalogue = tmp_path / "catalog"
    (catalogue / "hardware").mkdir(parents=True)
    original = Path(module.__file__).parent / "catalog"
    shutil.copy(original / "hardware/h100-sxm.toml", catalogue / "hardware")
    (catalogue / "hardware/broken.toml").write_text("[", encoding="utf-8")
    monkeypatch.setattr(module, "_CATALOGUE", catalogue)
    assert hardware_names() == ("broken", "h100-sxm")
    assert load_hardware("h100-sxm").memory_bandwidth.value == 3.35e12
    assert "not valid TOML" in faults("broken")[0]


@pytest.mark.parametrize(
    ("field", "value", "shown"),
    [
        ("memory_capacity", 80e9, "80 GB"),
        ("fp4_flops", 9e15, "9 PFLOP/s"),
        ("tdp", 700, "700 W"),
        ("cloud_price", 3.9, "3.9 USD/hour"),
        ("flop_energy", 0.22865e-12, "0.22865 pJ/FLOP"),
        ("compute_dies", 2, "2"),
    ],
)
def test_values_are_shown_as_people_write_them(field: str, value: float, shown: str) -> None:
    assert display(field, value) == shown

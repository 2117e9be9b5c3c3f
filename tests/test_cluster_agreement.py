"""A worker does no task that it would not do as the driver would: it says what differs."""

from __future__ import annotations

import dataclasses
import json
import pickle
from pathlib import Path

import pytest

from kvwall.spaces.errors import InputError
from kvwall.sweep.study import Study
from tests.finished_sweeps import SMALL as STUDY

pytest.importorskip("distributed")
from kvwall.sweep.cluster import agreement  # noqa: E402 - after the skip
from kvwall.sweep.cluster.agreement import Machine, Ticket, agreed  # noqa: E402


@pytest.fixture
def ticket(tmp_path):
    study = Study.from_text(STUDY)
    (tmp_path / agreement.PROBE).write_text("this run")
    packed = pickle.dumps(Study.from_text(STUDY))
    return Ticket("this run", Machine.here(), packed, study.spec(), study.spec_hash, tmp_path, (), {})


def refused(ticket, **other):
    with pytest.raises(InputError) as found:
        agreed(dataclasses.replace(ticket, **other))
    return str(found.value)


def test_a_worker_that_agrees_has_the_study(ticket):
    assert agreed(ticket).spec_hash == ticket.spec_hash


@pytest.mark.parametrize("name", ["python", "kvwall", "jax", "jaxlib", "numpy", "distributed"])
def test_a_worker_with_another_version_says_both(name, ticket):
    own = ticket.machine.versions[name]
    machine = dataclasses.replace(ticket.machine, versions={**ticket.machine.versions, name: "0.0"})
    said = refused(ticket, machine=machine, study=b"not to be read")
    assert f"has {name} {own} (here 0.0)" in said
    assert "the same environment" in said


def test_another_processor_is_no_reason_to_refuse(ticket):
    assert agreed(dataclasses.replace(ticket, machine=dataclasses.replace(ticket.machine, processor="another")))


def test_a_worker_with_other_records_says_which(ticket):
    spec = json.loads(json.dumps(ticket.spec))
    spec["catalogue"]["hardware"]["mi300x"] = "another"
    assert 'catalogue.hardware.mi300x: "another" -> ' in refused(ticket, spec=spec, spec_hash="another")


def test_a_worker_that_cannot_take_in_the_study_says_so(ticket):
    of_other_code = b"ckvwall.sweep.study\nNoSuchClass\n."
    assert "cannot take in the study (AttributeError" in refused(ticket, study=of_other_code)


def test_a_worker_without_the_folder_says_so(ticket, monkeypatch):
    monkeypatch.setattr(agreement, "_SECONDS_FOR_PROBE", 0.0)
    said = refused(ticket, run="another run")
    assert "does not see" in said
    assert "--out" in said


def test_a_worker_that_cannot_read_the_study_says_so(ticket, tmp_path):
    chip = tmp_path / "chip.toml"
    chip.write_text((Path(__file__).parent.parent / "spaces/catalog/hardware/h100-sxm.toml").read_text())
    study = Study.from_text(STUDY.replace('"h100-sxm"', f'"{chip}"', 1))
    chip.unlink()
    said = refused(ticket, study=pickle.dumps(study))
    assert "cannot read the study" in said
    assert "must be absolute" in said

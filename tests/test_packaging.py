"""The archives, the import name and the layers: what a user installs is what the repository holds."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("spaces", "objectives", "sweep")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PIN = re.compile(r'[A-Za-z0-9][A-Za-z0-9._-]*==[0-9][A-Za-z0-9.+]*( ; python_version (<|>=) "3\.\d+")?')


def shipped_files() -> set[str]:
    """Every file that an installed kvwall must have, as kvwall/..., read from the real folders."""
    real = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    own = [ROOT / "kvwall" / "__init__.py", ROOT / "kvwall" / "py.typed"]
    inside = {f"kvwall/{path.relative_to(ROOT).as_posix()}" for path in real}
    inside |= {path.relative_to(ROOT).as_posix() for path in own}
    return {name for name in inside if "__pycache__" not in name and not Path(name).name.startswith(".")}


def module_names() -> list[str]:
    sources = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    dotted = (".".join(("kvwall", *path.relative_to(ROOT).with_suffix("").parts)) for path in sources)
    return sorted(name.removesuffix(".__init__") for name in dotted if not name.endswith(".__main__"))


def under_two_names(modules: Mapping[str, ModuleType]) -> dict[str, list[str]]:
    """Files of this repository that are loaded more than once: path -> module names."""
    names: dict[str, list[str]] = {}
    for name, module in modules.items():
        file = getattr(module, "__file__", None)
        if file and Path(file).resolve().is_relative_to(ROOT) and ".venv" not in Path(file).parts:
            names.setdefault(str(Path(file).resolve()), []).append(name)
    return {file: found for file, found in names.items() if len(found) > 1}


def build(target: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (archive,) = folder.iterdir()
    return archive


@pytest.mark.parametrize("folder", FOLDERS)
def test_links_are_relative_and_lead_to_the_root_folders(folder: str) -> None:
    link = ROOT / "kvwall" / folder
    assert link.is_symlink(), f"{link} must be a link: on Windows clone with core.symlinks=true"
    assert os.readlink(link) == f"../{folder}"  # noqa: PTH115 - the text of the link, not where it leads
    assert link.resolve() == ROOT / folder


def test_no_file_is_loaded_under_two_names() -> None:
    for name in module_names():
        importlib.import_module(name)
    assert under_two_names(sys.modules) == {}


def test_a_file_loaded_under_two_names_is_found() -> None:
    importlib.import_module("kvwall.spaces.errors")
    spec = importlib.util.spec_from_file_location("spaces.errors", ROOT / "spaces" / "errors.py")
    assert spec is not None
    second = importlib.util.module_from_spec(spec)
    found = under_two_names({**sys.modules, "spaces.errors": second})
    assert found == {str(ROOT / "spaces" / "errors.py"): ["kvwall.spaces.errors", "spaces.errors"]}


def test_wheel_holds_every_file_under_the_import_name(tmp_path: Path) -> None:
    with zipfile.ZipFile(build("wheel", tmp_path)) as wheel:
        names = set(wheel.namelist())
        metadata = next(name for name in names if name.endswith("METADATA"))
        assert b"Requires-Dist: jax>=" in wheel.read(metadata)
    assert shipped_files() - names == set()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"kvwall"}
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_sdist_holds_every_file_as_a_real_file(tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path)) as sdist:
        members = {name.split("/", 1)[1]: sdist.getmember(name) for name in sdist.getnames()}
    assert {*shipped_files(), "pyproject.toml", "README.md", "LICENSE"} - members.keys() == set()
    assert all(member.isreg() for member in members.values())


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    program = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    return subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True)


def test_layers_hold() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


@pytest.mark.parametrize(
    ("file", "line", "contract"),
    [
        ("spaces/planted.py", "import kvwall.sweep", "sweep uses objectives"),
        ("objectives/planted.py", "import optuna", "belong to sweep"),
        ("spaces/planted.py", "from concurrent.futures import ProcessPoolExecutor", "belong to sweep"),
        ("objectives/planted.py", "from pathlib import Path", "neither read nor write"),
    ],
)
def test_a_broken_layer_is_found(tmp_path: Path, file: str, line: str, contract: str) -> None:
    shutil.copytree(ROOT / "kvwall", tmp_path / "kvwall", ignore=shutil.ignore_patterns("catalog", "__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "kvwall" / file).write_text(line + "\n")
    done = lint_imports(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(rf"{contract}.* BROKEN", done.stdout)


def pins() -> list[str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_pins_are_name_and_version_only() -> None:
    assert [line for line in pins() if not PIN.fullmatch(line)] == []
    assert "://" not in (ROOT / "constraints.txt").read_text()


@pytest.mark.parametrize("python", ["3.11", "3.13"])
def test_every_declared_dependency_has_one_pin_within_its_bounds(python: str) -> None:
    pinned: dict[str, str] = {}
    for pin in map(Requirement, pins()):
        if pin.marker is None or pin.marker.evaluate({"python_version": python}):
            assert normal(pin.name) not in pinned, f"{pin.name} is pinned twice for Python {python}"
            pinned[normal(pin.name)] = next(iter(pin.specifier)).version
    for declared in map(Requirement, PROJECT["dependencies"] + PROJECT["optional-dependencies"]["test"]):
        assert all(bound.operator == ">=" for bound in declared.specifier), f"{declared}: lower bounds only"
        assert pinned[normal(declared.name)] in declared.specifier


def imported_packages() -> Iterator[tuple[str, str]]:
    """(package, file) of every import, those inside functions too."""
    for path in (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from ((alias.name.split(".")[0], path.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.module.split(".")[0], path.name


def test_every_imported_package_is_declared() -> None:
    extras = PROJECT["optional-dependencies"]
    optional = [text for name, texts in extras.items() if name != "test" for text in texts]
    declared = [Requirement(text) for text in PROJECT["dependencies"] + optional]
    known = {normal(requirement.name) for requirement in declared} | {"kvwall"}
    outside = ((name, file) for name, file in imported_packages() if name not in sys.stdlib_module_names)
    assert [(name, file) for name, file in outside if normal(name) not in known] == []


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()

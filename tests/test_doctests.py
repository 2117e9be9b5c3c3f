"""Every example in a docstring, run under the one name that its module has."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = re.compile(r"^\s*>>> ", re.MULTILINE)


def files_with_examples() -> list[str]:
    sources = (path for folder in ("spaces", "objectives", "sweep") for path in (ROOT / folder).rglob("*.py"))
    return sorted(str(path.relative_to(ROOT)) for path in sources if EXAMPLE.search(path.read_text()))


@pytest.mark.parametrize("file", files_with_examples())
def test_docstring_examples(file: str) -> None:
    name = ".".join(("kvwall", *Path(file).with_suffix("").parts)).removesuffix(".__init__")
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0
    # A function wrapped at definition (jax.jit, for one) hides its docstring from doctest.
    assert result.attempted == len(EXAMPLE.findall((ROOT / file).read_text()))

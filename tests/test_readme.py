"""The README's figures are what the commands print."""

import importlib.util
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs" / "readme.py"
spec = importlib.util.spec_from_file_location("readme", DOCS)
readme = importlib.util.module_from_spec(spec)
spec.loader.exec_module(readme)


def test_console_blocks_are_up_to_date():
    text = readme.README.read_text(encoding="utf-8")
    assert text.count("```console") == 5
    assert readme.filled(text) == text, "run: python docs/readme.py"


def test_a_wrong_figure_would_be_noticed():
    text = readme.README.read_text(encoding="utf-8")
    block = next(each for each in text.split("```console")[1:] if "427,246" in each).partition("```")[0]
    wrong = f"```console{block}```".replace("427,246", "427,247")
    assert readme.filled(wrong) != wrong

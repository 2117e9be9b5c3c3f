"""Fill the README's console blocks with what the commands print; `--check` only compares.

Run `python docs/readme.py [--check]`.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"
_BLOCK = re.compile(r"```console\n\$ kvwall (?P<arguments>[^\n]*)\n(?P<output>.*?)```", re.DOTALL)


def filled(text: str) -> str:
    """The text with every console block's output replaced by what its command prints now."""

    def now(block: re.Match[str]) -> str:
        return f"```console\n$ kvwall {block['arguments']}\n{printed(block['arguments'])}```"

    return _BLOCK.sub(now, text)


def printed(arguments: str) -> str:
    """What a command prints on a terminal of 100 columns without colour."""
    from kvwall.sweep.cli import run

    os.environ.update(COLUMNS="100", NO_COLOR="1")
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        run(shlex.split(arguments))
    return "".join(line.rstrip() + "\n" for line in output.getvalue().splitlines())


def main() -> None:
    """Fill or check the README."""
    text = README.read_text(encoding="utf-8")
    now = filled(text)
    if "--check" in sys.argv:
        sys.exit("README.md is out of date: python docs/readme.py" if now != text else 0)
    README.write_text(now, encoding="utf-8")


if __name__ == "__main__":
    main()

"""Reading a report page in tests: its elements, its figures' data, its text."""

from __future__ import annotations

import base64
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np


class Elements(HTMLParser):
    """Collects every element with its attributes, and the figures' JSON."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.figures: dict[str, dict[str, Any]] = {}
        self.text: list[str] = []
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        self._inside = f"{tag} {attributes.get('id', '')}"

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside.startswith("script ") and self._inside.endswith("-data"):
            self.figures[self._inside.removeprefix("script ").removesuffix("-data")] = json.loads(data)
        elif not self._inside.startswith(("script", "style")):
            self.text.append(data)


def read(page: Path) -> Elements:
    parser = Elements()
    parser.feed(page.read_text(encoding="utf-8"))
    return parser


def text_of(elements: Elements) -> str:
    return " ".join(" ".join(elements.text).split())


def numbers(array: Any) -> list[float]:
    """A trace's numbers, whether written as a list or packed."""
    if isinstance(array, dict):
        return [float(value) for value in np.frombuffer(base64.b64decode(array["bdata"]), np.dtype(array["dtype"]))]
    return [float("nan") if value is None else float(value) for value in array]

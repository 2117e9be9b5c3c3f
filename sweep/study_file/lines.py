"""Where in a TOML text each key and list entry stands, for faults that name their line: `tomllib` keeps none."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kvwall.spaces.errors import InputError

KeyPath: TypeAlias = tuple[str | int, ...]
"""Keys from the top, and positions in lists: ("space", "hardware", 1)."""

_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"""(?:"{0,2})'
    r"|'''.*?'''(?:'{0,2})"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|\#[^\n]*"
    r"|[\[\]{}=,.\n]"
    r"|[^\s\[\]{}=,.\"'\#]+",
    re.DOTALL,
)


@dataclass(frozen=True)
class Lines:
    """Line numbers, from 1, by path."""

    by_path: Mapping[KeyPath, int]

    def of(self, path: KeyPath) -> int | None:
        """The line of a path, or of the nearest thing above it that the text has; None for a thing it lacks."""
        while path and path not in self.by_path:
            path = path[:-1]
        return self.by_path.get(path)


class LocatedFaults:
    """Collects the faults of a file, each with the line of the key it concerns."""

    def __init__(self, lines: Lines, origin: str) -> None:
        self._lines = lines
        self._origin = origin
        self._found: list[tuple[int, str]] = []

    def add(self, path: KeyPath, fault: str) -> None:
        """Record one fault, a full sentence, of the key at this path."""
        line = self._lines.of(path)
        where = f"{self._origin}: line {line}" if line else self._origin
        entry = (line or 0, f"{where}: {fault}")
        if entry not in self._found:
            self._found.append(entry)

    def absorb(self, path: KeyPath, error: InputError) -> None:
        """Record every fault of another error."""
        for fault in error.faults:
            self.add(path, fault)

    def __len__(self) -> int:
        return len(self._found)

    def error(self) -> InputError:
        """Everything recorded, in the order of the file."""
        return InputError(fault for _, fault in sorted(self._found, key=lambda entry: entry[0]))


def find_lines(text: str) -> Lines:
    r"""The lines of a text that is valid TOML.

    >>> find_lines("[space]\nbatch = 1\nmodel = [\n  'a',\n  'b',\n]\n").of(("space", "model", 1))
    5
    """
    scanner = _Scanner(text)
    scanner.scan()
    return Lines(scanner.found)


class _Scanner:
    """Walks the tokens once. Trusts that the text is valid, so it only follows brackets."""

    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, int]] = []
        self.at = 0
        self.found: dict[KeyPath, int] = {}
        line, end = 1, 0
        for match in _TOKEN.finditer(text):
            line += text.count("\n", end, match.start())
            end = match.start()
            if not match[0].startswith("#"):
                self.tokens.append((match[0], line))

    def scan(self) -> None:
        section: KeyPath = ()
        while self.at < len(self.tokens):
            if self.peek() == "\n":
                self.at += 1
            elif self.peek() == "[":
                section = self.header()
            else:
                self.pair(section)

    def peek(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def header(self) -> KeyPath:
        brackets = 0
        while self.peek() == "[":
            self.at += 1
            brackets += 1
        section = self.keys(())
        self.at += brackets
        return section

    def pair(self, section: KeyPath) -> None:
        path = self.keys(section)
        self.at += 1  # the equals sign
        self.value(path)

    def keys(self, path: KeyPath) -> KeyPath:
        """A dotted key; every part of it is recorded where it is first seen."""
        while self.peek() not in {"=", "]", ""}:
            token, line = self.tokens[self.at]
            self.at += 1
            if token != ".":
                path = (*path, _unquoted(token))
                self.found.setdefault(path, line)
        return path

    def value(self, path: KeyPath) -> None:
        opened = self.peek()
        if opened not in {"[", "{"}:
            while self.peek() not in {",", "]", "}", "\n", ""}:
                self.at += 1
            return
        self.at += 1
        entry = 0
        while self.peek() not in {"]", "}", ""}:
            if self.peek() in {",", "\n"}:
                self.at += 1
            elif opened == "{":
                self.pair(path)
            else:
                self.found.setdefault((*path, entry), self.tokens[self.at][1])
                self.value((*path, entry))
                entry += 1
        self.at += 1


def _unquoted(token: str) -> str:
    if token[0] not in "\"'":
        return token
    return str(tomllib.loads(f"key = {token}")["key"])

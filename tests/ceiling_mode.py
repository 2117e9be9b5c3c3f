"""Command lines of tests whose numbers are those of the ceiling."""

from collections.abc import Sequence

WITH_MODE = frozenset({"evaluate", "crossover", "remedies"})


def in_ceiling_mode(arguments: Sequence[str]) -> list[str]:
    """The command line in ceiling mode, where its command has modes and none is stated."""
    stated = {"--mode", "--help"} & set(arguments)
    if not arguments or arguments[0] not in WITH_MODE or stated:
        return list(arguments)
    return [arguments[0], "--mode", "ceiling", *arguments[1:]]

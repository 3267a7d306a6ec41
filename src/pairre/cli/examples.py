"""Help that ends with examples: what a docstring has after `Examples:` stands below the options, ready to be copied."""

from __future__ import annotations

import re
from typing import Any

import typer.core

_MARK = re.compile(r"^(Examples?:)$", re.M)


def split_examples(text: str) -> tuple[str, str]:
    """Return a docstring without its examples, and the examples as lines, empty if there are none."""
    before, *found = _MARK.split(text, maxsplit=1)
    if not found:
        return text, ""
    title, rest = found
    lines = [f"  {line.strip()}" for line in rest.splitlines() if line.strip()]
    return before.rstrip(), "\n".join([title, "", *lines])


class _WithExamples:
    """A command whose help ends with the examples of its docstring."""

    help: str | None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.help, self.examples = split_examples(getattr(self, "help", None) or "")

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, and the examples at its end."""
        super().format_help(ctx, formatter)  # type: ignore[misc]
        if self.examples:
            formatter.write(f"{self.examples}\n")


class CommandWithExamples(_WithExamples, typer.core.TyperCommand):
    """A command whose help ends with examples."""


class GroupWithExamples(_WithExamples, typer.core.TyperGroup):
    """A group of commands whose help ends with examples."""

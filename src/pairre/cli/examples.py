"""Commands whose help ends with examples: what a docstring has after `Examples:` stands below, ready to be copied.

They also refuse whole numbers that nothing could count to, whatever bounds an option has.
"""

from __future__ import annotations

import re
from typing import Any

import typer
import typer.core

_MOST = 1 << 53  # a larger number need not fit where it goes
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

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Return what is left of the arguments, after their numbers are checked."""
        left = super().parse_args(ctx, args)  # type: ignore[misc]
        for parameter in ctx.command.params:
            value = ctx.params.get(parameter.name)
            if isinstance(value, int) and abs(value) > _MOST:
                raise typer.BadParameter(f"{value} is not a number from {-_MOST} to {_MOST}.", ctx, parameter)
        return left

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, and the examples at its end."""
        super().format_help(ctx, formatter)  # type: ignore[misc]
        if self.examples:
            formatter.write(f"{self.examples}\n")


class CommandWithExamples(_WithExamples, typer.core.TyperCommand):
    """A command whose help ends with examples."""


class GroupWithExamples(_WithExamples, typer.core.TyperGroup):
    """A group of commands whose help ends with examples."""

"""The command line: every module with a function `command` is a command.

A command parses its options, calls one function of the package and prints what it returns.
"""

from pairre.cli.app import main

__all__ = ["main"]

"""The command line: each module is one command that parses its options, calls one function and prints."""

from pairre.cli.app import main

__all__ = ["main"]

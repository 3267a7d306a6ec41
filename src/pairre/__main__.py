"""`python -m pairre` is the command line."""

from pairre.cli import main

main()

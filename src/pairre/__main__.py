"""`python -m pairre` is the command line."""

from pairre.cli.app import main

main()

"""The command line: ``python -m tatami``."""

from tatami.cli import main

main()

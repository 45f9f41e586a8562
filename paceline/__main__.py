"""``python -m paceline``."""

from paceline.cli.app import main

main()

"""The sub-commands: functions that :data:`paceline.cli.app.COMMANDS` lists; the docstring of each is its help."""

"""The sub-commands: functions that :data:`paceline.cli.app.COMMANDS` lists. Each docstring is the help."""

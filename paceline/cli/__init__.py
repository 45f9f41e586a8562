"""The command line: one file of ``commands/`` for each sub-command, heavy imports inside the commands."""

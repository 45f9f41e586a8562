"""The command line. Files of ``commands/`` hold the sub-commands, which import heavy modules themselves."""

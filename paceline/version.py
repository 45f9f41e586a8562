"""The version of Paceline, in a module that imports nothing; ``pyproject.toml`` takes it from here."""

__version__ = "0.3.0"

"""The version of Paceline, for whoever must not import the front door."""

__all__ = ["__version__"]

__version__ = "0.2.0"

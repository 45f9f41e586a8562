"""The version of Paceline, in a module that imports nothing.

``pyproject.toml`` has the same number: change both.
"""

__all__ = ["__version__"]

__version__ = "0.2.0"

"""The program ``paceline``, and ``python -m paceline``."""

from paceline.cli.starting import hear

__all__ = ["main"]


def main() -> None:
    """Run the command line; a signal ends it with one line from here on, while it is imported as well."""
    hear()
    from paceline.cli import app

    app.main()


if __name__ == "__main__":
    main()

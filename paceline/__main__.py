"""The program ``paceline``, and ``python -m paceline``."""

import gc

from paceline.cli.starting import hear


def main() -> None:
    """Run the command line. From here on a signal ends it with one line, even during imports."""
    hear()
    gc.set_threshold(200_000)  # what is imported stays: it is not looked through again and again for what can go
    from paceline.cli import app, ending

    try:
        app.main()
    except SystemExit as ended:
        if ended.code in ending.STOPPED:
            ending.leave_soon(ended.code)
        raise
    finally:
        gc.freeze()  # nor is it looked through once more at the end


if __name__ == "__main__":
    main()

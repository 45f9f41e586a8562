"""The application ``paceline``: its commands, and how every error ends.

Exit codes: 0 ok, 1 the run failed, 2 usage or bad input, 3 a threshold was missed,
130 interrupted. Data goes to stdout; progress, notes and errors to stderr.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import click
import typer

from paceline import __version__
from paceline.cli.calibrate import calibrate
from paceline.cli.calibrate_link import calibrate_link
from paceline.cli.models import models
from paceline.cli.quickstart import quickstart
from paceline.cli.report import report
from paceline.cli.schema import schema
from paceline.cli.simulate import simulate
from paceline.cli.sweep import sweep
from simulator.errors import PacelineError

__all__ = ["main"]

app = typer.Typer(
    name="paceline",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    """What happens to your TensorFlow training on 8, 64, 1,024 workers, and how sure is that?

    Calibrate a workload from real steps on one device, simulate it on a cluster that you
    describe, and read throughput, staleness and bottleneck with their intervals.

    Start with [bold]paceline quickstart[/bold].
    """
    if version:
        typer.echo(f"paceline {__version__}")
        raise typer.Exit


app.command()(quickstart)
app.command()(calibrate)
app.command("calibrate-link")(calibrate_link)
app.command()(simulate)
app.command()(sweep)
app.command()(report)
app.add_typer(models, name="models")
app.command()(schema)


def _say(message: str) -> None:
    print(message, file=sys.stderr)


def main() -> None:
    """Run the command line; every error of the user's ends as one line and an exit code."""
    try:
        code = app(standalone_mode=False)
    except PacelineError as error:
        for line in str(error).splitlines() or [type(error).__name__]:
            _say(f"paceline: {line}")
        code = error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        _say(error.format_message())
        code = 2
    except click.ClickException as error:
        where = getattr(error, "ctx", None)
        hint = f" (see `{where.command_path} --help`)" if where is not None else ""
        _say(f"paceline: {' '.join(error.format_message().split())}{hint}")
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        _say("paceline: interrupted; what was finished is kept")
        code = 130
    except BrokenPipeError:
        # the reader has gone, as in `paceline ... | head`; nothing is left to say to it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except OSError as error:
        _say(f"paceline: {error.filename or 'input or output'}: {error.strerror or error}")
        code = 1
    sys.exit(code if isinstance(code, int) else 0)

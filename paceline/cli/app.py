"""The application ``paceline``: its commands, and how every error ends.

Exit codes: 0 ok, 1 the run failed, 2 usage or bad input, 3 a goal or a threshold was missed,
128 and the number of a signal that ended it (130: Ctrl-C). Data goes to stdout; progress, notes and errors to stderr.
Arguments that messages of the library name in backticks are written as options here (:func:`paceline.cli.options.in_options`).
"""

from __future__ import annotations

import ast
import inspect
import itertools
import os
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_command_from_info
from typer.models import CommandInfo

from paceline.cli.commands import looking_up, validating
from paceline.cli.commands.beginning import init, why
from paceline.cli.commands.calibrate import calibrate
from paceline.cli.commands.calibrate_others import calibrate_input, calibrate_link, calibrate_server
from paceline.cli.commands.planning import learn, plan
from paceline.cli.commands.reporting import demo, quickstart, report, serve
from paceline.cli.commands.simulating import advise, memory, simulate, sweep
from paceline.cli.commands.validating import validate, watch
from paceline.cli.ending import Ending, StoppedError, ending_by_signals
from paceline.cli.help import help_of
from paceline.cli.options import in_options, running, with_options
from paceline.version import __version__
from simulator.base.errors import PacelineError, PacelineWarning, ScenarioError, what_to_install

COMMANDS: Mapping[str, Sequence[Any]] = {
    "Predict": (demo, quickstart, init, simulate, memory, sweep, advise, why, plan, learn, report, serve),
    "Measure and check": (
        calibrate, calibrate_input, calibrate_link, calibrate_server, validate, watch,
        ("testbed", validating.ABOUT_TESTBED, validating.run, validating.show, validating.fit, validating.predict),
    ),
    "Look up": (looking_up.schema, ("models", looking_up.ABOUT_MODELS, looking_up.list_, looking_up.show)),
}  # fmt: skip
"""The sub-commands by the headings of ``paceline --help``: functions, or the name, help and functions of a group of commands."""


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"paceline {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)] = False,
) -> None:
    """What happens to your TensorFlow training on 8, 64, 1,024 workers?

    Calibrate a workload from real steps on one device, simulate it on a cluster that you describe, and read throughput, staleness and
    bottleneck with their intervals. Start with `paceline demo`; for your own model with `paceline calibrate` and `paceline init`.
    """


def _flowing(command: Callable[..., None]) -> str:
    """Return a command's help: its docstring up to the parameters, each paragraph on one line."""
    text = inspect.cleandoc(command.__doc__ or "").partition("\n\nParameters\n---")[0]
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


class _Helping:
    """A command or group with the help of :mod:`paceline.cli.help`, and no type next to a flag."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        formatter.write(help_of(self, ctx))

    def get_params(self, ctx: Any) -> list[Any]:
        """Options and arguments, ``--help`` among them."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
        return parameters


class _Command(_Helping, TyperCommand):
    """A command that messages can refer to while it runs. Its options are read on first use, which keeps ``paceline --help`` fast.

    Parameters
    ----------
    function
        What it runs; its name is the command's.
    panel
        Where the help lists it.
    """

    _READ = ("params", "callback")

    def __init__(self, function: Callable[..., None], panel: str | None = None) -> None:
        name = function.__name__.rstrip("_").replace("_", "-")
        super().__init__(name, help=_flowing(function), rich_help_panel=panel)
        self._function = function
        for attribute in self._READ:
            delattr(self, attribute)

    def __getattr__(self, attribute: str) -> Any:
        """Options and callback, read from the function's signature."""
        if attribute not in self._READ:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {attribute!r}")
        info = CommandInfo(self.name, callback=with_options(self._function))
        read = get_command_from_info(info, pretty_exceptions_short=True, rich_markup_mode=None)
        self.params, self.callback = read.params, read.callback
        parameters: list[Any] = read.params
        for parameter in parameters:
            parameter.help = _help_in_options(getattr(parameter, "help", None) or "", parameters)
        return getattr(self, attribute)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        running[:] = self.params
        _import_numpy()
        return super().invoke(ctx)


def _import_numpy() -> None:
    """Import numpy with one thread for linear algebra, since idle threads spin; child processes choose for themselves."""
    if _THREADS in os.environ:
        return
    os.environ[_THREADS] = "1"
    import numpy  # noqa: F401

    del os.environ[_THREADS]


class _Group(_Helping, TyperGroup):
    """A group of commands."""


def program(about: str, *functions: Callable[..., None], name: str | None = None, panel: str | None = None) -> Any:
    """Return a program in the style of this one, for :func:`main`; each function is a command of its name."""
    commands: dict[str, Any] = {str(command.name): command for command in map(_Command, functions)}
    settings = None if name else _HELP
    return _Group(name=name, help=about, commands=commands, no_args_is_help=True, context_settings=settings, rich_help_panel=panel)


class _Commands(_Group):
    """``paceline``, with the commands of :data:`COMMANDS` in their order."""

    def __init__(self, **options: Any) -> None:
        commands: dict[str, Any] = {}
        for panel, members in COMMANDS.items():
            for member in members:
                if isinstance(member, tuple):
                    name, about, *functions = member
                    commands[name] = program(about, *functions, name=name, panel=panel)
                else:
                    command = _Command(member, panel)
                    commands[str(command.name)] = command
        super().__init__(**options | {"commands": commands})


_HELP = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(
    name="paceline",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=_HELP,
)
app.callback(help=_flowing(_root))(_root)

# typer brings its own copy of click, older releases use the real one
_UsageError: type[Any] = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")
_INTERRUPTED = 130
_THREADS = "OPENBLAS_NUM_THREADS"
_LONGEST_LINE = 600
_OF_KEYS = ("--set", "--over")
_UNIT_LOST = re.compile(r"unexpected extra argument\S* \((samples/s|tokens/s|USD|h|hours?|min|minutes?|d|days?)\b")
"""A unit that the shell separated from its value."""


def _say(message: str) -> None:
    """Print a message as one line on stderr."""
    from simulator.base.text import printable

    line = printable(" ".join(message.split()))
    if len(line) > _LONGEST_LINE:
        line = f"{line[: _LONGEST_LINE // 2]} ... {line[-_LONGEST_LINE // 2 :]}"
    print(f"paceline: {line}", file=sys.stderr)


def _help_in_options(text: str, parameters: Iterable[Any]) -> str:
    """Return the description of an argument with options and values as they are typed."""

    def typed(literal: re.Match[str]) -> str:
        inner, quoted = literal[1], f"`{literal[1]}`"
        if inner.startswith(("paceline ", "tensorboard ")):
            return quoted
        if (said := in_options(quoted, parameters)) != quoted:
            return said
        try:
            value = ast.literal_eval(inner)
        except (ValueError, SyntaxError):
            return inner
        return shlex.quote(value) if isinstance(value, str) else inner

    return re.sub("``(.+?)``", typed, text)


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None, line: str | None = None
) -> None:
    """Show a warning for the user as a remark; others go to developers."""
    if issubclass(category, PacelineWarning):
        _say(in_options(str(message)))
    else:
        _show_as_before(message, category, filename, lineno, file, line)


_show_as_before = warnings.showwarning


def main(run: Callable[..., Any] = app, name: str = "paceline") -> None:
    """Run the command line, or another in its style; every user error ends in one line and an exit code."""
    if "_PACELINE_COMPLETE" in os.environ:  # typer's scripts ask so at every Tab
        from paceline.cli import completing

        if completing.answer(get_command(app)):
            sys.exit(0)
    with ending_by_signals() as ending, warnings.catch_warnings():
        warnings.showwarning = _show_warning
        warnings.simplefilter("default", PacelineWarning)
        code, kept = _run(ending, run, name)
        if code == _INTERRUPTED:
            _say("; ".join(filter(None, (ending.words, kept))))
            code = ending.exit_code
    sys.exit(code)


def _run(ending: Ending, run: Callable[..., Any], name: str) -> tuple[int, str]:
    """Return the exit code and, if the command was stopped, what is kept of its work."""
    kept = ""
    try:
        try:
            code = ending.during(lambda: run(prog_name=name, standalone_mode=False))
        except ModuleNotFoundError as error:
            raise what_to_install(error) from None
    except PacelineError as error:
        message = str(error).removesuffix(error.copyable) or type(error).__name__
        for problem in error.problems if isinstance(error, ScenarioError) else (message,):
            _say(in_options(problem))
        if error.copyable:
            from simulator.base.text import printable

            print(f"  {printable(error.copyable)}", file=sys.stderr)
        code = error.exit_code
    except _UsageError as error:
        code = _explain(error)
    except StoppedError as error:
        code, kept = _INTERRUPTED, str(error)
    except (KeyboardInterrupt, typer.Abort):
        code = _INTERRUPTED
    except BrokenPipeError:
        code = _reader_gone()
    except OSError as error:
        _say(f"{error.filename or 'input or output'}: {error.strerror or error}")
        code = 1
    except SystemExit as error:  # typer's own answer to a broken pipe
        if not isinstance(error.__context__, BrokenPipeError):
            raise
        code = _reader_gone()
    return (code if isinstance(code, int) else 0), kept


def _explain(error: Any) -> int:
    """Explain a wrong command line; return the exit code."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(error.format_message())
    else:
        hint = f" (see `{context.command_path} --help`)" if context is not None else ""
        message = _with_what_was_meant(error).replace("Value error, ", "").replace("Input should", f"{_given(error)}must")
        if stray := next((word for option, word in itertools.pairwise(sys.argv) if option in _OF_KEYS and "=" not in word), None):
            message = f"{message.rstrip('.')}; write a key and its value as one word: {stray}=VALUE"
        elif _UNIT_LOST.search(message):
            message += "; quote a value with its unit: '20000 samples/s', '500 USD', '12 h'"
        _say(f"{message}{hint}")
    return int(error.exit_code)


def _with_what_was_meant(error: Any) -> str:
    """Return the message of a usage error, with the nearest command, option or choice."""
    from simulator.base.text import did_you_mean

    message: str = error.format_message()
    command = getattr(getattr(error, "ctx", None), "command", None)
    if (option := getattr(error, "option_name", None)) is not None and message.startswith("No such option"):
        message, name = error.message.rstrip(".?"), option.lstrip("-")
        known = [word.removeprefix("--") for each in getattr(command, "params", ()) for word in each.opts if word.startswith("--")]
        hint = _as_setting(name, command) or did_you_mean(name, known, written="--{}")
    elif match := _NO_COMMAND.match(message):
        message, hint = match[1], _OTHERWISE_NAMED.get(match[2]) or did_you_mean(match[2], getattr(command, "commands", ()))
    elif match := _NO_CHOICE.match(message):
        message, hint = match[1], did_you_mean(match[2], re.findall(r"'([^']+)'", match[3]), written="'{}'")
    else:
        return message
    return f"{message}; {hint}" if hint else message


def _as_setting(option: str, command: Any) -> str:
    """Return the ``--set`` that an unknown option was meant as; empty where it is no key of a scenario."""
    from paceline.cli.completing import known_keys

    if not any("--set" in each.opts for each in getattr(command, "params", ())):
        return ""
    keys = [key for key in known_keys() if key.rpartition(".")[2] == option.replace("-", "_")]
    first = next((key for key in keys if key.startswith("strategy.")), keys[0] if len(keys) == 1 else "")
    return f"set it with --set {first}=VALUE" if first else ""


_OTHERWISE_NAMED = {
    "compare": "to compare scenarios, use `paceline sweep SCENARIO --over KEY=V1,V2` and `paceline report`",
    "run": "`paceline simulate SCENARIO` predicts a training, `paceline testbed run` runs one",
    "predict": "`paceline simulate SCENARIO` predicts a training",
    "profile": "`paceline calibrate MODEL.py:FUNCTION --name NAME` measures a model",
}
"""Names of commands elsewhere, with the command to use here."""
_NO_COMMAND = re.compile(r"(No such command '(.*?)')")
_NO_CHOICE = re.compile(r"(.*'([^']*)' is not one of (.*?))\.?$")


def _given(error: Any) -> str:
    """Return the refused value of an option, if typer gives it."""
    problems: list[dict[str, Any]] = getattr(error.__cause__, "errors", list)()
    return f"{problems[0].get('input')!r} " if problems else ""


def _reader_gone() -> int:
    """End quietly: the reader has gone, as in ``paceline ... | head``."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0

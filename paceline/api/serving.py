"""The library function that serves the live page; the work is done in :mod:`paceline.serving`, and the command ``serve`` calls it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

from paceline.arguments import NOT_TYPED, Jobs, MustBe, Settings, Stages, Text, Typed, checked

if TYPE_CHECKING:
    Ready: TypeAlias = Callable[[str], None] | None
else:
    Ready = Annotated[Callable | None, MustBe("a function of the link"), NOT_TYPED]


@checked
def serve(
    scenario: Annotated[str | Path, MustBe("a file, or a name such as 'ring'"), Typed(place=True, metavar="[SCENARIO]")] = "async-ps",
    settings: Settings = (),
    *,
    host: Annotated[Text, MustBe("a name or address of this machine"), Typed(metavar="ADDRESS")] | None = None,
    port: Annotated[int, MustBe("a whole number from 0 to 65535", least=0, most=65535), Typed(metavar="PORT")] = 0,
    jobs: Jobs = 0,
    ready: Ready = None,
    progress: Stages = None,
) -> None:
    """Serve a page on which a scenario is changed and answers at once, until this process is interrupted.

    Parameters
    ----------
    scenario
        A scenario file, or the name of an example, that the page begins with.
    settings
        Keys of the scenario to change, such as strategy.workers=64.
    host
        Address to serve at, such as 0.0.0.0 for all of this machine's. Everybody who has the link can then use the page: nothing is
        encrypted, so serve in a network that you trust. Left out: this machine alone reaches it, and the link opens it once.
    port
        Of that address; 0 takes a free one.
    jobs
        Processes that answer, at least two; 0: twice as many as there are cores, of which half only do what takes long.
    ready
        Called with the link, once the page answers.
    progress
        Called with the number of processes that stand ready, the number of all, and ``"processes"``.

    Raises
    ------
    InputError
        Starlette or uvicorn is not installed, or the address cannot be served at.
    ScenarioError
        The scenario cannot be read.
    """
    from paceline.api.predicting import plan
    from paceline.serving.question import served_of
    from paceline.serving.server import serve as serve_page

    serve_page(served_of(scenario, settings), plan, host=host, port=port, jobs=jobs, ready=ready, progress=progress)

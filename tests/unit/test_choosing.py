"""Which engine runs: as asked for, else by the scenario alone; without machine code it runs in Python, and a sentence says so."""

from __future__ import annotations

import os
import subprocess
import sys
from types import ModuleType

import pytest
from support.modes import LOAD, MODES
from support.scenarios import scenario_table
from support.waiting import PATIENCE_S

from simulator import load_scenario, scenario_from_table, simulate
from simulator.base.errors import EngineWarning, InputError
from simulator.engine import choosing
from simulator.engine.choosing import choose, likely_engine
from simulator.engine.production.warming import NotMadeError
from simulator.engine.replication import replicate
from simulator.estimate import expected_events
from simulator.resolve.resolve import resolve

COMPILED = "simulator.engine.production.warming"


class Machine:
    """What stands in for the compiled engine, and what was asked of it."""

    def __init__(self) -> None:
        self.made, self.loaded, self.tried = True, 0, 0
        self.fails: dict[str, Exception] = {}

    def is_made(self) -> bool:
        return self.made

    def make(self) -> None:
        self.tried += 1
        if "make" in self.fails:
            raise self.fails["make"]
        self.made = True

    def load(self) -> None:
        assert self.made
        if "load" in self.fails:
            raise self.fails["load"]
        self.loaded += 1


@pytest.fixture
def engine(monkeypatch):
    """Stands a compiled engine in, which says what it is given to say; forgets what was asked before."""
    machine = Machine()

    def stand_in(said: str | Exception | None) -> Machine:
        module = ModuleType(COMPILED)

        def available() -> str | None:
            if isinstance(said, Exception):
                raise said
            return said

        module.available, module.is_made, module.make, module.load = available, machine.is_made, machine.make, machine.load
        # None makes the import fail, as a package that is not there
        monkeypatch.setitem(sys.modules, COMPILED, None if isinstance(said, ImportError) else module)
        return machine

    forget()
    yield stand_in
    forget()


def forget() -> None:
    for kept in (choosing.unavailable, choosing._not_made, choosing._not_loaded):
        kept.cache_clear()


def test_whatever_has_events_is_compiled(engine):
    machine = engine(None)
    machine.made = False
    assert choose("auto", 1.0) == "compiled"
    assert machine.made, "machine code is made where there is none"
    assert choose("auto", 1e9) == "compiled"
    assert machine.loaded == 1
    assert likely_engine(resolve(load_scenario("async-ps", [("run.steps", 2)]))) == "compiled"
    assert likely_engine(resolve(load_scenario("ring", [("run.steps", 10_000)]))) == "at-once"


def test_what_is_asked_for_runs(engine):
    engine(None)
    assert choose("simpy", 1e12) == "simpy"
    assert choose("compiled", 1) == "compiled"


def test_ranks_that_are_computed_at_once_load_nothing(engine):
    engine(AssertionError("it was asked"))
    assert choose("auto", 0.0) == "at-once"
    assert choose("simpy", 1e12) == "simpy"


@pytest.mark.parametrize("said", ["its cache folder /nowhere cannot be written", ImportError()], ids=["cache", "numba"])
def test_without_machine_code_a_sentence_is_told_where_that_takes_long(engine, said):
    engine(said)
    with pytest.warns(EngineWarning, match=r"about 100 times slower than compiled, because (its cache folder|numba)") as told:
        assert choose("auto", 1e9) == "interpreted"
    assert len(told) == 1
    assert "\n" not in str(told[0].message)
    assert choose("auto", 1e3) == "interpreted"


@pytest.mark.parametrize("said", ["its cache folder /nowhere cannot be written", ImportError()], ids=["cache", "numba"])
def test_asked_for_by_name_it_is_refused_where_it_cannot_run(engine, said):
    engine(said)
    with pytest.raises(InputError, match=r'^run.engine: "compiled" cannot run here: .*"auto"') as refused:
        simulate(load_scenario("ring", [("run.engine", "compiled"), ("run.steps", 3), ("run.replications", 2)]))
    assert "\n" not in str(refused.value)


BROKEN = {
    "compiler": ("make", NotMadeError("TypingError: Failed in nopython mode pipeline")),
    "symbol": ("load", AttributeError("undefined symbol: LLVMPY_Nothing\nand more of it")),
    "silent": ("load", RuntimeError()),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_breaks_only_when_it_compiles_is_told_once_and_not_tried_again(engine, kind):
    machine = engine(None)
    step, machine.fails[step] = BROKEN[kind]
    said = (str(machine.fails[step]).splitlines() or ["RuntimeError"])[0]
    with pytest.warns(EngineWarning) as told:
        assert choose("auto", 1e9) == "interpreted"
    (text,) = {str(one.message) for one in told}
    assert text.endswith(f"because its machine code cannot be made or loaded ({said})")
    for refuse in (lambda: choose("compiled", 1.0), lambda: choosing.check("compiled")):
        with pytest.raises(InputError, match=r"^run.engine: \"compiled\" cannot run here: its machine code cannot be made") as refused:
            refuse()
        assert "\n" not in str(refused.value)
    with pytest.warns(EngineWarning):
        assert choose("auto", 1e9) == "interpreted"
    assert machine.tried == 1
    assert likely_engine(resolve(load_scenario("async-ps", [("strategy.workers", 1000)]))) == "interpreted"


def test_before_many_are_begun_machine_code_is_made_and_not_loaded(engine):
    machine = engine(None)
    machine.made = False
    choosing.check("auto")
    choosing.check("simpy")
    assert not machine.made
    choosing.check("compiled")
    assert machine.made
    assert machine.loaded == 0


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("async-ps", {}),
        ("sync-ps", {"strategy.workers": 16}),
        ("ssp", {}),
        ("backup-workers", {}),
        ("oversubscribed-fabric", {}),
        ("async-ps", {"run.grouping": "per-server"}),
    ],
)
def test_the_events_are_about_those_that_come(name, settings):
    scenario = load_scenario(name, [*settings.items(), ("run.steps", 30)])
    assert near(replicate(resolve(scenario), 0).events, expected_events(resolve(scenario)))


def near(come: float, expected: float) -> bool:
    return come / 3 < expected < 3 * come


@pytest.mark.parametrize("mode", MODES)
def test_the_events_of_every_way_of_training_are_about_those_that_come(mode):
    strategy, cluster, run = MODES[mode]
    table = scenario_table(workload=LOAD, strategy=strategy, cluster=cluster, run={"steps": 40, "warmup_steps": 3, **run})
    scenario = scenario_from_table(table, "test")
    expected, come = expected_events(resolve(scenario)), replicate(resolve(scenario), 0).events
    # all ranks at once: an entry for each time that all go on, however many they are
    assert near(come, expected) if expected else come < 10 * scenario.run.steps


def test_messages_of_collectives_are_counted():
    ranks, steps = 8, 10
    scenario = load_scenario("ring", [("strategy.workers", ranks), ("run.detail", "messages"), ("run.steps", steps)])
    assert near(replicate(resolve(scenario), 0).events, expected_events(resolve(scenario)))


# -- the real one, in a process of its own -------------------------------------------


def asked_alone(**environment: str) -> str:
    """What a fresh process says of why the compiled engine cannot run; "None" if it can."""
    program = "from simulator.engine.choosing import unavailable; print(unavailable())"
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **environment}, capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    assert done.stderr == ""
    return done.stdout.strip()


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_is_named():
    assert "/proc/nothing/paceline/compiled" in asked_alone(XDG_CACHE_HOME="/proc/nothing")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("raise ImportError('Numba needs NumPy 2.5 or less')", "cannot be imported (Numba needs NumPy 2.5 or less)"),
        ("raise SystemError('wrong build')", "does not work (wrong build)"),
        ("x = 1", "cannot be imported (cannot import name "),
    ],
    ids=["refuses", "breaks", "another"],
)
def test_a_numba_that_does_not_work_is_named(tmp_path, source, words):
    (tmp_path / "numba.py").write_text(source)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    said = asked_alone(PYTHONPATH=path, XDG_CACHE_HOME=str(tmp_path))
    assert said.startswith("numba ")
    assert words in said

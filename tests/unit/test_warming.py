"""Machine code is made by a process of its own, and kept whole or not at all; whatever goes wrong with it is a sentence."""

from __future__ import annotations

import fcntl
import grp
import json
import os
import pickle
import pwd
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from simulator.engine.choosing import choose

pytestmark = pytest.mark.slow

ASKS = """
import json, sys, warnings
from simulator.engine.choosing import check, choose, unavailable
told = {"unavailable": unavailable()}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    told["auto"] = choose("auto", 3e6)
told["warned"] = [str(one.message) for one in caught]
for name, ask in (("choose", lambda: choose("compiled", 1.0)), ("check", lambda: check("compiled"))):
    try:
        told[name] = ask()
    except Exception as error:
        told[name] = f"{type(error).__name__}: {error}"
print(json.dumps(told))
"""
"""What a process that would compile is told, by each way of asking."""

BREAKS = {
    "types": "raise TypingError('Failed in nopython mode pipeline (step: nopython frontend)\\nand so on')",
    "LLVM": "print('LLVM ERROR: Cannot select', file=sys.stderr, flush=True); os.abort()",
    "crash": "os.kill(os.getpid(), signal.SIGSEGV)",
    "symbol": "raise AttributeError('llvmlite has no symbol LLVMPY_Nothing')",
}
SAYS = {
    "types": "TypingError: Failed in nopython mode pipeline (step: nopython frontend)",
    "LLVM": "the compiler was ended by SIGABRT: LLVM ERROR: Cannot select",
    "crash": "the compiler was ended by SIGSEGV: it said nothing",
    "symbol": "AttributeError: llvmlite has no symbol LLVMPY_Nothing",
}


def breaking(folder: Path, how: str) -> dict[str, str]:
    """An environment in which numba can be imported, and breaks as soon as it compiles."""
    folder.joinpath("sitecustomize.py").write_text(
        "import os, signal, sys\nfrom numba.core.compiler import CompilerBase\nfrom numba.core.errors import TypingError\n"
        f"def compile(*_):\n    {how}\nCompilerBase.compile_extra = compile\n"
    )
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "XDG_CACHE_HOME": str(folder / "cache"), "PYTHONFAULTHANDLER": ""}


def asked(environment: dict[str, str], before: Callable[[], None] | None = None) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", ASKS], env=environment, capture_output=True, text=True, check=True, timeout=120, preexec_fn=before
    )
    told: dict[str, object] = json.loads(done.stdout)
    assert "Traceback" not in done.stderr
    return told


def refused(told: dict[str, object], why: str) -> None:
    """SimPy runs, and one sentence says why; who asks for the compiled engine is refused with it."""
    reason = f"its machine code cannot be made ({why})"
    assert told["unavailable"] is None
    assert told["auto"] == "simpy"
    assert told["warned"] == [f"the compiled engine cannot run here: {reason}; SimPy runs in its place, which takes longer"]
    sentence = f'InputError: run.engine: "compiled" cannot run here: {reason}; take "simpy", or "auto", which does where it must'
    assert told["choose"] == told["check"] == sentence


@pytest.mark.parametrize("how", BREAKS)
def test_a_numba_that_breaks_when_it_compiles(tmp_path: Path, how: str) -> None:
    refused(asked(breaking(tmp_path, BREAKS[how])), SAYS[how])
    assert not list(tmp_path.rglob("whole"))


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    """Files of 20 kB at most: the folder can be written, machine code cannot."""
    most = 20_000
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    refused(asked(environment, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))), "OSError: [Errno 27] File too large")
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and file.stat().st_size > most // 2]


@pytest.mark.parametrize("instead", [Path.mkdir, lambda making: making.symlink_to("/dev/null")])
def test_a_file_that_cannot_be_opened(tmp_path: Path, instead: Callable[[Path], None]) -> None:
    """Here a folder stands where one is to be, or a link, which is not followed."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    (folder,) = (Path(line) for line in _folder(environment).splitlines())
    instead(folder / "making")
    why = "Too many levels of symbolic links" if (folder / "making").is_symlink() else "Is a directory"
    refused(asked(environment), f"{folder / 'making'}: {why}")


def test_without_a_home_directory_nothing_is_kept() -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_CACHE_HOME")}
    code = (
        "import os, pathlib\n"
        "def home(): raise RuntimeError('Could not determine home directory.')\n"
        "pathlib.Path.home = home\n"
        "from simulator.engine.choosing import unavailable; print(unavailable())"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "its machine code cannot be kept: there is no home directory; set XDG_CACHE_HOME\n"


# -- what is kept ------------------------------------------------------------------------


def _folder(environment: dict[str, str]) -> str:
    code = "from simulator.engine.compiled.machine import _cache_folder; print(_cache_folder()[0])"
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def made() -> Path:
    """Machine code that is whole."""
    assert choose("compiled", 1.0) == "compiled"
    (folder,) = (Path(line) for line in _folder(dict(os.environ)).splitlines())
    return folder


@pytest.fixture
def copied(made: Path, tmp_path: Path) -> Path:
    """Its copy, in a cache directory of the test's own."""
    folder = tmp_path / "paceline" / "compiled" / made.name
    shutil.copytree(made, folder)
    return folder


def is_made(cache: Path) -> bool:
    code = "from simulator.engine.choosing import is_made; print(is_made())"
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout == "True\n"


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def change(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def test_whole_machine_code_is_taken(copied: Path, tmp_path: Path) -> None:
    assert is_made(tmp_path)


@pytest.mark.parametrize("damage", [cut, empty, change, Path.unlink])
@pytest.mark.parametrize("pattern", ["interpreter*.nbc", "interpreter*.nbi", "ample*.nbc", "whole"])
def test_damaged_machine_code_counts_as_none(
    copied: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, damage: Callable[[Path], None]
) -> None:
    from simulator.engine.compiled import machine

    monkeypatch.setattr(machine, "_cache_folder", lambda: (copied, None))
    assert machine.is_kept()
    (file,) = copied.rglob(pattern)
    damage(file)
    assert not machine.is_kept()


LOADS = "from simulator.engine.choosing import choose; print(choose('compiled', 1.0))"


def test_damaged_machine_code_is_made_anew_by_one_of_two(copied: Path, tmp_path: Path) -> None:
    (file,) = copied.rglob("interpreter*.nbc")
    cut(file)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    both = [
        subprocess.Popen([sys.executable, "-c", LOADS], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    answers = [one.communicate(timeout=240) for one in both]
    assert [out for out, _ in answers] == ["compiled\n", "compiled\n"]
    assert sorted(len(err.splitlines()) for _, err in answers) == [0, 1], "one makes it and says so, the other waits"
    assert is_made(tmp_path)


def test_who_waits_for_another_takes_what_that_one_has_made(made: Path, tmp_path: Path) -> None:
    folder = tmp_path / "paceline" / "compiled" / made.name
    folder.mkdir(parents=True)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    with (folder / "making").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        leaves = "from simulator.engine.choosing import choose; print(choose('auto', 3e6))"
        done = subprocess.run([sys.executable, "-c", leaves], env=environment, capture_output=True, text=True, check=True, timeout=120)
        assert (done.stdout, done.stderr) == ("simpy\n", ""), "who need not have it goes on without"
        waits = subprocess.Popen([sys.executable, "-c", LOADS], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        shutil.copytree(made, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("making"))
    assert waits.communicate(timeout=120) == ("compiled\n", "")


# -- whose it is ----------------------------------------------------------------------------

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
STRANGER = 65534


class Forged:
    """What runs when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.marker),)


@pytest.fixture
def forged(copied: Path, tmp_path: Path) -> Path:
    """Machine code that leaves a mark when it is loaded, with the digest that belongs to it; and the mark."""
    from simulator.engine.compiled import machine

    marker = tmp_path / "marker"
    for index in copied.rglob("*.nbi"):
        index.write_bytes(pickle.dumps(Forged(marker)))
    (copied / "whole").write_text(machine._digest(copied), encoding="ascii")
    return marker


def why_not(cache: Path) -> str:
    """What a simulation by the compiled engine is refused with; by another than that, it goes on."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    told = asked(environment)
    begin, end = "the compiled engine cannot run here: its machine code cannot be kept: ", "; SimPy runs in its place, which takes longer"
    assert told["auto"] == "simpy"
    (warned,) = told["warned"]
    assert warned.startswith(begin)
    assert warned.endswith(end)
    return warned.removeprefix(begin).removesuffix(end)


def test_a_forged_index_would_run(forged: Path, tmp_path: Path) -> None:
    """By the user's own hand, so that what follows shows something."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", LOADS], env=environment, capture_output=True, check=False, timeout=120)
    assert forged.exists()


@as_root
@pytest.mark.parametrize("name", [".", "paceline", "paceline/compiled", "folder"])
def test_what_lies_in_a_folder_of_another_user_is_not_loaded(forged: Path, copied: Path, tmp_path: Path, name: str) -> None:
    folder = copied if name == "folder" else tmp_path / name
    os.chown(folder, STRANGER, STRANGER)
    says = f"{folder} belongs to another user (uid {STRANGER}, and this is 0); set XDG_CACHE_HOME to a folder of your own"
    assert why_not(tmp_path) == says
    assert not forged.exists()


def test_what_lies_in_a_folder_that_others_may_write_to_is_not_loaded(forged: Path, copied: Path, tmp_path: Path) -> None:
    copied.chmod(0o777)
    assert why_not(tmp_path) == f"other users may write to {copied}; remove it, or set XDG_CACHE_HOME to a folder of your own"
    assert not forged.exists()


def test_a_folder_that_others_may_replace_is_none(tmp_path: Path) -> None:
    """Unless it is sticky, as /tmp, where each may replace only what is his own."""
    above = tmp_path / "above"
    above.mkdir()
    above.chmod(0o777)
    assert why_not(above / "cache") == f"other users may write to {above}; `chmod go-w` it, or set XDG_CACHE_HOME to a folder of your own"
    above.chmod(0o1777)
    assert Path(_folder({**os.environ, "XDG_CACHE_HOME": str(above / "cache")}).strip()).parent == above / "cache" / "paceline" / "compiled"


def test_a_link_is_not_followed_below_the_cache_directory(copied: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "paceline").symlink_to(tmp_path / "paceline")
    assert why_not(cache) == f"{cache / 'paceline'} is a link; remove it, or set XDG_CACHE_HOME to a folder of your own"
    (tmp_path / "linked").symlink_to(tmp_path)
    assert _folder({**os.environ, "XDG_CACHE_HOME": str(tmp_path / "linked")}).strip() == str(copied), "to the cache directory itself"


@as_root
@pytest.mark.parametrize("pattern", ["interpreter*.nbi", "interpreter*.nbc", "whole"])
@pytest.mark.parametrize("how", ["another's", "open", "link"])
def test_a_file_that_another_may_have_written_counts_as_none(copied: Path, tmp_path: Path, pattern: str, how: str) -> None:
    (file,) = copied.rglob(pattern)
    if how == "link":
        moved = tmp_path / file.name
        file.rename(moved)
        file.symlink_to(moved)
    elif how == "open":
        file.chmod(0o666)
    else:
        os.chown(file, STRANGER, STRANGER)
    assert not is_made(tmp_path)


def test_a_umask_that_lets_a_group_write_leaves_the_folder_ones_own(made: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", LOADS], env=environment, capture_output=True, text=True, check=True, timeout=240, umask=0o000
    )
    assert done.stdout == "compiled\n"
    assert [f"{file.stat().st_mode & 0o777:o}" for file in sorted(cache.rglob("*")) if file.is_dir()] == ["700"] * 4
    assert cache.stat().st_mode & 0o777 == 0o700
    assert is_made(cache)


def test_a_folder_of_before_that_the_users_own_group_could_write_to_is_taken_and_closed(tmp_path: Path) -> None:
    """As a umask of 002 made it, where each user has a group of his own."""
    if grp.getgrgid(os.getegid()).gr_name != pwd.getpwuid(os.geteuid()).pw_name:
        pytest.skip("this user has no group of his own")
    folder = tmp_path / "paceline"
    folder.mkdir()
    folder.chmod(0o775)
    assert _folder({**os.environ, "XDG_CACHE_HOME": str(tmp_path)}).startswith(str(folder))
    assert folder.stat().st_mode & 0o777 == 0o700


@as_root
def test_a_folder_of_before_that_another_group_can_write_to_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "paceline"
    folder.mkdir()
    folder.chmod(0o770)
    os.chown(folder, -1, STRANGER)
    assert why_not(tmp_path) == f"other users may write to {folder}; remove it, or set XDG_CACHE_HOME to a folder of your own"


# -- who is stopped while it is made -------------------------------------------------------


def maker_of(process: int) -> int | None:
    """The process that makes machine code for another."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == process and b"make_here" in (entry / "cmdline").read_bytes():
                return int(entry.name)
        except OSError:
            continue
    return None


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are listed by /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_who_waits_for_machine_code_can_be_stopped(tmp_path: Path, number: signal.Signals) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "paceline", "simulate", "async-ps", "--set", "run.engine=compiled"]
    waits = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 60.0
    while (maker := maker_of(waits.pid)) is None:
        assert waits.poll() is None, waits.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(1.5)  # into the compiler
    waits.send_signal(number)
    _, stderr = waits.communicate(timeout=10.0)
    how = {signal.SIGINT: "paceline: interrupted"}.get(number)
    assert waits.returncode == (-number if number == signal.SIGKILL else 128 + number)
    assert stderr.splitlines()[1:] == ([how] if how else [])
    deadline = time.monotonic() + 10.0
    while Path(f"/proc/{maker}").exists():
        assert time.monotonic() < deadline, "it goes on for nobody"
        time.sleep(0.05)
    assert not list(tmp_path.rglob("whole"))

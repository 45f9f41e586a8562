"""Machine code is made by a process of its own, and kept whole or not at all; whatever goes wrong with it is a sentence."""

from __future__ import annotations

import fcntl
import grp
import json
import os
import pwd
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from llvmlite import binding
from support.waiting import PATIENCE_S, until

from simulator.engine.choosing import choose
from simulator.engine.production import machine, warming

pytestmark = pytest.mark.slow
Kept = Callable[[Path], tuple[Path | None, str | None]]

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
    "LLVM": "the compiler ended with SIGABRT: LLVM ERROR: Cannot select",
    "crash": "the compiler ended with SIGSEGV: no output",
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
        [sys.executable, "-c", ASKS], env=environment, capture_output=True, text=True, check=True, timeout=PATIENCE_S, preexec_fn=before
    )
    told: dict[str, object] = json.loads(done.stdout)
    assert "Traceback" not in done.stderr
    return told


def refused(told: dict[str, object], why: str) -> None:
    """Python runs, and one sentence says why; who asks for the compiled engine is refused with it."""
    reason = f"its machine code cannot be made or loaded ({why})"
    assert told["unavailable"] is None
    assert told["auto"] == "interpreted"
    assert told["warned"] == [f"the simulation runs about 100 times slower than compiled, because {reason}"]
    sentence = f'InputError: run.engine: "compiled" cannot run here: {reason}; "auto" computes the same without machine code'
    assert told["choose"] == told["check"] == sentence


@pytest.mark.parametrize("how", ["types", "crash", *(pytest.param(how, marks=pytest.mark.long) for how in ("LLVM", "symbol"))])
def test_a_numba_that_breaks_when_it_compiles(tmp_path: Path, how: str) -> None:
    refused(asked(breaking(tmp_path, BREAKS[how])), SAYS[how])
    assert not list(tmp_path.rglob("whole"))


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    """Files of 20 kB at most: the folder can be written, machine code cannot."""
    most = 20_000
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    refused(asked(environment, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))), "OSError: [Errno 27] File too large")
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and file.stat().st_size > most // 2]


def link(making: Path) -> None:
    making.symlink_to("/dev/null")


@pytest.mark.parametrize(("instead", "why"), [(Path.mkdir, "Is a directory"), (link, "Too many levels of symbolic links")])
def test_a_file_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, instead: Callable[[Path], None], why: str) -> None:
    """Here a folder stands where one is to be, or a link, which is not followed."""
    monkeypatch.setattr(machine, "_cache_folder", lambda: (tmp_path, None))
    instead(tmp_path / "making")
    with pytest.raises(warming.NotMadeError) as failed:
        warming.make()
    assert str(failed.value) == f"{tmp_path / 'making'}: {why}"


def test_without_a_home_directory_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", home)
    folder, why = machine._cache_folder.__wrapped__()
    assert folder is None
    assert why is not None
    assert why.endswith("set XDG_CACHE_HOME")


# -- what is kept ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made() -> Path:
    """Machine code that is whole."""
    assert choose("compiled", 1.0) == "compiled"
    folder, _ = machine._cache_folder()
    assert folder is not None
    return folder


@pytest.fixture
def copied(made: Path, tmp_path: Path) -> Path:
    """Its copy, in a cache directory of the test's own."""
    folder = tmp_path / "paceline" / "compiled" / made.name
    shutil.copytree(made, folder)
    return folder


@pytest.fixture
def kept_in(monkeypatch: pytest.MonkeyPatch) -> Kept:
    """Where machine code is kept with a cache directory, or why none is, as in a process that begins."""

    def kept(cache: Path) -> tuple[Path | None, str | None]:
        monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
        folder: tuple[Path | None, str | None] = machine._cache_folder.__wrapped__()
        return folder

    return kept


def is_made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    with monkeypatch.context() as changed:
        changed.setattr(machine, "_cache_folder", lambda: (folder, None))
        return warming.is_made()


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def change(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("damage", [cut, empty, change, Path.unlink])
@pytest.mark.parametrize("name", ["act.o", "whole"])
def test_damaged_machine_code_counts_as_none(
    copied: Path, monkeypatch: pytest.MonkeyPatch, name: str, damage: Callable[[Path], None]
) -> None:
    assert is_made(copied, monkeypatch)
    damage(copied / name)
    assert not is_made(copied, monkeypatch)


LOADS = "from simulator.engine.choosing import choose; print(choose('compiled', 1.0))"


def loading(cache: Path, **options: Any) -> subprocess.Popen[str]:
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    return subprocess.Popen(
        [sys.executable, "-c", LOADS], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


@pytest.mark.long
def test_damaged_machine_code_is_made_anew_by_one_of_two(copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is theirs alone, though their umask lets everybody write."""
    (copied / "act.o").unlink()
    both = [loading(tmp_path, umask=0) for _ in range(2)]
    answers = [process.communicate(timeout=PATIENCE_S) for process in both]
    assert [out for out, _ in answers] == ["compiled\n", "compiled\n"]
    assert sorted(len(err.splitlines()) for _, err in answers) == [0, 1], "one makes it and says so, the other waits"
    assert {f"{(copied / name).stat().st_mode & 0o777:o}" for name in ("act.o", "whole")} == {"600"}
    assert is_made(copied, monkeypatch)


def test_who_waits_for_another_takes_what_that_one_has_made(made: Path, tmp_path: Path) -> None:
    folder = tmp_path / "paceline" / "compiled" / made.name
    folder.mkdir(parents=True)
    with (folder / "making").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waits = loading(tmp_path)
        shutil.copytree(made, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("making"))
    assert waits.communicate(timeout=PATIENCE_S) == ("compiled\n", "")


# -- whose it is ----------------------------------------------------------------------------

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
STRANGER = 65534


FORGED = """
@path = constant [{size} x i8] c"{path}\\00"
declare i32 @mkdir(ptr, i32)
define i32 @forged(ptr %result, ptr, i64, i64, i64, double, i64, i64, i64) {{
  call i32 @mkdir(ptr @path, i32 448)
  store i64 1, ptr %result
  ret i32 0
}}
"""
"""Does something else than was asked for, and says that nothing is left to do."""


@pytest.fixture
def forged(copied: Path, tmp_path: Path) -> Path:
    """Machine code that leaves a mark when it is loaded, with the digest that belongs to it; and the mark."""
    marker = tmp_path / "marker"
    target = binding.Target.from_default_triple().create_target_machine()
    code = target.emit_object(binding.parse_assembly(FORGED.format(path=marker, size=len(str(marker)) + 1)))
    (copied / "act.o").write_bytes(code)
    (copied / "whole").write_text(f"{machine._digest(code, 'forged')} forged", encoding="ascii")
    return marker


def test_forged_machine_code_would_run(forged: Path, tmp_path: Path) -> None:
    """By the user's own hand, so that what follows shows something."""
    loading(tmp_path).communicate(timeout=PATIENCE_S)
    assert forged.exists()


def test_what_lies_in_a_folder_that_others_may_write_to_is_not_loaded(forged: Path, copied: Path, tmp_path: Path) -> None:
    copied.chmod(0o777)
    told = asked({**os.environ, "XDG_CACHE_HOME": str(tmp_path)})
    assert told["auto"] == "interpreted"
    (warned,) = told["warned"]
    for text in (told["unavailable"], told["choose"], told["check"], warned):
        assert f"other users may write to {copied};" in text
        assert "set XDG_CACHE_HOME to a private folder" in text
    assert not forged.exists()


@as_root
@pytest.mark.parametrize("name", [".", "paceline", "paceline/compiled", "folder"])
def test_nothing_is_taken_from_a_folder_of_another_user(copied: Path, tmp_path: Path, name: str, kept_in: Kept) -> None:
    folder = copied if name == "folder" else tmp_path / name
    os.chown(folder, STRANGER, STRANGER)
    taken, why = kept_in(tmp_path)
    assert taken is None
    assert why is not None
    assert f"{folder} belongs to another user (uid {STRANGER}, and this is 0)" in why


def test_a_folder_that_others_may_replace_is_none(tmp_path: Path, kept_in: Kept) -> None:
    """Unless it is sticky, as /tmp, where each may replace only what is his own."""
    above = tmp_path / "above"
    above.mkdir()
    above.chmod(0o777)
    taken, why = kept_in(above / "cache")
    assert taken is None
    assert why is not None
    assert f"{above}; `chmod go-w` it" in why
    above.chmod(0o1777)
    taken, _ = kept_in(above / "cache")
    assert taken is not None
    assert taken.parent == above / "cache" / "paceline" / "compiled"


def test_a_link_is_not_followed_below_the_cache_directory(copied: Path, tmp_path: Path, kept_in: Kept) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "paceline").symlink_to(tmp_path / "paceline")
    taken, why = kept_in(cache)
    assert taken is None
    assert why is not None
    assert f"{cache / 'paceline'} is a link" in why
    (tmp_path / "linked").symlink_to(tmp_path)
    assert kept_in(tmp_path / "linked") == (copied, None), "to the cache directory itself"


@as_root
@pytest.mark.parametrize("name", ["act.o", "whole"])
@pytest.mark.parametrize("how", ["another's", "open", "link"])
def test_a_file_that_another_may_have_written_counts_as_none(
    copied: Path, tmp_path: Path, name: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = copied / name
    if how == "link":
        moved = tmp_path / file.name
        file.rename(moved)
        file.symlink_to(moved)
    elif how == "open":
        file.chmod(0o666)
    else:
        os.chown(file, STRANGER, STRANGER)
    assert not is_made(copied, monkeypatch)


def test_a_umask_that_lets_others_write_leaves_the_folder_ones_own(tmp_path: Path, kept_in: Kept) -> None:
    before = os.umask(0)
    try:
        folder, _ = kept_in(tmp_path / "cache")
    finally:
        os.umask(before)
    assert folder is not None
    assert [f"{above.stat().st_mode & 0o777:o}" for above in (folder, *folder.parents[:3])] == ["700"] * 4


def test_a_folder_of_before_that_the_users_own_group_could_write_to_is_taken_and_closed(tmp_path: Path, kept_in: Kept) -> None:
    """As a umask of 002 made it, where each user has a group of his own."""
    if grp.getgrgid(os.getegid()).gr_name != pwd.getpwuid(os.geteuid()).pw_name:
        pytest.skip("this user has no group of his own")
    folder = tmp_path / "paceline"
    folder.mkdir()
    folder.chmod(0o775)
    taken, _ = kept_in(tmp_path)
    assert taken is not None
    assert taken.is_relative_to(folder)
    assert folder.stat().st_mode & 0o777 == 0o700


@as_root
def test_a_folder_of_before_that_another_group_can_write_to_is_refused(tmp_path: Path, kept_in: Kept) -> None:
    folder = tmp_path / "paceline"
    folder.mkdir()
    folder.chmod(0o770)
    os.chown(folder, -1, STRANGER)
    taken, why = kept_in(tmp_path)
    assert taken is None
    assert why is not None
    assert f"other users may write to {folder};" in why


# -- who is stopped while it is made -------------------------------------------------------


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are listed by /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_who_waits_for_machine_code_can_be_stopped(tmp_path: Path, number: signal.Signals) -> None:
    """Here the compiler says which process it is, and never ends."""
    maker = tmp_path / "maker"
    environment = breaking(tmp_path, f"os.symlink(str(os.getpid()), {str(maker)!r})\n    while True:\n        pass")
    command = [sys.executable, "-m", "paceline", "simulate", "async-ps", "--set", "run.engine=compiled"]
    waits = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    until(maker.is_symlink, lambda: waits.poll() is None)
    waits.send_signal(number)
    _, stderr = waits.communicate(timeout=PATIENCE_S)
    said = {signal.SIGINT: ["paceline: interrupted"], signal.SIGKILL: []}[number]
    assert waits.returncode == (-number if number == signal.SIGKILL else 128 + number)
    assert stderr.splitlines()[1:] == said
    until(lambda: not Path("/proc", os.readlink(maker)).exists())  # it does not go on for nobody
    assert not list(tmp_path.rglob("whole"))

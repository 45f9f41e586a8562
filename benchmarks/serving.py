"""How soon the live page answers: its first bound and its first simulated figure, of 64 workers and about, for one and for five users.

``python benchmarks/serving.py [QUESTIONS]`` serves ``async-ps`` and ``ring`` and asks as the page does while sliders move: each question is
another one, so that nothing is remembered. Times are of the wall clock, from the question until its line has come, and hold whatever else
the machine does; the CPU time beside them is what the same parts take in one process by themselves.
"""

from __future__ import annotations

import http.client
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from paceline.serving.answers import drawn_timeline, prepared, reported, simulated, warmed
from paceline.serving.question import Question, Served, served_of

_WORKERS = 64
_QUESTIONS = 40
_AIMS_MS = {"bounds": 50.0, "look": 300.0}


def questions(text: str, user: int, count: int) -> list[Question]:
    """As while somebody drags: no two alike."""
    batches = [8 + (user * count + number) % 120 for number in range(count)]
    changes = [(("strategy.workers", str(_WORKERS)), ("workload.batch_per_replica", str(batch))) for batch in batches]
    return [Question(text=text, changes=each, form=False, all_of_it=False) for each in changes]


def ask(base: str, cookie: str, user: int, question: Question) -> dict[str, float]:
    """Milliseconds until each kind of line came first."""
    its = urlsplit(base)
    connection = http.client.HTTPConnection(its.hostname or "", its.port)
    headers = {"content-type": "application/json", "origin": base, "cookie": cookie, "x-client": str(user)}
    begun_s = time.perf_counter()
    connection.request("POST", "/ask", question.model_dump_json(), headers)
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    found: dict[str, float] = {}
    for line in answer:
        found.setdefault(json.loads(line)["kind"], (time.perf_counter() - begun_s) * 1e3)
    connection.close()
    return found


def enter(link: str) -> tuple[str, str]:
    """The page's address, and the cookie that its link gives."""
    its = urlsplit(link)
    connection = http.client.HTTPConnection(its.hostname or "", its.port)
    connection.request("GET", f"/?{its.query}")
    answer = connection.getresponse()
    answer.read()
    return f"http://{its.netloc}", str(answer.headers["set-cookie"]).partition(";")[0]


def asked_by(users: int, base: str, cookie: str, text: str, count: int) -> list[dict[str, float]]:
    """What all of them saw, each asking one question after another."""
    found: list[dict[str, float]] = []

    def drag(user: int) -> None:
        found.extend([ask(base, cookie, user, question) for question in questions(text, user, count)])

    threads = [threading.Thread(target=drag, args=(user,)) for user in range(users)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def share(times: list[float], part: float) -> float:
    """A quantile: the smallest time that so many do not exceed."""
    return sorted(times)[max(0, -(-int(len(times) * part * 1000) // 1000) - 1)]


def cpu_ms(do: Callable[[], object], count: int = 9) -> float:
    """The median CPU time of this process."""
    times = []
    for _ in range(count):
        begun_s = time.process_time()
        do()
        times.append((time.process_time() - begun_s) * 1e3)
    return statistics.median(times)


def parts(served: Served) -> dict[str, float]:
    """CPU time of each part of an answer."""
    warmed(served)
    others = iter(questions(served.text, 0, 20))  # each another one, so that nothing is remembered
    question = next(others)
    found = prepared(question, served)
    point = found.curves[0].at(_WORKERS)
    timeline = drawn_timeline(point.scenario, found.curves[0].name)
    rough = [simulated(each.scenario, (2, found.steps)).result for each in found.curves[0].points]
    results = [each for each in rough if each is not None]
    return {
        "read, bounds": cpu_ms(lambda: prepared(next(others), served)),
        "first look": cpu_ms(lambda: simulated(point.scenario, "look")),
        "step in time": cpu_ms(lambda: drawn_timeline(point.scenario, found.curves[0].name)),
        "report": cpu_ms(lambda: reported(results, 0, (), timeline.get("timeline"), whole=False)),
    }


def main() -> None:
    """Print a table for each scenario."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else _QUESTIONS
    for name in ("async-ps", "ring"):
        served = served_of(name)
        print(name, "CPU ms:", ", ".join(f"{part} {took:.0f}" for part, took in parts(served).items()))
        process = subprocess.Popen([sys.executable, "-m", "paceline", "serve", name], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            base, cookie = enter(process.stdout.readline().strip())
            asked_by(1, base, cookie, served.text, 3)
            for users in (1, 5):
                seen = asked_by(users, base, cookie, served.text, count)
                for kind, aim_ms in _AIMS_MS.items():
                    times = [each[kind] for each in seen]
                    told = f"p50 {share(times, 0.5):.0f} ms, p95 {share(times, 0.95):.0f} ms (aim {aim_ms:.0f} ms)"
                    print(f"  {users} user{'s' if users > 1 else ' '} {kind:<7} {told}, {len(times)} questions")
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()

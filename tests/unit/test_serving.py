"""The live page: what it answers and in which order, whom it refuses, and what becomes of questions that nobody waits for."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import pickle
import signal
import threading
import tomllib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from html import unescape
from pathlib import Path
from typing import Any, TypeVar

import pytest
import tomlkit
from starlette.testclient import TestClient
from support.scenarios import scenario_table
from support.waiting import PATIENCE_S

import paceline
from paceline.reporting.content import content_of
from paceline.reporting.render import render
from paceline.serving.answers import Conversation, drawn_timeline, is_long, plan_command, planned, prepared, share_of, simulated
from paceline.serving.processes import SLOW, Processes, going_on
from paceline.serving.question import MOST_WORKERS, Goal, Question, Served, changed, form_of, problems_of, served_of
from paceline.serving.server import Door, application, lines_of, listening_at
from simulator.base.catalog import entries
from simulator.base.errors import InputError, ScenarioError, SimulationError
from simulator.base.files import toml_in
from simulator.catalogue.trace_files import TRACES

pytestmark = pytest.mark.slow
DoneT = TypeVar("DoneT")
BASE = "http://127.0.0.1:8050"
SERVERS = {"kind": "parameter-server", "mode": "async", "workers": 4, "servers": 1}


def text_of(**parts: Any) -> str:
    return tomlkit.dumps(scenario_table(**{"strategy": SERVERS, **parts}))


@pytest.fixture(scope="module")
def served() -> Served:
    return Served(text_of(), "lab.toml", None)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may take as long as it needs to begin."""
    for bound in ("_LONGEST_S", "MOST_PLAN_S"):
        monkeypatch.setattr(f"paceline.serving.answers.{bound}", PATIENCE_S)


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    made = Processes(2)
    yield made
    made.end()


@pytest.fixture(scope="module")
def door() -> Door:
    return Door("127.0.0.1", 8050)


@pytest.fixture(scope="module")
def outside(served: Served, processes: Processes, door: Door) -> Iterator[TestClient]:
    """Somebody without the link."""
    with TestClient(application(served, processes, door, paceline.plan), base_url=BASE, raise_server_exceptions=True) as client:
        yield client


@pytest.fixture(scope="module")
def client(outside: TestClient, door: Door, served: Served, processes: Processes) -> TestClient:
    """Who came in by the link."""
    inside = TestClient(outside.app, base_url=BASE, headers={"origin": BASE})
    assert inside.get(door.link.removeprefix(BASE)).status_code == 200
    return inside


def ask(client: TestClient, **question: Any) -> list[dict[str, Any]]:
    answer = client.post("/ask", json=question)
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["kind"] for event in events]


def problems(served: Served, text: str, *changes: tuple[str, str]) -> list[tuple[str, str]]:
    return list(prepared(Question(text=text, changes=changes), served).problems)


# -- answers -------------------------------------------------------------------------------


def test_bounds_come_first_then_a_first_look_then_reports_of_which_the_last_is_whole(client: TestClient, served: Served) -> None:
    events = ask(client, text=served.text, most=8)
    order = kinds(events)
    assert order[:2] == ["scenario", "bounds"]
    assert sorted(order[2:4]) == ["look", "timeline"]
    reports = [event for event in events if event["kind"] == "report"]
    assert order[-1] == "report"
    assert reports[-1]["final"]
    assert "How it scales" in reports[-1]["html"]
    assert "on 4 workers: " in reports[-1]["answer"]
    assert [event["done"] for event in events if event["kind"] == "progress" and event["final"]] == [1, 2, 3, 4]


def test_in_the_end_the_figure_above_has_what_all_runs_give(client: TestClient, served: Served) -> None:
    events = ask(client, text=served.text, most=8)
    (own,) = events[-1]["looks"]
    assert [look["count"] for look in own] == [1, 2, 4, 8]
    (four,) = (look for look in own if look["count"] == 4)
    rate = paceline.simulate(paceline.load(toml_in(served.text))).throughput_samples_per_s
    assert [four[name] for name in ("mean", "low", "high")] == [rate.mean, rate.low, rate.high]


def test_nothing_simulated_exceeds_its_bound(client: TestClient, served: Served) -> None:
    events = ask(client, text=served.text, strategies=["ring", "sync-ps"], most=4, all_of_it=False)
    curves = next(event["curves"] for event in events if event["kind"] == "bounds")
    looks = [event for event in events if event["kind"] == "look"]
    assert len(curves) == len(looks) == 3
    for event in looks:
        its = curves[event["curve"]]
        assert event["look"]["mean"] <= its["bounds"][its["counts"].index(event["look"]["count"])]


def test_what_is_saved_is_the_report_of_what_the_library_simulates(client: TestClient, served: Served) -> None:
    saved = client.post("/save", json={"text": served.text, "most": 8})
    counts = (1, 2, 4, 8)
    scenarios = [paceline.load(toml_in(served.text), {"strategy.workers": count}) for count in counts]
    own = scenarios[2]
    drawn = drawn_timeline(pickle.dumps(own), "async PS, 1 server on lab")
    expected = content_of([paceline.simulate(its) for its in scenarios], timeline=pickle.loads(drawn["timeline"]), asked=own.hash)  # noqa: S301
    *progress, event = map(json.loads, saved.text.splitlines())
    assert [its["done"] for its in progress] == [1, 2, 3, 4]
    assert (event["kind"], event["html"]) == ("saved", render(expected))


def test_the_report_calls_fastest_what_is_fastest_with_as_many_workers(client: TestClient, served: Served) -> None:
    """Not what was asked about, where something that it is compared with is faster."""
    events = ask(client, text=served.text, strategies=["ring"], most=8)
    html = events[-1]["html"]
    points = json.loads(html.partition('<script id="points" type="application/json">')[2].partition("</script>")[0])
    rates, curves = points["columns"]["throughput_samples_per_s"]["values"], points["curve"]
    (replicas,) = (key for key in points["keys"] if key["path"] == "replicas")
    with_four = [index for index, place in enumerate(points["at"][0]) if replicas["values"][place] == 4]
    fastest = max(with_four, key=rates.__getitem__)
    assert len(with_four) == 2
    assert points["chosen"] == {"curve": curves[fastest], "at": [replicas["values"].index(4)]}
    name = points["curves"][curves[fastest]]["name"].partition(" (")[0]
    assert f"fastest on 4 workers: {name}, ".lower() in unescape(events[-1]["answer"]).lower()


def test_the_whole_of_a_point_is_what_simulate_gives_byte_for_byte(served: Served) -> None:
    for name in ("ring", "pipeline"):
        its = served_of(name)
        found = prepared(Question(text=its.text, most=8, changes=(("run.replications", "3"),)), its)
        for point in found.curves[0].points:
            done = simulated(point.scenario, "whole")
            assert done.result is not None
            ours = pickle.loads(done.result)  # noqa: S301
            theirs = paceline.simulate(name, {"strategy.workers": point.count, "run.replications": 3})
            assert ours.to_json() == theirs.to_json()


def test_a_point_that_was_simulated_is_remembered(client: TestClient, served: Served, processes: Processes) -> None:
    ask(client, text=served.text, most=2)
    before = processes.begun
    events = ask(client, text=served.text, most=2)
    assert kinds(events)[-1] == "report"
    # reading, the timeline, the first screen and the report; nothing is simulated again
    assert processes.begun - before == 4


def test_changes_are_made_in_the_text_whose_comments_stay(client: TestClient) -> None:
    text = served_of("async-ps").text
    (event, *_) = ask(client, text=text, changes=[["strategy.workers", "3"], ["cluster.inter_node.bandwidth", "1 Gbit/s"]], all_of_it=False)
    lines = event["text"].splitlines()
    assert 'inter_node = {bandwidth = "1 Gbit/s"}' in lines
    assert [line for line in text.splitlines() if "#" in line and "workers" not in line] == [
        line for line in lines if "#" in line and "workers" not in line
    ]
    assert event["sliders"]["strategy.workers"] == 3
    assert event["sliders"]["cluster.inter_node.bandwidth"] == 1.0


def test_another_kind_leaves_out_the_keys_that_it_does_not_have() -> None:
    table = toml_in(changed(text_of(), (("strategy.kind", "multi-worker-mirrored"),)))
    assert table["strategy"] == {"kind": "multi-worker-mirrored", "workers": 4}


def test_a_field_that_is_emptied_is_left_out() -> None:
    assert "servers" not in toml_in(changed(text_of(), (("strategy.servers", " "),)))["strategy"]


@pytest.mark.parametrize(
    ("key", "typed"),
    [("strategy.workers", "0"), ("strategy.mode", "asnc"), ("cluster.inter_node.bandwidth", "5 parsecs"), ("run.stepz", "3")],
)
def test_a_broken_rule_stands_at_its_field_in_the_words_of_the_command_line(served: Served, key: str, typed: str) -> None:
    text = changed(served.text, ((key, typed),))
    with pytest.raises(ScenarioError) as caught:
        paceline.load(toml_in(text))
    ((path, said),) = problems(served, served.text, (key, typed))
    assert path == key
    assert f"scenario: {path}: {said}" == str(caught.value)


def test_pipelines_have_their_stages_in_the_report_and_what_cannot_be_is_said() -> None:
    its = served_of("pipeline")
    found = prepared(Question(text=its.text, most=8), its)
    assert [point.count for point in found.curves[0].points] == [4, 8]
    assert "must be a multiple of the 4 devices" in found.left_out[0]
    drawn = drawn_timeline(found.curves[0].at(8).scenario, "pipeline")
    assert "bubble" in {trace.get("legendgroup") for trace in drawn["figure"]["data"]}


def test_communication_takes_more_of_a_step_with_more_workers() -> None:
    its = served_of("ring")

    def shares(workers: int) -> dict[str, float]:
        found = prepared(Question(text=its.text, changes=(("strategy.workers", str(workers)),)), its)
        traces = drawn_timeline(found.curves[0].at(workers).scenario, "ring")["figure"]["data"]
        spent = {trace["legendgroup"]: sum(trace["x"]) for trace in traces if trace.get("legendgroup") in ("compute", "communication")}
        return {kind: its / sum(spent.values()) for kind, its in spent.items()}

    assert shares(2)["communication"] < shares(16)["communication"] < shares(128)["communication"]


def test_what_takes_long_is_shown_as_far_as_it_can_be_at_once() -> None:
    assert share_of(10.0, 19, 100, 1.0) == (2, 95)
    assert share_of(0.1, 19, 100, 1.0) == (19, 100)
    its = served_of("async-ps")
    found = prepared(Question(text=its.text, changes=(("run.steps", "1000000"),)), its)
    own = found.curves[0].at(8)
    assert "paceline simulate" in is_long(own)
    done = simulated(own.scenario, share_of(own.effort_s, found.replications, found.steps))
    assert done.look is not None
    assert done.look["said"].startswith("2 of 19 runs of ")


# -- the form ------------------------------------------------------------------------------


def fields(parts: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    found = {}
    for part in parts:
        found |= fields(part["parts"]) if "parts" in part else {part["path"]: part}
    return found


def test_the_form_has_the_keys_of_the_kind_that_is_chosen_with_what_they_mean() -> None:
    schema = paceline.schema("scenario")["$defs"]["ParameterServer"]["properties"]
    table = toml_in(text_of())
    found = fields(form_of(table, paceline.load(table)))
    of_strategy = {path.split(".")[1] for path in found if path.startswith("strategy.")}
    assert of_strategy == {"kind", *schema}
    assert found["strategy.servers"]["help"] == schema["servers"]["description"]
    assert found["strategy.servers"]["value"] == "1"
    assert found["strategy.mode"]["choices"] == ["sync", "async", "ssp"]
    assert "strategy.algorithm" not in found


def test_a_quantity_has_one_field_which_takes_its_unit_and_shows_what_holds() -> None:
    its = served_of("async-ps")
    table = toml_in(its.text)
    found = fields(form_of(table, paceline.load(table)))
    assert "cluster.inter_node.bandwidth_bytes_per_s" not in found
    assert (found["cluster.inter_node.bandwidth"]["value"], found["cluster.inter_node.bandwidth"]["holds"]) == ("", "25 Gbit/s")
    assert "ethernet-10g" in found["cluster.use"]["choices"]


def test_what_a_form_shows_can_be_typed_back() -> None:
    """Every value of the example scenarios, read from the form and set again, leaves the scenario as it is."""
    for name in entries("scenarios"):
        text = served_of(name).text
        table = toml_in(text)
        for path, field in fields(form_of(table, paceline.load(table))).items():
            if field["value"]:
                assert toml_in(changed(text, ((path, field["value"]),))) == table, path


def test_every_bundled_cluster_has_a_form() -> None:
    for name in entries("clusters"):
        table = scenario_table(cluster={"use": name})
        found = fields(form_of(table, paceline.load(table)))
        assert found["cluster.use"]["value"] == name


def test_a_form_says_what_holds_of_classes_of_nodes_that_leave_out_most() -> None:
    classes = {"node_classes": [{"name": "older", "nodes": 2, "speed": 0.7}]}
    table = scenario_table()
    table["cluster"] |= classes
    held = fields(form_of({}, paceline.load(table)))["cluster.node_classes"]["holds"]
    assert tomllib.loads(f"node_classes = {held}") == classes


# -- strangers -----------------------------------------------------------------------------


def test_the_link_opens_the_page_once(served: Served, processes: Processes) -> None:
    door = Door("127.0.0.1", 8050)
    app = application(served, processes, door, paceline.plan)
    first, second = (TestClient(app, base_url=BASE) for _ in range(2))
    link = door.link.removeprefix(BASE)
    assert first.get("/").status_code == 403
    entered = first.get(link)
    assert entered.status_code == 200
    cookie = entered.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "Paceline" in entered.text
    assert first.get("/").status_code == 200
    refused = second.get(link)
    assert (refused.status_code, refused.text.startswith("This link has been used")) == (403, True)
    assert second.get("/").status_code == 403


def test_a_link_for_others_opens_for_each_of_them() -> None:
    door = Door("10.1.2.3", 8050, once=False)
    token = door.link.partition("token=")[2]
    assert door.opens(token)
    assert door.opens(token)
    assert not door.opens(token + "x")


@pytest.mark.parametrize("path", ["/live.js", "/live.css", "/plotly.js", "/nothing"])
def test_nothing_is_given_to_who_has_not_come_in(outside: TestClient, path: str) -> None:
    assert outside.get(path).status_code == 403


@pytest.mark.parametrize("path", ["/ask", "/save", "/plan"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:8051"}, 403),
        ({"origin": "https://127.0.0.1:8050"}, 403),
        ({"host": "evil.example:8050", "origin": "http://evil.example:8050"}, 421),
        ({"host": "127.0.0.1:8051"}, 421),
        ({"host": "127.0.0.1:8050:1"}, 421),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"content-type": "text/plain"}, 403),
        ({"content-type": "application/x-www-form-urlencoded"}, 403),
        ({"content-length": "99999999"}, 413),
        ({"content-length": "-1"}, 413),
        ({"content-length": "many"}, 413),
    ],
)
def test_other_pages_may_not_ask(client: TestClient, served: Served, path: str, headers: dict[str, str], status: int) -> None:
    body = json.dumps({"text": served.text})
    answer = client.post(path, content=body, headers={"content-type": "application/json", **headers})
    assert answer.status_code == status


def test_a_question_without_origin_is_none_of_a_browser(outside: TestClient, client: TestClient, served: Served) -> None:
    bare = TestClient(outside.app, base_url=BASE, cookies=dict(client.cookies))
    assert bare.post("/ask", json={"text": served.text}).status_code == 403


def test_every_answer_forbids_what_the_page_does_not_need(client: TestClient, outside: TestClient) -> None:
    for answer in (client.get("/"), outside.get("/"), client.get("/nothing")):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "script-src 'self';" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


def test_nobody_speaks_over_web_sockets(client: TestClient) -> None:
    from starlette.websockets import WebSocketDisconnect

    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/ask"):
        pass


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("", "JSON"),
        ("[]", "object"),
        ('{"text": 3}', "string"),
        ('{"text": "", "more": 1}', "more"),
        ('{"text": "", "most": 1e9}', "1024"),
        ('{"text": "", "changes": [["a", {"b": 1}]]}', "string"),
        (json.dumps({"text": "x" * 300_000}), "262144"),
        (json.dumps({"text": "", "changes": [["a.b", "1"]] * 101}), "100"),
        ('{"text": "", "strategies": ' + "[" * 50_000 + "]" * 50_000 + "}", "recursion"),
    ],
)
def test_what_is_no_question_is_refused_in_a_line(client: TestClient, body: str, said: str) -> None:
    answer = client.post("/ask", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert said in answer.json()["text"]


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("text", "path", "said"),
    [
        ("", "", "is empty"),
        ("a = " + DEEP, "", "nested too deeply"),
        ("a = " + "9" * 5000, "", "cannot be read"),
        ("a.b.c = 1\na.b = 2", "", "is not valid TOML"),
        ('[workload]\nuse = "/etc/passwd.toml"', "workload.use", "must be a name"),
        ('[workload]\nuse = "../secret.toml"', "workload.use", "must be a name"),
        ('[cluster]\nuse = "/proc/self/environ"', "cluster.use", "must be a name"),
        ('[job.faults]\nuse = "\\u0000.toml"', "job.faults.use", "must be a name"),
        ('[cluster.background]\ntrace = "/etc/passwd"', "cluster.background.trace", "must be a list of points"),
        ('[job.faults.preemption]\navailable = "/etc/hostname"', "job.faults.preemption.available", "must be a list of points"),
    ],
)
def test_hostile_text_is_refused_and_names_no_file(served: Served, text: str, path: str, said: str) -> None:
    ((where, why),) = problems(served, text)
    assert where == path
    assert said in why


def test_every_key_that_may_name_a_file_is_looked_at(tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("at_s,load\n0,0.5\n", encoding="utf-8")
    for key in TRACES:
        text = changed(text_of(), ((key, str(secret)),))
        assert any(path == key and "must be" in said for path, said in problems(Served(text_of(), "lab.toml", None), text)), key


def test_files_that_the_served_scenario_names_are_read_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("at_s,load\n0,0.5\n", encoding="utf-8")
    (tmp_path / "other.csv").write_text("at_s,load\n0,0.1\n", encoding="utf-8")
    text = changed(text_of(), (("cluster.background.trace", "mine.csv"),))
    mine = Served(text, "lab.toml", tmp_path)
    assert problems(mine, text) == []
    ((path, _),) = problems(mine, text, ("cluster.background.trace", "other.csv"))
    assert path == "cluster.background.trace"


@pytest.mark.parametrize(("key", "value", "variables"), [("strategy.workers", "100000", 1), ("strategy.servers", "1100", 1200)])
def test_a_scenario_that_is_too_large_for_a_page_says_where_it_can_be_simulated(
    served: Served, key: str, value: str, variables: int
) -> None:
    many = [{"name": f"part {number}", "size": "1 kB", "creation_index": number, "ready": 1.0} for number in range(variables)]
    ((path, said),) = problems(served, text_of(workload={"variables": many}), (key, value))
    assert path == key
    assert f"{MOST_WORKERS:,}" in said
    assert "paceline simulate" in said


def test_text_of_a_stranger_is_no_markup(client: TestClient) -> None:
    name = '<img src=x onerror="alert(1)">'
    events = ask(client, text=text_of(workload={"name": name}), most=2)
    html = events[-1]["html"]
    assert "<img src=x" not in html
    assert "&lt;img src=x" in html


# -- processes -----------------------------------------------------------------------------


def run(do: Callable[[], Awaitable[DoneT]]) -> DoneT:
    async def main() -> DoneT:
        return await do()

    return asyncio.run(main())


async def taken(events: AsyncGenerator[dict[str, Any], None], kind: str) -> dict[str, Any]:
    async for event in events:
        if event["kind"] == kind:
            return event
    raise AssertionError(f"there was no {kind}")


async def all_free(processes: Processes) -> None:
    while len(processes._free) < len(processes._slots):
        await asyncio.sleep(0.01)


def long_text() -> str:
    """It takes a while: many runs of many steps."""
    return text_of(run={"steps": 300, "replications": 200}, strategy={**SERVERS, "workers": 16})


def test_who_stops_listening_ends_the_work(served: Served, processes: Processes) -> None:
    async def leave() -> tuple[int, int]:
        conversation = Conversation(served, processes, paceline.plan)
        events = conversation.answer(Question(text=long_text(), most=16))
        await taken(events, "progress")
        await events.aclose()
        left = processes.begun
        await all_free(processes)
        return left, processes.begun

    left, begun = run(leave)
    assert begun == left  # what waited was never begun


def test_a_newer_question_of_the_same_page_ends_the_older(served: Served, processes: Processes) -> None:
    async def both() -> tuple[list[str], list[str], list[str]]:
        conversation = Conversation(served, processes, paceline.plan)
        asking: dict[str, asyncio.Task[None]] = {}
        seen: dict[str, list[str]] = {"older": [], "newer": [], "another": []}

        async def listen(name: str, client: str, question: Question) -> None:
            async for line in lines_of(conversation.answer(question), client, asking):
                seen[name].append(json.loads(line)["kind"])

        older = asyncio.ensure_future(listen("older", "one", Question(text=long_text(), most=16)))
        while "progress" not in seen["older"]:
            await asyncio.sleep(0.01)
        another = asyncio.ensure_future(listen("another", "two", Question(text=served.text, most=2)))
        await listen("newer", "one", Question(text=served.text, most=2))
        await older
        await another
        await all_free(processes)
        assert asking == {}
        return seen["older"], seen["newer"], seen["another"]

    older, newer, another = run(both)
    assert "report" not in older
    assert older[-1] == "failed"
    assert newer[-1] == another[-1] == "report"


def test_of_questions_that_come_together_each_ends() -> None:
    """A question ends as well that gives way before it has begun."""

    async def parts() -> AsyncGenerator[dict[str, Any], None]:
        yield {"kind": "report"}

    async def ask_at_once() -> list[list[str]]:
        asking: dict[str, asyncio.Task[None]] = {}

        async def listen() -> list[str]:
            return [json.loads(line)["kind"] async for line in lines_of(parts(), "one", asking)]

        return await asyncio.gather(*(listen() for _ in range(20)))

    *older, newest = run(ask_at_once)
    assert older == [["failed"]] * 19
    assert newest == ["report"]


def fails(*_: Any, **__: Any) -> Any:
    raise ValueError("no error of the user's")


def test_a_plan_that_fails_by_a_fault_of_ours_ends(processes: Processes, served: Served) -> None:
    async def ask_for_it() -> list[str]:
        plan = Conversation(served, processes, fails).planned(Question(text=served.text), Goal(samples="1e6", deadline="1 h"))
        return [json.loads(line).get("text", "") async for line in lines_of(plan, "one", {})]

    assert "a fault of Paceline: ValueError" in run(ask_for_it)[-1]


def wait_for_ever(marker: str) -> None:
    Path(marker).touch()
    threading.Event().wait()


def test_what_does_not_give_way_is_ended(tmp_path: Path, processes: Processes) -> None:
    async def leave() -> tuple[list[int], list[int]]:
        marker = tmp_path / "begun"
        await processes.run(abs, -1)
        doing = asyncio.ensure_future(processes.run(wait_for_ever, str(marker)))
        while not marker.exists():
            await asyncio.sleep(0.01)
        before = processes.pids
        doing.cancel()
        await all_free(processes)
        return before, processes.pids

    before, after = run(leave)
    assert len(set(before) - set(after)) == 1


def test_nothing_of_processes_is_left_where_they_were_ended() -> None:
    before = set(threading.enumerate())
    processes = Processes(2)
    assert run(lambda: processes.run(abs, -1)) == 1
    assert set(threading.enumerate()) - before
    processes.end()
    assert not set(threading.enumerate()) - before


def test_an_end_says_nothing_of_what_nobody_waits_for_any_more(tmp_path: Path) -> None:
    processes, said = Processes(2), list[dict[str, Any]]()

    async def leave() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
        doing = asyncio.ensure_future(processes.run(wait_for_ever, str(tmp_path / "begun"), progress=lambda *_: None))
        while not (tmp_path / "begun").exists():
            await asyncio.sleep(0.01)
        doing.cancel()
        await all_free(processes)
        processes.end()

    run(leave)
    gc.collect()
    assert said == []


def killed_once(marker: str) -> int:
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_is_killed_is_replaced_and_its_work_done_again(tmp_path: Path, processes: Processes) -> None:
    pid = run(lambda: processes.run(killed_once, str(tmp_path / "killed")))
    assert pid in processes.pids


def test_what_kills_its_processes_again_and_again_is_given_up(processes: Processes) -> None:
    with pytest.raises(SimulationError, match="was killed"):
        run(lambda: processes.run(killed))
    assert run(lambda: processes.run(abs, -3)) == 3


def test_an_answer_survives_kill_9_of_its_processes(served: Served, processes: Processes) -> None:
    async def answer() -> tuple[list[str], str]:
        conversation = Conversation(served, processes, paceline.plan)
        seen = []
        question = Question(text=text_of(run={"steps": 200, "replications": 40}), most=8)
        html = ""
        async for event in conversation.answer(question):
            if "progress" not in seen and event["kind"] == "progress":
                for pid in processes.pids:
                    os.kill(pid, signal.SIGKILL)
            seen.append(event["kind"])
            html = event.get("html", html)
        calm = ""
        async for event in Conversation(served, processes, paceline.plan).answer(question):
            calm = event.get("html", calm)
        assert html == calm
        return seen, html

    seen, html = run(answer)
    assert seen[-1] == "report"
    assert "How it scales" in html


def test_quick_things_do_not_wait_for_slow_ones(tmp_path: Path, processes: Processes) -> None:
    async def both() -> int:
        markers = [tmp_path / str(number) for number in range(3)]
        slow = [asyncio.ensure_future(processes.run(wait_for_ever, str(marker), urgency=SLOW)) for marker in markers]
        while not any(marker.exists() for marker in markers):
            await asyncio.sleep(0.01)
        answer = await processes.run(abs, -7)
        assert sum(marker.exists() for marker in markers) == 1
        for its in slow:
            its.cancel()
        await all_free(processes)
        return answer

    assert run(both) == 7


def test_what_is_more_urgent_goes_first(tmp_path: Path, processes: Processes) -> None:
    async def several() -> list[int]:
        done: list[int] = []

        async def one(urgency: int) -> None:
            await processes.run(abs, urgency, urgency=urgency)
            done.append(urgency)

        marker = tmp_path / "begun"
        first = asyncio.ensure_future(processes.run(wait_for_ever, str(marker)))
        while not marker.exists():
            await asyncio.sleep(0.01)
        others = [asyncio.ensure_future(one(urgency)) for urgency in (2, 1, 0)]
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(*others)
        await all_free(processes)
        return done

    assert run(several) == [0, 1, 2]


def test_going_on_outside_of_a_process_does_nothing() -> None:
    going_on(1, 2)


# -- plans ---------------------------------------------------------------------------------


def test_a_plan_from_the_page_says_what_paceline_plan_says(client: TestClient) -> None:
    text = text_of(run={"replications": 19})
    question, goal = {"text": text, "most": 4}, {"samples": "1e6", "deadline": "1 h", "budget": ""}
    answer = client.post("/plan", json={"question": question, "goal": goal})
    event = json.loads(answer.text.splitlines()[-1])
    assert event["kind"] == "planned", event
    expected = paceline.plan(toml_in(text), samples=1e6, deadline="1 h", workers="1..4", jobs=1)
    assert event["sentences"] == list(expected.sentences)
    assert event["command"] == "paceline plan lab.toml --samples 1e6 --deadline '1 h' --workers 1..4"


def test_a_plan_that_takes_too_long_ends_with_the_command_that_makes_it(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "A plan takes at most 2 min here" in client.get("/").text
    monkeypatch.setattr("paceline.serving.answers.MOST_PLAN_S", 0.0)
    question = {"text": text_of(), "most": MOST_WORKERS, "strategies": ["ring", "sync-ps", "async-ps", "ssp", "ddp", "backup"]}
    answer = client.post("/plan", json={"question": question, "goal": {"samples": "1e9", "deadline": "12 h"}})
    event = json.loads(answer.text.splitlines()[-1])
    assert event["kind"] == "failed"
    assert "plan on the command line" in event["text"]
    assert event["command"].startswith("paceline plan lab.toml --samples 1e9 --deadline '12 h' --strategies ring,sync-ps")


def test_a_goal_that_is_none_is_refused_in_the_words_of_the_library(client: TestClient, served: Served) -> None:
    answer = client.post("/plan", json={"question": {"text": served.text}, "goal": {"samples": "many"}})
    event = json.loads(answer.text.splitlines()[-1])
    assert (event["kind"], event["text"]) == ("failed", "samples: 'many' must be a number, such as 1e9")


def test_what_is_typed_as_a_goal_is_quoted_in_the_command() -> None:
    command = plan_command(Question(text=""), Goal(samples="1; rm -rf ~"), "a b.toml")
    assert command == "paceline plan 'a b.toml' --samples '1; rm -rf ~' --workers 1..64"


def test_a_plan_of_a_scenario_that_names_a_file_is_refused(served: Served) -> None:
    with pytest.raises(InputError, match="must be a name"):
        planned(paceline.plan, Question(text='[workload]\nuse = "/etc/passwd.toml"'), Goal(samples="1e6", deadline="1 h"), served)


# -- addresses -----------------------------------------------------------------------------


def test_an_address_that_is_in_use_is_refused_in_a_line() -> None:
    with listening_at("127.0.0.1", 0) as there, pytest.raises(InputError, match="cannot be served at"):
        listening_at("127.0.0.1", there.getsockname()[1])


@pytest.mark.parametrize(
    ("host", "called", "known"),
    [
        ("127.0.0.1", "localhost:80", True),
        ("127.0.0.1", "[::1]:80", True),
        ("127.0.0.1", "rebound.example:80", False),
        ("127.0.0.1", "", False),
        ("0.0.0.0", "192.168.1.7:80", True),  # noqa: S104
        ("0.0.0.0", "rebound.example:80", False),  # noqa: S104
        ("lab.example", "lab.example:80", True),
        ("lab.example", "other.example:80", False),
    ],
)
def test_the_page_answers_to_its_own_names(host: str, called: str, known: bool) -> None:
    assert Door(host, 80).is_called(called) is known


def test_problems_without_a_key_stand_above_all(served: Served) -> None:
    assert problems_of(InputError("it is so: and so"), served) == [("", "it is so: and so")]

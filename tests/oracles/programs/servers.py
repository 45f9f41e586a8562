"""Laws of parameter servers: what they get, give and work on."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable

from oracles.programs.walk import SLACK, broken, same, walks_of
from simulator.base.records import Place
from simulator.program.program import Asynchronous, Program, Synchronous
from simulator.scenario import Scenario


def gradients_reach_their_server_once(program: Program, scenario: Scenario) -> None:
    """Every gradient leaves each rank once per step, when its share of the backward pass is done, and reaches its server whole."""
    law = gradients_reach_their_server_once
    if not program.servers.count:
        _no_service(program, law)
        return
    tensors = scenario.strategy.tensors(scenario)
    ready = {index: share for share, indices in tensors.backward for index in indices}
    for walk in walks_of(program):
        served = Counter(operation.tensor for _, operation in walk.of_kind("serve"))
        if served != Counter(gradient.number for gradient in tensors.gradients):
            raise broken(law, f"routine {walk.number}: serves the gradients {dict(served)}, of which there are {len(tensors.gradients)}")
        pushed: Counter[int] = Counter()
        for index, operation in walk.of_kind("serve"):
            gradient = tensors.gradients[operation.tensor]
            sends = walk.sends_before(index)
            pushed.update(sends)
            ports = [walk.operations[send] for send in sends]
            if not ports or ports[0].target != Place("server", gradient.server) or operation.server != gradient.server:
                raise broken(law, f"{walk.place(index)} is not after one message to server {gradient.server}, which has its variable")
            if any(not same(send.size_bytes, gradient.size_bytes) for send in ports):
                raise broken(law, f"{walk.place(index)} gets {ports[0].size_bytes:g} bytes, not {gradient.size_bytes:g}")
            compute = walk.compute_before(sends[-1])
            if compute is None or not same(walk.backward_by[compute], ready[gradient.number]):
                raise broken(law, f"{walk.place(sends[-1])} does not leave when {ready[gradient.number]:g} of the backward pass are done")
        if any(times > 1 for times in pushed.values()):
            raise broken(law, f"routine {walk.number}: one message brings several gradients")
        up = [operation for _, operation in walk.of_kind("send") if operation.target.kind == "server"]
        total = math.fsum(scenario.strategy.pushed_bytes(scenario))
        if len(up) != len(tensors.gradients) or not same(math.fsum(operation.size_bytes for operation in up), total):
            raise broken(
                law, f"routine {walk.number}: sends {len(up)} messages to servers, not {total:g} bytes in {len(tensors.gradients)}"
            )


def _no_service(program: Program, law: Callable[..., None]) -> None:
    for walk in walks_of(program):
        for index, _ in walk.of_kind("serve"):
            raise broken(law, f"{walk.place(index)} has no server")


def variables_are_pulled_once(program: Program, scenario: Scenario) -> None:
    """Every variable comes to each rank once per step, whole, from the server that has it, before the forward pass needs it."""
    law = variables_are_pulled_once
    if not program.servers.count:
        return
    tensors, load, batch = scenario.strategy.tensors(scenario), scenario.workload, scenario.batch
    needed: dict[tuple[int, float], float] = defaultdict(float)
    for share, indices in tensors.forward:
        for index in indices:
            variable = tensors.variables[index]
            needed[variable.server, round(share, 9)] += variable.size_bytes
    for walk in walks_of(program):
        come: dict[tuple[int, float], float] = defaultdict(float)
        for index, operation in walk.of_kind("send"):
            if operation.source.kind != "server":
                continue
            compute = walk.first_compute_after(index)
            if compute is None:
                raise broken(law, f"{walk.place(index)} brings what no compute needs")
            come[operation.source.number, round(walk.forward_before[compute], 9)] += operation.size_bytes
            for following in walk.then[index]:
                onward = walk.operations[following]
                if onward.kind == "send" and not same(onward.size_bytes, operation.size_bytes):
                    raise broken(law, f"{walk.place(following)} hands on {onward.size_bytes:g} of {operation.size_bytes:g} bytes")
        if set(come) != set(needed) or any(not same(come[key], needed[key]) for key in needed):
            wrong = next(key for key in {**needed, **come} if not same(come.get(key, 0.0), needed.get(key, 0.0)) or key not in come)
            told = f"{come.get(wrong, 0.0):g} bytes, not {needed.get(wrong, 0.0):g}, of server {wrong[0]} before share {wrong[1]:g}"
            raise broken(law, f"routine {walk.number}: the forward pass waits for {told}")
        total, pulled = math.fsum(variable.pull_bytes(batch) for variable in load.variables), math.fsum(come.values())
        if not same(pulled, total):
            raise broken(law, f"routine {walk.number}: pulls {pulled:g} bytes, not {total:g}")
        pushed: dict[Place, float] = defaultdict(float)
        for _, operation in walk.of_kind("send"):
            pushed[operation.target] += operation.size_bytes
        if scenario.strategy.pushed_bytes(scenario) != [variable.gradient_bytes(batch) for variable in load.variables]:
            continue  # gradients are compressed, variables are not
        dense = all(variable.sparse_bytes_per_sample is None for variable in load.variables)
        for server in range(program.servers.count):
            read = math.fsum(size for (its_server, _), size in come.items() if its_server == server)
            sent = pushed[Place("server", server)]
            if read > sent * (1 + SLACK) or (dense and not same(read, sent)):
                raise broken(law, f"routine {walk.number}: reads {read:g} bytes from server {server} and sends it {sent:g}")


def servers_work_as_measured(program: Program, scenario: Scenario) -> None:
    """A server takes as long for each gradient as the workload says for its bytes; the rule of updates has the same gradients."""
    law, cost, rule = servers_work_as_measured, scenario.workload.server, program.rules.updates
    if (rule is None) != (not program.servers.count):
        raise broken(law, "rules: there are servers without a rule of updates, or the other way round")
    if rule is None:
        return
    gradients = scenario.strategy.tensors(scenario).gradients
    for walk in walks_of(program):
        whole_s = parts = 0.0
        for index, each in walk.of_kind("serve"):
            size_bytes = gradients[each.tensor].whole_bytes
            cost_s = each.cost_s - gradients[each.tensor].unpack_s
            pieces = (cost_s - cost.per_byte_s * size_bytes) / cost.base_s if cost.base_s else 1.0
            if not math.isclose(pieces, round(pieces), rel_tol=1e-6) or round(pieces) < 1:
                raise broken(law, f"{walk.place(index)} costs {each.cost_s:g} s, which is no number of tensors of {size_bytes:g} bytes")
            if not cost.base_s and not same(cost_s, cost.per_byte_s * size_bytes):
                raise broken(law, f"{walk.place(index)} costs {cost_s:g} s, not {cost.per_byte_s * size_bytes:g}")
            parts += round(pieces)
            whole_s += each.cost_s
        if parts < len(scenario.workload.variables) and cost.base_s:
            raise broken(law, f"routine {walk.number}: servers work on {parts:g} tensors, of {len(scenario.workload.variables)} variables")
        served = sorted((each.tensor, each.server, each.cost_s) for _, each in walk.of_kind("serve"))
        if isinstance(rule, Asynchronous):
            on = Counter(server for _, server, _ in served)
            if rule.parts != tuple(on[server] for server in range(program.servers.count)):
                raise broken(law, f"rules: {rule.parts} gradients are waited for on the servers, not {dict(on)}")
        elif served != [
            (tensor, server, cost_s + gradients[tensor].unpack_s)
            for tensor, (server, cost_s) in enumerate(zip(rule.server, rule.cost_s, strict=True))
        ]:
            raise broken(law, "rules: the chief applies other gradients than the servers accumulate")
    if isinstance(rule, Synchronous) and not 1 <= rule.required <= len(program.ranks):
        raise broken(law, f"rules: an update averages {rule.required} gradients of {len(program.ranks)} ranks")

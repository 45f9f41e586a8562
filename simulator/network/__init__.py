"""The simulated network as objects on SimPy's calendar: ports, connections, messages, hosts and shared cores.

Each module has a compiled counterpart in ``simulator.engine.compiled``, which must change together with it. Which links and
paths a cluster has is decided in ``simulator.program.wiring``, not here.
"""

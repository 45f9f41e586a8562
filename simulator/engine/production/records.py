"""How compiled functions read the records of tables: ``port_at(address, number)`` of ``layout.PORT``, and so on for each of its types."""

from __future__ import annotations

import numpy as np

from simulator.engine.production import layout
from simulator.engine.production.compiling import table
from simulator.engine.production.layout import Table


def __getattr__(name: str) -> Table:
    kind = getattr(layout, name.removesuffix("_at").upper(), None)
    if not name.endswith("_at") or not isinstance(kind, np.dtype):
        raise AttributeError(f"no table has records named {name}")
    globals()[name] = accessor = table(kind)
    return accessor

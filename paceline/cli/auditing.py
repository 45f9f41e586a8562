"""``--audit``: every law checked on what was recorded, and told."""

from __future__ import annotations

from collections.abc import Mapping

from simulator.observing.recording import Recording

__all__ = ["show_laws"]


def show_laws(laws: Mapping[str, str], recording: Recording) -> None:
    """The laws that hold, one per line, each with what it says."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    tick = "\u2713" if console.encoding.lower().startswith("utf") else "ok"
    counts = {
        "steps": len(recording.steps),
        "pieces of compute": len(recording.spans),
        "messages": len(recording.transfers),
        "services": len(recording.services),
    }
    seen = ", ".join(f"{count:,} {kind}" for kind, count in counts.items() if count)
    lines = Table.grid(padding=(0, 1, 0, 0))
    for name, says in laws.items():
        lines.add_row(f"[green]{tick}[/green]", f"[bold]{name}[/bold]\n{says}")
    console.print(f"audit of the first replication: {seen}")
    console.print(lines)

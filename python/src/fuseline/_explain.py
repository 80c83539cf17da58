"""Plans in words."""

from __future__ import annotations

import html
import json
import shutil
from typing import TYPE_CHECKING, Any, Optional, Sequence

if TYPE_CHECKING:
    from . import _native


class Explanation:
    """Which kernels a model becomes, and why.

    Printed, it is what ``fuseline explain`` shows; a notebook shows tables.

    >>> plan = session.explain()
    >>> plan.kernels[0]["pattern"], plan.kernels[0]["predicted_us"]
    >>> [d["reason"] for d in plan.decisions if d["verdict"] == "refused"]
    """

    def __init__(self, native: _native.Explanation) -> None:
        self._native = native
        self._data: Optional[dict[str, Any]] = None

    @property
    def data(self) -> dict[str, Any]:
        """Everything: what ``fuseline explain --json`` prints."""
        if self._data is None:
            self._data = json.loads(self._native.json())
        return self._data

    @property
    def kernels(self) -> list[dict[str, Any]]:
        """The kernels of every run, in order: ``name``, ``pattern``, ``kind``, ``nodes``, ``bytes``, ``flops``, ``predicted_us``, ``bound``, …"""
        return list(self.data["kernels"])

    @property
    def decisions(self) -> list[dict[str, Any]]:
        """What was considered, the largest effect first: ``id``, ``rule``, ``producer``, ``consumer``, ``verdict``, ``reason``, ``saved_us``, …"""
        return list(self.data["decisions"])

    @property
    def totals(self) -> dict[str, Any]:
        """Kernels, microseconds and bytes as planned, and with nothing fused."""
        return dict(self.data["totals"])

    def text(self, width: Optional[int] = None, *, verbose: bool = False, top: int = 20) -> str:
        """The plan as text in lines of so many columns, with the ``top`` decisions or, verbose, with everything."""
        columns = shutil.get_terminal_size((120, 0)).columns if width is None else width
        return self._native.text(max(columns, 60), verbose, top)

    def __repr__(self) -> str:
        return self.text().rstrip("\n")

    def _repr_html_(self) -> str:
        data = self.data
        totals = data["totals"]
        unfused = totals["per_node"]
        sizes = {**data["sizes"], **data["assumed_sizes"]}
        facts = [f"numerics {data['numerics']}", *(f"{name} = {size}" for name, size in sizes.items())]
        kernels = [
            [k, kernel["pattern"], kernel["kind"], _short(kernel["predicted_us"]), _unit(kernel["bytes"], "B"),
             _unit(kernel["flops"], ""), kernel["bound"], ", ".join(kernel["nodes"])]
            for k, kernel in enumerate(data["kernels"])
        ]  # fmt: skip
        decisions = [
            [row["verdict"], _short(row["saved_us"]), row["rule"], f"{row['producer']} → {row['consumer']}", row["reason"]]
            for row in data["decisions"]
        ]
        speedup = unfused.get("speedup")
        gain = f", {_short(speedup)} × faster than unfused" if speedup else ""
        return "".join([
            '<div class="fuseline-plan">',
            f"<p><b>{html.escape(data['model'])}</b> on <b>{html.escape(data['target']['name'])}</b>: {html.escape(', '.join(facts))}</p>",
            f"<p>{totals['kernels']} kernels instead of {unfused['kernels']}, {_short(totals['predicted_us'])} µs predicted{gain}, ",
            f"{_unit(totals['bytes'], 'B')} of traffic instead of {_unit(unfused['bytes'], 'B')}</p>",
            _table(["", "kernel", "kind", "µs", "bytes", "flops", "bound by", "from"], kernels),
            f"<details><summary>{len(decisions)} decisions</summary>",
            _table(["verdict", "µs saved", "rule", "between", "why"], decisions),
            "</details></div>",
        ])  # fmt: skip


def _short(x: float) -> str:
    return f"{x:.3g}" if abs(x) < 1000 else f"{x:.0f}"


def _unit(x: float, unit: str) -> str:
    for prefix in ("", "k", "M", "G"):
        if abs(x) < 999.5:
            return f"{_short(x)} {prefix}{unit}".rstrip()
        x /= 1000
    return f"{_short(x)} T{unit}"


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    def cells(row: Sequence[Any], tag: str) -> str:
        return "".join(f'<{tag} style="text-align:left">{html.escape(str(cell))}</{tag}>' for cell in row)

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    return f"<table><thead><tr>{cells(head, 'th')}</tr></thead><tbody>{body}</tbody></table>"

"""Checks that a partition fits its program: the rules that `partition` follows must hold for a given decision too."""

from __future__ import annotations

from collections.abc import Mapping

from tatami.core.diagnostic import Diagnostic, diagnostic
from tatami.poly_view.ir import PolyView, Statement
from tatami.region.fusion.decided_sizes import DecidedSizes
from tatami.region.fusion.values import resident_values, virtual_values
from tatami.region.fusion.widening import dequantising, is_widening
from tatami.region.partition_ir import Partition
from tatami.tiny.ir import CallOp, Program, ResultOp


def check_partition(partition: Partition, program: Program, view: PolyView) -> list[Diagnostic]:
    """All faults of a partition: each value must be in one group, or in all groups that read it (coordinates and casts in
    any), calls alone, no cycle, no forbidden edge inside."""
    nodes = {n.id: n for n in program.nodes}
    statements = {s.value: s for s in view.statements}
    resident = resident_values(program, view)
    repeatable = virtual_values(program, view, resident, "cpu") | virtual_values(program, view, resident, "cuda", view.patterns)
    free = nodes.keys() - resident
    repeatable |= {v for v in free if is_widening(v, nodes)} | {x for v in free for x in dequantising(v, nodes)} - resident
    homes: dict[str, list[int]] = {}
    found: list[Diagnostic] = []
    for k, group in enumerate(partition.groups):
        for v in group.values:
            if v not in nodes or not (v in statements or isinstance(nodes[v].op, CallOp | ResultOp)):
                found.append(
                    _invalid(v, f"group {k} names {v}, which is not a computed value", "list the ids of computed values only")
                )
            homes.setdefault(v, []).append(k)
        calls = [v for v in group.values if v in nodes and isinstance(nodes[v].op, CallOp)]
        if calls and any(not isinstance(nodes[v].op, CallOp | ResultOp) for v in group.values if v in nodes):
            found.append(_invalid(calls[0], "a call shares its group", "give the call and its results a group of their own"))
    for v in statements:
        if v not in homes:
            found.append(_invalid(v, "no group computes it", "add it to a group"))
    read_at: dict[str, set[int]] = {}
    for s in view.statements:
        for a in s.reads:
            read_at.setdefault(a.tensor, set()).update(homes.get(s.value, ()))
    for v, (first, *more) in homes.items():
        if more and v not in repeatable and (v in resident or read_at.get(v) != {first, *more}):
            why = f"it stands in groups {first} and {more[0]}, and is in memory too"
            found.append(_invalid(v, why, "keep it in one group, or in the groups that read it and no others"))
    home = {v: places[0] for v, places in homes.items()}
    found.extend(_order(partition, statements, home, DecidedSizes(program, statements)))
    for edge in view.edges:
        if not edge.fusible and set(homes.get(edge.producer, ())) & set(homes.get(edge.consumer, ())):
            change = edge.change or "keep the two in different groups"
            found.append(_invalid(edge.producer, f"it may not share a Region with {edge.consumer} ({edge.rule})", change))
    for pattern in view.patterns:
        if pattern.pattern != "dot" and homes.get(pattern.product) != homes.get(pattern.value):
            found.append(
                _invalid(pattern.value, "its product stands in another group", f"move {pattern.product} into its group")
            )
    return found


def _order(
    partition: Partition, statements: Mapping[str, Statement], home: Mapping[str, int], decided: DecidedSizes
) -> list[Diagnostic]:
    """Faults of the groups' order: each must stand after its producers, and after the steps that decide its sizes."""
    out = []
    for k, group in enumerate(partition.groups):
        for v in group.values:
            for a in statements[v].reads if v in statements else ():
                if home.get(a.tensor, k) > k:
                    why = f"group {k} reads it before group {home[a.tensor]} computes it"
                    out.append(_invalid(a.tensor, why, "order the groups by data flow, or split one that closes a circle"))
            for step in decided.before(v):
                if home.get(step, k) > k:
                    why, how = f"group {k} has a size that group {home[step]} decides after it", "decides its size"
                    if v in decided.exchanges:
                        why = f"group {k} has an exchange that begins after that of group {home[step]}"
                        how = "begins the exchange before it"
                    out.append(_invalid(v, why, f"move it behind the step that {how}"))
    return out


def _invalid(at: str, why: str, suggestion: str) -> Diagnostic:
    return diagnostic("InvalidPlan", at, why, suggestion)

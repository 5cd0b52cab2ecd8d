"""Mutants that no test notices, by file and reason, each as ``function: change``."""

from __future__ import annotations

from typing import Final

_BY_REASON: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "tatami/loop/verify.py": {
        "equivalent: the three groups of the pattern match together": ("is_routine: `1` → `2`",),
        "performance only: nobody lists the names of 2^60 sizes": ("verify_kernel: without `return check.found`",),
        "performance only: no pair is looked for where none is declared": (
            "verify_kernel: `not check.found and kernel.face.in_place` → `not check.found`",
        ),
        "equivalent: less than one lane is a fault of its own": (
            "_Check.stmt: `reg.lanes != 1` → `reg.lanes > 1`",
            "_Check.type: `type_lanes(x) != 1` → `type_lanes(x) > 1`",
            "_Check.stmt: `t.lanes == 1` → `t.lanes <= 1`",
            "_Check.type: `v.lanes == 1` → `v.lanes <= 1`",
        ),
        "equivalent: both are numbers of lanes that there are": ("_Check.type: `1` → `2`",),
        "equivalent: a function ends with None": ("_Check.type: without `return None` (3)",),
    },
    "tatami/execution/verify.py": {
        "message only": (
            "_parents: `b.layout or ROW_MAJOR` → `ROW_MAJOR` (2)",
            "_definitions: `plan.instructions[j].debug_name or f'instruction {j}'` → `plan.instructions[j].debug_name`",
            "_definitions: `3` → `4`",
            "_definitions: `3` → `2`",
            "_order: `plan.instructions[j].debug_name or f'instruction {j}'` → `plan.instructions[j].debug_name`",
        ),
        "equivalent: no instruction depends on itself": ("_definitions: `j > i` → `j >= i`", "_order: `j < i` → `j <= i`"),
        'equivalent: no buffer is named ""': (
            "_places: `b.parent` → `True`",
            "_places: `b.in_place_of` → `True`",
            "_overlap: `b.in_place_of` → `True`",
        ),
        "equivalent: two writers of one buffer are a fault of their own": (
            "_places: `len(writers) != 1` → `len(writers) < 1`",
        ),
        "equivalent: the only item of a list": ("_places: `0` → `-1`",),
        "equivalent: there are no more numbers than ranges": (
            "_disjoint: `len(known) == len(ranges)` → `len(known) >= len(ranges)`",
        ),
        "equivalent: ranges of one place may stand in any order": ("_disjoint: `2` → `3` (2)",),
        "equivalent: only buffers of the arena have uses": (
            "_overlap: `b.kind != 'arena' or b.parent or b.arena_offset < 0` → `b.parent or b.arena_offset < 0`",
        ),
    },
    "tatami/execution/verify_calls.py": {
        "equivalent: another number of arguments is a fault either way": (
            "_arguments: `len(ports) == len(names) - 1` → `len(ports) <= len(names) - 1`",
        ),
        "equivalent: a chain of eleven calls fills eleven rounds, whatever its ends count": (
            "check_depth: `0` → `1`",
            "check_depth: `1` → `2`",
            "check_depth: `0` → `-1` (2)",
        ),
        "performance only: modules of the frontend are not imported": ("check_operations: without `return []`",),
    },
    "tatami/region/checks/lets.py": {
        "equivalent: a set is never longer than its list": (
            "_LetCheck.faults: `len(set(self.let.axes)) != len(self.let.axes)` → `len(set(self.let.axes)) < len(self.let.axes)`",
            "_LetCheck.reduce: `len(set(e.axes)) != len(e.axes)` → `len(set(e.axes)) < len(e.axes)`",
            "_LetCheck.movement: `len(set(dims)) != len(dims)` → `len(set(dims)) < len(dims)`",
        ),
        "equivalent: a reduce over no axes is a fault of its own": (
            "_LetCheck.reduce: `len(e.axes) != 1` → `len(e.axes) > 1`",
        ),
        "message only": (
            "_wider: `d is not None` → `True`",
            "_wider: `max(known, key=lambda d: (d.is_float, d.itemsize))` → `min(known, key=lambda d: (d.is_float, d.itemsize))`",
        ),
    },
    "tatami/region/checks/yields.py": {
        "performance only: where the numbers of elements are equal, the ends are, in every form that is written": (
            "_coverage: `written != total and (not all((_spans(ends, size) for ends, size in along)))` → "
            "`not all((_spans(ends, size) for ends, size in along))`",
        ),
    },
    "tatami/gpu/proof/verify_stream.py": {
        "equivalent: threads are multiples of 32": (
            ": `1024` → `1025`",
            "verify_sort: `0` → `1` (2)",
            "_Check.faults: `0` → `1`",
        ),
        "equivalent: no shared memory is less than none": ("verify_sort: `0` → `-1`", "_Check.needed: `0` → `-1`"),
        "equivalent: no group has 33 threads": ("_Check.needed: `32` → `33`",),
        "equivalent: a group of all threads is allowed anyway": (
            "_Check.faults: `k.threads + 1` → `k.threads - 1`",
            "_Check.faults: `1` → `2` (2)",
            "_Check.faults: `1` → `0` (2)",
        ),
        "equivalent: a group of less than one thread is a fault of its own": (
            "_Check.faults: `k.group == 1` → `k.group <= 1`",
            "_Check.faults: `k.group == 1` → `k.group <= 1` (2)",
            "_Check.phase: `k.group == 1` → `k.group <= 1`",
        ),
        "equivalent: without phases nothing has lanes": ("_Check.faults: `len(k.phases) == 1` → `len(k.phases) <= 1`",),
    },
    "tatami/plan/verify.py": {
        "equivalent: plans are of Regions only": ("verify: `isinstance(item, Region)` → `True` (3)",),
    },
    "tatami/plan/verify_plan.py": {
        "not asked for yet: a first of two products whose operands are cast in shared memory": (
            "_gpu_kind: `isinstance(view, str)` → `True`",
        ),
        "equivalent: every operand of a product has a type": (
            "_gpu_kind: `Types(region).of(contractions(region)[0].lhs) or DType.fp32` → `Types(region).of(contractions(region)[0].lhs)`",
        ),
    },
    "tatami/plan/cpu/contraction_rules.py": {
        "not asked for yet: operands with zero points": (
            "contraction_rules: `packed_read(x, groups) or x` → `x`",
            "blocks_of_one_tile: `packed_read(operand, groups_of(region, c, DOT_COUNT[plan.dot])) or operand` → `operand`",
        ),
        "equivalent: tiles read columns together, whether or not results alternate": (
            "_alternates: `is_turned or plan.by_tiles or shape.batch` → `is_turned or shape.batch`",
        ),
        "equivalent: axes of no side are refused by the next condition": (
            "contraction_rules: `len({sides_of.get(a, '') for a in plan.images} - {''}) != 1` → "
            "`len({sides_of.get(a, '') for a in plan.images} - {''}) > 1`",
        ),
        "message only: what follows says more of the same plan": ("contraction_rules: without `return` (2)",),
    },
    "tatami/plan/cpu/split_candidate.py": {
        "equivalent: no let uses itself": ("_check: `order[u] > order[n]` → `order[u] >= order[n]`",),
    },
    "tatami/plan/cpu/window.py": {
        "not asked for yet: columns inside an image whose number is not known, of a plane of known sizes": (
            "not_lying: without `return f'{columns.guard} columns are inside; they have to be known'`",
        ),
        "equivalent: less than one block is a fault of its own": ("_check: `plan.ahead != 1` → `plan.ahead > 1`",),
    },
    "tatami/plan/loops/rules.py": {
        "equivalent: a multiple of 16 below 16 is 0 or negative": ("_parts: `16` → `15`",),
        "message only": (
            "_pass: `', '.join(sorted(point | set(inner))) or 'nothing'` → `', '.join(sorted(point | set(inner)))`",
        ),
    },
    "tatami/plan/loops/phase_rules.py": {
        "equivalent: 17 is not a power of two": (": `16` → `17`",),
        "equivalent: from 2 on, n and n - 2 have no bit in common where n and n - 1 have none": (
            "_axes: `1` → `2`",
            "_Rules.groups: `1` → `2` (2)",
        ),
        "equivalent: groups of one point are not checked": ("_Rules.groups: `0` → `1`",),
        "equivalent: two passes of one let are a fault of their own": ("_Rules.lets: `count == 1` → `count >= 1`",),
        "equivalent: no let reads itself": ("_Rules.order: `there >= (x, y, z)` → `there > (x, y, z)`",),
        "equivalent: an item of a scan has one let": (
            "_Rules.one_pass: `0` → `-1`",
            "_Rules.free: `0` → `-1` (2)",
            "_Rules.shares_lanes: `0` → `-1` (2)",
        ),
        "equivalent: scans of one axis": ("_Rules.one_pass: `0` → `-1` (2)",),
        "equivalent: all reduces of an item go down columns, or none does": ("_Rules.lanes: `0` → `-1` (2)",),
        "equivalent: a let may be listed twice": ("_Rules.lanes: `1` → `0`",),
        "message only": (
            "_blocks: `', '.join(sorted(along)) or 'none'` → `'none'`",
            "_blocks: `', '.join(sorted(along)) or 'none'` → `', '.join(sorted(along))`",
            "_Rules.wide: `', '.join((a for a in axes if self.form.is_wide(a))) or 'none'` → `'none'`",
            "_Rules.wide: `', '.join((a for a in axes if self.form.is_wide(a))) or 'none'` → "
            "`', '.join((a for a in axes if self.form.is_wide(a)))`",
            "_Rules.wide: `axes` → `()`",
            "_Rules.wide: `self.form.is_wide(a)` → `True`",
            "_Rules.shared: `p.tile` → `True` (2)",
            "_Rules.shared: `p.tile` → `False` (2)",
        ),
    },
    "tatami/poly_view/verify.py": {
        "equivalent: the only item of a list": (
            "lost_contractions: `0` → `-1` (2)",
            "lost_contractions: `0` → `-1` (3)",
            "lost_contractions: `0` → `-1` (4)",
        ),
        "equivalent: no map names an axis of one element": ("_has_two_sides: `a.size != ONE` → `True`",),
    },
    "tatami/region/fusion/check.py": {
        "not asked for yet: a group that holds a step and what its size decides": (
            "_order: `home.get(step, k) > k` → `home.get(step, k) >= k`",
        ),
        "not asked for yet: values that readers repeat on one kind of target alone": (
            "check_partition: `virtual_values(program, view, resident, 'cpu') | virtual_val … ent, 'cuda', view.patterns)` → "
            "`virtual_values(program, view, resident, 'cpu') & virtual_val … ent, 'cuda', view.patterns)`",
        ),
        "message only": ("check_partition: `0` → `-1`",),
    },
    "tatami/tiny/verify.py": {
        "message only": (
            "_undefined: `0` → `1`",
            "_undefined: `0` → `-1`",
            "_node: `', '.join((p.tensor for p in signature.inputs)) or 'none'` → `'none'`",
            "_node: `', '.join((p.tensor for p in signature.inputs)) or 'none'` → `', '.join((p.tensor for p in signature.inputs))`",
            "_node: `signature.inputs` → `()`",
        ),
        "equivalent: no other operation asks for a call": ("_node: `isinstance(op, ResultOp) and node.src` → `node.src`",),
        "equivalent: the only item of a list": (
            "_node: `0` → `-1`",
            "_node: `0` → `-1` (2)",
            "_attributes: `0` → `-1`",
            "_attributes: `0` → `-1` (2)",
        ),
        "equivalent: what is inferred of a CALL is what it declares": (
            "_node: `inferred != declared and (not _is_widened_product(node, infe … not isinstance(op, CallOp))` → "
            "`inferred != declared and (not _is_widened_product(node, inferred))`",
        ),
        "equivalent: no fault is found in equal shapes": ("_outputs: `actual.shape != wanted.shape` → `True`",),
    },
    "tatami/tiny/checks/views.py": {
        "performance only: without equations nothing is rewritten": (
            "verify_view: `is_within(place, size, extents) or is_within(assumed.rewrite … , assumed.extents(extents))` → "
            "`is_within(assumed.rewrite(place), assumed.rewrite(size), assumed.extents(extents))`",
        ),
        "message only": ("verify_view: `missing` → `False`", "verify_view: `missing` → `()`"),
    },
    "tatami/c/check_launches.py": {"equivalent: an alignment of 0 asks for nothing": ("_misplaced: `1` → `0`",)},
    "tatami/gpu/proof/verify_memory.py": {
        "equivalent: a vector has 2, 4 or 8 elements of 1, 2, 4 or 8 bytes": ("_wide_faults: `16` → `17`",),
        "equivalent: a set is never longer than its list": (
            "_wide_faults: `len(set(s.wide)) != len(s.wide)` → `len(set(s.wide)) < len(s.wide)`",
        ),
    },
    "tatami/indexbook/verify.py": {
        "performance only: what was found once is found again": ("Context.is_copied: `node.id not in self.copied` → `True`",),
        "equivalent: a movement has one operand": ("Context._is_long: `0` → `-1`",),
        "equivalent: a set is never longer than its list": (
            "axes_are_numbered: `len(set(ids)) != len(ids)` → `len(set(ids)) < len(ids)`",
        ),
        "equivalent: the only item of a list": ("reduce_axes_are_recorded: `0` → `-1`",),
        "equivalent: a division by 1 leaves no floor": ("_is_divisible: `0` → `1`",),
        "equivalent: what is not read has no base": ("_reads: `base is None or piece.read is None` → `base is None`",),
    },
    "tatami/frontend/verify.py": {
        "equivalent: sizes of results are asked as they are inferred": ("_conditions: `node.outputs` → `()`",),
        'equivalent: no result is named ""': (
            "_node: `i and i not in defined and (i in later)` → `i not in defined and i in later`",
        ),
        "equivalent: chains of ten end in ten rounds, longer ones in none": (
            "_recursion: `0` → `1`",
            "_recursion: `1` → `2`",
        ),
    },
    "tatami/gpu/proof/verify_blocks.py": {
        "message only": ("check_blocks: `s.folds` → `()` (2)",),
    },
    "tatami/gpu/proof/verify_tokens.py": {
        "equivalent: each CTA of a cluster shares with as many": ("_arrivals: `0` → `1`",),
    },
    "tatami/region/checks/guards.py": {
        "performance only: without equations the same is asked again": ("is_proved_inside: without `return False`",),
        "not asked for yet: a multiple that leaves as many axes, before one that leaves fewer": (
            "_is_sum_of_guards: `len(free_vars(candidate) & extents.keys()) < len(free_vars(left) & extents.keys())` → `True`",
            "_is_sum_of_guards: `len(free_vars(candidate) & extents.keys()) < len(free_vars(left) & extents.keys())` → "
            "`len(free_vars(candidate) & extents.keys()) <= len(free_vars(left) & extents.keys())`",
            "_is_sum_of_guards: `free_vars(left) & extents.keys()` → `free_vars(left) | extents.keys()`",
        ),
    },
    "tatami/region/checks/neutral.py": {
        "equivalent: a function ends with None": ("_outside: without `return None` (3)",),
    },
    "tatami/plan/views/pair_limits.py": {
        "equivalent: 15 and 257 are not multiples of 16": (
            "pair_rules: `16` → `15`",
            "pair_rules: `16` → `15` (2)",
            "pair_rules: `256` → `257`",
        ),
        "equivalent: less than one is a fault of its own": (
            "pair_rules: `plan.consumers == 1` → `plan.consumers <= 1`",
            "pair_rules: `plan.stages == 1` → `plan.stages <= 1`",
        ),
    },
    "tatami/plan/views/product_rules.py": {
        "equivalent: only tiles of its kernels are streamed": (
            "shape_rules: `plan.split_k > 1 and isinstance(plan, Sm90Mma) and streamed and ('cp_async' in plan.loads)` → "
            "`plan.split_k > 1 and streamed and ('cp_async' in plan.loads)`",
        ),
        "equivalent: from 2 on, n and n - 2 have no bit in common where n and n - 1 have none": ("_sm80_rules: `1` → `2` (4)",),
        "equivalent: 7 and 257 are not multiples of 8": (
            "_sm90_rules: `8` → `7` (2)",
            "_sm90_rules: `256` → `257`",
            "_sm90_rules: `256` → `257` (2)",
            "_sm90_rules: `256` → `257` (3)",
        ),
        "equivalent: where nothing is stored, something else is kept": (
            "crowded_rules: `stored and plan.consumers == 1` → `plan.consumers == 1`",
        ),
        "equivalent: less than one is a fault of its own": (
            "crowded_rules: `plan.consumers == 1` → `plan.consumers <= 1`",
            "_cluster_rules: `count == 1` → `count <= 1`",
        ),
    },
}

REASONS: Final[dict[tuple[str, str, str], str]] = {
    (path, *mutant.split(": ", 1)): reason  # type: ignore[misc]
    for path, reasons in _BY_REASON.items()
    for reason, mutants in reasons.items()
    for mutant in mutants
}
"""Per file, function and change."""

"""Kinds of CPU plans, a file each: candidates, estimate, faults, text. `plan/cpu_kinds.py` finds them by their records.

    loops          plain loops and vectors (`plan/loops/` has the work)    window         windows that slide over a plane
    contraction    packed panels and a micro-kernel                        streaming      two products in one pass over the keys
    convolution    Winograd's tiles, and planes                            turn           transposes by square tiles
    split_candidate, split    a Region as several, one after the other

`contraction_rules` and `tile_rules` hold faults; `in_place` tells which operands are used without a copy.
"""

"""Views of a finished Region, told from the Region alone: its kind, products, transposes, concatenations, groups of rows.

Each module here and in the folders below may be imported by the layers `plan`, `loop` and `gpu`.
"""

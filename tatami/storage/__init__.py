"""Results on disk: dumps, caches, folders of generated code, `.tatami` files; and the checks of what is read back.

A document from outside is compared with what it was derived from (`derived`, `tree_tables`) before anything of it is used.
"""

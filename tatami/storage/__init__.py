"""Results on disk: dumps, caches, folders of generated code, `.tatami` files; and the checks of what is read back.

    dump             stages in a folder, and back              program_cache, program_record    compiled programs, by their inputs
    tatami_file      a program in one file                     import_cache    frontend modules of model files
    code_folder      generated code, with a main that checks it

A document from outside is compared with what it was derived from (`derived`, `tree_tables`) before anything of it is used.
"""

"""A compiled model outside of Tatami: a C library, or a Python package of one model. Neither needs this package to run.

    refusals       what such a library cannot run: steps in Python, layouts of arguments
    library        its C text and constants, from a compilation
    linking        objects to a shared library or an archive, for this machine or another
    folder         the folder of `tatami compile --library`: library, header, constants, CMake file, examples
    wheel          `tatami compile --wheel`: a package with the library and `model_package`
    model_package  the module of such a package: numpy and ctypes

The C that runs the library is in tatami/c/library_text, the description of the model that it reads is printed by
tatami/c/print_library.py ([how](../../docs/deploy.md), decisions 0096 and 0097)."""

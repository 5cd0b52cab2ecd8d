"""From text to a loaded library: compilers as subprocesses, caches of objects, temporary files, NVRTC."""

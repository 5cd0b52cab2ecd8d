"""GPUs through NVIDIA's driver API: the same documents that `main.cu` is printed from, run in this process.

Made from: `execution` plans and `cu` text. `driver` checks every call; `device` is one GPU as a Target and its context;
`cubins` compiles kernels in processes of their own and caches the results; `steps` resolves a plan at concrete sizes
into kernels and copies over base addresses; `tensor_map` encodes TMA descriptors; `graph` replays steps as one CUDA
graph whose pointers are changed, not whose inputs are copied. `faults` reports faults that kernels find in their data.
`program` is the loaded program; `hosted` runs programs with Python steps; `device_array` and `exchange` are memory and its
sharing with other libraries; `arrays` converts the caller's arrays.

Invariants: nothing here synchronises unless a caller asks for numbers on the host; an address that another library
gave is used unchanged or refused, and copies are counted.
"""

"""Measuring candidates in a process of their own, which may crash or hang without loss.

messages.py     what the two processes say to each other, a line of JSON each
worker.py       the process: compiles candidates, compares them with the reference, times them in turns
measurer.py     the other side: starts the process, limits its time, ends and restarts it
crew.py         where subjects are measured: on this machine, or on a Ray cluster (ray_crew.py, ray_host.py)
lanes.py        subjects measured at the same time, and told in their order
noise.py        when a difference of times counts
"""

"""Measuring candidates in a process of their own, which may crash or hang without loss.

messages.py     what the two processes say to each other, a line of JSON each
worker.py       the process: compiles candidates, compares them with the reference, times them in turns
measurer.py     the other side: starts the process, limits its time, ends and restarts it
noise.py        when a difference of times counts
"""

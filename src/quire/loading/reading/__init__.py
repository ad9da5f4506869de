"""Bytes of checkpoints, in the order of use: several large reads in flight, into buffers that are used again.

Knows files and offsets, and nothing of models. Imports no torch, so that reading begins before torch is there.
"""

"""Collation on a device: batches are gathered there, one file for each kind of dataset.

``rows``, ``ragged``, ``windows`` and ``tokens`` gather batches from data on the device, by the index table of a block.
"""

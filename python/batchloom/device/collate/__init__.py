"""Collation on a device: ``formed`` cuts blocks of the engine; the others gather, one file for each kind of dataset.

``rows``, ``ragged``, ``windows`` and ``tokens`` gather batches from data on the device, by the index table of a block.
"""

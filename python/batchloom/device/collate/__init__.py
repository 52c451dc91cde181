"""Collates batches on a device: ``formed`` of blocks that the engine has formed, and one file for each kind of dataset.

``rows``, ``ragged``, ``windows`` and ``tokens`` gather batches from data on the device, by the addresses in a block.
"""

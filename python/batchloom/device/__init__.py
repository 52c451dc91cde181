"""Batches on a torch device, made from data on the device or from blocks that are copied to it.

``transfer`` copies beside the computation, ``pipeline`` takes blocks of the engine and hands over batches, ``resident``
and ``shards`` hold the data on the device, ``formed`` cuts blocks of batches that the engine formed, and ``collate``
gathers batches from data that is there. All of it uses operations of torch, and so runs on every device of torch,
including the CPU. Loaders import it on use, because it imports torch.
"""

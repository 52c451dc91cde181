"""Batches on a device of torch: what makes them there, of data that is there or of blocks that are copied there.

``transfer`` copies beside the computation, ``pipeline`` takes the engine's blocks and hands over batches, ``resident``
and ``shards`` hold the data that is there, and ``collate`` makes the fields of batches. By torch's own operations, so
whatever device torch has will do, the CPU too. Imported when a loader needs it, as it needs torch.
"""

"""Batches on a device of torch: what makes them there, of data that is there or of blocks that are copied there.

``lane`` copies beside the computation, ``relay`` takes the engine's blocks and hands over batches, and the makers make
fields of what arrives: ``formed`` of blocks that the engine has formed, ``rows``, ``windows``, ``ragged`` and
``stream`` of addresses, one for each kind of dataset. By torch's own operations alone, so whatever device torch has
will do, the CPU too. Imported when a loader needs it, as it needs torch.
"""

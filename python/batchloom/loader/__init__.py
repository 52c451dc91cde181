"""Loaders: how a training loop gets its batches, epoch after epoch.

``loader`` iterates over batches, ``interleave`` lets loaders take turns, ``sampler`` gives batches to other loaders,
``epoch_count`` reconciles epochs with those that a trainer counts, and ``watchers`` names integrations that may refuse
the place of a loader. ``options``, ``metrics`` and ``digest`` serve the loader, and ``torch`` is for users who come
from torch's.
"""

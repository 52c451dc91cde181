"""Plans: which batches an epoch has, and which rank takes each of them at which step.

``plan`` is the plan of an epoch, ``options`` checks its options, and ``attributes`` are what loaders and samplers read
of it.
"""

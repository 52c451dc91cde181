"""Samples on demand: how a sample is made when its batch is formed.

``map_dataset`` is the dataset, ``reader`` calls the function of the user, ``structure`` takes a sample apart,
``processes`` starts other processes, ``worker`` is the work of one of them, ``seeded_generators`` seeds the generators
that functions share, and ``shared_generators`` warns of those that it cannot seed.
"""

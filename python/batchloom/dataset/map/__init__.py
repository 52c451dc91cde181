"""Samples on demand: how a sample is made when its batch is formed.

``map_dataset`` is the dataset, ``source`` says where samples lie and calls the function of the user, ``on_demand`` is
what they are, ``reader`` reads them and ``structure`` takes one apart. ``item_chunks`` finds items in the chunks that
the engine holds, and ``chunk_window`` says how many these are. ``processes`` starts other processes, ``worker``
is the work of one of them, ``seeded_generators`` seeds the generators that functions share, and ``shared_generators``
warns of the generators that it cannot seed.
"""

"""Fields of batches: how samples become a batch.

``schema`` lists the fields of a batch, ``field_names`` finds the field that an argument names, ``slots`` brings samples
to one shape, ``conversions`` change types and values, ``window_steps`` are the steps of a window that a field holds,
and ``block_options`` is what the delivery asks of blocks.
"""

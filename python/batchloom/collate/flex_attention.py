"""`as_block_mask`: the arrays of a block mask in a batch as the `BlockMask` that FlexAttention takes.

Promises:

- Nothing is computed: the engine made the arrays, those for the way back too.
- The function that torch compiles into its kernel is the same for every mask and every batch: it reads what each token
  sees from two tensors. So batches of one shape, whatever their documents, are compiled once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from batchloom.collate.document_mask import BACKWARD, BLOCK_MASK, PARTS
from batchloom.errors import ArgumentError

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn.attention.flex_attention import BlockMask

# What an entry of a batch holds that is a block mask.
NEEDED = frozenset((*PARTS, "block_size")) - BACKWARD


def as_block_mask(batch: Any) -> BlockMask:
    """Return the block mask of a batch as FlexAttention takes it.

        for batch in loader:  # bl.DataLoader(..., block_mask="causal", output="torch")
            mask = bl.as_block_mask(batch)
            out = flex_attention(query, key, value, block_mask=mask)

    The mask lies in the memory of the batch, on its device. Rows of a batch are its first dimension: 1 for a pack in
    one row.

    Args:
        batch: A batch of a loader with ``block_mask``, or the entry of one that holds the mask.

    Raises:
        ArgumentError: The batch holds no mask, or a mask of other arrays than tensors of torch.
    """
    import torch
    from torch.nn.attention.flex_attention import BlockMask

    entry = _find_entry(batch)
    arrays: dict[str, Any] = {name: entry.get(name) for name in PARTS}  # None for what only gradients need
    for name, array in arrays.items():
        if not (isinstance(array, torch.Tensor) or array is None):
            raise ArgumentError(
                f"{name} of the block mask is a {type(array).__module__}.{type(array).__name__}; expected tensors of "
                'torch: make batches with output="torch"'
            )
    first, end, block_size = arrays.pop("first"), arrays.pop("end"), entry["block_size"]
    tokens = first.shape[-1]
    sees = _make_mask_mod(first, end)
    return BlockMask(seq_lengths=(tokens, tokens), BLOCK_SIZE=(block_size, block_size), mask_mod=sees, **arrays)


def _make_mask_mod(first: Tensor, end: Tensor) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """Return the function of a mask, which is true if a query sees a key, given the keys that each query sees."""

    def sees(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return (kv_idx >= first[b, q_idx]) & (kv_idx < end[b, q_idx])

    return sees


def _find_entry(batch: Any) -> Mapping[str, Any]:
    """Return the entry of a batch that holds the arrays of a mask."""
    entries = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, tuple | list) else ()
    for entry in (batch, *entries):
        if isinstance(entry, Mapping) and all(name in entry for name in NEEDED):
            return entry
    held = f"a dict of {', '.join(map(str, batch))}" if isinstance(batch, Mapping) else f"a {type(batch).__name__}"
    raise ArgumentError(
        f"the batch, {held}, holds no block mask; expected a batch of a loader with block_mask, or its {BLOCK_MASK!r}"
    )

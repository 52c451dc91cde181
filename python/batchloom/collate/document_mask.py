"""`DocumentMask`: the tokens of a row that see each other, for the option `block_mask` of a loader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from batchloom.arguments import U32, answer_unknown_keywords, boolean, choice, integer, text
from batchloom.errors import ArgumentError

Kind = Literal["causal", "full"]
KIND = ("causal", "full")

# The entry of a batch that holds the arrays of a mask, and these arrays, in the order in which the engine makes them.
BLOCK_MASK = "block_mask"
PARTS = (
    "kv_num_blocks",
    "kv_indices",
    "full_kv_num_blocks",
    "full_kv_indices",
    "q_num_blocks",
    "q_indices",
    "full_q_num_blocks",
    "full_q_indices",
    "first",
    "end",
)


# Those that only gradients need.
BACKWARD = frozenset(("q_num_blocks", "q_indices", "full_q_num_blocks", "full_q_indices"))


@answer_unknown_keywords
@dataclass(frozen=True)
class DocumentMask:
    """Tokens see tokens of the same document: the mask of attention for packs, and for pieces of a stream.

        loader = bl.DataLoader(dataset, batching=bl.Packing(8192), block_mask="causal", output="torch")
        loader = bl.DataLoader(dataset, batching=bl.Packing(8192), block_mask=bl.DocumentMask(window=1024), ...)

    Documents are the samples of a pack, and the documents in a piece of a ``TokenDataset``. What only fills up a row
    sees nothing, and nothing sees it.

    Attributes:
        kind: ``"causal"``: a token sees itself and the tokens before it. ``"full"``: it sees all of its document.
        window: The most tokens before it, and after it where ``kind`` is ``"full"``, that a token sees, besides itself;
            ``None`` for all. That is how examples of FlexAttention count; transformers count the token itself as well,
            so that their ``sliding_window=4096`` is ``window=4095``.
        prefix: The name of a field with the length of the prefix of each sample, one integer, as of a prompt: all
            tokens of a prefix see each other, whatever the window. A length beyond the sample counts as its length; of
            a sample in parts, a part has what is left of the prefix. ``None`` for no prefix.
        block_size: The tokens of a block of queries, and of keys. Compiled kernels want a multiple of the blocks that
            they compute, as 128 is.
        backward: ``True`` if batches hold the blocks by keys too, which gradients need. ``False`` for evaluation.

    Raises:
        ArgumentError: A number is out of range, a name is unknown, or ``prefix`` is given with ``kind="full"``.
    """

    kind: Kind = "causal"
    window: int | None = None
    prefix: str | None = None
    block_size: int = 128
    backward: bool = True

    def __post_init__(self) -> None:
        choice("kind", self.kind, KIND)
        if self.window is not None:
            object.__setattr__(self, "window", integer("window", self.window, most=U32))
        object.__setattr__(self, "block_size", integer("block_size", self.block_size, least=1, most=U32))
        object.__setattr__(self, "backward", boolean("backward", self.backward))
        if self.prefix is not None:
            text("prefix", self.prefix)
            if self.kind == "full":
                raise ArgumentError(
                    f'prefix is {self.prefix!r}, and kind is "full", where all tokens of a document see each other; '
                    'expected kind="causal", or prefix=None'
                )

    def for_engine(self) -> tuple[str, int | None, str | None, int, bool]:
        """Return the mask as the engine takes it."""
        return self.kind, self.window, self.prefix, self.block_size, self.backward

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of its arrays, in the order in which the engine makes them."""
        return tuple(part for part in PARTS if self.backward or part not in BACKWARD)


def read_block_mask(mask: Any) -> DocumentMask | None:
    """Return the mask that the argument ``block_mask`` stands for.

    Raises:
        ArgumentError: It is neither a mask nor the kind of one.
    """
    if mask is None or isinstance(mask, DocumentMask):
        return mask
    if isinstance(mask, str) and mask in KIND:
        return DocumentMask(kind=mask)  # type: ignore[arg-type]
    expected = " or ".join(map(repr, KIND))
    raise ArgumentError(f"block_mask is {mask!r}; expected {expected}, a bl.DocumentMask, or None")

"""`Field`, the treatment of one field of the data on its way into batches, and the options of a loader about fields."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from batchloom.arguments import PAD_SIDE, PadSide, PerSample, choice
from batchloom.arrays.copying import copy_argument
from batchloom.collate.document_mask import DocumentMask, read_block_mask
from batchloom.collate.document_mask import Kind as MaskKind
from batchloom.collate.extras import read_extras
from batchloom.collate.slots import Pad, Slot, SlotWay
from batchloom.errors import ArgumentError
from batchloom.samples.label_counts import LabelCounts

if TYPE_CHECKING:
    import torch
    from numpy.typing import DTypeLike

    DType = DTypeLike | torch.dtype

Channels = float | Sequence[Any]
"""One number, or one for each channel."""

PadValue = float | Literal["edge"]
"""A number that pads a field, or ``"edge"`` for the nearest step of a series."""

EDGE = "edge"

Loss = Literal["token-mean", "sequence-mean", "sequence-sum"]
LOSSES = ("token-mean", "sequence-mean", "sequence-sum")


def repeats_edge(pad: Any) -> bool:
    """Return whether padding repeats the nearest step of a series."""
    return isinstance(pad, str) and pad == EDGE


def _require_pad(option: str, pad: Any) -> None:
    """Refuse a text that names no padding.

    Raises:
        ArgumentError: It is another text than ``"edge"``.
    """
    if isinstance(pad, str) and not repeats_edge(pad):
        raise ArgumentError(f'{option} is {pad!r}; expected a number, or "edge" for the nearest step of a series')


@dataclass(frozen=True, kw_only=True, eq=False)
class Field:
    """The treatment of one field of the data on its way into batches, for ``fields=`` of a loader.

        image = bl.Field(slot=bl.Resize(224, 224), scale=1 / 255, mean=MEAN, std=STD)
        loader = bl.DataLoader(dataset, batch_size=8, fields={"image": image, "label": bl.Field(dtype="int64")})

    Samples are put into their slots first; types and scales are applied afterwards. A value becomes
    ``(x * scale - mean) / std``, computed in float32 (in float64 where that is the type in batches). Padding is not
    scaled. A field that is converted is no view on the data.

    Attributes:
        dtype: The type in batches: a name, or a type of NumPy or torch. A value that the type cannot hold is an error:
            a value out of its range, or a fraction or NaN as an integer; floats may be rounded. ``None`` keeps the type
            of the data; integers that are scaled become float32.
        scale: The number that values are multiplied by.
        mean: The numbers that are subtracted then: one, or one for each channel. Channels are the last dimension of a
            sample, or the first, whichever has as many elements; where both have, numbers of shape ``[3, 1, 1]`` or
            ``[1, 1, 3]`` say which.
        std: The numbers that values are divided by in the end, given as ``mean`` is.
        slot: The way from a sample to its slot in a batch: a :class:`batchloom.Pad`, :class:`batchloom.Crop`,
            :class:`batchloom.Resize`, :class:`batchloom.Stack` or :class:`batchloom.Slot`, or a function
            ``f(sample, slot)``. It decides instead of ``pad_side`` and of the lengths that a rule rounds to. Slots are
            filled in memory, so a device does not gather such data.
        pad: The value that pads samples, in the type of batches and not scaled, or ``"edge"``; ``None`` for
            ``pad_value`` of the loader.
        pad_to: The length that samples are padded to, or several lengths: each batch takes the smallest that holds its
            samples; a longer sample is an error. It stands for the slot ``bl.Pad(to=pad_to)`` on the ``pad_side`` of
            the loader. Rules do not know it: ``pad_to`` of the loader is the length of all fields, by which rules sort,
            count and budget.
        offset_by: The elements that the integers of the field count, in batches that concatenate samples: the name of
            a field of samples that differ in size, or of sizes that fields share. Each integer gets the number of such
            elements in the samples before its own: ``bl.Field(offset_by="x")`` for the ``edge_index`` of graphs with
            nodes ``x``. Batches then also hold ``batch`` (int64, ``[elements]``), the number of each element's sample
            from 0, and ``ptr`` (int64, ``[samples + 1]``), the place where each sample begins. A field of one shape may
            hold indices too, as the root of each tree. Offsets are added after ``dtype``; a sum that the type does not
            hold is an error of its batch. The zeros of a banned sample are offset too, so they are its own first
            element. Indices are offset in memory, so a device does not gather such data.

    The mask and the lengths of a batch describe the fields without slots. Where all fields that they describe have
    slots, they have the shape of the slots of the first field: ``lengths`` counts the elements that are data. (A
    function with a shape of its own hides which elements are data: mask and lengths then describe samples.)

    Raises:
        ArgumentError: ``slot`` is no way to a slot, ``pad_to`` is given beside it, ``pad`` is another text, or
            ``offset_by`` is no text.
    """

    dtype: DType | None = None
    scale: float | None = None
    mean: Channels | None = None
    std: Channels | None = None
    slot: SlotWay | Callable[[Any, Any], None] | None = None
    pad: PadValue | None = None
    pad_to: int | Sequence[int] | None = None
    offset_by: str | None = None

    def __post_init__(self) -> None:
        _require_pad("pad", self.pad)
        if self.offset_by is not None and not isinstance(self.offset_by, str):
            raise ArgumentError(f"offset_by is {self.offset_by!r}; expected the name of a field, as 'x'")
        if self.pad_to is not None:
            if self.slot is not None:
                raise ArgumentError(f"slot and pad_to={self.pad_to} are both given; expected slot=bl.Pad(to=...)")
            object.__setattr__(self, "pad_to", copy_argument(self.pad_to))
            Pad(to=self.pad_to)
        if self.slot is not None and (isinstance(self.slot, type) or not _fills_slots(self.slot)):
            raise ArgumentError(
                f"slot is {self.slot!r}; expected bl.Pad(), bl.Crop(), bl.Resize(), bl.Stack(), or a function of a "
                "sample and its slot"
            )
        for name in ("mean", "std"):  # arrays may change in place
            object.__setattr__(self, name, copy_argument(getattr(self, name)))

    def __repr__(self) -> str:
        given = ((name, value) for name, value in vars(self).items() if value is not None)
        return f"Field({', '.join(f'{name}={value!r}' for name, value in given)})"

    @property
    def converts(self) -> bool:
        """``True`` if values change: in their type, or by a scale."""
        return self.dtype is not None or self.scales

    @property
    def scales(self) -> bool:
        """``True`` if values are scaled or shifted."""
        return any(value is not None for value in (self.scale, self.mean, self.std))

    def way(self, side: PadSide) -> SlotWay | None:
        """Return the way to a slot; ``None`` without one.

        Args:
            side: The side of padding where the field has no slot.
        """
        if self.pad_to is not None:
            return Pad(to=self.pad_to, side=side)
        return self.slot if self.slot is None or isinstance(self.slot, SlotWay) else Slot(None, self.slot)


def _fills_slots(slot: object) -> bool:
    return isinstance(slot, SlotWay) or callable(slot)


class FieldKeywords(TypedDict, total=False):
    """Keywords of a loader: the attributes of :class:`FieldOptions`."""

    fields: Field | Mapping[Any, Field] | None
    dtype: DType | None
    pad_value: PadValue
    pad_side: PadSide
    collate: Callable[[list[Any]], Any] | None
    labels: str | None
    label_counts: LabelCounts | PerSample | None
    loss: Loss | None
    block_mask: DocumentMask | MaskKind | None
    extras: Collection[str] | None


@dataclass(frozen=True, kw_only=True, eq=False)
class FieldOptions:
    """Options that decide what a batch holds; a :class:`batchloom.DataLoader` takes them as keywords.

    Attributes:
        fields: The treatment of each field: a :class:`batchloom.Field` by the name of the field, or by its place where
            batches are tuples; or a single one, where there is one field.
        dtype: The type in batches of all fields of floats, if it is a type of floats, or of all fields of integers, if
            it is a type of integers (booleans are neither; integers that are scaled become floats). Fields whose
            :class:`batchloom.Field` has a type keep that. Masks, lengths and marks keep their types. Windows in other
            types are no views: they are formed.
        pad_value: The value that pads samples which differ in size, and the steps of windows that their series do not
            have, in the type of batches, and not scaled. ``"edge"``, for fields that are cut from series, repeats the
            nearest step of the series (in a part of a split, of the part), converted and scaled as all steps are.
            Masks and lengths stay as they are.
        pad_side: ``"right"`` for padding after the data, ``"left"`` for padding before it.
        collate: A function that makes a batch of a list of samples. What it returns is handed over, whatever its
            structure: arrays move to ``device`` or to JAX, all else stays as it is. Threads call it, or processes, as
            they do the function of a :class:`batchloom.MapDataset`; ``shuffle`` and rules decide which samples it gets.
            Values and padding are then up to the function. If it has a parameter ``rng``, it gets a
            ``numpy.random.Generator`` whose numbers follow from the seed, the epoch and the samples of the batch.
        labels: The field whose next tokens each batch holds as ``labels`` (int64): shifted by one, -100 at the last
            token of each sample and at padding. The field is a sequence of integers: of a ``SequenceDataset``, or of
            samples with sizes, on demand, in chunks or in files.
        label_counts: The labels of each sample that losses do not ignore, for ``plan.step(k).labels``: numbers, or the
            result of ``dataset.count_labels()``. ``None`` for labels that the loader makes, whose number follows from
            sizes.
        loss: The mean that the loss of an update of ``accumulate`` steps is, over all ranks. Batches then hold the
            weight of each label in it, ``loss_weight`` (float32, in the layout of the labels), so that
            ``(loss_weight * term).sum()``, added up over the batches of an update, is the loss of one large batch,
            whichever rank takes which sample at which step. ``"token-mean"`` is the mean over labels;
            ``"sequence-mean"`` the mean over samples of the mean over the labels of a sample; ``"sequence-sum"`` the
            mean over samples of the sum over the labels of a sample. Samples without a label are not counted. Labels
            of -100, padding, places that only fill up, and samples that are banned or could not be read have weight 0.
            Batches also hold ``loss_denominator``, the number of labels or samples that the loss is divided by (int64,
            one element; 1 where nothing counts), for losses that are summed. It counts the steps of the update that the
            plan holds: after a resume, those that are left. A sample that could not be read (``on_error="skip"``)
            stays in the number, which ranks know before. The labels are those of ``labels``, those of a
            ``TokenDataset``, or a field of integers that is named ``labels``, whose ``label_counts`` are then needed.
            A device does not gather such batches: they are formed in memory and copied.
        block_mask: The tokens that see each other in attention, for packs and for pieces of a ``TokenDataset``:
            ``"causal"``, ``"full"`` or a :class:`batchloom.DocumentMask`. Batches then hold ``block_mask``, a dict of
            the arrays of its blocks, which :func:`batchloom.as_block_mask` wraps for FlexAttention; in a tuple it comes
            after the fields. The arrays (int32) are those of torch's ``create_block_mask``, which is not called:
            ``kv_num_blocks`` and ``full_kv_num_blocks`` (``[rows, 1, blocks]``), ``kv_indices`` and
            ``full_kv_indices`` (``[rows, 1, blocks, blocks]``), the same by blocks of keys, which the way back needs
            (``q_num_blocks`` and so on); and the places of a row that each token sees, from ``first`` to ``end``
            (``[rows, tokens]``). ``block_size`` is an int. A device does not gather such batches: they are formed in
            memory and copied.
        extras: The names of the extras that batches hold: of what a loader adds to the fields, such as
            ``attention_mask``, ``lengths``, ``index``, ``max_seqlen``, ``offsets``, ``source``, ``weight`` or
            ``loss_weight``. ``()`` stands for none, ``None`` for all. Other extras are not computed. A dataset names
            the extras of its batches; fields that were given, ``labels`` and ``block_mask`` are none.
    """

    fields: Field | Mapping[Any, Field] | None = None
    dtype: DType | None = None
    pad_value: PadValue = 0
    pad_side: PadSide = "right"
    collate: Callable[[list[Any]], Any] | None = None
    labels: str | None = None
    label_counts: LabelCounts | PerSample | None = None
    loss: Loss | None = None
    block_mask: DocumentMask | MaskKind | None = None
    extras: Collection[str] | None = None

    def __post_init__(self) -> None:
        choice("pad_side", self.pad_side, PAD_SIDE)
        if self.loss is not None:
            choice("loss", self.loss, LOSSES)
        object.__setattr__(self, "block_mask", read_block_mask(self.block_mask))
        _require_pad("pad_value", self.pad_value)
        object.__setattr__(self, "extras", read_extras(self.extras))
        self._refuse_dicts()
        if self.collate is not None and (not callable(self.collate) or isinstance(self.collate, type)):
            raise ArgumentError(
                f"collate is {self.collate!r}; expected a function of a list of samples. The slots of single fields "
                'are theirs: fields={"audio": bl.Field(slot=bl.Pad(multiple_of=160))}'
            )

    @property
    def has_offsets(self) -> bool:
        """``True`` if a field holds indices that are offset."""
        given = self.fields.values() if isinstance(self.fields, Mapping) else [self.fields]
        return any(getattr(field, "offset_by", None) is not None for field in given)

    def _refuse_dicts(self) -> None:
        """Refuse values by field, which ``fields`` takes."""
        values = {"dtype": (self.dtype, "dtype"), "pad_value": (self.pad_value, "pad")}
        for name, (value, attribute) in values.items():
            if isinstance(value, Mapping):
                given = ", ".join(f"{key!r}: bl.Field({attribute}={each!r})" for key, each in value.items())
                raise ArgumentError(f"{name} is {value!r}; expected one for all fields, or fields={{{given}}}")

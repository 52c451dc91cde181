"""`Dataset`: the base class of datasets, as users see them.

A dataset holds one object, its :class:`batchloom.dataset.samples.Samples`. The package gets it by :func:`samples_of`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, SupportsIndex, TypeVar, overload

import numpy
from batchloom.arguments import byte_count, integer, resolve_index
from batchloom.arrays.pickling import from_pickle, to_pickle
from batchloom.batching.rules import FixedSize, Rule, engine_rule
from batchloom.dataset.samples import Recipe, Samples, restore_samples
from batchloom.dataset.selection import read_selection, refuse_unnamed, split
from batchloom.errors import ArgumentError, many
from batchloom.samples.label_counts import LabelCounts, read_counts
from batchloom.samples.sizes import HasSizes, NamedSizes

Tuples = tuple[Any, ...]
"""Batches of fields without names."""

Dicts = dict[str, Any]
"""Batches of named fields."""

# Annotations may leave out what batches are.
if TYPE_CHECKING:
    import typing_extensions

    Form = typing_extensions.TypeVar("Form", default=Any)
    Batch = typing_extensions.TypeVar("Batch", default=Any)
else:
    Form, Batch = TypeVar("Form"), TypeVar("Batch")


class Dataset(HasSizes, Generic[Form]):
    """Samples to batch: on the host by the engine, on a device by the operations of torch.

    A dataset of some of its samples (:meth:`select`, :meth:`split`, :meth:`take`, ``dataset[a:b]``) is of the same
    class and shares its data: arrays are neither copied nor read. What it says of samples (``len(dataset)``,
    ``dataset[k]``, sizes, ``stats()``) is about those that were selected; its arrays stay those of the whole. It
    pickles with all of the data; where neighbours were selected, with theirs alone.
    """

    _samples: Samples

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._samples)

    @overload
    def __getitem__(self, sample: slice) -> Self: ...
    @overload
    def __getitem__(self, sample: SupportsIndex) -> Any: ...
    def __getitem__(self, sample: Any) -> Any:
        """Return one sample; for a slice, a dataset of those samples, as :meth:`select` does."""
        if isinstance(sample, slice):
            return self.select(sample)
        return self._samples.sample(resolve_index("sample", sample, len(self)))

    def named_sizes(self) -> NamedSizes | None:
        """Return the sizes of each sample with their names; ``None`` if all count the same."""
        return self._samples.named_sizes()

    @property
    def indices(self) -> numpy.ndarray[Any, Any]:
        """The numbers of the samples in the data that they were selected from; int64."""
        numbers, selection = self._samples.list_selected(), self._samples.selection
        if numbers is None or selection is None:
            return numpy.arange(self._samples.selectable)
        return numbers + selection.base

    def select(self, indices: Any) -> Self:
        """Return a dataset of some samples, in this order, over the same data.

            train = dataset.select(numpy.flatnonzero(years < 2024))

        Of a :class:`TokenDataset`, documents are selected, not pieces.

        Args:
            indices: The numbers of samples, which may repeat, and count from the end where they are negative; a range
                or a slice; or a mask, with a value for each sample.

        Raises:
            ArgumentError: They are neither integers nor a mask, or the data has no such selections.
            DataError: A mask of another length, or no sample.
            RangeError: There is no such sample.
        """
        samples = self._samples
        selection = read_selection(indices, samples.selectable, samples.unit)
        return self if selection.range == (0, samples.selectable) else with_samples(self, samples.select(selection))

    def take(self, samples: int) -> Self:
        """Return a dataset of the first samples: of all, if there are fewer."""
        return self.select(slice(integer("samples", samples, least=1)))

    def split(self, /, *unnamed: Any, seed: int | None = 0, stratify: Any = None, **parts: Any) -> tuple[Self, ...]:
        """Split the samples in parts: ``train, val = dataset.split(train=0.8, val=0.2)``.

        Each sample is in one part at most, and whole: a group with all of its rows, a document with all of its tokens.
        A part holds its samples in the order of the data, and shares the data.

        Args:
            unnamed: Parts without names, which are an error that names them.
            seed: The seed by which samples are drawn; ``None`` makes parts of neighbours.
            stratify: A class for each sample, or the field that holds it: every part has its share of each class, to
                one or two samples.
            parts: Parts by name. Floats are shares, and integers are numbers of samples. The last may be ``None``, for
                the rest. (``stratify`` and ``seed`` are no names of parts.)

        Returns:
            A dataset for each part, in the order of their names.

        Raises:
            ArgumentError: A part is neither a share nor a number, or has no name, or parts are of both kinds.
            DataError: Parts hold more than all samples; a part holds none; classes are not one for each sample.
        """
        refuse_unnamed(unnamed)
        samples = self._samples
        strata = samples.classes("stratify", stratify) if isinstance(stratify, str | int) else stratify
        chosen = split(samples.selectable, seed, strata, parts)
        return tuple(with_samples(self, samples.select(part)) for part in chosen)

    @property
    def memory(self) -> int | None:
        """The bytes of memory maps that may be in memory; ``None`` where no number was given."""
        return self._samples.memory

    def with_memory(self, memory: int | str) -> Self:
        """Return the same dataset with a limit for memory maps, which loaders keep between blocks of batches.

            rows = bl.TensorDataset(numpy.load("train.npy", mmap_mode="r")).with_memory("64MB")

        If the maps hold more bytes than the limit, batches read rows, samples of sequences and tokens from the files,
        which stay open, and their pages do not come into memory. A row in random order takes about 0.4 us longer then:
        an epoch over rows of 1 KB takes three to five times as long, and over rows of 64 KB up to 1.5 times. In orders
        of shards (``shard_size=``) of 2 MiB or more, of which two lie within the limit, rows, sequences and tokens
        without documents are copied from the maps, about as fast as without a limit: pages of earlier shards are
        unmapped.

        Fewer than 256 bytes, rows with gaps between them, sparse rows and windows of series are copied from the maps.
        So are rows of more files than may stay open: 256, or half of what the process may open. Loaders look between
        blocks of batches: once more pages of the maps than the limit are in memory, all of them are unmapped; they
        stay in the cache of the system. The blocks that are prepared meanwhile add what they copy from, 64 KB around
        each row, or up to 2 MB.

        The limit of datasets that are put together is the sum of the limits that were given. Without a limit, streams
        of tokens and views of windows have one of 256 MiB, and other data has none.

        The dataset is made again of its arrays, which are shared.

        Args:
            memory: The bytes, or a text such as ``"64MB"``.

        Raises:
            ArgumentError: It is no number of bytes, or no array lies in the map of a file. A map that is copied on
                writing (mode ``"c"``, and maps of ``torch.load`` by default) holds changes, and counts as memory.
        """
        samples, limit = self._samples, byte_count("memory", memory)
        if samples.is_in_chunks:
            raise ArgumentError(
                f"memory is {memory!r}, and samples are read a chunk at a time; expected memory= where the dataset is "
                "made, which decides how many chunks are mixed"
            )
        if not samples.location.pages(limit).mapped:
            raise ArgumentError(
                f"memory is {memory!r}, and no array of the dataset lies in the map of a file that could be unmapped "
                'without losing a value; expected an array of numpy.load(path, mmap_mode="r"), or no such limit'
            )
        return with_samples(self, samples.with_memory(limit))

    def concat(self, *others: Dataset[Any]) -> Dataset[Any]:
        """Return a dataset of the samples of this one, then those of others, over the data of all.

        Args:
            others: Datasets of the same kind, whose fields have the same names, types and frameworks.

        Raises:
            ArgumentError: They differ in kind, or in a field, which the message names.
        """
        return join_datasets((self, *others), source=False)

    def count_labels(self, field: str | int, *, batching: Rule | None = None, next_tokens: bool = False) -> LabelCounts:
        """Count the labels of each sample that losses do not ignore: those that are not -100. One pass over the field.

        Samples that are read by chunks or made on demand are read whole, in the order in which they are stored.

            counts = dataset.count_labels("labels")
            loader = bl.DataLoader(dataset, batching=rule, label_counts=counts)
            loss = loss_sum / loader.plan().step(k).labels

        Args:
            field: The name of a field of integers, or its place where fields have no names.
            batching: The rule, if it truncates or splits samples: what it takes of them is counted.
            next_tokens: If ``True``, count the labels that a loader with ``labels=field`` makes, for tokens that may be
                -100 themselves. (Without this, those labels follow from sizes.)

        Raises:
            ArgumentError: There is no such field, it does not hold integers, batches take random rows of groups, or a
                function makes whole batches.
            DeviceError: The CPU cannot read the field.
        """
        rule = FixedSize(1) if batching is None else batching
        samples = self._samples
        name = samples.field_names(rule).name("count_labels", field)
        return read_counts(*samples.engine().count_labels(name, engine_rule(rule), bool(next_tokens)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({many(len(self), 'sample')})"

    def __reduce__(self) -> tuple[Any, ...]:
        attributes = {name: value for name, value in vars(self).items() if name != "_samples"}
        return _restore, (type(self), to_pickle(attributes), *self._samples.to_pickle())


Kind = TypeVar("Kind", bound=Dataset[Any])


def samples_of(dataset: Dataset[Any]) -> Samples:
    """Return what a dataset holds: the object that answers the questions of the other stages."""
    return dataset._samples


def with_samples(dataset: Kind, samples: Samples) -> Kind:
    """Return a dataset of the same class over other samples, which shares all other attributes."""
    other = dataset.__new__(type(dataset))
    other.__dict__.update(dataset.__dict__)
    other._samples = samples
    return other


def with_batch_types(dataset: Kind, types: Mapping[str, str]) -> Kind:
    """Return a dataset over the same data whose fields have other types in samples and batches.

    Args:
        dataset: A dataset of rows or of sequences, in memory of NumPy.
        types: The types, by field.
    """
    held = dataset._samples
    samples = held.__new__(type(held))
    samples.__dict__.update(held.__dict__)
    samples.batch_types = dict(types)
    return with_samples(dataset, samples)


def dataset_of(samples: Samples) -> Dataset[Any]:
    """Return the dataset of samples that are of no class that users see."""
    dataset: Dataset[Any] = Dataset.__new__(Dataset)
    dataset._samples = samples
    return dataset


def refresh(dataset: Kind) -> Kind:
    """Return a dataset where its arrays are now: another one, if torch moved some to shared memory."""
    before = samples_of(dataset)
    now = before.refresh()
    return dataset if now is before else with_samples(dataset, now)


def join_datasets(
    datasets: Sequence[Dataset[Any]], *, source: bool, labels: Sequence[str] | None = None
) -> Dataset[Any]:
    """Return the dataset of the samples of several datasets; batches hold ``source`` if that is asked for.

    Args:
        datasets: The datasets, in order.
        source: ``True`` if batches hold the number of the dataset of each sample.
        labels: The names of the datasets in messages; ``None`` for their numbers.

    Raises:
        ArgumentError: They differ in kind, in a field or in an option.
    """
    held = [samples_of(each) for each in datasets if isinstance(each, Dataset)]
    first = next((each for each in held if each.is_in_chunks), held[0])
    first.require_alike(datasets, labels or [f"dataset {number}" for number in range(len(datasets))])
    dataset: Dataset[Any] = first.join(datasets, source=source)
    return dataset


def _restore(
    kind: type[Dataset[Any]],
    attributes: dict[str, Any],
    recipe: Recipe,
    selection: tuple[Any, ...] | None,
    batch_types: dict[str, str],
    memory: int | None = None,
) -> Dataset[Any]:
    """Return the dataset that :meth:`Dataset.__reduce__` wrote down."""
    dataset = kind.__new__(kind)
    vars(dataset).update(from_pickle(attributes), _samples=restore_samples(recipe, selection, batch_types, memory))
    return dataset

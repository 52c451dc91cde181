//! Causes of errors about data, about selections and splits of it, and about what is asked of its kind.

use crate::DType;
use crate::error::causes;

causes! {
    /// The causes of errors about datasets, which loaders raise too.
    enum DatasetCause {
        #[error("the dataset has no fields; expected at least one array")]
        NoFields is Data,
        #[error("field `{field}` is given twice; expected distinct names")]
        DuplicateField { field: String } is Data,
        #[error("field {field}: the data has no such field; expected one of {known}")]
        NoSuchField { field: String, known: String } is Argument,
        #[error("field {field}: it describes the batch, and its type is fixed; leave it out")]
        DescribesBatch { field: String } is Argument,
        /// Batches with marks of their places hold more fields.
        #[error(
            "field `{field}` has the name of a mark: with uneven \"mask\", batches hold an `index` and a `weight` of \
             their samples; expected another name for the field, or uneven \"pad\" or \"short\""
        )]
        MarkField { field: String } is Argument,
        #[error(
            "no field varies in length; expected sequences in at least one (use TensorDataset for rows of one shape)"
        )]
        NotVariable is Data,
        #[error(
            "no field varies in length but {}, which own_lengths names; expected one field without, whose lengths are the \
             sizes of samples",
            .fields.join(", ")
        )]
        OwnLengthsOnly { fields: Vec<String> } is Data,
        #[error(
            "sample {sample} has extents {found:?} in field {field} but {expected:?} in field {first}; expected fields \
             whose samples are equally long"
        )]
        Ragged { field: String, sample: u64, found: Vec<u32>, first: String, expected: Vec<u32> } is Data,
        #[error(
            "all samples of field {field} have one shape, which does not tell the dimension that counts their elements; \
             expected it to be given, as dim of the dataset"
        )]
        Dimension { field: String } is Argument of "dim",
        #[error("{rule} truncates or splits samples by their length; expected no sizes of your own beside it")]
        ForeignSizes { rule: &'static str } is Argument of "sizes",
        #[error(
            "batches concatenate samples along the dimension in which they differ, and samples of field {field} differ in \
             {dimensions}; expected a rule and a layout that pad"
        )]
        NotPackable { field: String, dimensions: usize } is Argument of "rule",

        #[error("own_lengths: there is no variable field {field}; expected some of {known:?}")]
        OwnLengthsOf { field: String, known: Vec<String> } is Argument of "own_lengths",
        #[error("own_lengths: {field} is given twice; expected distinct names")]
        OwnLengthsTwice { field: String } is Argument of "own_lengths",
        #[error("own_lengths: the size of a sample is of {found}; expected max, sum or one of {known}")]
        SizeOf { found: String, known: String } is Argument,
        #[error("own_lengths: sample {sample} has {size} elements; expected fewer than 2^32")]
        OwnSize { sample: u64, size: u64 } is Argument of "own_lengths",
        #[error(
            "own_lengths: lengths are named {name}, of {fields:?}; expected a name that no other field and no other \
             lengths have, and at least one field"
        )]
        OwnLengthsName { name: String, fields: Vec<String> } is Argument of "own_lengths",
        #[error(
            "own_lengths: {rule} truncates or splits samples by one length, and {name} has lengths of its own, so that the \
             parts of a sample would not belong together; expected oversize \"error\", or another policy that keeps samples \
             whole, and rests \"none\""
        )]
        OwnLengthsCut { rule: &'static str, name: String } is Argument of "oversize",
        #[error(
            "rows of one shape hold one length for each sample, and field {field} has lengths of its own; expected Packing \
             without rows"
        )]
        OwnLengthsInRows { field: String } is Argument of "rows",
        #[error(
            "rows of one shape hold elements in their first dimension, and samples of field {field} are concatenated along \
             another; expected Packing without rows"
        )]
        BandsInRows { field: String } is Argument of "rows",
        #[error("pad_to does not go with this: fields have lengths of their own; expected a slot for each field")]
        PadToOwnLengths is Argument of "pad_to",
        #[error(
            "pad_to does not go with this: sizes of your own do not tell the lengths of samples; leave one of them out"
        )]
        PadToOwnSizes is Argument of "pad_to",

        #[error(
            "group {group} has {rows} rows, and max_rows is {max_rows}; raise it, or set oversize to truncate or subsample \
             longer groups"
        )]
        GroupTooLong { group: u64, rows: u32, max_rows: u32 } is Data of "max_rows",
        #[error("field {field} has {found} rows for {expected} ids; expected a row for each id")]
        RowsOfIds { field: String, found: usize, expected: usize } is Data,
        #[error(
            "{rule} with oversize \"split\" or rests \"continue\" would divide groups; expected oversize \"error\" or \
             \"truncate\", and rests \"none\""
        )]
        SplitGroups { rule: &'static str } is Argument of "oversize",
        #[error("Packing makes batches without padding; expected layout \"concatenated\", or another rule")]
        PackedGroups is Argument of "layout",
    }
}

causes! {
    /// The causes of errors about indices, which batches offset.
    enum OffsetCause {
        #[error(
            "offset_by: field {field} holds {found}; expected integers, which count elements of {by} within a sample"
        )]
        NoIntegers { field: String, by: String, found: DType } is Argument of "offset_by",
        #[error(
            "offset_by: indices of field {field} count elements of {by}, and there is no such field of samples that differ \
             in length; expected one of {}",
            .known.join(", ")
        )]
        By { field: String, by: String, known: Vec<String> } is Argument of "offset_by",
        #[error(
            "offset_by: batches pad samples, so indices of field {field} count from the start of their sample already; \
             expected layout \"concatenated\" of the dataset, or the rule Packing"
        )]
        Padded { field: String } is Argument of "offset_by",
        #[error(
            "offset_by: field {field} is made on demand, and only the elements of stored samples are counted before; \
             expected a SequenceDataset, or a function that makes whole batches"
        )]
        OnDemand { field: String } is Argument of "offset_by",
        #[error(
            "offset_by: rows of one shape are not one concatenation, which indices of field {field} could count; expected \
             Packing without rows"
        )]
        Rows { field: String } is Argument of "offset_by",
        #[error(
            "offset_by: {rule} truncates or splits samples, and indices of field {field} may point to what a part does not \
             have; expected oversize \"error\", or another policy that keeps samples whole, and rests \"none\""
        )]
        Cut { field: String, rule: &'static str } is Argument of "offset_by",
        #[error("field {field} has the name of a field that offset_by adds to batches; expected another name")]
        Made { field: String } is Argument of "offset_by",
    }
}

causes! {
    /// The causes of errors about labels.
    enum LabelsCause {
        #[error("labels are the next tokens of a field; the dataset has no field {field}")]
        NoField { field: String } is Argument of "labels",
        #[error(
            "labels are the next tokens of a field; field {field} holds several numbers for each token; expected one"
        )]
        SeveralNumbers { field: String } is Argument of "labels",
        #[error("labels are the next tokens of a field; field {field} holds {found}; expected integers")]
        NoIntegers { field: String, found: DType } is Argument of "labels",
        #[error("labels are the next tokens of a field; field {field} does not vary in length; expected a sequence")]
        NoSequence { field: String } is Argument of "labels",
        #[error(
            "labels are the next tokens of field {field}, whose samples go into slots of another shape; expected \
             labels of a field without a slot"
        )]
        Slot { field: String } is Argument of "labels",

        #[error(
            "loss is {loss:?}, and batches hold no labels, only {known}; expected the option labels, which names a field of \
             tokens, or a field that is named labels"
        )]
        LossWithoutLabels { loss: &'static str, known: String } is Argument of "loss",
        #[error("loss is {loss:?}, and labels are {found}; expected integers, -100 where the loss ignores them")]
        LossOfNoIntegers { loss: &'static str, found: DType } is Argument of "loss",
        #[error("loss adds {field} to batches, and a field has this name; expected another name for that field")]
        LossField { field: String } is Argument of "loss",

        #[error(
            "labels of {field} cannot be counted: samples have no tokens that follow each other; expected a \
             SequenceDataset"
        )]
        CountNoTokens { field: String } is Argument,
        #[error("labels of {field} cannot be counted: the dataset has no such field; expected one of {known}")]
        CountNoField { field: String, known: String } is Argument,
        #[error(
            "labels of {field} cannot be counted: it holds {found}; expected integers, -100 where losses ignore them"
        )]
        CountNoIntegers { field: String, found: DType } is Argument,
        #[error(
            "labels of {field} cannot be counted: batches take {size} random rows of the {stored} of group {group}; \
             expected oversize \"truncate\", or label_counts of your own"
        )]
        CountSubsample { field: String, size: u32, stored: u32, group: u64 } is Argument of "oversize",
        #[error("labels of {field} cannot be counted: a sample has {count}; expected at most {limit}")]
        CountTooMany { field: String, count: usize, limit: u32 } is Argument,
        #[error(
            "labels of {field} cannot be counted: a function makes whole batches; expected label_counts of your own"
        )]
        CountWholeBatches { field: String } is Argument,
    }
}

causes! {
    /// The causes of errors about block masks.
    enum MaskCause {
        #[error(
            "block_mask: rule {rule} makes no packs, whose samples must not see each other; expected Packing, or a stream \
             of tokens"
        )]
        NotPacked { rule: &'static str } is Argument of "block_mask",
        #[error("block_mask: prefix is {field:?}, and pieces of a stream have no such field; expected no prefix")]
        PrefixOfStream { field: String } is Argument of "block_mask",
        #[error("block_mask: prefix is {field:?}, and samples have no such field; expected one of {known}")]
        NoPrefix { field: String, known: String } is Argument of "block_mask",
        #[error(
            "block_mask: prefix is {field:?}, which holds more than one number for a sample; expected the length of its \
             prefix"
        )]
        PrefixShape { field: String } is Argument of "block_mask",
        #[error("block_mask: prefix is {field:?}, which holds {found}; expected integers")]
        PrefixType { field: String, found: DType } is Argument of "block_mask",
        #[error("block_mask adds {field} to batches, and a field has this name; expected another name for that field")]
        Field { field: String } is Argument of "block_mask",
        #[error("block_mask: index tables hold no masks; expected blocks of samples")]
        InTable is Argument of "block_mask",
    }
}

causes! {
    /// The causes of errors about selections of samples, and about parts of a split.
    enum SelectionCause {
        #[error("the selection holds no sample of {samples}; expected at least one")]
        Empty { samples: u64 } is Data,
        #[error("the selection was made for {found} samples; expected one for {expected}, the number of samples here")]
        Samples { found: u64, expected: u64 } is Data,
        #[error("there are {found} strata for {samples} samples; expected one for each")]
        StrataCount { found: u64, samples: u64 } is Data of "strata",
        #[error(
            "strata are given without a seed, and neighbours cannot hold shares of each stratum; expected a seed"
        )]
        StrataWithoutSeed is Data of "strata",

        #[error("the split has no part; expected at least one")]
        NoParts is Argument of "parts",
        #[error("there are {found} parts; expected fewer than {limit}")]
        TooManyParts { found: usize, limit: u16 } is Argument of "parts",
        #[error("part {part} takes the rest; expected only the last part to do so")]
        RestBeforeLast { part: String } is Argument of "parts",
        #[error(
            "part {part} is {share}, which brings the shares to {total}; expected shares above 0 that sum to at most 1"
        )]
        PartShare { part: String, share: String, total: String } is Argument of "parts",
        /// No series has the step at which the part ends.
        #[error("part {part} is {step}; expected the step at which it ends, from 1 to {longest}, the longest series")]
        PartStep { part: String, step: i64, longest: usize } is Argument of "parts",
        #[error(
            "the parts up to part {part} hold {found} samples, and there are {samples}; expected at most {samples}"
        )]
        PartSamples { part: String, found: i64, samples: u64 } is Argument of "parts",
        #[error("part {part} ends at {found} steps; expected one for each of {expected} series")]
        PartSteps { part: String, found: usize, expected: usize } is Argument of "parts",
        #[error("part {part} ends at step {step} of series {series}; expected at most {length}, where the series ends")]
        PartSeries { part: String, step: usize, series: usize, length: usize } is Argument of "parts",
        #[error("part {part} ends before the previous part; expected parts in order of time")]
        PartOrder { part: String } is Argument of "parts",
        /// The end is a sample, or a step of the longest series.
        #[error("part {part} ends at {end} of {count}, where it begins; expected it to hold at least 1")]
        EmptyPart { part: String, end: u64, count: u64 } is Data of "parts",
    }
}

causes! {
    /// The causes of errors about datasets that are put together.
    enum ConcatCause {
        #[error("the datasets cannot be put together: there are none; expected at least one")]
        Nothing is Argument,
        #[error(
            "the datasets cannot be put together: dataset {dataset} makes samples on demand; expected one source that \
             reads them all"
        )]
        OnDemand { dataset: usize } is Argument,
        #[error(
            "the datasets cannot be put together: the samples of dataset {dataset} are in no chunks that the engine \
             reads; expected datasets that are all read a chunk at a time"
        )]
        NotInChunks { dataset: usize } is Argument,
        #[error(
            "the datasets cannot be put together: dataset 0 and dataset {dataset} differ in {what}; expected the same \
             of both"
        )]
        Facts { dataset: usize, what: &'static str } is Argument,
        #[error(
            "the datasets cannot be put together: dataset {dataset} says the sources of its samples; expected the \
             datasets that it holds"
        )]
        Sources { dataset: usize } is Argument,
        #[error(
            "the datasets cannot be put together: the last piece of dataset {dataset} is shorter than the pieces \
             before, as its tail is \"short\"; expected tail \"drop\" or \"pad\""
        )]
        ShortTail { dataset: usize } is Argument of "tail",
        #[error(
            "the datasets cannot be put together: the stream of dataset {dataset} continues from batch to batch; \
             expected pieces"
        )]
        Continuous { dataset: usize } is Argument,
        #[error(
            "the datasets cannot be put together: a field is named {field}, which says what dataset a sample is of; \
             expected another name"
        )]
        SourceField { field: String } is Argument,
        #[error(
            "the datasets cannot be put together: dataset 0 has fields {expected}, dataset {dataset} has {found}; \
             expected the same, in the same order"
        )]
        Names { dataset: usize, found: String, expected: String } is Argument,
        #[error(
            "the datasets cannot be put together: field {field} is {expected} in dataset 0 and {found} in dataset \
             {dataset}; expected one type"
        )]
        Types { field: String, dataset: usize, found: DType, expected: DType } is Argument,
        #[error(
            "the datasets cannot be put together: samples of field {field} are {expected} in dataset 0 and {found} in \
             dataset {dataset}; expected one shape"
        )]
        Shapes { field: String, dataset: usize, found: String, expected: String } is Argument,
        #[error(
            "the datasets cannot be put together: samples of dataset 0 and of dataset {dataset} differ in size in \
             different ways; expected the same options of both"
        )]
        Ways { dataset: usize } is Argument,
    }
}

#[cfg(feature = "arrow")]
causes! {
    /// The causes of errors about lists of Arrow.
    enum ArrowCause {
        #[error(
            "field {field}: sample {sample} is null; expected a list for every sample (drop it, or fill it with an \
             empty one)"
        )]
        NullList { field: String, sample: u64 } is Data,
        #[error("field {field}: sample {sample} holds a null; expected a value in every place")]
        NullValue { field: String, sample: u64 } is Data,
        #[error(
            "field {field} is an Arrow array of {found}; expected lists of numbers (list, large_list or \
             fixed_size_list)"
        )]
        NoLists { field: String, found: String } is Type,
        #[error("field {field} holds lists of {found}; expected lists of numbers, or of fixed_size_lists of numbers")]
        Elements { field: String, found: String } is Type,
        /// The values of a chunk differ from the values of the first chunk, in type or in shape.
        #[error("field {field}: chunk {chunk} is {found}; expected {expected}, as chunk 0 is")]
        Chunks { field: String, chunk: usize, found: String, expected: String } is Data,
    }
}

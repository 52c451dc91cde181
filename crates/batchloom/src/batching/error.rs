//! Causes of errors about rules, and about the samples that they divide into batches.

use crate::error::causes;

causes! {
    /// The causes of errors about rules and sizes, which plans and datasets raise too.
    enum BatchingCause {
        #[error("batch_size is {found}; expected at least 1")]
        BatchSize { found: u64 } is Argument of "batch_size",
        #[error("{option} is 0; expected at least 1")]
        NotPositive { option: &'static str } is Argument,
        #[error("the rule {text:?} cannot be read: {reason}")]
        RuleText { text: String, reason: String } is Argument of "rule",
        #[error(
            "multiple_of is {multiple_of}, more than max_tokens ({max_tokens}), so no padded sample fits; use a \
             smaller multiple_of"
        )]
        Multiple { multiple_of: u32, max_tokens: u64 } is Argument of "multiple_of",
        /// The elements of a bin have 32-bit numbers, and its free space takes memory to keep.
        #[error("max_tokens is {found}; expected at most {limit} (2^28) for Packing")]
        BinTooLarge { found: u64, limit: u32 } is Argument of "max_tokens",
        #[error(
            "{rows} rows of {max_tokens} elements make batches of {found}; expected at most {limit} (2^31): fewer rows, or \
             shorter ones"
        )]
        RowsTooLarge { rows: u32, max_tokens: u32, found: u64, limit: u64 } is Argument of "rows",

        #[error("there are {found} budgets; expected 1 to {limit}")]
        BudgetCount { found: usize, limit: usize } is Argument of "max_tokens",
        #[error("the budget {name:?} is given twice; expected it once")]
        BudgetTwice { name: String } is Argument of "max_tokens",
        #[error("a budget has an empty name; expected the name of sizes")]
        BudgetName is Argument of "max_tokens",
        #[error("the budget {name:?} is 0; expected at least 1")]
        BudgetOfNothing { name: String } is Argument of "max_tokens",
        #[error("{option} does not go with several budgets; expected one number as max_tokens")]
        BudgetsOfRows { option: &'static str } is Argument,
        #[error(
            "there is a budget for {name:?}, and samples have no sizes of this name; expected {}",
            name_known(.known)
        )]
        NoSizesOfBudget { name: String, known: Vec<String> } is Argument of "max_tokens",
        #[error(
            "the sizes {name:?} are the lengths of {of:?}, and no field of this name varies in length; expected {}",
            name_known(.known)
        )]
        NoSizesOfField { name: String, of: String, known: Vec<String> } is Argument of "sizes",
        #[error("two sizes of samples are named {name:?}; expected one of them")]
        SizesTwice { name: String } is Argument of "sizes",
        #[error("there are {found} sizes named {name:?} for {samples} samples; expected one size for each sample")]
        NamedSizesLength { name: String, found: u64, samples: u64 } is Data of "sizes",

        #[error(
            "the coefficients (fixed, per_token, per_pair) of the cost model are ({fixed}, {per_token}, {per_pair}); \
             expected finite numbers of at least 0, not all of them 0"
        )]
        Cost { fixed: f64, per_token: f64, per_pair: f64 } is Argument,
        #[error("heads is {heads} and kv_heads is {kv_heads}; expected a multiple of kv_heads in heads")]
        Heads { heads: u64, kv_heads: u64 } is Argument of "heads",
        #[error("there are {found} distinct shapes; expected at least 3 to fit 3 coefficients")]
        TooFewShapes { found: usize } is Argument of "shapes",
        #[error("the shapes {shapes:?} do not tell the coefficients apart; expected several lengths and sizes")]
        AlikeShapes { shapes: Vec<(u64, u64)> } is Argument of "shapes",
        #[error(
            "a batch of {samples} samples of length {length} is measured at {seconds} seconds; expected at least 1 \
             sample, length 1 and a finite time above 0"
        )]
        Measurement { samples: u64, length: u64, seconds: String } is Argument,

        #[error(
            "the dataset has no samples; expected at least 1 (check the filter or the path that produced it)"
        )]
        NoSamples is Data,
        #[error("sample {sample} is outside the dataset; expected 0 <= sample < {samples}")]
        SampleRange { sample: u64, samples: u64 } is Range,
        #[error("there are {found} sizes for {samples} samples; expected one size for each sample")]
        SizesLength { found: u64, samples: u64 } is Data of "sizes",
        #[error(
            "{extents} extents are given for samples of {dimensions} variable dimensions; expected {dimensions} for \
             each sample, of at least 1 dimension"
        )]
        Extents { extents: usize, dimensions: usize } is Data,
        #[error("sample {sample} has extents {extents:?}, whose product is not below 2^32; expected smaller extents")]
        SizeTooLarge { sample: u64, extents: Vec<u32> } is Data,
        #[error(
            "the datasets cannot be put together: samples differ in {expected} dimensions in dataset 0 and in {found} \
             in dataset {dataset}; expected the same number"
        )]
        JoinedDimensions { dataset: usize, found: usize, expected: usize } is Argument,

        #[error(
            "{rule} with these options needs samples that differ in one dimension, and these differ in {dimensions}; \
             use TokenBudget without truncation, LengthBuckets or FixedSize"
        )]
        Dimensions { rule: &'static str, dimensions: usize } is Argument of "rule",
        #[error(
            "sample {sample} has size {size}, which{} exceeds max_tokens ({max_tokens}); raise max_tokens, or set \
             oversize to something other than an error",
            if *.multiple_of > 1 { format!(", rounded up to a multiple of {multiple_of},") } else { String::new() }
        )]
        Oversize { sample: u64, size: u32, multiple_of: u32, max_tokens: u64 } is Data of "max_tokens",
        /// Of a budget with a name. What is cut of a sample are its elements, and no other size.
        #[error(
            "sample {sample} has size {size} by {budget:?}{}, which exceeds the budget of {limit}; raise it, {}",
            if u64::from(*.size) == *.counted { String::new() } else { format!(" ({counted} as it is padded)") },
            if *.cuts {
                "or drop such samples: truncating and splitting change the length of a sample alone"
            } else {
                "or set oversize to something other than an error"
            }
        )]
        OverBudget { sample: u64, budget: String, size: u32, counted: u64, limit: u64, cuts: bool } is Data of "max_tokens",
        #[error(
            "sample {sample} has {size} elements, and the largest length of pad_to is {most}; raise it, or set \
             truncate to \"left\" or \"right\""
        )]
        TooLong { sample: u64, size: u32, most: u32 } is Data of "pad_to",
        /// The samples of a pool are numbered.
        #[error(
            "a pool would hold {found} samples, or parts of split ones; expected at most {limit}: shuffle, or use a \
             smaller pool or larger batches"
        )]
        PoolTooLarge { found: u64, limit: u64 } is Argument of "pool",
        #[error(
            "{count} samples have the key of sample {sample}, which is more than {batches} batches of {batch_size} \
             have room for, one in each, beside keys that are as frequent; expected smaller batches, fewer samples of \
             a key, or surplus \"drop\", which leaves some out"
        )]
        TooFrequent { sample: u64, count: u64, batches: u64, batch_size: u64 } is Argument of "distinct_by",
        #[error(
            "sample {sample} shares its keys {times} times with other samples, which is too often to be sure that \
             {batches} batches of {batch_size} keep them apart in every epoch; expected smaller batches, fewer samples of \
             a key, or surplus \"drop\", which leaves out those that fit in no batch"
        )]
        TooManyConflicts { sample: u64, times: u64, batches: u64, batch_size: u64 } is Argument of "distinct_by",
        #[error("{found} keys are given in {columns} columns; expected at least one column, and as many keys in each")]
        KeyColumns { found: usize, columns: usize } is Argument of "distinct_by",

        #[error("batch {batch} of the lists holds no sample; expected at least one in each")]
        EmptyBatch { batch: u64 } is Argument,
        #[error("a list ends at {end}, where {start} was reached; expected ends that rise up to the number of samples")]
        Lists { end: u64, start: u64 } is Argument,

        #[error(
            "label_counts holds {found} numbers; expected {expected}, one for each sample (or for each piece, if they \
             were counted for a rule that truncates or splits)"
        )]
        LabelCountsLength { found: u64, expected: u64 } is Argument of "label_counts",
        #[error(
            "the labels of samples were counted as wholes, and {rule} continues samples in later batches; expected labels that \
             the loader makes (labels of a field of tokens), or rests none"
        )]
        LabelCountsContinued { rule: &'static str } is Argument of "label_counts",
        #[error(
            "label_counts has a number for each whole sample, but sample {sample} has {size} elements and {rule} takes \
             {limit} at a time; expected counts for this rule: count_labels with the rule makes them"
        )]
        LabelCountsWhole { sample: u64, size: u32, limit: u32, rule: &'static str } is Argument of "label_counts",
        #[error(
            "label_counts has a number for each whole sample, and sample {sample} has {size} elements, of which pad_to \
             takes {limit}; truncate samples beforehand, or leave label_counts out"
        )]
        LabelCountsPadded { sample: u64, size: u32, limit: u32 } is Argument of "label_counts",
        #[error(
            "label_counts has a number for each piece of {found} elements, but {rule} takes {}; expected counts for \
             this rule: count_labels with the rule makes them",
            .limit.map_or_else(|| "whole samples".to_owned(), |limit| format!("{limit} elements at a time"))
        )]
        LabelCountsPiece { found: u32, limit: Option<u32>, rule: &'static str } is Argument of "label_counts",
    }
}

/// The names of sizes, as a message lists them.
fn name_known(known: &[String]) -> String {
    match known {
        [] => {
            "sizes with names, as sizes={\"patches\": ...} of a dataset gives them, or one number".to_owned()
        }
        known => format!("one of {}", known.join(", ")),
    }
}

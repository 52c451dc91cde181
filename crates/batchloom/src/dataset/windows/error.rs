//! Causes of errors about windows, their shape, and the series and parts that they lie in.

use crate::error::causes;

causes! {
    /// The causes of errors about the shape of windows.
    enum ShapeCause {
        #[error("{option} is 0; expected at least 1 step")]
        NoSteps { option: &'static str } is Argument,
        #[error("trail is {trail} and horizon {horizon}; expected 0 for one of them")]
        Trail { trail: usize, horizon: usize } is Argument of "trail",
        #[error(
            "lead is {lead} and trail is {trail}; expected them to leave at least 1 of the {input_len} steps of input"
        )]
        Lead { lead: usize, trail: usize, input_len: usize } is Argument of "lead",
        #[error("label_len is {label_len} and gap is {gap}; expected 0 for both if horizon is 0")]
        NoHorizon { label_len: usize, gap: usize } is Argument of "horizon",
        #[error(
            "label_len is {label_len}, and a window may have only {least} steps before its horizon; expected at most \
             {least}, or short to be \"pad\", which pads targets"
        )]
        LabelLenShort { label_len: usize, least: usize } is Argument of "label_len",
        #[error("label_len is {label_len}; expected at most input_len + gap, which is {most}")]
        LabelLen { label_len: usize, most: usize } is Argument of "label_len",
        #[error("steps of field {field} are 0 steps apart; expected at least 1")]
        StepsApart { field: String } is Argument,
        #[error("field {field} holds step {step}; expected steps of the window, which has {span}")]
        StepsBeyond { field: String, step: usize, span: usize } is Argument,
    }
}

causes! {
    /// The causes of errors about windows.
    enum WindowsCause {
        #[error("field {field} has {found} rows for {expected} {of}; expected a row for each")]
        Rows { field: String, found: usize, of: &'static str, expected: usize } is Data,
        #[error(
            "series {series} has {length} steps, too few for a window ({count} of {of} series are too short); expected \
             at least {least}, or short to be \"drop\", which leaves such series out, or \"pad\", which makes up \
             targets and marks them in a mask"
        )]
        SeriesTooShort { series: u64, length: usize, least: usize, count: u64, of: u64 } is Data of "short",
        #[error(
            "all {series} series make no window, which needs at least {least} steps; expected longer series, or \
             shorter windows"
        )]
        NoWindows { series: u64, least: usize } is Data,

        #[error(
            "{selected} windows of {windows} were selected, and a split of time has all of its parts; expected to \
             split first"
        )]
        SplitOfSelected { selected: u64, windows: u64 } is Argument,
        #[error("{selected} windows of {windows} were selected; expected labels before they are")]
        LabelsOfSelected { selected: u64, windows: u64 } is Argument,
        #[error("there are {found} parts for {expected} series; expected one part for each series")]
        PartCount { found: usize, expected: usize } is Argument,
        #[error(
            "the part of series {series} goes from step {start} to {end}; expected it to lie in its {length} steps"
        )]
        PartRange { series: usize, start: usize, end: usize, length: usize } is Argument,
        #[error(
            "field {field} has a row for each window, and the part has a window of series {series} at row {row} that \
             is not among them, as the stride is {stride}; expected labels of steps or series, or parts that are \
             selected by the numbers of windows"
        )]
        WithoutLabel { field: String, series: usize, row: usize, stride: usize } is Argument,
        #[error(
            "field {field} has a row for each window, and the part has a window of series {series} at row {row} that \
             is not among them, as it begins with {zeros} steps of zeros; expected labels of steps or series, or parts \
             that are selected by the numbers of windows"
        )]
        PaddedWithoutLabel { field: String, series: usize, row: usize, zeros: usize } is Argument,

        #[error("parts to test on have {found} steps; expected at least {least}, as a window has")]
        BacktestHorizon { found: usize, least: usize } is Argument of "horizon",
        #[error("the stride of a backtest is 0; expected at least 1 step")]
        BacktestStride is Argument of "stride",
        #[error(
            "parts to test on have {found} steps, and at most {most} come after the start; expected at most {most}"
        )]
        BacktestRoom { found: usize, most: usize } is Argument of "horizon",
    }
}

causes! {
    /// The causes of errors about rows with separate times.
    enum TimedCause {
        #[error("field {field} has rows of {found} series, and there are {expected}; expected rows of each series")]
        Series { field: String, found: usize, expected: usize } is Data,
        #[error("field {field} has {rows} rows and {times} times; expected a time for each row, series by series")]
        Rows { field: String, rows: usize, times: usize } is Data,
        #[error(
            "field {field}: {of} {row} of series {series} has no time after the one before it; expected finite times that \
             grow within a series"
        )]
        Times { field: String, of: &'static str, row: usize, series: usize } is Data,
        #[error("offsets of field {field} are none, or not finite; expected at least one finite number")]
        Offsets { field: String } is Argument of "offsets",
        #[error("tolerance of field {field} is negative or not finite; expected a distance")]
        Tolerance { field: String } is Argument of "tolerance",
        #[error("field {field} has no separate times; expected the name of a field that was added with them")]
        Unknown { field: String } is Argument,
        #[error(
            "field {field} has no row for step {step} of series {series}, wanted at {wanted}, and the closest is at \
             {closest} ({missing} of {of} rows are missing); expected rows there, a larger tolerance, or rows that may be \
             missing"
        )]
        NoRow {
            field: String,
            series: usize,
            step: String,
            wanted: String,
            closest: String,
            missing: u64,
            of: u64,
        } is Data of "missing",
    }
}

//! Causes of errors about what a report is asked to compare.

use crate::error::causes;

causes! {
    /// The causes of errors about reports.
    enum ReportCause {
        #[error(
            "an epoch of {rule} costs {cost} with these coefficients of the cost model; expected finite costs: lower \
             fixed, per_token or per_pair"
        )]
        Cost { rule: String, cost: f64 } is Argument,
    }
}

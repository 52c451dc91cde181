//! Causes of errors about ranks that a launcher says.

use crate::error::causes;

causes! {
    /// The causes of errors about ranks.
    enum RanksCause {
        /// The variables of the environment that were looked at.
        #[error(
            "the environment has {found}; expected two integers, RANK below WORLD_SIZE, or neither, or a rank and a \
             world size that are given"
        )]
        Launcher { found: String } is Argument,
    }
}

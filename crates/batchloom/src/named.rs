//! Options as text: one list of names for each enum, which reads it and which an error quotes.

use crate::Error;
use crate::error::causes;

causes! {
    /// The cause of errors about options as text.
    enum NameCause {
        #[error("{option} is {found:?}; expected {expected}")]
        Choice { option: &'static str, found: String, expected: String } is Argument,
    }
}

impl Error {
    /// The error for the text of an option that names no choice, and the texts that do.
    pub(crate) fn no_choice(option: &'static str, text: &str, expected: String) -> Self {
        NameCause::Choice { option, found: text.to_owned(), expected }.into()
    }
}

/// Implements `FromStr` for an option: each of its names, and the choice that it stands for.
macro_rules! named {
    ($kind:ty, $option:literal, { $($name:literal => $choice:ident),+ $(,)? }) => {
        impl std::str::FromStr for $kind {
            type Err = $crate::Error;

            /// Reads the name of a choice.
            ///
            /// # Errors
            /// [`Kind::Argument`](crate::Kind::Argument) for any other text.
            fn from_str(text: &str) -> Result<Self, $crate::Error> {
                match text {
                    $($name => Ok(Self::$choice),)+
                    _ => Err($crate::named::refuse($option, text, &[$($name),+])),
                }
            }
        }
    };
}

pub(crate) use named;

/// The error of a text that is none of the names.
pub(crate) fn refuse(option: &'static str, text: &str, names: &[&str]) -> Error {
    let quoted: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
    let expected = match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, before)) => format!("{} or {last}", before.join(", ")),
        None => String::new(),
    };
    Error::no_choice(option, text, expected)
}

//! `causes!`, by which a folder names the causes of its errors: each with its text, its kind and the facts in it.

/// Defines the causes that a folder raises, and makes an [`Error`](crate::Error) of each.
///
/// A cause is a variant of an enum, its text in the words of `thiserror`, and its kind behind `is`. Values named `sample`,
/// `field` and `option` are what the accessors of an error answer; where the argument at fault is always the same, its
/// name stands behind `of`.
macro_rules! causes {
    (
        $(#[$about:meta])*
        enum $name:ident {
            $(
                $(#[$text:meta])*
                $cause:ident $({ $($value:ident: $type:ty),* $(,)? })? is $kind:ident $(of $argument:literal)?,
            )*
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, thiserror::Error)]
        pub(crate) enum $name {
            $($(#[$text])* $cause $({ $($value: $type),* })?,)*
        }

        impl From<$name> for $crate::Error {
            fn from(cause: $name) -> Self {
                let text = cause.to_string();
                let mut facts = $crate::error::Facts::none();
                let kind = match cause {
                    $($name::$cause $({ $($value),* })? => {
                        facts.option = None$(.or(Some($argument)))?;
                        $($($crate::error::fact!(facts, $value, $value);)*)?
                        $crate::error::Kind::$kind
                    })*
                };
                Self::new(kind, text, facts)
            }
        }
    };
}

/// Keeps a value, if its name is that of a fact.
macro_rules! fact {
    ($facts:ident, sample, $value:ident) => {
        $facts.sample = $value.into();
    };
    ($facts:ident, field, $value:ident) => {
        $facts.field = $value.into();
    };
    ($facts:ident, option, $value:ident) => {
        $facts.option = $value.into();
    };
    ($facts:ident, $other:ident, $value:ident) => {
        _ = &$value;
    };
}

pub(crate) use {causes, fact};

//! Long lists in brief: `Debug` of data tells how much there is of it, not what it is.

use std::fmt::{Debug, Formatter, Result};
use std::sync::{Arc, OnceLock};

/// The most values that are written out.
const MOST: usize = 8;

/// The values that stand for a list that is longer.
const FIRST: usize = 3;

/// A list whose `Debug` is short, however long the list is.
pub(crate) struct Brief<'a, L: ?Sized>(pub(crate) &'a L);

/// A list, or a thing that holds one.
pub(crate) trait Long {
    /// Writes the list, or its beginning and its length.
    fn write(&self, formatter: &mut Formatter<'_>) -> Result;
}

impl<L: Long + ?Sized> Debug for Brief<'_, L> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        self.0.write(formatter)
    }
}

impl<T: Debug> Long for [T] {
    fn write(&self, formatter: &mut Formatter<'_>) -> Result {
        if self.len() <= MOST {
            return formatter.debug_list().entries(self).finish();
        }
        let mut list = formatter.debug_list();
        list.entries(&self[..FIRST]).entry(&format_args!("... {} in all", self.len())).finish()
    }
}

impl<T: Debug> Long for Vec<T> {
    fn write(&self, formatter: &mut Formatter<'_>) -> Result {
        self.as_slice().write(formatter)
    }
}

impl<T: Debug> Long for Arc<[T]> {
    fn write(&self, formatter: &mut Formatter<'_>) -> Result {
        self.as_ref().write(formatter)
    }
}

impl Long for bytes::Bytes {
    fn write(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "{} bytes", self.len())
    }
}

impl<L: Long> Long for Option<L> {
    fn write(&self, formatter: &mut Formatter<'_>) -> Result {
        self.as_ref().map(Brief).fmt(formatter)
    }
}

impl<L: Long> Long for OnceLock<L> {
    fn write(&self, formatter: &mut Formatter<'_>) -> Result {
        self.get().map(Brief).fmt(formatter)
    }
}

impl<A: Debug, L: Long> Long for (A, L) {
    fn write(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.debug_tuple("").field(&self.0).field(&Brief(&self.1)).finish()
    }
}

/// Implements `Debug` for a struct: some fields as they are, and others, which may be long, in brief.
macro_rules! debug_in_brief {
    ($type:ident, [$($whole:ident),*], [$($long:ident),*]) => {
        impl std::fmt::Debug for $type {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter
                    .debug_struct(stringify!($type))
                    $(.field(stringify!($whole), &self.$whole))*
                    $(.field(stringify!($long), &$crate::brief::Brief(&self.$long)))*
                    .finish()
            }
        }
    };
}

pub(crate) use debug_in_brief;

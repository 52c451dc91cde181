//! `BySource`: what forms read, for samples of several sources of data.

use std::sync::Arc;

/// One thing of each source, by the number of the source.
#[derive(Debug, Clone)]
pub(crate) struct BySource<T>(Arc<[T]>);

impl<T> BySource<T> {
    /// The data of several sources.
    pub(crate) fn of_each(each: impl IntoIterator<Item = T>) -> Self {
        Self(each.into_iter().collect())
    }

    /// The one of a source.
    pub(crate) fn of(&self, source: usize) -> &T {
        &self.0[source]
    }

    /// The one of the first source, for what is the same in all.
    pub(crate) fn first(&self) -> &T {
        self.of(0)
    }

    /// The data of all sources, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }
}

impl<T> From<T> for BySource<T> {
    fn from(only: T) -> Self {
        Self::of_each([only])
    }
}

//! `cast`: another form's field in another type. Some members at a time are formed in scratch memory and converted from
//! there, in the same pass: the scratch stays in the cache.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

use super::convert::{Conversion, Unrepresentable};
use super::error::CollateCause;
use super::pad::repeat;
use super::{Form, Members};
use crate::{DType, Error, Result};

/// The number of bytes that are formed at once, unless one member takes more.
const SCRATCH: usize = 64 << 10;

thread_local! {
    static MEMORY: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The field of another form, converted. Padding is an element of the batch: it is not converted, unless that makes the
/// same of it.
#[derive(Debug, Clone)]
pub(crate) struct Cast {
    name: String,
    inner: Arc<dyn Form>,
    conversion: Conversion,
    /// The bytes of one element of padding.
    pad_value: Vec<u8>,
    /// True if padding is to be told from data.
    pads: bool,
}

impl Cast {
    pub(super) fn new(name: &str, inner: Arc<dyn Form>, conversion: Conversion, pad_value: Vec<u8>) -> Self {
        let is_made = inner
            .padding()
            .is_none_or(|padding| padding.value().is_some_and(|value| conversion.makes(value, &pad_value)));
        Self { name: name.to_owned(), inner, conversion, pad_value, pads: !is_made }
    }
}

impl Form for Cast {
    fn dtype(&self) -> DType {
        self.conversion.to
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        self.inner.shape(members)
    }

    fn start(&self, members: &Members, member: usize) -> usize {
        self.inner.start(members, member) / self.conversion.from.size() * self.conversion.to.size()
    }

    fn bands(&self) -> usize {
        self.inner.bands()
    }

    fn is_concatenated(&self) -> bool {
        self.inner.is_concatenated()
    }

    fn sample(&self) -> Vec<Option<usize>> {
        self.inner.sample()
    }

    fn most_elements(&self) -> usize {
        self.inner.most_elements()
    }

    fn is_data(&self) -> bool {
        self.inner.is_data()
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        self.fill_band(members, range, 0, target)
    }

    fn fill_band(
        &self,
        members: &Members,
        range: Range<usize>,
        band: usize,
        target: &mut [u8],
    ) -> Result<()> {
        let mut scratch = Scratch::take();
        let (mut first, mut rest) = (range.start, target);
        while first < range.end {
            let (end, bytes) = self.portion(members, first..range.end);
            let stored = scratch.of(bytes)?;
            self.inner.fill_band(members, first..end, band, stored)?;
            let (part, later) =
                rest.split_at_mut(bytes / self.conversion.from.size() * self.conversion.to.size());
            self.convert(members, first..end, band, stored, part)?;
            (first, rest) = (end, later);
        }
        Ok(())
    }
}

impl Cast {
    /// As many of some members as fit the scratch, at least one: the end of them, and their bytes.
    fn portion(&self, members: &Members, range: Range<usize>) -> (usize, usize) {
        let start = self.inner.start(members, range.start);
        let bytes = |end: usize| self.inner.start(members, end) - start;
        let mut end = range.start + 1;
        if self.inner.is_concatenated() {
            while end < range.end && bytes(end + 1) <= SCRATCH {
                end += 1;
            }
        } else {
            end = range.end.min(range.start + SCRATCH.checked_div(bytes(end)).unwrap_or(range.len()).max(1));
        }
        (end, bytes(end))
    }

    /// Converts the parts of some members in one band.
    fn convert(
        &self,
        members: &Members,
        range: Range<usize>,
        band: usize,
        source: &[u8],
        target: &mut [u8],
    ) -> Result<()> {
        let shape = self.inner.shape(members);
        let (bands, elements) = (self.inner.bands(), source.len() / self.conversion.from.size());
        let (first, stretch) = match bands {
            0 | 1 => (0, self.conversion.stretch(&shape[1..])),
            // The first dimension is the one of bands, of which each has one channel.
            _ => (band / (bands / shape[0].max(1)).max(1) * elements.max(1), elements.max(1)),
        };
        let Some(padding) = self.inner.padding().filter(|_| self.pads) else {
            return self.conversion.convert(source, target, first, stretch).map_err(|refused| {
                let byte =
                    refused.place * self.conversion.from.size() + self.inner.start(members, range.start);
                let member = range.clone().find(|&member| self.inner.start(members, member + 1) > byte);
                self.conversion_error(members, member, refused)
            });
        };
        let (from, to) = (self.conversion.from.size(), self.conversion.to.size());
        let slot: usize = shape[1..].iter().product();
        if slot == 0 {
            return Ok(());
        }
        for ((member, source), target) in
            range.zip(source.chunks(slot * from)).zip(target.chunks_mut(slot * to))
        {
            let (mut end, mut converted) = (0, Ok(()));
            padding.data(members, member, &mut |data| {
                repeat(&self.pad_value, &mut target[end * to..data.start * to]);
                let (source, part) =
                    (&source[data.start * from..data.end * from], data.start * to..data.end * to);
                let outcome = self.conversion.convert(source, &mut target[part], data.start, stretch);
                converted = converted.clone().and(outcome);
                end = data.end;
            });
            repeat(&self.pad_value, &mut target[end * to..]);
            converted.map_err(|refused| self.conversion_error(members, Some(member), refused))?;
        }
        Ok(())
    }

    fn conversion_error(
        &self,
        members: &Members,
        member: Option<usize>,
        Unrepresentable { value, .. }: Unrepresentable,
    ) -> Error {
        let sample = member.and_then(|member| members.samples.get(member)).copied();
        let Conversion { from, to, .. } = self.conversion;
        CollateCause::Unrepresentable { field: self.name.clone(), sample, value, from, to }.into()
    }
}

/// Memory of this thread. Nothing is read before it is written.
struct Scratch(Vec<u8>);

impl Scratch {
    /// The memory of this thread: none where a form below this one has it.
    fn take() -> Self {
        Self(MEMORY.take())
    }

    /// The first `bytes` bytes.
    fn of(&mut self, bytes: usize) -> Result<&mut [u8]> {
        let more = bytes.saturating_sub(self.0.len());
        let failed =
            |reason: std::collections::TryReserveError| Error::out_of_memory(bytes, reason.to_string());
        self.0.try_reserve_exact(more).map_err(failed)?;
        self.0.resize(self.0.len() + more, 0);
        Ok(&mut self.0[..bytes])
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        MEMORY.set(std::mem::take(&mut self.0));
    }
}

//! `Windows`: the places of all windows of a dataset, by number.
//!
//! Windows are counted by a closed form, and a window is found by its number: O(log series) for any window.
//! A window never holds a step of another series, nor one outside its part of the time.

use std::ops::Range;

use super::error::WindowsCause;
use super::shape::{Anchor, SampledBy, Short, WindowShape};
use crate::collate::{Places, WindowPlace};
use crate::dataset::selection::Selection;
use crate::{Result, memory};

/// The places of all windows.
#[derive(Clone)]
pub(crate) struct Windows {
    pub(super) shape: WindowShape,
    /// The rows of every series that windows may take.
    pub(super) series: Vec<Range<usize>>,
    /// The rows of every series that horizons may take: fewer in a part that windows reach back from.
    pub(super) parts: Vec<Range<usize>>,
    /// The series that make windows.
    pub(super) holders: Vec<Holder>,
    /// The number of samples before each holder, and of all samples.
    pub(super) before: Vec<u64>,
    /// The samples that were selected of these, if some were.
    pub(super) selection: Option<Selection>,
}

crate::brief::debug_in_brief!(Windows, [shape, selection], [series, parts, before]);

/// A series that makes windows.
#[derive(Debug, Clone)]
pub(super) struct Holder {
    /// The number of the series.
    pub(super) series: usize,
    /// The number of its windows.
    pub(super) windows: u64,
    /// The rows that its windows may take.
    rows: Range<usize>,
    /// The number of rows before `rows` with which the first window begins, which are zeros: negative if it begins
    /// after their start.
    lead: isize,
}

impl Windows {
    /// The windows of `series` with horizons in `parts`; some parts may have no step of a series if `may_be_absent`.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if a series is too short, or if there is no window.
    pub(super) fn new(
        shape: WindowShape,
        series: Vec<Range<usize>>,
        parts: Vec<Range<usize>>,
        may_be_absent: bool,
    ) -> Result<Self> {
        let mut too_short = Vec::new();
        let mut holders = Vec::with_capacity(series.len());
        for (number, (rows, part)) in series.iter().zip(&parts).enumerate() {
            // A horizon that is padded in front would reach into the rows before the part.
            let leaks = part.start > rows.start && part.len() < shape.horizon;
            let rows = if leaks { part.end..part.end } else { rows.clone() };
            let is_absent = may_be_absent && part.is_empty();
            match Holder::new(&shape, number, rows, part) {
                None if shape.short == Short::Error && !is_absent => too_short.push(number),
                holder => holders.extend(holder),
            }
        }
        if let Some(&first) = too_short.first() {
            return Err(WindowsCause::SeriesTooShort {
                series: first as u64,
                length: if may_be_absent { parts[first].len() } else { series[first].len() },
                least: shape.least_len(),
                count: too_short.len() as u64,
                of: series.len() as u64,
            }
            .into());
        }
        let most = holders.iter().map(|holder| holder.windows).max().unwrap_or(0);
        let mut before = Vec::with_capacity(holders.len() + 1);
        before.push(0_u64);
        for holder in &holders {
            let samples = if shape.sampled_by == SampledBy::Series { most } else { holder.windows };
            before.push(before[before.len() - 1].saturating_add(samples));
        }
        match holders.is_empty() {
            true => {
                Err(WindowsCause::NoWindows { series: series.len() as u64, least: shape.least_len() }.into())
            }
            false => Ok(Self { shape, series, parts, holders, before, selection: None }),
        }
    }

    /// The number of samples.
    pub(crate) fn len(&self) -> u64 {
        self.selection.as_ref().map_or_else(|| self.all(), Selection::len)
    }

    /// The number of samples, selected or not.
    fn all(&self) -> u64 {
        self.before.last().copied().unwrap_or(0)
    }

    /// The number of `sample` among all samples, selected or not.
    fn number(&self, sample: u64) -> u64 {
        self.selection.as_ref().map_or(sample, |selection| selection.get(sample))
    }

    /// The number of different windows.
    ///
    /// # Errors
    /// [`Kind::Memory`](crate::Kind::Memory).
    pub(super) fn count_distinct(&self) -> Result<u64> {
        let Some(selection) = &self.selection else {
            return Ok(self.holders.iter().map(|holder| holder.windows).sum());
        };
        if selection.as_range().is_some() && self.shape.sampled_by == SampledBy::Windows {
            return Ok(selection.len());
        }
        let mut windows = memory::reserve(usize::try_from(self.len()).unwrap_or(usize::MAX))?;
        windows.extend((0..self.len()).map(|sample| self.window(sample)));
        windows.sort_unstable();
        windows.dedup();
        Ok(windows.len() as u64)
    }

    /// The place in `holders` of the series that makes `sample`, and the number of the window in it. Windows are
    /// repeated if every series counts the same.
    pub(super) fn window(&self, sample: u64) -> (usize, u64) {
        self.locate(self.number(sample))
    }

    /// The same for a sample by its number among all samples.
    fn locate(&self, sample: u64) -> (usize, u64) {
        let holder = match self.holders.len() {
            1 => 0,
            _ => self.before.partition_point(|&before| before <= sample) - 1,
        };
        (holder, (sample - self.before[holder]) % self.holders[holder].windows)
    }

    /// The series of `sample`.
    pub(super) fn series_of(&self, sample: u64) -> usize {
        self.holders[self.window(sample).0].series
    }

    /// The series of `sample`, and its place.
    pub(super) fn find_series(&self, sample: u64) -> (usize, WindowPlace) {
        let (holder, window) = self.window(sample);
        (self.holders[holder].series, self.at(holder, window))
    }

    /// The number of series with one window that begins with zeros, because they are shorter than a window.
    pub(super) fn count_padded(&self) -> usize {
        let least = self.shape.least_span();
        self.holders.iter().filter(|holder| holder.rows.len() < least).count()
    }

    /// The place of window `window` of the series at `holder`.
    fn at(&self, holder: usize, window: u64) -> WindowPlace {
        self.holders[holder].place(&self.shape, window)
    }

    /// The sample that is the window of `series` which begins with `row`, or `None` if there is no such window. Of
    /// repeated windows, the first.
    pub(super) fn sample_at(&self, series: usize, row: isize) -> Option<u64> {
        let holder = self.holders.binary_search_by_key(&series, |holder| holder.series).ok()?;
        let window = self.holders[holder].window_at(&self.shape, row)?;
        let number = self.before[holder] + window;
        match &self.selection {
            None => Some(number),
            Some(selection) => (0..selection.len()).find(|&sample| selection.get(sample) == number),
        }
    }

    /// The rows that the samples `samples` cover. O(log series).
    ///
    /// Series lie one after the other, and so do the windows of one, so the first row belongs to the first series and
    /// the last row to the last. If windows repeat, all windows of these two series are covered.
    pub(super) fn find_covered(&self, samples: Range<usize>) -> Range<usize> {
        if samples.is_empty() {
            return 0..0;
        }
        let samples = match &self.selection {
            None => samples,
            Some(selection) => {
                let index = |number| usize::try_from(number).unwrap_or(usize::MAX);
                let numbers = samples.map(|sample| index(selection.get(sample as u64)));
                numbers.clone().min().unwrap_or(0)..numbers.max().map_or(0, |last| last + 1)
            }
        };
        self.find_covered_by(samples)
    }

    /// The same for samples by their numbers among all samples.
    fn find_covered_by(&self, samples: Range<usize>) -> Range<usize> {
        let (first, from) = self.locate(samples.start as u64);
        let (last, to) = self.locate(samples.end as u64 - 1);
        let (from, to) = match self.shape.sampled_by {
            SampledBy::Windows => (from, to),
            SampledBy::Series if first == last && to >= from && to - from == samples.len() as u64 - 1 => {
                (from, to)
            }
            SampledBy::Series => (0, self.holders[last].windows - 1),
        };
        self.at(first, from).row..self.at(last, to).last(&self.shape)
    }

    /// The largest number of rows that `samples` neighbouring samples cover, of `rows` in all.
    ///
    /// Moving on by a window moves both ends alike, unless the last sample enters another series, which adds the rows
    /// in between. So the most rows are covered by samples that end with the first window of a series, or begin the
    /// first series. Windows that begin before their series or end after it cover fewer rows than their neighbours, by
    /// `lead` and `trail` at most.
    pub(super) fn most_covered(&self, samples: usize, rows: usize) -> usize {
        if self.selection.as_ref().is_some_and(|selection| selection.as_range().is_none()) {
            return rows;
        }
        let all = usize::try_from(self.all()).unwrap_or(usize::MAX);
        let samples = samples.min(all);
        if samples == 0 {
            return 0;
        }
        let begin = |before: &u64| usize::try_from(*before).unwrap_or(usize::MAX);
        let entering = self.before.iter().map(begin).filter(|&entered| entered < all);
        let starts = entering
            .flat_map(|entered| [(entered + 1).saturating_sub(samples), entered])
            .map(|start| start.min(all - samples));
        let neighbours = starts.map(|start| self.find_covered_by(start..start + samples).len());
        let hidden = self.shape.lead.saturating_add(self.shape.trail);
        // Two samples of a series whose windows repeat may be its last window and its first, and cover all between.
        let most = self.holders.iter().map(|holder| holder.windows).max().unwrap_or(0);
        let repeats = |holder: &&Holder| {
            self.shape.sampled_by == SampledBy::Series && samples > 1 && holder.windows < most
        };
        let whole = self.holders.iter().filter(repeats).map(|holder| {
            let last = holder.place(&self.shape, holder.windows - 1).last(&self.shape);
            last - holder.place(&self.shape, 0).row
        });
        let most = neighbours.map(|covered| covered.saturating_add(hidden)).chain(whole).max().unwrap_or(0);
        most.min(rows)
    }

    /// Returns true if the samples `start..end` are one strided view: in one series, at equal distances, without zeros.
    pub(crate) fn is_view(&self, start: u64, end: u64) -> bool {
        if start >= end {
            return false;
        }
        if let Some(selection) = self.selection.as_ref().filter(|selection| selection.as_range().is_none()) {
            let first = selection.get(start);
            if !(start..end).zip(first..).all(|(sample, number)| selection.get(sample) == number) {
                return false;
            }
        }
        let ((first, window), (last, last_window)) = (self.window(start), self.window(end - 1));
        first == last
            && last_window.checked_sub(window) == Some(end - 1 - start)
            && self.at(first, window).is_whole(&self.shape)
            && self.at(last, last_window).is_whole(&self.shape)
    }
}

impl Places for Windows {
    fn place(&self, sample: u64) -> WindowPlace {
        let (holder, window) = self.window(sample);
        self.at(holder, window)
    }
}

impl WindowPlace {
    /// The row with which the window begins; it may lie before its series.
    pub(super) fn begin(self) -> isize {
        self.row.cast_signed() - self.missing.cast_signed()
    }

    /// The row after the last one that exists of a window.
    fn last(self, shape: &WindowShape) -> usize {
        self.row.saturating_add(shape.span().saturating_sub(self.missing)).min(self.end)
    }

    /// Returns true if all steps of the window exist.
    fn is_whole(self, shape: &WindowShape) -> bool {
        self.missing == 0 && self.row.saturating_add(shape.span()) <= self.end
    }
}

impl Holder {
    /// The windows of the series `number` in these rows, or `None` if it is too short for one. Horizons lie in `part`.
    fn new(shape: &WindowShape, number: usize, rows: Range<usize>, part: &Range<usize>) -> Option<Self> {
        let (length, span) = (rows.len(), shape.span());
        if length < shape.least_span() {
            let least = if shape.short == Short::Pad { 1 } else { shape.least_len() };
            let lead = (span - length).cast_signed();
            return (length >= least).then_some(Self { series: number, windows: 1, rows, lead });
        }
        // A window that begins before its series has a horizon in the part all the same.
        let reached = (rows.start + shape.context()).cast_signed() - part.start.cast_signed();
        let lead = match rows.start < part.start {
            true => shape.lead.cast_signed().min(reached),
            false => shape.lead.cast_signed(),
        };
        // The steps from the first window to the last one.
        let rest = ((length + shape.trail).cast_signed() + lead - span.cast_signed()).cast_unsigned();
        let skipped = if shape.anchor == Anchor::End { rest % shape.stride } else { 0 };
        let windows = (rest / shape.stride) as u64 + 1;
        Some(Self { series: number, windows, rows, lead: lead - skipped.cast_signed() })
    }

    /// The place of window `window`.
    pub(super) fn place(&self, shape: &WindowShape, window: u64) -> WindowPlace {
        let steps = usize::try_from(window).unwrap_or(usize::MAX).saturating_mul(shape.stride);
        let late = isize::try_from(steps).unwrap_or(isize::MAX).saturating_sub(self.lead);
        let row = self.rows.start.saturating_add(late.max(0).cast_unsigned());
        WindowPlace { row, missing: late.min(0).unsigned_abs(), end: self.rows.end }
    }

    /// The row with which the first window begins; it may lie before the series.
    pub(super) fn first(&self) -> isize {
        self.rows.start.cast_signed() - self.lead
    }

    /// The number of the window that begins with `row`.
    pub(super) fn window_at(&self, shape: &WindowShape, row: isize) -> Option<u64> {
        let steps = usize::try_from(row.checked_sub(self.first())?).ok()?;
        let window = (steps / shape.stride) as u64;
        (steps.is_multiple_of(shape.stride) && window < self.windows).then_some(window)
    }
}

//! Rows with separate times beside the windows: a window holds, for each of some offsets, the row that is valid at
//! the time of its anchor plus the offset.
//!
//! Promises: a row is found by exact comparisons when a batch is formed, and no index of rows is stored. A part of a split
//! finds what the same series would hold if they ended with the part: no row from its end on.

use std::fmt::{Debug, Formatter};
use std::ops::Range;
use std::sync::Arc;

use super::error::{TimedCause, WindowsCause};
use super::places::Windows;
use super::search::{Match, Search, Tick};
use crate::brief::Brief;
use crate::collate::{FindRows, Form, Found, FoundMask, FoundRows, WindowPlace};
use crate::dataset::collation::CollateOptions;
use crate::{ChunkedTensor, Result, Tensor};

/// The treatment of a window that lacks a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Missing {
    /// No dataset is made: the error names the first such window, and counts the rows.
    #[default]
    Error,
    /// The row is zeros, or what a loader pads with. Batches should hold the [mask](crate::WindowDataset::timed_mask).
    Pad,
    /// The caller refuses such windows: [`first_missing`](crate::WindowDataset::first_missing) is the first one.
    #[doc(hidden)]
    Checked,
}

/// The clock of rows that have separate times, and the rows that a window holds of them.
///
/// The time of a window is the time of its anchor: the last step of its input, unless [`anchor`](Self::anchor) names
/// another step. Times are `i64`, whose sums are exact, or `f64`, which are compared as their sums are rounded.
///
/// ```
/// use batchloom::dataset::{Match, Missing, Timed, WindowShape};
/// use batchloom::{Tensor, WindowDataset};
///
/// let steps = Tensor::from_vec((0..10_i64).map(|step| step * 10).collect(), &[10])?; // a step every 10 ms
/// let frames = Tensor::from_vec(vec![1_u8, 2, 3], &[3])?;
/// let times = Tensor::from_vec(vec![5_i64, 38, 71], &[3])?;
/// let clock = Timed::new(steps, times, &[0, 3], &[-33_i64, 0]).matching(Match::Last).missing(Missing::Pad);
/// let dataset = WindowDataset::new(&[0, 10], WindowShape::new(1))?;
/// let dataset = dataset.input("state", Tensor::from_vec(vec![0_f32; 10], &[10])?)?.timed("frame", frames, clock)?;
/// let sample = batchloom::dataset::Dataset::from(dataset).sample(4)?; // at 40 ms: the frames valid at 7 and at 40
/// assert_eq!((sample[1].0.as_str(), sample[1].1.as_slice::<u8>()), ("frame", Some(&[1, 2][..])));
/// # Ok::<(), batchloom::Error>(())
/// ```
#[derive(Clone)]
pub struct Timed<T> {
    steps: Tensor,
    times: Tensor,
    series: Arc<[usize]>,
    offsets: Arc<[T]>,
    search: Search<T>,
    missing: Missing,
    pub(super) anchor: Option<usize>,
}

impl<T: Debug> Debug for Timed<T> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Timed")
            .field("times", &self.times)
            .field("series", &Brief(&self.series))
            .field("offsets", &Brief(&self.offsets))
            .field("search", &self.search)
            .field("missing", &self.missing)
            .field("anchor", &self.anchor)
            .finish_non_exhaustive()
    }
}

impl<T: Tick> Timed<T> {
    /// Rows of series `k` are `series[k]..series[k + 1]`, at the times `times`; `steps` has the time of each step of the
    /// windows. A window holds a row for each of `offsets`.
    pub fn new(steps: Tensor, times: Tensor, series: &[usize], offsets: &[T]) -> Self {
        let search = Search { matching: Match::default(), tolerance: None };
        let (series, offsets) = (series.into(), offsets.into());
        Self { steps, times, series, offsets, search, missing: Missing::default(), anchor: None }
    }

    /// Sets the row that is valid at a time. Default: the last one.
    #[must_use]
    pub fn matching(self, matching: Match) -> Self {
        Self { search: Search { matching, ..self.search }, ..self }
    }

    /// Sets the greatest distance from a time at which a row is valid. Default: any.
    #[must_use]
    pub fn tolerance(self, tolerance: Option<T>) -> Self {
        Self { search: Search { tolerance, ..self.search }, ..self }
    }

    /// Sets the treatment of windows that lack a row. Default: an error.
    #[must_use]
    pub fn missing(self, missing: Missing) -> Self {
        Self { missing, ..self }
    }

    /// Sets the step of a window at which its time is read. Default: the last step of its input.
    #[must_use]
    pub fn anchor(self, anchor: usize) -> Self {
        Self { anchor: Some(anchor), ..self }
    }

    /// The numbers of an array of times.
    fn ticks(array: &Tensor) -> &[T] {
        // Arrays that are none are refused when the field is added.
        array.as_slice().unwrap_or(&[])
    }

    /// Refuses what makes no clock for the field `field` with these rows, beside series with the offsets `series`.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) or [`Kind::Argument`](crate::Kind::Argument), with what was found.
    fn check(&self, field: &str, rows: usize, series: &[usize]) -> Result<()> {
        let field = || field.to_owned();
        if self.series.len() != series.len() {
            let (found, expected) = (self.series.len().saturating_sub(1), series.len() - 1);
            return Err(TimedCause::Series { field: field(), found, expected }.into());
        }
        let grow = self.series.first() == Some(&0) && self.series.is_sorted();
        let (times, ends) = (self.times.shape().iter().product(), self.series.last().copied());
        if !grow || times != rows || ends != Some(rows) {
            return Err(TimedCause::Rows { field: field(), rows, times }.into());
        }
        let (steps, expected) = (self.steps.shape().iter().product(), series[series.len() - 1]);
        if steps != expected {
            return Err(WindowsCause::Rows { field: field(), found: steps, of: "steps", expected }.into());
        }
        for (of, array, offsets) in [("row", &self.times, &*self.series), ("step", &self.steps, series)] {
            let ticks: &[T] = array.try_as_slice()?;
            for (series, pair) in offsets.windows(2).enumerate() {
                let ticks = &ticks[pair[0]..pair[1]];
                let wrong = ticks.iter().position(|tick| !tick.is_finite());
                let late = ticks.windows(2).position(|pair| pair[1] <= pair[0]).map(|row| row + 1);
                if let Some(row) = wrong.or(late) {
                    return Err(TimedCause::Times { field: field(), of, row, series }.into());
                }
            }
        }
        if self.offsets.is_empty() || self.offsets.iter().any(|offset| !offset.is_finite()) {
            return Err(TimedCause::Offsets { field: field() }.into());
        }
        let is_distance = |tolerance: T| {
            tolerance.is_finite() && T::distance(tolerance.moment(), tolerance.moment()) <= tolerance.moment()
        };
        match self.search.tolerance.is_none_or(is_distance) {
            true => Ok(()),
            false => Err(TimedCause::Tolerance { field: field() }.into()),
        }
    }
}

/// A clock, whatever numbers it shows.
trait Clock: Send + Sync {
    /// The number of offsets.
    fn count(&self) -> usize;

    /// Returns true if a row may be too far from a time.
    fn has_tolerance(&self) -> bool;

    /// The number of the rows `rows`, of one series, before the time of a step.
    fn count_before(&self, rows: &Range<usize>, step: usize) -> usize;

    /// Replaces `found` by the row for each offset at the time of a step, of the rows `rows` of its series. `guess` is
    /// close to the first of them, counted within `rows`, and becomes so for the next step.
    fn find(&self, step: usize, rows: &Range<usize>, guess: &mut usize, found: &mut Vec<Found>);

    /// The time that is wanted for an offset at a step, and the closest time of the rows `rows`, as text, with its row.
    fn describe(&self, step: usize, rows: &Range<usize>, offset: usize) -> (String, Option<(usize, String)>);
}

impl<T: Tick> Clock for Timed<T> {
    fn count(&self) -> usize {
        self.offsets.len()
    }

    fn has_tolerance(&self) -> bool {
        self.search.tolerance.is_some()
    }

    fn count_before(&self, rows: &Range<usize>, step: usize) -> usize {
        let time = Self::ticks(&self.steps)[step];
        Self::ticks(&self.times)[rows.clone()].partition_point(|row| *row < time)
    }

    fn find(&self, step: usize, rows: &Range<usize>, guess: &mut usize, found: &mut Vec<Found>) {
        let (now, times) = (Self::ticks(&self.steps)[step], &Self::ticks(&self.times)[rows.clone()]);
        let mut close = *guess;
        found.clear();
        found.extend(self.offsets.iter().enumerate().map(|(place, &offset)| {
            let row = self.search.find(times, now.after(offset), &mut close);
            if place == 0 {
                *guess = close;
            }
            match row {
                Found::Row(row) => Found::Row(rows.start + row),
                Found::Absent(nearest) => Found::Absent(nearest.map(|row| rows.start + row)),
            }
        }));
    }

    fn describe(&self, step: usize, rows: &Range<usize>, offset: usize) -> (String, Option<(usize, String)>) {
        let wanted = Self::ticks(&self.steps)[step].after(self.offsets[offset]);
        let times = &Self::ticks(&self.times)[rows.clone()];
        let closest = Search { matching: Match::Nearest, tolerance: None }.find(times, wanted, &mut 0);
        let closest = match closest {
            Found::Row(row) => Some((rows.start + row, times[row].moment().to_string())),
            Found::Absent(_) => None,
        };
        (wanted.to_string(), closest)
    }
}

/// A field of rows with separate times.
#[derive(Clone)]
pub(super) struct TimedField {
    pub(super) name: String,
    /// The name of the mask, if batches hold one.
    pub(super) mask: Option<String>,
    pub(super) values: ChunkedTensor,
    clock: Arc<dyn Clock>,
    pub(super) missing: Missing,
    anchor: usize,
    /// The rows of each series that windows may take.
    rows: Arc<[Range<usize>]>,
}

crate::brief::debug_in_brief!(TimedField, [name, mask, missing, anchor], [rows]);

impl TimedField {
    /// The field `name` of the rows `values`, `rows` of them, beside series with the offsets `series`. Times are read at
    /// the step `anchor` of a window.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if arrays disagree, or if times do not grow;
    /// [`Kind::Argument`](crate::Kind::Argument) if offsets or tolerance make no sense.
    pub(super) fn new<T: Tick>(
        name: String,
        values: ChunkedTensor,
        timed: Timed<T>,
        series: &[usize],
        anchor: usize,
    ) -> Result<Self> {
        timed.check(&name, values.shape().first().copied().unwrap_or(0), series)?;
        let rows = timed.series.windows(2).map(|pair| pair[0]..pair[1]).collect();
        let missing = timed.missing;
        Ok(Self { name, mask: None, values, clock: Arc::new(timed), missing, anchor, rows })
    }

    /// The finder of the rows of windows.
    pub(super) fn finder(&self, windows: &Arc<Windows>) -> Arc<dyn FindRows> {
        Arc::new(Finder {
            windows: Arc::clone(windows),
            clock: Arc::clone(&self.clock),
            rows: Arc::clone(&self.rows),
            anchor: self.anchor,
        })
    }

    /// The fields of a batch: the rows, and the mask.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if the bytes of a padding value are not those of an element.
    pub(super) fn forms(
        &self,
        finder: &Arc<dyn FindRows>,
        options: &CollateOptions,
    ) -> Result<Vec<(String, Arc<dyn Form>)>> {
        let (values, fill) = (self.values.clone(), options.window_fill(&self.name, self.values.dtype())?);
        let pads = self.missing == Missing::Pad;
        let rows = FoundRows { values, finder: Arc::clone(finder), fill, pads };
        let mut fields: Vec<(String, Arc<dyn Form>)> = vec![(self.name.clone(), Arc::new(rows))];
        let mask = self.mask.iter().map(|name| (name.clone(), Arc::new(FoundMask(Arc::clone(finder))) as _));
        fields.extend(mask);
        Ok(fields)
    }

    /// The same field for windows in a part of the series at `offsets`. Rows from the end of a part on are left out, and
    /// rows before it where windows may not reach back.
    pub(super) fn within(&self, offsets: &[usize], part: &[Range<usize>], reaches_back: bool) -> Self {
        let narrow = |((rows, part), series): ((&Range<usize>, &Range<usize>), &[usize])| {
            if part.is_empty() {
                return rows.start..rows.start;
            }
            let before = |step| rows.start + self.clock.count_before(rows, step);
            let start = if reaches_back || part.start == series[0] { rows.start } else { before(part.start) };
            let end = if part.end == series[1] { rows.end } else { before(part.end) };
            start..end.max(start)
        };
        let series = self.rows.iter().zip(part).zip(offsets.windows(2));
        Self { rows: series.map(narrow).collect(), ..self.clone() }
    }

    /// The first row that windows lack, and the number of such rows.
    pub(super) fn first_missing(&self, windows: &Windows, offsets: &[usize]) -> Option<MissingRow> {
        let (mut found, mut first, mut count, mut of) = (Vec::new(), None, 0, 0);
        for holder in &windows.holders {
            let (rows, mut guess) = (&self.rows[holder.series], 0);
            of += holder.windows * self.clock.count() as u64;
            for window in 0..holder.windows {
                let place = holder.place(&windows.shape, window);
                let step = find_anchor(place, self.anchor);
                match step {
                    Some(step) => self.clock.find(step, rows, &mut guess, &mut found),
                    None => {
                        found.clear();
                        found.resize(self.clock.count(), Found::Absent(None));
                    }
                }
                let is_absent = |found: &&Found| matches!(found, Found::Absent(_));
                let absent = found.iter().filter(is_absent).count();
                if absent == 0 && !self.clock.has_tolerance() {
                    break; // Later windows have rows too: times grow.
                }
                count += absent as u64;
                if absent > 0 && first.is_none() {
                    let offset = found.iter().position(|found| is_absent(&found)).unwrap_or(0);
                    first = Some((holder.series, step, offset));
                }
            }
        }
        let (series, step, offset) = first?;
        let described = step.map(|step| self.clock.describe(step, &self.rows[series], offset));
        let (wanted, closest) = described.unzip();
        let closest = closest.flatten();
        Some(MissingRow {
            field: self.name.clone(),
            series,
            step: step.map(|step| step - offsets[series]),
            offset,
            wanted,
            closest,
            missing: count,
            of,
        })
    }
}

/// A row that a window lacks, the first of several.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MissingRow {
    /// The field.
    pub field: String,
    /// The series of the window.
    pub series: usize,
    /// The step of the anchor in the series. `None` if the anchor lies before the series.
    pub step: Option<usize>,
    /// The place of the offset.
    pub offset: usize,
    /// The time that has no row. `None` without an anchor.
    pub wanted: Option<String>,
    /// The closest row among all rows, and its time. `None` if there is no row.
    pub closest: Option<(usize, String)>,
    /// The number of rows that windows lack.
    pub missing: u64,
    /// The number of rows that windows hold.
    pub of: u64,
}

impl From<MissingRow> for crate::Error {
    fn from(row: MissingRow) -> Self {
        let none = |text: Option<String>| text.unwrap_or_else(|| "no time".to_owned());
        TimedCause::NoRow {
            field: row.field,
            series: row.series,
            step: row.step.map_or_else(|| "no".to_owned(), |step| step.to_string()),
            wanted: none(row.wanted),
            closest: none(row.closest.map(|(_, time)| time)),
            missing: row.missing,
            of: row.of,
        }
        .into()
    }
}

/// The row of the anchor of a window, if its series has it.
fn find_anchor(place: WindowPlace, anchor: usize) -> Option<usize> {
    let row = place.row + anchor.checked_sub(place.missing)?;
    (row < place.end).then_some(row)
}

/// Finds the rows of windows by their clock.
struct Finder {
    windows: Arc<Windows>,
    clock: Arc<dyn Clock>,
    rows: Arc<[Range<usize>]>,
    anchor: usize,
}

crate::brief::debug_in_brief!(Finder, [windows, anchor], [rows]);

impl FindRows for Finder {
    fn count(&self) -> usize {
        self.clock.count()
    }

    fn find(&self, window: u64, found: &mut Vec<Found>) {
        let (series, place) = self.windows.find_series(window);
        let rows = &self.rows[series];
        if let Some(step) = find_anchor(place, self.anchor) {
            return self.clock.find(step, rows, &mut (rows.len() / 2), found);
        }
        // A window without a time ends before the first row.
        found.clear();
        found.resize(self.count(), Found::Absent(rows.clone().next()));
    }
}

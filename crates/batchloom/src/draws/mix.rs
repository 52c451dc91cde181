//! `Mix`: several sources of samples in one epoch, drawn in proportion to their weights.
//!
//! Each source has its own permutations, from epoch to epoch, so that none of its samples is drawn again before all of
//! them were drawn. Sources take turns by weight, sample for sample; or by a measure of samples (their tokens, their
//! labels), so that shares hold for what is measured.

use std::sync::Arc;

use serde::{Serialize, Serializer};
use xxhash_rust::xxh3::xxh3_128;

use super::error::DrawsCause;
use super::history::{History, Schedule};
use super::source_window::{Passes, SourceWindow};
use super::stream::Stream;
use crate::named::named;
use crate::{Result, memory};

/// The most bytes for each chunk that the orders of a source take.
const ORDER_BYTES: usize = 48;

/// The end of an epoch of several sources.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Exhausted {
    /// The epoch ends when a source has been gone through once. Others go on in the next epoch where they stopped.
    #[default]
    Stop,
    /// The epoch ends when every source has been gone through at least once. Smaller ones are repeated.
    Repeat,
    /// The epoch has every sample once. When a source is exhausted, the remaining sources share the rest by their
    /// weights.
    Renormalise,
}

impl Exhausted {
    /// The name of this choice in Python.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Repeat => "repeat",
            Self::Renormalise => "renormalise",
        }
    }
}

named!(Exhausted, "when_exhausted", {
    "stop" => Stop,
    "repeat" => Repeat,
    "renormalise" => Renormalise,
});

/// Sources of samples and their weights.
///
/// The samples of a plan are the samples of the first source, then of the second, and so on.
///
/// ```
/// use batchloom::Plan;
/// use batchloom::draws::Mix;
///
/// // 1000 samples of the web and 100 of books, one in four from books.
/// let mix = Mix::new(&[1000, 100], &[0.75, 0.25])?;
/// let plan = Plan::builder(1100).mix(mix).shuffle(true).batch_size(8).build()?;
/// let books = |batch: Vec<u64>| batch.into_iter().filter(|&sample| sample >= 1000).count();
/// assert_eq!(plan.steps(), 50);
/// assert_eq!((0..50).map(|step| plan.indices(step, 0).map(books)).sum::<Result<usize, _>>()?, 100);
/// # Ok::<(), batchloom::Error>(())
/// ```
#[derive(Clone)]
pub struct Mix {
    /// The number of samples before each source, and of all samples.
    before: Arc<[u64]>,
    history: History,
    exhausted: Exhausted,
    /// The measure of turns: its name, and the size of each sample. Samples count the same without it.
    measure: Option<(String, Arc<[u32]>)>,
    /// The samples of the sources, one source after the other, if they do not lie in that order.
    members: Option<Arc<[u32]>>,
    /// The names of the sources, if they have some.
    names: Option<Arc<[String]>>,
    /// The window of each source that is read chunk by chunk, if some are.
    windows: Option<Arc<[Option<SourceWindow>]>>,
}

crate::brief::debug_in_brief!(Mix, [history, exhausted, names], [before, measure, members, windows]);

impl Mix {
    /// Sources with `counts` samples, and their weights.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if there is not one weight for each source, or one is negative,
    /// infinite or not a number, or none is above 0, or if a source of a weight above 0 has no samples.
    pub fn new(counts: &[u64], weights: &[f64]) -> Result<Self> {
        if counts.len() != weights.len() {
            return Err(DrawsCause::WeightCount { found: weights.len(), sources: counts.len() }.into());
        }
        let ends = counts.iter().scan(0_u64, |end, &count| {
            *end = end.saturating_add(count);
            Some(*end)
        });
        let before = std::iter::once(0).chain(ends).collect();
        let history = History::new(weights)?;
        let mix = Self {
            before,
            history,
            exhausted: Exhausted::default(),
            measure: None,
            members: None,
            names: None,
            windows: None,
        };
        mix.require("samples", |source| mix.count(source) > 0)?;
        Ok(mix)
    }

    /// Gives sources other weights once the run has drawn some amounts, over all epochs: in samples, or in what is
    /// measured. Each change is an amount, and the weights from there on.
    ///
    /// ```
    /// use batchloom::Plan;
    /// use batchloom::draws::Mix;
    ///
    /// // Books are drawn after 200 samples.
    /// let mix = Mix::new(&[1000, 100], &[1.0, 0.0])?.schedule(&[(200, vec![1.0, 1.0])])?;
    /// let plan = Plan::builder(1100).mix(mix).shuffle(true).batch_size(100).build()?;
    /// let books = |step| plan.indices(step, 0).unwrap().iter().filter(|&&sample| sample >= 1000).count();
    /// assert_eq!([books(0), books(1), books(2), books(3)], [0, 0, 50, 50]);
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if amounts do not increase, or weights are not as those of
    /// [`new`](Self::new), or if a source of a weight above 0 has nothing to draw.
    pub fn schedule(self, changes: &[(u64, Vec<f64>)]) -> Result<Self> {
        let mix = Self { history: self.history.with_schedule(changes)?, ..self };
        mix.require("samples", |source| mix.count(source) > 0)?;
        mix.require_measured()?;
        Ok(mix)
    }

    /// Checks that sources of some weight, at any time, have something.
    fn require(&self, what: &str, has: impl Fn(usize) -> bool) -> Result<()> {
        let is_drawn = |source: usize| self.history.ratios().any(|ratios| ratios[source] > 0);
        match (0..self.len()).find(|&source| is_drawn(source) && !has(source)) {
            None => Ok(()),
            Some(source) => {
                let (name, what) = (self.name(source), what.to_owned());
                Err(DrawsCause::EmptySource { name, what }.into())
            }
        }
    }

    fn require_measured(&self) -> Result<()> {
        let Some((by, sizes)) = &self.measure else { return Ok(()) };
        let of = |source: usize| &sizes[index(self.before[source])..index(self.before[source + 1])];
        self.require(by, |source| of(source).iter().any(|&size| size > 0))
    }

    /// The classes of samples as sources of equal weight: batches of a fixed size hold each class equally often, to
    /// one. `classes` has the number of the class of each sample.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if there are no samples, or 2^32 of them;
    /// [`Kind::Memory`](crate::Kind::Memory).
    pub fn balanced(classes: &[i64]) -> Result<Self> {
        let samples = u32::try_from(classes.len()).ok().filter(|&samples| samples > 0);
        let samples = samples.ok_or(DrawsCause::Classes { found: classes.len(), limit: u32::MAX })?;
        // The samples, what sorting takes, and the number of samples of each class, at most one.
        memory::require_each(classes.len(), 4 * size_of::<u32>() + 2 * size_of::<u64>())?;
        let mut members: Vec<u32> = (0..samples).collect();
        let class = |&sample: &u32| classes[usize::try_from(sample).unwrap_or(usize::MAX)];
        members.sort_by_key(class);
        let counts: Vec<u64> =
            members.chunk_by(|a, b| class(a) == class(b)).map(|same| same.len() as u64).collect();
        let mix = Self::new(&counts, &vec![1.0; counts.len()])?;
        Ok(Self { members: Some(members.into()), exhausted: Exhausted::Repeat, ..mix })
    }

    /// Lets sources take turns by `sizes`, how much each sample has of what is measured, instead of by samples. `by` is
    /// its name, which is part of fingerprints.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if there is not one size for each sample, if a source of a weight
    /// above 0 has nothing of it, or if there are 2^32 samples.
    pub fn measured(mut self, by: &str, sizes: impl Into<Arc<[u32]>>) -> Result<Self> {
        let sizes = sizes.into();
        if sizes.len() as u64 != self.samples() || u32::try_from(sizes.len()).is_err() {
            let (by, count, samples) = (by.to_owned(), sizes.len(), self.samples());
            return Err(DrawsCause::Measures { by, found: count, samples }.into());
        }
        self.measure = Some((by.to_owned(), sizes));
        self.require_measured()?;
        Ok(self)
    }

    /// Gives sources names, which become part of fingerprints: a state continues with sources of the same names, in the
    /// same order.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if there is not one name for each source.
    pub fn named(self, names: &[String]) -> Result<Self> {
        match names.len() == self.len() {
            true => Ok(Self { names: Some(names.into()), ..self }),
            false => Err(DrawsCause::NameCount { found: names.len(), sources: self.len() }.into()),
        }
    }

    /// Reads sources chunk by chunk, each in a window over its own chunks; `None` for a source with samples that can be
    /// read one by one, which is shuffled whole. Chunks are numbered source by source.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if there is not one window for each source, if no chunk is open, or if
    /// chunks do not hold the samples of their source; [`Kind::Memory`](crate::Kind::Memory).
    pub fn in_chunks(self, windows: Vec<Option<SourceWindow>>) -> Result<Self> {
        if windows.len() != self.len() {
            return Err(DrawsCause::WindowCount { found: windows.len(), sources: self.len() }.into());
        }
        for (source, window) in windows.iter().enumerate() {
            let Some(SourceWindow { chunks, open }) = window else { continue };
            let (found, samples) = (chunks.samples(), self.count(source));
            if found != samples {
                let (name, chunks) = (self.name(source), chunks.len());
                return Err(DrawsCause::SourceChunks { name, found, chunks, samples }.into());
            }
            if *open == 0 {
                return Err(DrawsCause::NothingOpen { name: self.name(source) }.into());
            }
            memory::require(index(chunks.len()).saturating_mul(ORDER_BYTES))?;
        }
        let is_read = windows.iter().any(Option::is_some);
        Ok(Self { windows: is_read.then(|| windows.into()), ..self })
    }

    /// The window of each source that is read chunk by chunk, if some are.
    pub fn windows(&self) -> Option<&[Option<SourceWindow>]> {
        self.windows.as_deref()
    }

    /// Returns true if a source is read chunk by chunk.
    pub(crate) fn is_in_chunks(&self) -> bool {
        self.windows.is_some()
    }

    /// The number of chunks of all sources, and the number of them that are mixed at a time: 0 if no source has chunks.
    pub(crate) fn count_chunks(&self) -> (u64, u64) {
        let windows = self.windows.iter().flat_map(|windows| windows.iter()).flatten();
        windows.fold((0, 0), |(chunks, open), window| {
            (chunks + window.chunks.len(), open.saturating_add(window.open.min(window.chunks.len())))
        })
    }

    /// The chunk that holds a sample, numbered source by source, if it is read with one.
    pub(crate) fn chunk_of(&self, sample: u64) -> Option<u64> {
        let (windows, (source, number)) = (self.windows.as_ref()?, self.origin(sample)?);
        let before: u64 = windows[..source].iter().flatten().map(|window| window.chunks.len()).sum();
        Some(before + windows[source].as_ref()?.chunks.chunk_of(number))
    }

    /// Refuses epochs of more draws than can be listed, where these are listed.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if the sources make no sense.
    pub(crate) fn check_length(&self) -> Result<()> {
        let Some((by, sizes)) = &self.measure else { return Ok(()) };
        let total = |source: usize| -> f64 {
            let sizes = &sizes[index(self.before[source])..index(self.before[source + 1])];
            sizes.iter().map(|&size| f64::from(size)).sum()
        };
        let totals: Vec<f64> = (0..self.len()).map(total).collect();
        for ratios in self.history.ratios() {
            let drawn = || (0..self.len()).filter(|&source| ratios[source] > 0);
            let times = drawn().map(|source| totals[source] / f64::from(ratios[source]));
            let time = match self.exhausted {
                Exhausted::Repeat => times.fold(0.0, f64::max),
                Exhausted::Stop | Exhausted::Renormalise => continue,
            };
            let draws = drawn().map(|source| {
                self.count(source) as f64 * (time * f64::from(ratios[source]) / totals[source]).ceil()
            });
            let (draws, most) = (draws.sum::<f64>(), f64::from(u32::MAX));
            if draws > most {
                return Err(DrawsCause::TooManyDraws { by: by.clone(), draws, limit: most }.into());
            }
        }
        Ok(())
    }

    /// Sets the end of an epoch. Default: [`Exhausted::Stop`].
    #[must_use]
    pub fn when_exhausted(self, exhausted: Exhausted) -> Self {
        Self { exhausted, ..self }
    }

    /// The number of samples of each source.
    #[doc(hidden)]
    pub fn counts(&self) -> Vec<u64> {
        (0..self.len()).map(|source| self.count(source)).collect()
    }

    /// The weights over a run.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The same sources of a run that has another history.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if it is one of another number of sources, or of sources that have
    /// nothing to draw.
    #[doc(hidden)]
    pub fn with_history(&self, history: History) -> Result<Self> {
        if let Some(ratios) = history.ratios().find(|ratios| ratios.len() != self.len()) {
            return Err(DrawsCause::HistorySources { found: ratios.len(), sources: self.len() }.into());
        }
        let mix = Self { history, ..self.clone() };
        mix.require("samples", |source| mix.count(source) > 0)?;
        mix.require_measured()?;
        Ok(mix)
    }

    /// The same sources, with other weights from a place on.
    pub(crate) fn replace_from(&self, place: (u64, u64), other: &Self) -> Self {
        Self { history: self.history.replace_from(place, other.last_schedule()), ..self.clone() }
    }

    /// Returns true if the weights that were given last are the same.
    pub(crate) fn weighs_like(&self, other: &Self) -> bool {
        self.last_schedule() == other.last_schedule()
    }

    fn last_schedule(&self) -> &Schedule {
        self.history.last()
    }

    /// Returns true if sources are the classes of samples, with equal weights.
    pub(crate) fn is_balanced(&self) -> bool {
        self.members.is_some()
    }

    /// Returns true if sources are the classes of samples, and all have the same weight at any time.
    pub(crate) fn has_equal_classes(&self) -> bool {
        self.is_balanced()
            && self.history.ratios().all(|ratios| ratios.iter().all(|&ratio| ratio == ratios[0]))
    }

    /// The name of a source, or else its number.
    fn name(&self, source: usize) -> String {
        self.names.as_ref().map_or_else(|| source.to_string(), |names| format!("{:?}", names[source]))
    }

    /// The names of the sources, if they have some.
    pub fn names(&self) -> Option<&[String]> {
        self.names.as_deref()
    }

    /// The number of sources.
    pub(super) fn len(&self) -> usize {
        self.before.len() - 1
    }

    /// The measure of turns, its size for each sample, and the samples in the order of sources, if there are such.
    #[doc(hidden)]
    #[expect(clippy::type_complexity, reason = "parts of a pickle")]
    pub fn parts(&self) -> (Exhausted, Option<(&str, &[u32])>, Option<&[u32]>) {
        let measure = self.measure.as_ref().map(|(by, sizes)| (by.as_str(), &**sizes));
        (self.exhausted, measure, self.members.as_deref())
    }

    /// The same sources with samples in another order, from [`parts`](Self::parts).
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if they are not as many.
    #[doc(hidden)]
    pub fn with_members(self, members: Vec<u32>) -> Result<Self> {
        match members.len() as u64 == self.samples() {
            true => Ok(Self { members: Some(members.into()), ..self }),
            false => Err(DrawsCause::Members { found: members.len(), samples: self.samples() }.into()),
        }
    }

    /// The number of samples of all sources.
    pub fn samples(&self) -> u64 {
        self.before.last().copied().unwrap_or(0)
    }

    /// A name for the weights, of 32 hexadecimal digits.
    pub fn digest(&self) -> String {
        // These are numbers and texts: serialising them cannot fail.
        let text = serde_json::to_string(&self.history).unwrap_or_default();
        format!("{:032x}", xxh3_128(text.as_bytes()))
    }

    /// Returns true if turns are counted by more than samples.
    pub(crate) fn is_measured(&self) -> bool {
        self.measure.is_some()
    }

    /// Returns true if an epoch has every sample of each source once.
    pub(crate) fn draws_every_sample_once(&self) -> bool {
        self.exhausted == Exhausted::Renormalise
    }

    /// The number of samples of a source.
    pub(super) fn count(&self, source: usize) -> u64 {
        self.before[source + 1] - self.before[source]
    }

    pub(super) fn exhausted(&self) -> Exhausted {
        self.exhausted
    }

    /// The passes over the samples of each source.
    pub(super) fn streams(&self, seed: u64, shuffled: bool) -> Vec<Stream> {
        let stream = |source: usize| {
            let (window, number) = (self.windows.as_ref().and_then(|it| it[source].clone()), source as u64);
            let passes = window.map(|window| Arc::new(Passes::new(window, seed, number, shuffled)));
            Stream { samples: self.count(source), seed, source: number, shuffled, passes }
        };
        (0..self.len()).map(stream).collect()
    }

    /// The sample of a plan that is `number` in its source.
    pub(super) fn sample(&self, source: usize, number: u64) -> u64 {
        let place = self.before[source] + number;
        self.members.as_ref().map_or(place, |members| u64::from(members[index(place)]))
    }

    /// The source of a sample of a plan, and its number there.
    pub(super) fn origin(&self, sample: u64) -> Option<(usize, u64)> {
        let Some(members) = &self.members else {
            let source = self.before.partition_point(|&before| before <= sample) - 1;
            return Some((source, sample - self.before[source]));
        };
        (0..self.len()).find_map(|source| {
            let members = &members[index(self.before[source])..index(self.before[source + 1])];
            let number = members.binary_search_by_key(&sample, |&member| u64::from(member)).ok()?;
            Some((source, number as u64))
        })
    }

    /// The size of each sample, if turns are counted by a measure.
    pub(super) fn sizes(&self) -> Option<&[u32]> {
        self.measure.as_ref().map(|(_, sizes)| &**sizes)
    }
}

impl Serialize for Mix {
    /// Writes what stays the same when weights change.
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let digest = |values: &[u32]| format!("{:032x}", xxh3_128(bytemuck::cast_slice(values)));
        let measure = self.measure.as_ref().map(|(by, sizes)| (by, digest(sizes)));
        let sources = format!("{:032x}", xxh3_128(bytemuck::cast_slice(&self.before)));
        let parts = (sources, self.exhausted.name(), measure, self.members.as_deref().map(digest));
        match (self.names.as_deref(), self.windows.as_deref()) {
            (None, None) => parts.serialize(serializer),
            (Some(names), None) => (parts, names).serialize(serializer),
            (names, Some(windows)) => (parts, names, windows).serialize(serializer),
        }
    }
}

/// The source, of those with a ratio above 0, that is gone through first (`first`) or last, where each has `amount`
/// left of what is counted.
pub(super) fn find_limiting(ratios: &[u32], amount: impl Fn(usize) -> u128, first: bool) -> usize {
    let later = |a: &usize, b: &usize| {
        let time = |own: usize, other: usize| amount(own).saturating_mul(u128::from(ratios[other]));
        time(*a, *b).cmp(&time(*b, *a))
    };
    let sources = (0..ratios.len()).filter(|&source| ratios[source] > 0);
    let source = if first { sources.min_by(later) } else { sources.max_by(later) };
    source.unwrap_or(0)
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

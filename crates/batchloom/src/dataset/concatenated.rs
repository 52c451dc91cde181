//! `Concatenated`: the samples of several datasets of one kind, one dataset after the other.

use std::ops::Range;
use std::sync::Arc;

use super::collation::{CollateOptions, Collation, Index, Ragged};
use super::error::{ConcatCause, DatasetCause};
use super::kind::{Content, ContentRequest, EpochKey, Kind};
use super::located::Located;
use crate::batching::{FixedSize, LabelCounts, Labels, Rule, Sizes};
use crate::collate::{BySource, FieldOfSources, Form};
use crate::{ChunkedTensor, Result, Tensor};

/// The field with the number of the dataset of each sample.
pub(super) const SOURCE: &str = "source";

/// Several datasets. The data of each stays where it is.
pub(super) struct Concatenated {
    parts: Vec<Arc<dyn Kind>>,
    /// The same samples over arrays in several chunks, where the parts make one piece of data: their places need no
    /// look-up in the parts.
    whole: Option<Arc<dyn Kind>>,
    /// The number of samples before each part, and of all samples.
    before: Vec<usize>,
    sizes: Option<Sizes>,
    /// True if batches hold the number of the dataset of each sample.
    says_source: bool,
}

crate::brief::debug_in_brief!(Concatenated, [whole, sizes, says_source], [parts, before]);

impl Concatenated {
    /// The samples of `parts`, at least one.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if two datasets differ, with the name of the field.
    pub(super) fn new(mut parts: Vec<Arc<dyn Kind>>, says_source: bool) -> Result<Self> {
        if parts.is_empty() {
            return Err(ConcatCause::Nothing.into());
        }
        // Data without samples does not tell their shape.
        if !says_source && parts.iter().any(|part| part.len() > 0) {
            parts.retain(|part| part.len() > 0);
        }
        if let Some(dataset) = parts.iter().position(|part| part.reader().is_some()) {
            return Err(ConcatCause::OnDemand { dataset }.into());
        }
        let mut before = vec![0_usize];
        for part in &parts {
            before.push(before[before.len() - 1].saturating_add(part.len()));
        }
        let sizes: Option<Vec<Sizes>> = parts.iter().map(|part| part.sizes()).collect();
        let sizes = sizes.map(|sizes| Sizes::join(&sizes)).transpose()?;
        let mut joined = Self { parts, whole: None, before, sizes, says_source };
        // This refuses parts that differ.
        joined.collation(&FixedSize::new(1)?.into(), &CollateOptions::default(), (0, 0))?;
        joined.whole = joined.find_whole()?;
        Ok(joined)
    }

    /// The samples over arrays in several chunks, if all parts are one piece of data in memory that this process reads.
    fn find_whole(&self) -> Result<Option<Arc<dyn Kind>>> {
        let is_elsewhere = self.arrays().iter().any(|(_, array)| array.is_elsewhere());
        match self.parts.split_first() {
            Some((first, others)) if !self.says_source && !is_elsewhere => {
                first.concat(&others.iter().map(|part| &**part).collect::<Vec<_>>())
            }
            _ => Ok(None),
        }
    }

    /// The part that holds a sample, and its number there.
    fn find(&self, sample: usize) -> (usize, usize) {
        let part = self.before.partition_point(|&before| before <= sample) - 1;
        (part, sample - self.before[part])
    }

    /// The samples that each part has among some neighbours.
    fn ranges(&self, samples: &Range<usize>) -> impl Iterator<Item = (&dyn Kind, Range<usize>)> {
        let within = |(part, &before): (&Arc<dyn Kind>, &usize)| {
            let local = |sample: usize| sample.saturating_sub(before).min(part.len());
            local(samples.start)..local(samples.end)
        };
        let ranges: Vec<_> = self.parts.iter().zip(&self.before).map(within).collect();
        self.parts.iter().map(|part| &**part).zip(ranges)
    }
}

impl Concatenated {
    /// The places of the samples of all parts, the rows of their index tables, and the number of the dataset of each
    /// source.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if there is no part.
    fn joined_places(&self, each: Vec<Collation>) -> Result<(Located, Index, Vec<i64>)> {
        let parts = self.parts.iter().zip(each).map(|(part, collation)| {
            let sources = collation.sources();
            (part.len() as u64, sources, collation.located, collation.index)
        });
        let (mut located, mut index, mut datasets) = (Vec::new(), None, Vec::new());
        for (samples, sources, places, numbers) in parts {
            let number = located.len().cast_signed() as i64;
            datasets.resize(datasets.len() + usize::try_from(sources).unwrap_or(usize::MAX), number);
            located.push((samples, sources, places));
            index.get_or_insert(numbers);
        }
        Ok((Located::join(located), index.ok_or(DatasetCause::NotVariable)?, datasets))
    }
}

impl Kind for Concatenated {
    fn len(&self) -> usize {
        self.before.last().copied().unwrap_or(0)
    }

    fn arrays(&self) -> Vec<(&str, &ChunkedTensor)> {
        self.parts.iter().flat_map(|part| part.arrays()).collect()
    }

    fn sizes(&self) -> Option<Sizes> {
        self.sizes.clone()
    }

    fn is_concatenated(&self) -> bool {
        self.parts[0].is_concatenated()
    }

    fn collation(&self, rule: &Rule, options: &CollateOptions, epoch: EpochKey) -> Result<Collation> {
        if let Some(whole) = &self.whole {
            return whole.collation(rule, options, epoch);
        }
        let each = self.parts.iter().map(|part| part.collation(rule, options, epoch));
        let each: Vec<Collation> = each.collect::<Result<_>>()?;
        let (first, others) = each.split_first().ok_or(DatasetCause::NotVariable)?;
        for (place, other) in (1..).zip(others) {
            first.require_same(other, place)?;
        }
        let says_source = |each: &Collation| each.names[each.own..].contains(&SOURCE.to_owned());
        if let Some(dataset) = each.iter().position(says_source) {
            return Err(ConcatCause::Sources { dataset }.into());
        }
        let form = |field: usize| {
            let of = |collation: &Collation| match collation.forms[field].sources() {
                Some(forms) => forms.to_vec(),
                None => vec![Arc::clone(&collation.forms[field])],
            };
            Arc::new(FieldOfSources::new(each.iter().flat_map(of))) as Arc<dyn Form>
        };
        let forms: Vec<_> = (0..first.forms.len()).map(form).collect();
        let compressed = (0..first.compressed.len())
            .map(|place| join_sources(each.iter().map(|each| &each.compressed[place])));
        let own_lengths = (0..first.own_lengths.len())
            .map(|place| join_sources(each.iter().map(|each| &each.own_lengths[place])));
        let guides: Option<Vec<_>> =
            each.iter().map(|each| each.ragged.as_ref().and_then(|ragged| ragged.guide.as_ref())).collect();
        let ragged = first.ragged.as_ref().zip(self.sizes.as_ref()).map(|(ragged, sizes)| Ragged {
            guide: guides.map(join_sources),
            sizes: sizes.clone(),
            own_sizes: each.iter().all(|each| each.ragged.as_ref().is_none_or(|ragged| ragged.own_sizes)),
            subsamples: ragged.subsamples,
            shuffles: ragged.shuffles,
        });
        let (compressed, own_lengths) = (compressed.collect(), own_lengths.collect());
        if let Some(dataset) = each.iter().position(|each| each.shorter_from.is_some()) {
            return Err(ConcatCause::ShortTail { dataset }.into());
        }
        let (names, own, descriptions) = (Arc::clone(&first.names), first.own, first.descriptions.clone());
        let counted = first.counted.clone();
        let (located, index, datasets) = self.joined_places(each)?;
        let shorter_from = None;
        let collation = Collation {
            names,
            forms,
            own,
            ragged,
            compressed,
            descriptions,
            own_lengths,
            counted,
            shorter_from,
            located,
            index,
        };
        if self.says_source { collation.with_source(SOURCE, datasets) } else { Ok(collation) }
    }

    fn makes_labels(&self) -> bool {
        self.parts.iter().all(|part| part.makes_labels())
    }

    fn has_documents(&self) -> bool {
        self.parts.iter().any(|part| part.has_documents())
    }

    fn labels(&self, options: &CollateOptions) -> Option<Labels> {
        let each: Vec<Labels> = self.parts.iter().map(|part| part.labels(options)).collect::<Option<_>>()?;
        let are_alike = matches!(each[0], Labels::Next | Labels::Each(_));
        if are_alike && each.iter().all(|labels| *labels == each[0]) {
            return each.into_iter().next();
        }
        let mut counts = Vec::new();
        for (part, labels) in self.parts.iter().zip(&each) {
            match labels {
                Labels::Counted(counted) => counts.extend_from_slice(counted.as_slice()),
                Labels::Each(labels) => {
                    let labels = u32::try_from(*labels).ok()?;
                    counts.resize(counts.len() + part.len(), labels);
                }
                Labels::Last { .. } => {
                    let each = (0..part.len() as u64).map(|sample| u32::try_from(labels.of_last(sample)));
                    counts.extend(each.collect::<std::result::Result<Vec<_>, _>>().ok()?);
                }
                Labels::Next => {
                    let sizes = part.sizes()?;
                    counts.extend(sizes.as_slice().iter().map(|size| size.saturating_sub(1)));
                }
            }
        }
        Some(LabelCounts::new(counts).into())
    }

    fn changes_with_epoch(&self, options: &CollateOptions) -> bool {
        self.parts.iter().any(|part| part.changes_with_epoch(options))
    }

    fn content(&self, request: &ContentRequest) -> Result<Option<Content>> {
        let (mut text, mut tail) = ("concat".to_owned(), 0);
        for (dataset, part) in self.parts.iter().enumerate() {
            let content = part.content(request)?;
            if content.as_ref().is_some_and(|content| content.rows.is_some()) {
                return Err(ConcatCause::Continuous { dataset }.into());
            }
            tail += content.as_ref().map_or(0, |content| content.tail);
            let own = content.map_or_else(String::new, |content| content.text);
            text = format!("{text} [{} {own}]", part.len());
        }
        Ok(Some(Content { text, rows: None, tail }))
    }

    fn sample(&self, sample: u64) -> Result<Vec<(String, Tensor)>> {
        let (part, sample) = self.find(usize::try_from(sample).unwrap_or(usize::MAX));
        self.parts[part].sample(sample as u64)
    }

    fn rows(&self, samples: Range<usize>) -> Vec<Range<usize>> {
        self.ranges(&samples).flat_map(|(part, range)| part.rows(range)).collect()
    }

    fn most_rows(&self, samples: usize) -> Vec<usize> {
        self.parts.iter().flat_map(|part| part.most_rows(samples.min(part.len()))).collect()
    }
}

/// The things that several datasets have of each of their sources, in one list.
fn join_sources<'a, T: Clone + 'a>(each: impl IntoIterator<Item = &'a BySource<T>>) -> BySource<T> {
    BySource::of_each(each.into_iter().flat_map(BySource::iter).cloned())
}

//! One pass over a field of labels, to count those that losses do not ignore.

use super::Dataset;
use super::collation::{CollateOptions, Collation, Ragged, form_one};
use super::error::LabelsCause;
use crate::batching::{FixedSize, LabelCounts, Rule, pieces};
use crate::collate::{Form, IGNORED, Members, is_integer};
use crate::{Result, Tensor};

impl Dataset {
    /// Counts the labels of each sample that losses do not ignore: the elements of `field` that are not -100, as batches
    /// of `rule` take them. With `next_tokens`, the labels that a loader makes of `field` are counted instead: the tokens
    /// after the first one. This reads the field once: samples that are made on demand are read whole, one after the
    /// other, in the order in which they are stored, as in epoch 0 of the run of seed 0.
    ///
    /// ```
    /// use batchloom::dataset::Dataset;
    /// use batchloom::{Tensor, TensorDataset};
    ///
    /// let labels = Tensor::from_vec(vec![-100_i64, 7, 8, -100, -100, 9], &[2, 3])?;
    /// let dataset = Dataset::from(TensorDataset::new([("labels", labels)])?);
    /// let rule = batchloom::batching::FixedSize::new(64)?;
    /// assert_eq!(dataset.count_labels("labels", &rule.into(), false)?.as_slice(), [2, 1]);
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if there is no such field, if it does not hold integers, or if batches
    /// take random elements of samples, or a function makes whole batches; [`Kind::Data`](crate::Kind::Data) if an array is
    /// in memory that this process cannot read; [`Kind::Memory`](crate::Kind::Memory); and the error of a sample that
    /// cannot be read.
    pub fn count_labels(&self, field: &str, rule: &Rule, next_tokens: bool) -> Result<LabelCounts> {
        self.require_readable()?;
        if let Some(reader) = self.kind().reader() {
            // The chunk that was read last leaves with the iteration.
            let iteration = reader.begin_iteration(1);
            let counts = self.count_read(field, rule, next_tokens);
            reader.end_iteration(iteration);
            return counts;
        }
        let options =
            CollateOptions { labels: next_tokens.then(|| field.to_owned()), ..CollateOptions::default() };
        let collation = self.kind().collation(&FixedSize::new(1)?.into(), &options, (0, 0))?;
        let form = labels(&collation, field, next_tokens)?;
        let whole = collation.ragged.as_ref().is_none_or(|ragged| !ragged.own_sizes);
        let limit = rule.limit(self.sizes().as_ref()).filter(|_| !whole);
        let mut counts = Vec::new();
        for sample in 0..self.len() as u64 {
            for members in parts(&collation, sample, limit, field)? {
                counts.push(count_used(&form_one(form, &members)?, field)?);
            }
        }
        Ok(limit.map_or_else(
            || LabelCounts::new(counts.as_slice()),
            |limit| LabelCounts::of_pieces(counts.as_slice(), limit),
        ))
    }
}

impl Dataset {
    /// Counts the labels of samples that are read on demand.
    fn count_read(&self, field: &str, rule: &Rule, next_tokens: bool) -> Result<LabelCounts> {
        let name = || field.to_owned();
        if self.kind().reader().is_some_and(|reader| reader.makes_batches()) {
            return Err(LabelsCause::CountWholeBatches { field: name() }.into());
        }
        let sizes = self.sizes();
        if next_tokens && sizes.is_none() {
            return Err(LabelsCause::CountNoTokens { field: name() }.into());
        }
        let limit = sizes.as_ref().and_then(|sizes| rule.limit(Some(sizes)));
        let mut counts = Vec::new();
        for sample in 0..self.len() as u64 {
            let fields = self.kind().sample(sample)?;
            let known = || fields.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
            let labels = fields.iter().find(|(name, _)| name == field);
            let no_field = || LabelsCause::CountNoField { field: name(), known: known() };
            let labels = &labels.ok_or_else(no_field)?.1;
            if !is_integer(labels.dtype()) {
                return Err(LabelsCause::CountNoIntegers { field: name(), found: labels.dtype() }.into());
            }
            if next_tokens && labels.shape().len() != 1 {
                return Err(LabelsCause::CountNoTokens { field: name() }.into());
            }
            for piece in split(labels, limit) {
                // The first token of a piece is no label.
                let next = piece
                    .shape()
                    .first()
                    .filter(|_| next_tokens)
                    .and_then(|&len| piece.slice(len.min(1)..len));
                counts.push(count_used(next.as_ref().unwrap_or(&piece), field)?);
            }
        }
        Ok(limit.map_or_else(
            || LabelCounts::new(counts.as_slice()),
            |limit| LabelCounts::of_pieces(counts.as_slice(), limit),
        ))
    }
}

/// The form that makes the labels.
fn labels<'a>(collation: &'a Collation, field: &str, next_tokens: bool) -> Result<&'a dyn Form> {
    let name = || field.to_owned();
    let wanted = if next_tokens { "labels" } else { field };
    let known = if next_tokens { &collation.names[..] } else { &collation.names[..collation.own] };
    let place = known.iter().rposition(|name| name == wanted);
    let place = place.ok_or_else(|| match next_tokens {
        true => LabelsCause::CountNoTokens { field: name() },
        false => LabelsCause::CountNoField { field: name(), known: known.join(", ") },
    })?;
    let form = &*collation.forms[place];
    match is_integer(form.dtype()) {
        true => Ok(form),
        false => Err(LabelsCause::CountNoIntegers { field: name(), found: form.dtype() }.into()),
    }
}

/// The pieces of a sample that was read, each of at most `limit` elements; an empty sample has one.
fn split(labels: &Tensor, limit: Option<u32>) -> Vec<Tensor> {
    let Some((&len, limit)) = labels.shape().first().zip(limit) else { return vec![labels.clone()] };
    let piece = usize::try_from(limit).unwrap_or(usize::MAX).max(1);
    let starts = (0..len.max(1)).step_by(piece);
    starts.filter_map(|start| labels.slice(start..len.min(start.saturating_add(piece)))).collect()
}

/// A batch of one for each part of a sample, of at most `limit` elements.
fn parts(collation: &Collation, sample: u64, limit: Option<u32>, field: &str) -> Result<Vec<Members>> {
    let Some(Ragged { guide: Some(guide), sizes, own_sizes, subsamples, .. }) = &collation.ragged else {
        let places = collation.located.places(&[sample]);
        return Ok(vec![Members::of_samples(places.of(&[sample]), 0)]);
    };
    let index = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let (places, samples) = (collation.located.places(&[sample]), [sample]);
    let taken = places.of(&samples);
    let (row, guide) = (index(taken.rows[0]), guide.of(taken.source(0)));
    let dimensions = guide.varying().len();
    let located =
        |members: Members| Members { rows: taken.rows.to_vec(), sources: taken.sources.to_vec(), ..members };
    if !own_sizes || dimensions != 1 {
        let extents = guide.sizes_of(row).collect();
        let members = Members::new(vec![sample], vec![0], extents, dimensions, u64::from);
        return Ok(vec![located(members).with_own(&collation.own_lengths, u64::from)]);
    }
    let (size, stored) = (sizes.as_slice()[index(sample)], guide.extents(row)[0]);
    if *subsamples && stored > size {
        let (field, group) = (field.to_owned(), sample);
        return Err(LabelsCause::CountSubsample { field, size, stored, group }.into());
    }
    let piece = limit.unwrap_or(u32::MAX);
    let part = |number: u32| {
        let start = number * piece;
        located(Members::new(vec![sample], vec![start], vec![(size - start).min(piece)], 1, u64::from))
    };
    Ok((0..pieces(size, piece)).map(part).collect())
}

/// The number of labels of a sample that losses do not ignore.
fn count_used(labels: &Tensor, field: &str) -> Result<u32> {
    macro_rules! count {
        ($($type:ty),*) => {
            $(if let Some(labels) = labels.as_slice::<$type>() {
                labels.iter().filter(|&&label| i64::from(label) != IGNORED).count()
            } else)* {
                // No other type holds the label that losses ignore.
                labels.shape().iter().product()
            }
        };
    }
    let count: usize = count!(i8, i16, i32, i64);
    let too_many = || LabelsCause::CountTooMany { field: field.to_owned(), count, limit: u32::MAX };
    u32::try_from(count).map_err(|_| too_many().into())
}

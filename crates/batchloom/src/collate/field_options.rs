//! `FieldOptions`: the type that a field of batches is wanted in, and the numbers that it is scaled by; and what
//! becomes of them once the field is known, a `FieldConversion`.

use std::sync::Arc;

use super::Form;
use super::cast::Cast;
use super::convert::{Affine, Channels, Conversion};
use super::error::CollateCause;
use super::scalar::Scalar;
use crate::{DType, Result};

/// The options of one field. A value `x` becomes `(x * scale - mean) / std`.
#[derive(Debug, Clone, Default)]
pub(crate) struct FieldOptions {
    /// The type in batches. Default: the type of the data, or float32 for integers that are scaled.
    pub(crate) dtype: Option<DType>,
    pub(crate) scale: Option<f64>,
    /// One number, or one for each channel.
    pub(crate) mean: Vec<f64>,
    pub(crate) std: Vec<f64>,
    /// The dimension of a sample that `mean` and `std` are given for. Default: the one with the same number of
    /// elements.
    pub(crate) channels: Option<Channels>,
}

/// The conversion of one field, for those who convert what a loader leaves as it is stored.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct FieldConversion {
    /// The name of the field.
    pub field: String,
    /// The type of the data.
    pub from: DType,
    /// The type in batches.
    pub to: DType,
    /// The number that values are multiplied by first, if they are scaled at all.
    pub scale: Option<f64>,
    /// The numbers that are taken off then: none, one, or one for each channel.
    pub mean: Vec<f64>,
    /// The numbers that are divided by in the end: none, one, or one for each channel.
    pub std: Vec<f64>,
    /// The dimension of a sample that the numbers are given for.
    pub channels: Channels,
    /// True if the types alone prove that every value is held.
    pub is_total: bool,
    /// True if the field is padded, with elements of the new type.
    pub is_padded: bool,
}

impl FieldOptions {
    /// Returns true if values of type `from` change, or get another type.
    pub(crate) fn changes(&self, from: DType) -> bool {
        self.scales() || self.dtype.is_some_and(|dtype| dtype != from)
    }

    fn scales(&self) -> bool {
        self.scale.is_some() || !self.mean.is_empty() || !self.std.is_empty()
    }

    /// The form of field `name` that `inner` makes, in another type; `inner` itself if its type is asked for.
    /// `pad_value` becomes an element of the new type.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if the option makes no sense for the field, or if the bytes of a
    /// padding value do not fit an element.
    pub(crate) fn cast(
        &self,
        name: &str,
        inner: Arc<dyn Form>,
        pad_value: Option<&Scalar>,
    ) -> Result<Arc<dyn Form>> {
        if !self.changes(inner.dtype()) {
            return Ok(inner);
        }
        let conversion = self.conversion(name, &*inner)?;
        let expected = conversion.to.size();
        let element = |value: &Scalar| value.element(name, conversion.to);
        let pad_value = pad_value.map_or_else(|| Ok(vec![0; expected]), element)?;
        Ok(Arc::new(Cast::new(name, inner, conversion, pad_value)))
    }

    /// The conversion of field `name` that `form` makes, or `None` if it stays as it is.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if the option makes no sense for the field.
    pub(crate) fn field_conversion(&self, name: &str, form: &dyn Form) -> Result<Option<FieldConversion>> {
        if !self.changes(form.dtype()) {
            return Ok(None);
        }
        let (conversion, numbers) = (self.conversion(name, form)?, self.mean.len().max(self.std.len()));
        Ok(Some(FieldConversion {
            field: name.to_owned(),
            from: conversion.from,
            to: conversion.to,
            scale: self.scales().then(|| self.scale.unwrap_or(1.0)),
            mean: self.mean.clone(),
            std: self.std.clone(),
            channels: self.channels(name, numbers, &form.sample()).unwrap_or(Channels::Last),
            is_total: conversion.is_total(),
            is_padded: form.padding().is_some(),
        }))
    }

    /// The type in a batch of a field that is stored as `from`.
    pub(crate) fn target(&self, from: DType) -> DType {
        match self.changes(from) {
            true => self.dtype.unwrap_or(if is_float(from) { from } else { DType::F32 }),
            false => from,
        }
    }

    /// The conversion of the elements of a field.
    fn conversion(&self, name: &str, form: &dyn Form) -> Result<Conversion> {
        let field = || name.to_owned();
        let (from, scales) = (form.dtype(), self.scales());
        let to = self.target(from);
        if scales && !is_float(to) {
            return Err(CollateCause::ScaledType { field: field(), to }.into());
        }
        let affine = scales.then(|| self.affine(name, to, &form.sample())).transpose()?;
        let conversion = Conversion::new(from, to, affine);
        conversion.ok_or_else(|| CollateCause::NotConverted { field: field(), from, to }.into())
    }

    fn affine(&self, name: &str, to: DType, sample: &[Option<usize>]) -> Result<Affine> {
        let (means, stds) = (self.mean.len(), self.std.len());
        if means > 1 && stds > 1 && means != stds {
            return Err(CollateCause::MeansAndStds { field: name.to_owned(), means, stds }.into());
        }
        let channels = self.channels(name, means.max(stds), sample)?;
        let affine = Affine::new(to, self.scale.unwrap_or(1.0), &self.mean, &self.std, channels);
        let Self { scale, mean, std, .. } = self;
        affine.ok_or_else(|| {
            let given: Vec<String> = [
                scale.map(|scale| format!("scale is {scale:?}")),
                (!mean.is_empty()).then(|| format!("mean is {mean:?}")),
                (!std.is_empty()).then(|| format!("std is {std:?}")),
            ]
            .into_iter()
            .flatten()
            .collect();
            CollateCause::Scale { field: name.to_owned(), given: given.join(" and ") }.into()
        })
    }

    /// The dimension of a sample that `count` numbers are given for.
    fn channels(&self, name: &str, count: usize, sample: &[Option<usize>]) -> Result<Channels> {
        if count <= 1 {
            return Ok(Channels::Last);
        }
        let has = |extent: Option<&Option<usize>>| extent.copied().flatten() == Some(count);
        let (first, last) = (has(sample.first()), has(sample.last()));
        let channels = match self.channels {
            Some(Channels::First) => first.then_some(Channels::First),
            Some(Channels::Last) => last.then_some(Channels::Last),
            None if first && last && sample.len() > 1 => {
                let (field, extents) = (name.to_owned(), extents(sample));
                return Err(CollateCause::EitherDimension { field, count, extents }.into());
            }
            None if last => Some(Channels::Last),
            None => first.then_some(Channels::First),
        };
        channels.ok_or_else(|| {
            let (field, extents) = (name.to_owned(), extents(sample));
            CollateCause::ChannelCount { field, count, extents }.into()
        })
    }
}

fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
}

/// The extents of a sample, in words.
fn extents(sample: &[Option<usize>]) -> String {
    let extent =
        |extent: &Option<usize>| extent.map_or_else(|| "any".to_owned(), |extent| extent.to_string());
    format!("[{}]", sample.iter().map(extent).collect::<Vec<_>>().join(", "))
}

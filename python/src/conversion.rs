//! The types and the scales that fields of batches are asked for in.

use batchloom::DType;
use batchloom::loader::{Channels, FieldConversion, LoaderBuilder};
use pyo3::prelude::*;

use crate::batching::{Rule, parse};
use crate::dataset::Dataset;
use crate::error::{ArgumentError, raise};
use crate::slot_function::{FieldSlot, with_slots};

/// The options of one field: its name, its type, scale, means and deviations, and the dimension that these are of.
pub(crate) type FieldOptions = (String, Option<String>, Option<f64>, Vec<f64>, Vec<f64>, Option<String>);

/// The conversion of one field. It is used in batchloom/device/conversion.py.
#[pyclass(frozen, module = "batchloom._native")]
#[derive(Debug)]
pub(crate) struct Conversion(FieldConversion);

#[pymethods]
impl Conversion {
    #[getter]
    fn field(&self) -> &str {
        &self.0.field
    }

    /// The type of the data.
    #[getter]
    fn stored(&self) -> &'static str {
        self.0.from.name()
    }

    /// The type in batches.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.0.to.name()
    }

    /// The bytes that an element takes in batches for each byte that it takes in the data.
    #[getter]
    fn growth(&self) -> f64 {
        self.0.to.size() as f64 / self.0.from.size() as f64
    }

    /// The number that values are multiplied by, if they are scaled.
    #[getter]
    fn scale(&self) -> Option<f64> {
        self.0.scale
    }

    #[getter]
    fn mean(&self) -> Vec<f64> {
        self.0.mean.clone()
    }

    #[getter]
    fn std(&self) -> Vec<f64> {
        self.0.std.clone()
    }

    /// Returns true if means and deviations belong to the first dimension of a sample.
    #[getter]
    fn is_first(&self) -> bool {
        self.0.channels == Channels::First
    }

    /// Returns true if the types alone prove that every value is held.
    #[getter]
    fn is_total(&self) -> bool {
        self.0.is_total
    }

    #[getter]
    fn is_padded(&self) -> bool {
        self.0.is_padded
    }
}

/// The conversions of the fields with types or values that change.
#[pyfunction]
pub(crate) fn conversions(
    dataset: &Dataset,
    rule: &Rule,
    fields: Vec<FieldOptions>,
    slots: Vec<FieldSlot>,
) -> PyResult<Vec<Conversion>> {
    let builder = batchloom::Loader::builder(dataset.0.clone()).rule(rule.0.clone());
    let builder = with_slots(builder, slots)?;
    let conversions = with_fields(builder, fields)?.conversions().map_err(|error| raise(&error))?;
    Ok(conversions.into_iter().map(Conversion).collect())
}

/// The options of a loader with the options of some fields.
pub(crate) fn with_fields(mut builder: LoaderBuilder, fields: Vec<FieldOptions>) -> PyResult<LoaderBuilder> {
    for (field, dtype, scale, mean, std, channels) in fields {
        if let Some(name) = dtype {
            let dtype = DType::named(&name);
            let dtype =
                dtype.ok_or_else(|| ArgumentError::new_err(format!("there is no element type {name}")))?;
            builder = builder.dtype(field.clone(), dtype);
        }
        if let Some(scale) = scale {
            builder = builder.scale(field.clone(), scale);
        }
        if let Some(channels) = channels {
            builder = builder.channels(field.clone(), parse::<Channels>(&channels)?);
        }
        builder = builder.mean(field.clone(), mean).std(field, std);
    }
    Ok(builder)
}

//! The labels of batches that are next tokens of a field of samples.

use std::sync::Arc;

use super::reading::SampleLayout;
use crate::Result;
use crate::batching::Rule;
use crate::collate::{Form, Labels, SampleTokens, is_integer};
use crate::dataset::collation::CollateOptions;
use crate::dataset::error::LabelsCause;

/// The form of the labels, if a loader makes some, given the layout of a sample and the field with its tokens; `None`
/// for the field if there is no such field that is as long as its sample.
///
/// # Errors
/// [`Kind::Argument`](crate::Kind::Argument) if samples have no such field, or if it does not hold one integer for each
/// token.
pub(super) fn make_labels(
    options: &CollateOptions,
    rule: &Rule,
    layout: &SampleLayout,
    tokens: Option<Arc<dyn SampleTokens>>,
) -> Result<Option<Arc<dyn Form>>> {
    let Some(field) = &options.labels else { return Ok(None) };
    let Some(place) = layout.structure.names.iter().position(|name| name == field) else {
        return Err(LabelsCause::NoField { field: field.clone() }.into());
    };
    let (found, shape) = &layout.fields[place];
    let Some(tokens) = tokens else { return Err(LabelsCause::NoSequence { field: field.clone() }.into()) };
    if shape.len() > 1 {
        return Err(LabelsCause::SeveralNumbers { field: field.clone() }.into());
    }
    if !is_integer(*found) {
        return Err(LabelsCause::NoIntegers { field: field.clone(), found: *found }.into());
    }
    Ok(Some(Arc::new(Labels { tokens, side: options.pad_side, packed: rule.packs() })))
}

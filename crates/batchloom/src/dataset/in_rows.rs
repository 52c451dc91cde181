//! Fields of batches in rows of one shape, and the fields that such rows have no form for.

use std::sync::Arc;

use super::collation::{CollateOptions, Collation};
use super::error::{DatasetCause, OffsetCause};
use crate::Result;
use crate::collate::{Form, InRows, RowFrame};

impl Collation {
    /// The same fields, in rows of one shape.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if a field has lengths of its own, or if the bytes of a padding value are
    /// not those of an element.
    pub(crate) fn in_rows(self, frame: RowFrame, options: &CollateOptions) -> Result<Self> {
        if let Some((field, _)) = self.counted.iter().find(|(_, lengths)| lengths.is_some()) {
            return Err(DatasetCause::OwnLengthsInRows { field: field.clone() }.into());
        }
        if let Some(place) = self.forms.iter().position(|form| form.bands() != 1) {
            return Err(DatasetCause::BandsInRows { field: self.names[place].clone() }.into());
        }
        if let Some((field, _)) = options.offset_by.first() {
            return Err(OffsetCause::Rows { field: field.clone() }.into());
        }
        let in_rows = |(place, (name, form)): (usize, (&String, &Arc<dyn Form>))| {
            let padding = options.pad_value(name).filter(|_| place < self.own);
            let padding = padding.map(|value| value.element(name, form.dtype())).transpose()?;
            Ok(InRows::wrap(Arc::clone(form), frame, padding))
        };
        let fields = self.names.iter().zip(&self.forms).enumerate();
        Ok(Self { forms: fields.map(in_rows).collect::<Result<_>>()?, ..self })
    }
}

//! Batches with block masks: the fields of a batch, and the arrays of its mask after them.

use std::sync::Arc;

use super::collation::Collation;
use super::error::MaskCause;
use crate::Result;
use crate::collate::{DocumentMask, Form, MaskPart, PackMask, Prefix, is_integer};

/// The name that the arrays have together, in batches of other languages.
const WHOLE: &str = "block_mask";

impl Collation {
    /// The field with the lengths of prefixes that a mask names, if it names one.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if there is no such field, or if it does not hold one integer for each
    /// sample.
    pub(crate) fn find_prefix(&self, mask: &DocumentMask) -> Result<Option<Prefix>> {
        let Some(name) = mask.prefix_field() else { return Ok(None) };
        let (field, own) = (name.to_owned(), &self.names[..self.own]);
        let Some(place) = own.iter().position(|other| other == name) else {
            return Err(MaskCause::NoPrefix { field, known: own.join(", ") }.into());
        };
        let lengths = Arc::clone(&self.forms[place]);
        if lengths.is_concatenated() || !lengths.sample().is_empty() {
            return Err(MaskCause::PrefixShape { field }.into());
        }
        match is_integer(lengths.dtype()) {
            true => Ok(Some(Prefix { field, lengths })),
            false => Err(MaskCause::PrefixType { field, found: lengths.dtype() }.into()),
        }
    }

    /// The same fields, and after them the arrays of the block mask of a pack, unless they are there.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if the data has a field of such a name.
    pub(crate) fn with_block_mask(self, mask: &DocumentMask, prefix: Option<&Prefix>) -> Result<Self> {
        let shared = Arc::new(mask.clone());
        let form = |part| PackMask { mask: Arc::clone(&shared), prefix: prefix.cloned(), part };
        self.with_mask_forms(mask, |part| Arc::new(form(part)))
    }

    /// The same fields, and after them the arrays of a block mask, each made by the form that `form` returns.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if the data has a field of such a name.
    pub(super) fn with_mask_forms(
        self,
        mask: &DocumentMask,
        form: impl Fn(MaskPart) -> Arc<dyn Form>,
    ) -> Result<Self> {
        let parts = MaskPart::of(mask);
        let mut taken = parts.clone().map(|(name, _)| name).chain([WHOLE]);
        if let Some(name) = taken.find(|name| self.names.iter().any(|other| other == name)) {
            return Err(MaskCause::Field { field: name.to_owned() }.into());
        }
        let added = parts.clone().map(|(name, _)| name.to_owned());
        let names = self.names.iter().cloned().chain(added).collect();
        let mut forms = self.forms;
        forms.extend(parts.map(|(_, part)| form(part)));
        Ok(Self { names, forms, ..self })
    }

    /// Returns true if batches have the arrays of a block mask.
    pub(crate) fn has_block_mask(&self) -> bool {
        self.names[self.own..].iter().any(|name| name == MaskPart::FIRST)
    }
}

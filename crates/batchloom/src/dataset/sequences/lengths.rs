//! `OwnLengths`: which fields of a [`SequenceDataset`](super::SequenceDataset) have lengths apart from the rest, and which
//! of them share these.

use super::field::{Field, check_extents, variable};
use crate::Result;
use crate::dataset::error::DatasetCause;
use crate::tensor::Sequences;

/// The separate lengths of a dataset, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct OwnLengths(Vec<Shared>);

/// Lengths that some fields share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shared {
    /// The name of the lengths: of the field, if it is the only one.
    pub(super) name: String,
    pub(super) fields: Vec<String>,
}

impl OwnLengths {
    /// Separate lengths for each of some fields.
    pub(super) fn of_each(names: impl IntoIterator<Item = String>) -> Self {
        Self(names.into_iter().map(|name| Shared { name: name.clone(), fields: vec![name] }).collect())
    }

    /// Adds lengths that some fields share.
    pub(super) fn push(&mut self, name: String, fields: Vec<String>) {
        self.0.push(Shared { name, fields });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Shared> {
        self.0.iter()
    }

    /// The place of the lengths of a field, if it has separate ones.
    pub(super) fn place(&self, field: &str) -> Option<usize> {
        self.0.iter().position(|shared| shared.fields.iter().any(|name| name == field))
    }

    /// Returns true if a field has separate lengths.
    pub(super) fn holds(&self, field: &str) -> bool {
        self.place(field).is_some()
    }

    /// The fields with lengths of this name.
    fn find(&self, name: &str) -> Option<&Shared> {
        self.0.iter().find(|shared| shared.name == name)
    }

    /// The first variable field with lengths of this name, or the field of this name.
    pub(super) fn find_counted<'a>(
        &self,
        name: &str,
        names: &'a [String],
        fields: &'a [Field],
    ) -> Option<&'a Sequences> {
        let field = self.find(name).and_then(|shared| shared.fields.first()).map_or(name, |field| field);
        let mut known = names.iter().zip(fields).filter_map(variable);
        known.find(|(name, _)| *name == field).map(|(_, sequences)| sequences)
    }

    /// Refuses fields with separate lengths that are no variable fields, names of lengths that are names of other fields, and
    /// fields that are to share lengths and do not.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument), with the name; and [`Kind::Data`](crate::Kind::Data) with the first sample
    /// whose lengths differ.
    pub(super) fn check(&self, names: &[String], fields: &[Field], samples: usize) -> Result<()> {
        let known: Vec<&String> =
            names.iter().zip(fields).filter_map(variable).map(|(name, _)| name).collect();
        let mut seen: Vec<&String> = Vec::new();
        for (place, shared) in self.0.iter().enumerate() {
            for name in &shared.fields {
                if !known.contains(&name) {
                    let known = known.into_iter().cloned().collect();
                    return Err(DatasetCause::OwnLengthsOf { field: name.clone(), known }.into());
                }
                if seen.contains(&name) {
                    return Err(DatasetCause::OwnLengthsTwice { field: name.clone() }.into());
                }
                seen.push(name);
            }
            let is_taken = self.0[..place].iter().any(|other| other.name == shared.name)
                || (names.contains(&shared.name) && !shared.fields.contains(&shared.name));
            if is_taken || shared.fields.is_empty() {
                let (name, fields) = (shared.name.clone(), shared.fields.clone());
                return Err(DatasetCause::OwnLengthsName { name, fields }.into());
            }
            let guide = names.iter().position(|name| shared.fields.contains(name)).unwrap_or(0);
            let checked = check_extents(names, fields, guide, |name| shared.fields.contains(name), samples);
            let is_guessed =
                |name: &&String| self.find_counted(name, names, fields).is_some_and(Sequences::is_guessed);
            if let (Err(_), Some(field)) = (&checked, shared.fields.iter().find(is_guessed)) {
                return Err(DatasetCause::Dimension { field: field.clone() }.into());
            }
            checked?;
        }
        Ok(())
    }
}

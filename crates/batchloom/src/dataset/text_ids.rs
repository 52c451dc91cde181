//! `TextIds`: texts as numbers, in the order in which they first appear.

use std::collections::HashMap;

use crate::{Error, Result, memory};

/// Texts, each row with the number of its text. Texts are numbered as they first appear.
///
/// ```
/// use batchloom::dataset::TextIds;
///
/// let rows = ["rose", "lily", "rose"];
/// let ids = TextIds::new(rows)?;
/// assert_eq!(ids.codes(), [0, 1, 0]);
/// assert_eq!(ids.first_rows(), [0, 1]); // the text with number k is rows[first_rows[k]]
/// # Ok::<(), batchloom::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct TextIds {
    codes: Vec<i64>,
    first_rows: Vec<usize>,
}

crate::brief::debug_in_brief!(TextIds, [], [codes, first_rows]);

impl TextIds {
    /// Numbers texts, or any bytes. This takes one pass; each text that differs from the one before costs a look-up.
    ///
    /// # Errors
    /// [`Kind::Memory`](crate::Kind::Memory).
    pub fn new<'a, T: AsRef<[u8]> + ?Sized + 'a>(texts: impl IntoIterator<Item = &'a T>) -> Result<Self> {
        let mut ids = Self { codes: Vec::new(), first_rows: Vec::new() };
        let mut numbers: HashMap<&[u8], i64> = HashMap::new();
        let mut last: Option<(&[u8], i64)> = None;
        for (row, text) in texts.into_iter().enumerate() {
            let text = text.as_ref();
            // Room for one more of everything, which is there but for a few times.
            memory::grow(&mut ids.codes, 1)?;
            memory::grow(&mut ids.first_rows, 1)?;
            numbers.try_reserve(1).map_err(|error| {
                let bytes = (numbers.len() + 1) * size_of::<(&[u8], i64)>();
                Error::out_of_memory(bytes, error.to_string())
            })?;
            let code = match last {
                Some((same, code)) if same == text => code,
                _ => *numbers.entry(text).or_insert_with(|| {
                    ids.first_rows.push(row);
                    ids.first_rows.len().cast_signed() as i64 - 1
                }),
            };
            ids.codes.push(code);
            last = Some((text, code));
        }
        Ok(ids)
    }

    /// The number of each row's text.
    pub fn codes(&self) -> &[i64] {
        &self.codes
    }

    /// The number of each row's text, and the first row that has each text.
    pub fn into_parts(self) -> (Vec<i64>, Vec<usize>) {
        (self.codes, self.first_rows)
    }

    /// The first row that has each text.
    pub fn first_rows(&self) -> &[usize] {
        &self.first_rows
    }
}

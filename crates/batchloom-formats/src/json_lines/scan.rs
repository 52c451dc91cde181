//! One look at a run of lines: the types of values, and the lengths of lists.

use super::lines::lines_of;
use super::parser::{Number, Sink, WantedKeys, parse_line};

/// The type of a column as far as it was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SeenType {
    pub(crate) has_whole: bool,
    pub(crate) has_real: bool,
    pub(crate) has_truth: bool,
    pub(crate) has_null: bool,
    pub(crate) has_lists: bool,
    pub(crate) has_single: bool,
    /// True for an element that is not 1.
    pub(crate) has_other: bool,
}

impl SeenType {
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            has_whole: self.has_whole | other.has_whole,
            has_real: self.has_real | other.has_real,
            has_truth: self.has_truth | other.has_truth,
            has_null: self.has_null | other.has_null,
            has_lists: self.has_lists | other.has_lists,
            has_single: self.has_single | other.has_single,
            has_other: self.has_other | other.has_other,
        }
    }

    pub(crate) fn bits(self) -> u8 {
        let numbers = [self.has_whole, self.has_real, self.has_truth, self.has_null];
        let flags = numbers.into_iter().chain([self.has_lists, self.has_single, self.has_other]);
        flags.enumerate().map(|(place, flag)| u8::from(flag) << place).sum()
    }

    pub(crate) fn of_bits(bits: u8) -> Self {
        let flag = |place: u8| bits >> place & 1 == 1;
        Self {
            has_whole: flag(0),
            has_real: flag(1),
            has_truth: flag(2),
            has_null: flag(3),
            has_lists: flag(4),
            has_single: flag(5),
            has_other: flag(6),
        }
    }
}

/// The rows, types and lengths in a run of lines.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScannedRun {
    pub(crate) rows: u32,
    pub(crate) types: Vec<SeenType>,
    /// The length of the lists of each row, if there are lists.
    pub(crate) lengths: Vec<u32>,
}

/// A line that makes no sample: its number in the run, the key at fault and the reason.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WrongRow {
    pub(crate) row: usize,
    pub(crate) key: Option<usize>,
    pub(crate) reason: String,
}

struct Scanner {
    types: Vec<SeenType>,
    /// The times that each key was seen in the line.
    seen: Vec<u32>,
    lengths: Vec<Option<u32>>,
}

impl Sink for Scanner {
    fn begin(&mut self, key: usize, is_list: bool) -> Result<(), &'static str> {
        self.seen[key] += 1;
        if self.seen[key] > 1 {
            return Err("a key comes twice");
        }
        if is_list {
            self.types[key].has_lists = true;
            self.lengths[key] = Some(0);
        }
        Ok(())
    }

    #[inline]
    fn number(&mut self, key: usize, number: Number) -> Result<(), &'static str> {
        let seen = &mut self.types[key];
        seen.has_other |= match number {
            Number::Whole(whole) => whole != 1,
            Number::Real(real) => real != 1.0,
            Number::Truth(truth) => !truth,
            Number::Null => true,
        };
        match number {
            Number::Whole(_) => seen.has_whole = true,
            Number::Real(_) => seen.has_real = true,
            Number::Truth(_) => seen.has_truth = true,
            Number::Null => seen.has_null = true,
        }
        match &mut self.lengths[key] {
            Some(length) => *length = length.saturating_add(1),
            None => seen.has_single = true,
        }
        Ok(())
    }
}

/// Looks at a run of lines.
pub(crate) fn scan_run(bytes: &[u8], wanted: &WantedKeys, keys: usize) -> Result<ScannedRun, WrongRow> {
    let mut scanner =
        Scanner { types: vec![SeenType::default(); keys], seen: vec![0; keys], lengths: vec![None; keys] };
    let mut found = ScannedRun::default();
    for (row, line) in lines_of(bytes).enumerate() {
        scanner.seen.fill(0);
        scanner.lengths.fill(None);
        parse_line(line, wanted, &mut scanner).map_err(|wrong| WrongRow {
            row,
            key: None,
            reason: format!("{} (byte {} of the line)", wrong.reason, wrong.place),
        })?;
        if let Some(key) = scanner.seen.iter().position(|&seen| seen == 0) {
            return Err(WrongRow { row, key: Some(key), reason: "the line has no such key".to_owned() });
        }
        let mut lists =
            scanner.lengths.iter().enumerate().filter_map(|(key, length)| Some((key, (*length)?)));
        if let Some((_, length)) = lists.next() {
            if let Some((key, other)) = lists.find(|&(_, other)| other != length) {
                let reason = format!(
                    "its list has {other} elements, and another one {length}; expected lists of one length in a line, or columns= without one of them"
                );
                return Err(WrongRow { row, key: Some(key), reason });
            }
            found.lengths.push(length);
        }
        found.rows += 1;
    }
    found.types = scanner.types;
    Ok(found)
}

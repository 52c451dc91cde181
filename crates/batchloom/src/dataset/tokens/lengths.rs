//! `PieceLengths`: the number of tokens of each piece of a stream, where the end of the stream is kept.
//!
//! Rows of a stream differ in length by one token at most: the first ones are longer. So only the last piece of each
//! row may be shorter than the rest, and has no token at all if its row ends with the piece before it.

use crate::batching::Labels;

/// The lengths of the pieces of a stream. Piece `k` is in row `k % rows`, after `k / rows` pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PieceLengths {
    pub(super) seq_len: u64,
    /// The number of rows, and of pieces in each.
    pub(super) rows: u64,
    pub(super) steps: u64,
    /// The number of tokens of all rows, or `None` if all pieces are whole and the rest is left out.
    pub(super) targets: Option<u64>,
}

impl PieceLengths {
    /// The row of a piece, and the number of pieces before it in that row.
    fn place(&self, piece: u64) -> (u64, u64) {
        (piece % self.rows, piece / self.rows)
    }

    /// The token of all rows, one after the other, with which a piece begins.
    pub(super) fn start(&self, piece: u64) -> u64 {
        let (row, before) = self.place(piece);
        let row_start = match self.targets {
            None => row * self.steps * self.seq_len,
            Some(targets) => row * (targets / self.rows) + row.min(targets % self.rows),
        };
        row_start + before * self.seq_len
    }

    /// The number of tokens of a piece.
    pub(super) fn count(&self, piece: u64) -> u64 {
        let (row, before) = self.place(piece);
        let Some(targets) = self.targets else { return self.seq_len };
        let row_len = targets / self.rows + u64::from(row < targets % self.rows);
        row_len.saturating_sub(before * self.seq_len).min(self.seq_len)
    }

    /// The number of tokens of the last piece of the longest row.
    pub(super) fn last(&self) -> u64 {
        self.count((self.steps - 1) * self.rows)
    }

    /// The first piece of those that are shorter than `seq_len` or end their row, if some are.
    pub(super) fn shorter_from(&self) -> Option<u64> {
        let targets = self.targets.filter(|targets| *targets < self.steps * self.rows * self.seq_len)?;
        (targets > 0).then(|| (self.steps - 1) * self.rows)
    }

    /// The number of places without a token, if all pieces of a step are as long as the longest.
    pub(super) fn padding(&self, are_shorter: bool) -> u64 {
        let Some(targets) = self.targets.filter(|targets| *targets > 0) else { return 0 };
        let last = if are_shorter { self.last() } else { self.seq_len };
        ((self.steps - 1) * self.seq_len + last) * self.rows - targets
    }

    /// The labels of pieces: one for each token.
    pub(super) fn labels(&self) -> Labels {
        match (self.targets, self.shorter_from()) {
            (Some(targets), Some(from)) => {
                let longer = match targets % self.rows {
                    0 => self.rows,
                    longer => longer,
                };
                Labels::Last { each: self.seq_len, from, longer, last: self.last() }
            }
            _ => Labels::Each(self.seq_len),
        }
    }
}

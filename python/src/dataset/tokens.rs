//! Streams of tokens.

use batchloom::TokenDataset;
use batchloom::dataset::{Dataset as EngineDataset, TokenCounts, TokenExtras};
use pyo3::prelude::*;

use crate::batching::parse;
use crate::chunked::FieldArray;
use crate::dataset::Dataset;
use crate::dataset::selection::Selection;
use crate::dlpack::Tensor;
use crate::error::raise;
use crate::interpreter::detach;

/// Pieces of a stream. They are documented in batchloom/dataset/tokens.py.
#[pyclass(frozen, module = "batchloom._native")]
#[derive(Debug)]
pub(crate) struct Tokens(TokenDataset);

/// Tokens, documents, separators, samples, inputs, what is left over, and padding.
type Counts = (u64, u64, u64, u64, u64, u64, u64);

#[pymethods]
impl Tokens {
    #[new]
    #[pyo3(signature = (tokens, seq_len, *, documents, separator, mode, position_ids, segment_ids, resets, jitter, tail))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of one constructor")]
    fn new(
        py: Python<'_>,
        tokens: FieldArray<'_>,
        seq_len: usize,
        documents: Option<&Tensor>,
        separator: Option<i64>,
        mode: &str,
        position_ids: bool,
        segment_ids: bool,
        resets: bool,
        jitter: bool,
        tail: &str,
    ) -> PyResult<Self> {
        let (mode, tail) = (parse(mode)?, parse(tail)?);
        let extras =
            TokenExtras::default().position_ids(position_ids).segment_ids(segment_ids).resets(resets);
        let tokens = batchloom::ChunkedTensor::from(tokens);
        let build = || {
            let dataset =
                TokenDataset::new(tokens, seq_len)?.mode(mode).extras(extras).jitter(jitter).tail(tail);
            let dataset = separator.into_iter().fold(dataset, TokenDataset::separator);
            match documents {
                Some(documents) => dataset.documents(&documents.0),
                None => Ok(dataset),
            }
        };
        detach(py, build).map(Self).map_err(|error| raise(&error))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn counts(&self, rows: u64) -> Counts {
        let TokenCounts { tokens, documents, separators, samples, inputs, tail, padding, .. } =
            self.0.counts(rows);
        (tokens, documents, separators, samples, inputs, tail, padding)
    }

    fn document_count(&self) -> u64 {
        self.0.document_count()
    }

    /// The stream of only some documents.
    fn select(&self, selection: &Selection) -> PyResult<Self> {
        self.0.select(&selection.0).map(Self).map_err(|error| raise(&error))
    }

    fn dataset(&self) -> Dataset {
        Dataset(EngineDataset::from(self.0.clone()))
    }
}

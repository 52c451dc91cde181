//! The labels of samples that losses do not ignore, from Python and back.

use batchloom::batching::{LabelCounts, Labels as EngineLabels};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::batching::sizes;
use crate::dlpack::Tensor;

/// The labels of samples: "next" if each element has the next one as its label, the number that every sample has, the four
/// numbers of samples of which the last have fewer, or counts, uint32, with the number of elements of a piece if they are of pieces.
#[derive(FromPyObject)]
pub(crate) enum Labels<'py> {
    Each(u64),
    Next(String),
    Last((u64, u64, u64, u64)),
    Counted(PyRef<'py, Tensor>, Option<u32>),
}

impl Labels<'_> {
    /// The labels as the engine takes them.
    pub(crate) fn engine(&self) -> PyResult<EngineLabels> {
        Ok(match self {
            Self::Each(labels) => EngineLabels::Each(*labels),
            Self::Next(name) if name == "next" => EngineLabels::Next,
            Self::Next(name) => {
                return Err(PyTypeError::new_err(format!("labels are {name:?}; expected \"next\"")));
            }
            Self::Last((each, from, longer, last)) => {
                EngineLabels::Last { each: *each, from: *from, longer: *longer, last: *last }
            }
            Self::Counted(counts, piece) => label_counts(counts, *piece)?.into(),
        })
    }
}

/// Counts of labels from an array of uint32.
pub(crate) fn label_counts(counts: &Tensor, piece: Option<u32>) -> PyResult<LabelCounts> {
    let counts = sizes(counts)?;
    Ok(piece.map_or_else(|| LabelCounts::new(counts), |piece| LabelCounts::of_pieces(counts, piece)))
}

/// Counts of labels as an array of uint32, and the number of elements of a piece.
pub(crate) fn counts_to_python(counts: &LabelCounts) -> PyResult<(Tensor, Option<u32>)> {
    Ok((Tensor::of_numbers(counts.as_slice())?, counts.piece()))
}

/// The labels of a plan as Python values: those that [`Labels`] takes, or `None`.
pub(crate) fn labels_to_python(py: Python<'_>, labels: Option<&EngineLabels>) -> PyResult<Py<PyAny>> {
    Ok(match labels {
        Some(EngineLabels::Next) => "next".into_pyobject(py)?.into_any().unbind(),
        Some(EngineLabels::Each(labels)) => labels.into_pyobject(py)?.into_any().unbind(),
        Some(&EngineLabels::Last { each, from, longer, last }) => {
            (each, from, longer, last).into_pyobject(py)?.into_any().unbind()
        }
        Some(EngineLabels::Counted(counts)) => {
            counts_to_python(counts)?.into_pyobject(py)?.into_any().unbind()
        }
        _ => py.None(),
    })
}

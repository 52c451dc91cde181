//! The placement of data on a device.

use batchloom::loader::{PlacementRequest as EngineRequest, Residency};
use pyo3::prelude::*;

use crate::error::raise;

/// The facts that decide about placement. Written about in batchloom/delivery/placement.py.
#[pyclass(frozen, module = "batchloom._native")]
#[derive(Debug)]
pub(crate) struct PlacementRequest(EngineRequest);

/// The argument `resident`: all of the data or none of it, or as much as a number of bytes.
#[derive(FromPyObject)]
enum Resident {
    // Booleans are integers in Python, so they are looked for first.
    Whole(bool),
    Within(u64),
}

impl From<Resident> for Residency {
    fn from(resident: Resident) -> Self {
        match resident {
            Resident::Whole(true) => Self::Always,
            Resident::Whole(false) => Self::Never,
            Resident::Within(bytes) => Self::Within(bytes),
        }
    }
}

/// The mode, the reason, the bytes that data may take, and the samples of a shard.
type Decision = (&'static str, String, Option<u64>, Option<u64>);

#[pymethods]
impl PlacementRequest {
    /// `resident` is `None` where the engine decides.
    #[new]
    #[pyo3(signature = (*, device, is_there, needed, present, free, resident, shard_size))]
    fn new(
        device: Option<String>,
        is_there: bool,
        needed: u64,
        present: u64,
        free: Option<u64>,
        resident: Option<Resident>,
        shard_size: Option<u64>,
    ) -> Self {
        let resident = resident.map_or(Residency::Auto, Residency::from);
        let (samples, unit) = (0, None);
        Self(EngineRequest { device, is_there, needed, present, free, resident, samples, shard_size, unit })
    }

    /// The bytes that data may take on the device.
    fn limit(&self) -> Option<u64> {
        self.0.limit().map(|limit| limit.bytes)
    }

    /// Decides about `samples` samples, in shards of a multiple of `unit`; `shard_bytes` gives the most bytes of a
    /// shard.
    fn decide(&self, samples: u64, unit: Option<u64>, shard_bytes: &Bound<'_, PyAny>) -> PyResult<Decision> {
        let request = EngineRequest { samples, unit, ..self.0.clone() };
        let mut failed = None;
        let decided = request.decide(|samples| {
            let bytes = shard_bytes.call1((samples,)).and_then(|bytes| bytes.extract());
            bytes.unwrap_or_else(|error| {
                failed = Some(error);
                u64::MAX
            })
        });
        match failed {
            Some(error) => Err(error),
            None => {
                let placement = decided.map_err(|error| raise(&error))?;
                Ok((placement.mode.name(), placement.reason, placement.limit, placement.shard_size))
            }
        }
    }

    /// The rows of views that move at a time; none for all, 0 for the rows of one batch.
    fn rows_at_once(&self, batch_size: u64, batch_bytes: u64, row_bytes: u64) -> PyResult<Option<u64>> {
        self.0.rows_at_once(batch_size, batch_bytes, row_bytes).map_err(|error| raise(&error))
    }
}

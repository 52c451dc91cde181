//! Slots of samples of an expected layout: Python puts samples there without making objects of the engine of them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use batchloom::DType;
use batchloom::dataset::SampleLayout;
use batchloom::loader::{Region, Slot, SlotPlace, SlotTarget, SlotWriter};
use batchloom::order::RunEpoch;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple, PyType};

use crate::dlpack::{Lent, Tensor, copy_array, copy_scalar, take_over};
use crate::error::{DTypeError, LoaderError, raise};
use crate::slot_function::with_function;

/// The expected layout of samples, and the way to their parts.
#[pyclass(frozen, module = "batchloom._native")]
#[derive(Debug)]
pub(crate) struct SlotPlan {
    parts: Parts,
    writers: Vec<SlotWriter>,
    kinds: Vec<PartKind>,
}

/// The kind of a part of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PartKind {
    /// An array of NumPy: the buffer protocol shows its memory.
    NumPy,
    /// A tensor of torch, which shows its memory as an array of NumPy.
    Torch,
    /// An array of another framework.
    Other,
    /// An object, in whose slot its ticket stands: see batchloom/collate/objects.py.
    Object,
}

/// The way from a sample to its arrays.
#[derive(Debug)]
enum Parts {
    /// The sample is the array.
    Bare,
    /// It is a tuple of this length.
    Tuple(usize),
    /// It is a dict with these keys.
    Dict(Vec<Py<PyString>>),
    /// It holds them otherwise.
    Nested,
}

#[pymethods]
impl SlotPlan {
    /// The layout of samples, given the name of the type and the shape of each array, and the structure of samples in
    /// Python: see batchloom/dataset/map/structure.py.
    #[new]
    fn new(structure: &Bound<'_, PyAny>, fields: Vec<(String, Vec<usize>)>) -> PyResult<Self> {
        let parts = structure.getattr("parts")?;
        let frameworks: Vec<String> = structure.getattr("frameworks")?.extract()?;
        let kind = |framework: &String| match framework.as_str() {
            "numpy" => PartKind::NumPy,
            "torch" => PartKind::Torch,
            "object" => PartKind::Object,
            _ => PartKind::Other,
        };
        let kinds = frameworks.iter().map(kind).collect();
        let parts = match parts.extract::<usize>() {
            Ok(0) => Parts::Bare,
            Ok(length) => Parts::Tuple(length),
            Err(_) if parts.is_none() => Parts::Nested,
            Err(_) => Parts::Dict(parts.extract()?),
        };
        let writer = |(name, shape): (String, Vec<usize>)| {
            let dtype = DType::named(&name);
            let dtype = dtype.ok_or_else(|| DTypeError::new_err(format!("{name} is no element type")))?;
            Ok(SlotWriter { slot: Slot::Same, shape, dtype, padding: vec![0; dtype.size()] })
        };
        Ok(Self { parts, writers: fields.into_iter().map(writer).collect::<PyResult<_>>()?, kinds })
    }
}

impl SlotPlan {
    /// The plan for a layout.
    pub(super) fn of(
        py: Python<'_>,
        structure: &Bound<'_, PyAny>,
        layout: &SampleLayout,
    ) -> PyResult<Py<Self>> {
        let fields = layout.fields.iter().map(|(dtype, shape)| (dtype.name().to_owned(), shape.clone()));
        Py::new(py, Self::new(structure, fields.collect())?)
    }

    /// The arrays of a sample that is taken apart as expected, or `None`.
    fn arrays<'py>(&self, sample: &Bound<'py, PyAny>) -> Option<Vec<Bound<'py, PyAny>>> {
        match &self.parts {
            Parts::Bare => Some(vec![sample.clone()]),
            Parts::Tuple(length) => {
                let tuple = sample.cast_exact::<PyTuple>().ok().filter(|tuple| tuple.len() == *length)?;
                Some(tuple.iter().collect())
            }
            Parts::Dict(keys) => {
                let dict = sample.cast_exact::<PyDict>().ok().filter(|dict| dict.len() == keys.len())?;
                keys.iter().map(|key| dict.get_item(key).ok().flatten()).collect()
            }
            Parts::Nested => None,
        }
    }
}

/// The memory of the slots of some samples, an array `[samples, ..slot]` for each field, as long as they are being
/// filled.
#[pyclass(frozen, module = "batchloom._native")]
#[derive(Debug)]
pub(crate) struct Slots {
    plan: Py<SlotPlan>,
    memory: Mutex<Memory>,
}

/// Memory of slots, of this process's engine or of a block that another process lends.
enum Memory {
    Own(Vec<Region>),
    Lent(Vec<Lent>),
}

impl Memory {
    fn field(&mut self, field: usize) -> Option<&mut [u8]> {
        match self {
            Self::Own(regions) => regions.get_mut(field).map(|region| &mut **region),
            Self::Lent(lent) => lent.get_mut(field).map(AsMut::as_mut),
        }
    }

    /// The slot of a sample in a field.
    fn slot(&mut self, field: usize, place: usize, bytes: usize) -> Option<&mut [u8]> {
        let start = place.checked_mul(bytes)?;
        self.field(field)?.get_mut(start..start.checked_add(bytes)?)
    }

    /// The slots of the first `count` samples in a field, one after the other.
    fn slots(&mut self, field: usize, count: usize, bytes: usize) -> Option<&mut [u8]> {
        self.field(field)?.get_mut(..count.checked_mul(bytes)?)
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Memory")
    }
}

#[pymethods]
impl Slots {
    /// Slots in memory that another process lends: an array of bytes for each field.
    #[new]
    #[expect(clippy::needless_pass_by_value, reason = "what PyO3 makes of a sequence")]
    fn from_lent(plan: Py<SlotPlan>, memory: Vec<Bound<'_, PyAny>>) -> PyResult<Self> {
        let lent = memory.iter().map(take_over).collect::<PyResult<_>>()?;
        Ok(Self { plan, memory: Mutex::new(Memory::Lent(lent)) })
    }

    /// Puts a sample into its slots, and its texts into `table` under `ticket`. Returns false if that takes more than
    /// copying arrays of the expected types and shapes.
    fn put(
        &self,
        py: Python<'_>,
        place: usize,
        sample: &Bound<'_, PyAny>,
        ticket: i64,
        table: &Bound<'_, PyDict>,
    ) -> PyResult<bool> {
        let plan = self.plan.get();
        let Some(parts) = plan.arrays(sample) else { return Ok(false) };
        let mut objects = Vec::new();
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        for ((field, writer), part) in plan.writers.iter().enumerate().zip(&parts) {
            let bytes = writer.shape.iter().product::<usize>() * writer.dtype.size();
            let Some(slot) = memory.slot(field, place, bytes) else { return Ok(false) };
            let is_put = match plan.kinds[field] {
                PartKind::Object => {
                    objects.push(part);
                    put_ticket(part, ticket, slot)
                }
                kind => put(part, writer, kind, slot)?,
            };
            if !is_put {
                return Ok(false);
            }
        }
        drop(memory);
        if !objects.is_empty() {
            table.set_item(ticket, PyTuple::new(py, objects)?)?;
        }
        Ok(true)
    }

    /// Puts all samples into their slots: a dict of columns has, for each part of a sample, an array `[samples, ..slot]`
    /// or a list. Their texts go into `table`, under the ticket of each sample. Returns false, with `table` as it was,
    /// if that takes more than copying arrays of the expected types and shapes.
    #[expect(clippy::needless_pass_by_value, reason = "what PyO3 makes of a sequence")]
    fn put_columns(
        &self,
        py: Python<'_>,
        columns: &Bound<'_, PyDict>,
        tickets: Vec<i64>,
        table: &Bound<'_, PyDict>,
    ) -> PyResult<bool> {
        let plan = self.plan.get();
        let Some(parts) = plan.arrays(columns) else { return Ok(false) };
        let mut objects = Vec::new();
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        for ((field, writer), part) in plan.writers.iter().enumerate().zip(&parts) {
            let bytes = writer.shape.iter().product::<usize>() * writer.dtype.size();
            let Some(slots) = memory.slots(field, tickets.len(), bytes) else { return Ok(false) };
            let kind = plan.kinds[field];
            let is_put = match part.cast_exact::<PyList>() {
                Ok(list) => put_list(list, writer, kind, &tickets, slots)?,
                Err(_) => put_column(part, writer, kind, tickets.len(), slots)?,
            };
            if !is_put {
                return Ok(false);
            }
            if kind == PartKind::Object {
                objects.push(part);
            }
        }
        drop(memory);
        for (place, ticket) in tickets.iter().enumerate().filter(|_| !objects.is_empty()) {
            let held: Vec<_> =
                objects.iter().map(|column| column.get_item(place)).collect::<PyResult<_>>()?;
            table.set_item(ticket, PyTuple::new(py, held)?)?;
        }
        Ok(true)
    }

    /// Puts the arrays of a sample into its slots. Returns false if their types or shapes are not as expected.
    #[expect(clippy::needless_pass_by_value, reason = "what PyO3 makes of a sequence")]
    fn put_arrays(&self, place: usize, arrays: Vec<PyRef<'_, Tensor>>) -> bool {
        let plan = self.plan.get();
        let same = |(writer, array): (&SlotWriter, &PyRef<'_, Tensor>)| {
            writer.dtype == array.0.dtype() && writer.shape == array.0.shape()
        };
        if arrays.len() != plan.writers.len() || !plan.writers.iter().zip(&arrays).all(same) {
            return false;
        }
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        for ((field, writer), array) in plan.writers.iter().enumerate().zip(&arrays) {
            let bytes = writer.shape.iter().product::<usize>() * writer.dtype.size();
            let Some(slot) = memory.slot(field, place, bytes) else { return false };
            let whole = SlotPlace { number: 0, epoch: RunEpoch::default(), sample: Some(0), part: None };
            if writer.write(&array.0, &whole, &writer.shape, slot).is_err() {
                return false;
            }
        }
        true
    }
}

impl Slots {
    /// Slots in regions of a block of this process.
    pub(super) fn of_regions(plan: Py<SlotPlan>, regions: Vec<Region>) -> Self {
        Self { plan, memory: Mutex::new(Memory::Own(regions)) }
    }

    /// The regions again. Nothing can be put there afterwards.
    pub(super) fn take(&self) -> Vec<Region> {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *memory, Memory::Own(Vec::new())) {
            Memory::Own(regions) => regions,
            Memory::Lent(_) => Vec::new(),
        }
    }
}

/// Writes the ticket of an object into its slot. Returns false if the object is neither a text nor bytes: whatever else
/// it is, Python knows whether it is an object.
fn put_ticket(object: &Bound<'_, PyAny>, ticket: i64, slot: &mut [u8]) -> bool {
    let is_text = object.is_exact_instance_of::<PyString>() || object.is_exact_instance_of::<PyBytes>();
    let bytes = ticket.to_ne_bytes();
    let fits = is_text && slot.len() == bytes.len();
    if fits {
        slot.copy_from_slice(&bytes);
    }
    fits
}

/// The memory of a tensor of torch as an array of NumPy, or as a scalar if the slot is one, which is quicker than
/// DLPack. `None` for anything else, and for what NumPy cannot show, such as a tensor that has a gradient.
fn show_tensor<'py>(part: &Bound<'py, PyAny>, shape: &[usize]) -> PyResult<Option<Bound<'py, PyAny>>> {
    static TENSOR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let py = part.py();
    if !part.get_type().is(TENSOR.import(py, "torch", "Tensor")?) {
        return Ok(None);
    }
    let Ok(array) = part.call_method0(intern!(py, "numpy")) else { return Ok(None) };
    if shape.is_empty() { array.get_item(PyTuple::empty(py)).map(Some) } else { Ok(Some(array)) }
}

/// Puts an array that has the values of all samples into their slots, as [`put`] does.
fn put_column(
    column: &Bound<'_, PyAny>,
    writer: &SlotWriter,
    kind: PartKind,
    samples: usize,
    slots: &mut [u8],
) -> PyResult<bool> {
    let shape = [&[samples], writer.shape.as_slice()].concat();
    let shown = if kind == PartKind::Torch { show_tensor(column, &shape)? } else { None };
    let of_numpy = kind == PartKind::NumPy || shown.is_some();
    Ok(of_numpy && copy_array(column.py(), shown.as_ref().unwrap_or(column), writer.dtype, &shape, slots))
}

/// Puts a list that has a part of each sample into their slots, as [`put`] and [`put_ticket`] do.
fn put_list(
    list: &Bound<'_, PyList>,
    writer: &SlotWriter,
    kind: PartKind,
    tickets: &[i64],
    slots: &mut [u8],
) -> PyResult<bool> {
    let bytes = slots.len() / tickets.len().max(1);
    if list.len() != tickets.len() || bytes == 0 {
        return Ok(false);
    }
    for ((part, &ticket), slot) in list.iter().zip(tickets).zip(slots.chunks_exact_mut(bytes)) {
        let is_put = match kind {
            PartKind::Object => put_ticket(&part, ticket, slot),
            kind => put(&part, writer, kind, slot)?,
        };
        if !is_put {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Copies an array, or a number, into a slot. Returns false if it is not of the expected type and shape, or of a kind
/// that takes more than a copy.
fn put(part: &Bound<'_, PyAny>, writer: &SlotWriter, kind: PartKind, slot: &mut [u8]) -> PyResult<bool> {
    let py = part.py();
    let shown = if kind == PartKind::Torch { show_tensor(part, &writer.shape)? } else { None };
    let of_numpy = kind == PartKind::NumPy || shown.is_some();
    let array = shown.as_ref().unwrap_or(part);
    let number = match writer.dtype {
        DType::I64 if array.is_exact_instance_of::<PyInt>() => match array.extract::<i64>() {
            Ok(number) => number.to_ne_bytes(),
            // The number is taken as an array, which says what is wrong with it.
            Err(_) => return Ok(false),
        },
        DType::F64 if array.is_exact_instance_of::<PyFloat>() => array.extract::<f64>()?.to_ne_bytes(),
        DType::Bool if array.is_exact_instance_of::<PyBool>() => [u8::from(array.extract::<bool>()?); 8],
        dtype if of_numpy && writer.shape.is_empty() && copy_scalar(array, dtype, slot)? => return Ok(true),
        dtype => return Ok(of_numpy && copy_array(py, array, dtype, &writer.shape, slot)),
    };
    if !writer.shape.is_empty() {
        return Ok(false);
    }
    slot.copy_from_slice(&number[..slot.len()]);
    Ok(true)
}

/// The number of a sample in its dataset, and among those that were read, and the first element and the number of
/// elements that are taken of it.
type PlaceNumbers = (u64, Option<usize>, Option<(usize, usize)>);

/// Fills consecutive slots of one field, in memory that another process lends, with the arrays of samples: zeros where
/// there is no array. `epoch` is the seed of the run and the epoch, `writer` the text of a slot writer, and `functions` has
/// the functions of slots by name.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "what PyO3 makes of a sequence")]
pub(crate) fn write_slots(
    writer: &str,
    concatenates: bool,
    epoch: (u64, u64),
    places: Vec<PlaceNumbers>,
    arrays: Vec<Option<PyRef<'_, Tensor>>>,
    memory: &Bound<'_, PyAny>,
    functions: HashMap<String, Py<PyAny>>,
) -> PyResult<()> {
    let mut functions = functions;
    let writer =
        SlotWriter::from_text(writer).ok_or_else(|| LoaderError::new_err("a slot writer is damaged"))?;
    let writer = SlotWriter { slot: with_function(writer.slot, |name| functions.remove(name)), ..writer };
    let epoch = RunEpoch { seed: epoch.0, epoch: epoch.1 };
    let place = |(number, sample, part)| SlotPlace { number, epoch, sample, part };
    let places: Vec<_> = places.into_iter().map(place).collect();
    let target = SlotTarget { writer: &writer, concatenates };
    let array = |sample: usize| arrays.get(sample)?.as_ref().map(|tensor| &tensor.0);
    target.fill(&places, take_over(memory)?.as_mut(), array).map_err(|error| raise(&error))
}

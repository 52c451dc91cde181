//! Slots that functions of Python fill.

use batchloom::Tensor as EngineTensor;
use batchloom::loader::{FillSlot, FunctionSlot, LoaderBuilder, Slot, SlotError, SlotMut, SlotPlace};
use batchloom::order::RunEpoch;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyByteArrayMethods};

use crate::dlpack::Tensor;
use crate::error::LoaderError;
use crate::interpreter::Visit;

/// A slot of a field: its name, the slot as text, and the function that fills it, if there is one.
pub(crate) type FieldSlot = (String, String, Option<Py<PyAny>>);

/// A function of Python. It is documented in batchloom/collate/slots.py.
struct SlotFunction(Py<PyAny>);

impl FillSlot for SlotFunction {
    fn fill(&self, sample: &EngineTensor, place: &SlotPlace, slot: SlotMut<'_>) -> Result<(), SlotError> {
        let SlotMut { dtype, shape, bytes } = slot;
        let fill = |py: Python<'_>| -> PyResult<()> {
            // Memory of Python's own: the function may keep it.
            let filled = PyByteArray::new(py, bytes);
            let (number, epoch) = (place.number, place.epoch);
            let drawn = (epoch.seed, epoch.epoch, number);
            let arguments = (Tensor(sample.clone()), drawn, shape.to_vec(), dtype.name(), &filled);
            self.0.bind(py).call1(arguments)?;
            bytes.copy_from_slice(&filled.to_vec());
            Ok(())
        };
        let visit = Visit::begin();
        let filled = visit.and_then(|_visit| Python::try_attach(fill));
        filled.ok_or("the interpreter is ending")?.map_err(Into::into)
    }
}

/// The numbers that a generator for the slots of one sample starts from.
#[pyfunction]
#[pyo3(name = "slot_key")]
pub(crate) fn key_of_slot(seed: u64, epoch: u64, sample: u64) -> [u64; 2] {
    SlotPlace { number: sample, epoch: RunEpoch { seed, epoch }, sample: None, part: None }.key_numbers()
}

/// The options of a loader with slots for some fields.
pub(crate) fn with_slots(mut builder: LoaderBuilder, slots: Vec<FieldSlot>) -> PyResult<LoaderBuilder> {
    for (field, text, function) in slots {
        let slot = Slot::from_text(&text);
        let slot =
            slot.ok_or_else(|| LoaderError::new_err(format!("{text} is no slot; please report this")))?;
        builder = builder.collate(field, with_function(slot, |_| function));
    }
    Ok(builder)
}

/// A slot with the function that fills it, found by its name.
pub(crate) fn with_function(slot: Slot, find: impl FnOnce(&str) -> Option<Py<PyAny>>) -> Slot {
    match slot {
        Slot::Function(slot) => Slot::Function(attach_function(slot, find)),
        other => other,
    }
}

fn attach_function(slot: FunctionSlot, find: impl FnOnce(&str) -> Option<Py<PyAny>>) -> FunctionSlot {
    match find(slot.name()) {
        Some(function) => slot.with_function(SlotFunction(function)),
        None => slot,
    }
}

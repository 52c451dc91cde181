//! States as Python has them: dicts of whole numbers, texts and lists, in the form that serde gives them.
//!
//! Both ways lead through JSON, by Python's module for it: it keeps whole numbers of any size, and takes NumPy's
//! by their `__index__`.

use batchloom::plan::State;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{IntoPyDict, PyDict};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::StateError;

/// A state as a dict of plain values.
pub(crate) fn write_state<'py>(py: Python<'py>, state: &State) -> PyResult<Bound<'py, PyDict>> {
    static LOADS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let text = serde_json::to_string(state).map_err(|error| damage_error(&error.to_string()))?;
    Ok(LOADS.import(py, "json", "loads")?.call1((text,))?.cast_into()?)
}

/// A state from a dict of plain values.
///
/// # Errors
/// `StateError` names the key that is damaged and its value, or the key that is missing.
pub(crate) fn read_state(dict: &Bound<'_, PyDict>) -> PyResult<State> {
    let (dict, mut entries) = (dict.copy()?, Map::new());
    for (key, value) in &dict {
        entries.insert(
            key.str()?.to_string(),
            read_value(&value).map_err(|error| entry_error(error, &key, &value))?,
        );
    }
    State::deserialize(&Value::Object(entries.clone())).map_err(|error| {
        let error = damage_error(&error.to_string());
        let damage = dict.iter().find(|(key, _)| is_damaged(entries.remove_entry(&key.to_string())));
        match damage {
            Some((key, value)) => entry_error(error, &key, &value),
            None => error,
        }
    })
}

/// A plain value of Python.
fn read_value(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    static DUMPS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static INDEX: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = value.py();
    let options = [("default", INDEX.import(py, "operator", "index")?)].into_py_dict(py)?;
    let text = DUMPS.import(py, "json", "dumps")?.call((value,), Some(&options))?;
    let read = serde_json::from_str(text.extract()?).map_err(|error| damage_error(&error.to_string()))?;
    // A key whose value is not known is left out.
    if matches!(read, Value::Null) { Err(damage_error("None")) } else { Ok(read) }
}

/// Returns true if an entry is no part of a state: a state that holds nothing else lacks only the other keys.
fn is_damaged(entry: Option<(String, Value)>) -> bool {
    let alone = State::deserialize(Value::Object(entry.into_iter().collect()));
    alone.is_err_and(|error| !error.to_string().starts_with("missing field"))
}

fn damage_error(reason: &str) -> PyErr {
    StateError::new_err(format!("the state is damaged: {reason}"))
}

/// The error for a value that is not what states hold under its key, as `error` has found. An interrupt stays one.
fn entry_error(error: PyErr, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyErr {
    if !error.is_instance_of::<PyException>(key.py()) {
        return error;
    }
    let expected = match key.to_string().as_str() {
        "version" | "seed" | "epoch" | "batches" | "steps" | "chunks_open" => "a whole number of at least 0",
        "fingerprint" | "lists" | "weights" | "digest" | "digest_before" => "a text",
        "worlds" => "pairs of a number of ranks and a number of steps",
        "bans" => "an epoch, a number of batches and numbers of samples for each change",
        "sources" => "an epoch, a position and pairs of an amount and weights for each change, in order",
        "set_epoch" => "a number of a caller, and the epoch that began with it",
        _ => "no such key",
    };
    let shown = value.repr().map_or_else(|_| value.get_type().to_string(), |text| text.to_string());
    damage_error(&format!("{key} is {shown:.80}; expected {expected}"))
}

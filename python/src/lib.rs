//! `batchloom._native`: the engine for Python. Glue only: it converts, it decides nothing.
//!
//! One file a concept: `exchange` borrows and lends arrays by DLPack, `arrow` borrows Arrow lists, `cut`, `dataset`,
//! `windows`, `groups`, `tokens`, `plan`, `loader`, `block` and `steps` wrap the engine's types, `error` turns its errors into exceptions. What users
//! see is written in Python, beside this folder.

mod arrow;
mod block;
mod cut;
mod dataset;
mod error;
mod exchange;
mod groups;
mod loader;
mod memory;
mod plan;
mod steps;
mod tokens;
mod windows;

/// The extension module.
#[pyo3::pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use crate::arrow::{are_numbers, borrow_lists};
    #[pymodule_export]
    use crate::block::Block;
    #[pymodule_export]
    use crate::cut::Rule;
    #[pymodule_export]
    use crate::dataset::{Dataset, Sequences};
    #[pymodule_export]
    use crate::exchange::{Tensor, borrow};
    #[pymodule_export]
    use crate::groups::Groups;
    #[pymodule_export]
    use crate::loader::{Batches, Loader, forked};
    #[pymodule_export]
    use crate::memory::settle;
    #[pymodule_export]
    use crate::plan::Plan;
    #[pymodule_export]
    use crate::steps::{Steps, Views};
    #[pymodule_export]
    use crate::tokens::Tokens;
    #[pymodule_export]
    use crate::windows::Windows;
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "Python's name for it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}

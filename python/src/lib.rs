//! `batchloom._native`: the engine for Python. This is only glue: it converts, and decides nothing.
//!
//! One file a concept: `dlpack` borrows and lends arrays, `arrow` borrows Arrow lists from `arrow_structs` that are checked, `batching`, `dataset`, `plan`,
//! `run`, `loader`, `micro_batches` and `report` wrap the engine's types, `command_line` runs the program, `error` turns its errors into exceptions, `guard` catches panics of
//! libraries, `file_maps` lists maps of files and `mapped_pages` unmaps their pages, `reserve` keeps memory back for small blocks, `interpreter` guards visits of the engine's threads, `slot_function` calls functions that fill slots, `state` takes states to dicts and back. The package that users see is written in Python, beside this folder.

mod arrow;
mod arrow_structs;
mod batching;
mod chunked;
mod command_line;
mod conversion;
mod dataset;
mod dlpack;
mod draws;
mod error;
mod file_maps;
mod formats;
mod guard;
mod interpreter;
mod labels;
mod loader;

mod mapped_pages;
mod memory;
mod micro_batches;
mod plan;
mod plan_options;
mod report;
mod reserve;
mod run;
mod slot_function;
mod state;

#[global_allocator]
static MEMORY: reserve::Reserved = reserve::Reserved::new();

/// The extension module.
#[pyo3::pymodule(gil_used = false)]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::arrow::{are_numbers, are_rows, borrow_lists, borrow_rows};
    #[pymodule_export]
    use crate::batching::{Rule, calibration_shapes, check_shapes, fit_cost, measure, transformer_cost};
    #[pymodule_export]
    use crate::chunked::ChunkedTensor;
    #[pymodule_export]
    use crate::command_line::run_command;
    #[pymodule_export]
    use crate::conversion::{Conversion, conversions};
    #[pymodule_export]
    use crate::dataset::groups::{Groups, text_ids};
    #[pymodule_export]
    use crate::dataset::items::ItemChunks;
    #[pymodule_export]
    use crate::dataset::map::{StopSign, key_of_sample};
    #[pymodule_export]
    use crate::dataset::part_end::PartEnd;
    #[pymodule_export]
    use crate::dataset::processes::Processes;
    #[pymodule_export]
    use crate::dataset::selection::Selection;
    #[pymodule_export]
    use crate::dataset::slots::{SlotPlan, Slots, write_slots};
    #[pymodule_export]
    use crate::dataset::tokens::Tokens;
    #[pymodule_export]
    use crate::dataset::windows::{Backtest, Windows};
    #[pymodule_export]
    use crate::dataset::{Dataset, Sequences, SparseRows};
    #[pymodule_export]
    use crate::dlpack::{Tensor, borrow};
    #[pymodule_export]
    use crate::draws::Draws;
    #[pymodule_export]
    use crate::file_maps::FileMaps;
    #[pymodule_export]
    use crate::formats::{FileChunks, JsonLines, ParquetFiles, line_places};
    #[pymodule_export]
    use crate::interpreter::settle;
    #[pymodule_export]
    use crate::loader::{
        Batches, Block, Column, HostViews, Loader, PlacementRequest, StepIterator, Steps, forked,
    };
    #[pymodule_export]
    use crate::mapped_pages::MappedPages;
    #[pymodule_export]
    use crate::micro_batches::micro_batches;
    #[pymodule_export]
    use crate::plan::{Plan, launched, restore_order};
    #[pymodule_export]
    use crate::report::{Comparison, compare};
    #[pymodule_export]
    use crate::run::{Iteration, Run};
    #[pymodule_export]
    use crate::slot_function::key_of_slot;
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "Python's name for it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_init]
    #[expect(clippy::unnecessary_wraps, reason = "the signature that a module needs")]
    fn init(_module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::interpreter::load();
        batchloom_formats::silence_panics();
        Ok(())
    }
}

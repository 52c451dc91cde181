//! The laws of the design, one file a promise, in one binary.
#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test's values are small, and a panic is how it fails"
)]

#[cfg(feature = "arrow")]
mod arrow;
mod balance;
mod bans;
mod batches;
mod block_masks;
mod budgets;
mod chunk_reader;
mod chunk_window;
mod chunked_mixtures;
mod chunked_tensors;
mod chunks;
mod conversions;
mod cost;
mod counts;
mod debug;
mod definitions;
mod determinism;
mod direction;
mod disjoint;
mod draws;
mod errors;
#[cfg(all(feature = "npy", feature = "safetensors"))]
mod files;
mod graphs;
mod groups;
mod index_table;
mod iterators;
mod keys;
mod launched;
mod lifetime;
mod lists;
mod losses;
mod map;
mod messages;
mod micro_batches;
mod order;
mod own_lengths;
mod pad_to;
mod per_class;
mod placement;
mod plan;
mod pools;
mod prose;
mod random_slots;
mod replay;
#[cfg(feature = "report")]
mod report;
#[cfg(feature = "image")]
mod resize;
mod restore_order;
mod resume;
mod rows;
mod rules;
mod runs;
mod samples;
mod selections;
mod sequences;
mod sparse_rows;
mod spelling;
mod threads;
mod time_split;
mod timed_rows;
mod tokens;
mod types;
mod uneven;
mod views;
mod windows;

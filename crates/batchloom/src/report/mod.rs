//! Plans to look at: the statistics in words, rules side by side, a histogram of lengths, and a page of pictures.
//!
//! The command line and the Python package print what is said here. A page is one file of HTML with inline SVG, without
//! scripts and without links to load, for screens of any width, light and dark, and for paper. Promise: a page is small,
//! whatever the plan. Of more than a few thousand steps or samples, it shows some, evenly spread.

mod comparison;
mod error;
mod histogram;
mod page;
mod pictures;
mod statistics;

pub use comparison::{Budget, Compared, Comparison};
pub use histogram::{Bin, Histogram};
pub use page::Page;
pub use statistics::{Statistic, Value};

//! Readers of formats panic on some damaged files. Such a panic is an error here.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Reads a part of a file; a panic on the way is an error in words.
pub(crate) fn catch_panic<T>(read: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(read)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason is known");
        text.lines().next().unwrap_or_default().to_owned()
    })
}

//! Readers of formats panic on some damaged files. Such a panic is an error here, which nobody prints.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    /// True while this thread reads a part of a file, whose panics are errors.
    static READING: Cell<bool> = const { Cell::new(false) };
}

/// Reads a part of a file; a panic on the way is an error in words.
#[doc(hidden)]
pub fn catch_panic<T>(read: impl FnOnce() -> T) -> Result<T, String> {
    let before = READING.replace(true);
    let read = catch_unwind(AssertUnwindSafe(read));
    READING.set(before);
    read.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason is known");
        text.lines().next().unwrap_or_default().to_owned()
    })
}

/// Keeps panics of readers, which become errors, from being printed. Other panics are printed as before.
#[doc(hidden)]
pub fn silence_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !READING.get() {
                print(info);
            }
        }));
    });
}

//! Progress on standard error, if that is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A line about the work under way, gone when dropped.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A line without an end that is known.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        let bar = ProgressBar::new_spinner().with_message(text.into());
        bar.enable_steady_tick(Duration::from_millis(100));
        Self(bar)
    }

    /// A bar of a number of parts.
    pub(crate) fn of(parts: u64, text: impl Into<String>) -> Self {
        let bar = ProgressBar::new(parts).with_message(text.into());
        if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {human_pos}/{human_len}") {
            bar.set_style(style);
        }
        Self(bar)
    }

    pub(crate) fn say(&self, text: impl Into<String>) {
        self.0.set_message(text.into());
    }

    pub(crate) fn add(&self, parts: u64) {
        self.0.inc(parts);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

//! `WindowShape`: what a window looks like, and where in its series windows lie.

use std::str::FromStr;

use crate::{Error, Result};

/// Which end of a series the windows are counted from, where the last one does not end with it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Anchor {
    /// The first window begins with the series.
    #[default]
    Start,
    /// The last window ends with the series.
    End,
}

impl FromStr for Anchor {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        match name {
            "start" => Ok(Self::Start),
            "end" => Ok(Self::End),
            _ => Err(format!("anchor is {name:?}; expected \"start\" or \"end\"")),
        }
    }
}

/// What happens to a series that is too short for one window. One without any step never makes a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Short {
    /// It makes one window, that begins with zeros.
    #[default]
    Pad,
    /// It makes none.
    Skip,
    /// No dataset is made; the error names the series.
    Error,
}

impl FromStr for Short {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        match name {
            "pad" => Ok(Self::Pad),
            "skip" => Ok(Self::Skip),
            "error" => Ok(Self::Error),
            _ => Err(format!("short is {name:?}; expected \"pad\", \"skip\" or \"error\"")),
        }
    }
}

/// What counts the same in an epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Weights {
    /// Every window, so that a long series counts more than a short one.
    #[default]
    Windows,
    /// Every series: it makes as many samples as the one that has most windows, its own coming again and again.
    Series,
}

impl FromStr for Weights {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        match name {
            "windows" => Ok(Self::Windows),
            "series" => Ok(Self::Series),
            _ => Err(format!("weights is {name:?}; expected \"windows\" or \"series\"")),
        }
    }
}

/// What a window looks like: so many steps of input, then `gap` steps that are not looked at, then the horizon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WindowShape {
    /// Steps of input.
    pub input_len: usize,
    /// Steps to predict; 0 for inputs alone.
    pub horizon: usize,
    /// Steps before the horizon that targets begin with.
    pub label_len: usize,
    /// Steps between input and horizon.
    pub gap: usize,
    /// Steps from one window to the next.
    pub stride: usize,
    /// Which end windows are counted from.
    pub anchor: Anchor,
    /// What happens to short series.
    pub short: Short,
    /// What counts the same.
    pub weights: Weights,
}

impl WindowShape {
    /// Windows of `input_len` steps that begin at every step, and nothing to predict.
    pub fn new(input_len: usize) -> Self {
        Self {
            input_len,
            horizon: 0,
            label_len: 0,
            gap: 0,
            stride: 1,
            anchor: Anchor::default(),
            short: Short::default(),
            weights: Weights::default(),
        }
    }

    /// Steps of a series that a window takes.
    pub fn span(&self) -> usize {
        self.context().saturating_add(self.horizon)
    }

    /// Steps from the start of a window to its horizon.
    pub(super) fn context(&self) -> usize {
        self.input_len.saturating_add(self.gap)
    }

    pub(super) fn check(&self) -> Result<()> {
        let refused = |reason: String| Err(Error::WindowShape { reason });
        if self.input_len == 0 {
            return refused("input_len is 0; expected at least 1 step".to_owned());
        }
        if self.stride == 0 {
            return refused("stride is 0; expected at least 1 step".to_owned());
        }
        if self.horizon == 0 && (self.label_len > 0 || self.gap > 0) {
            let (label_len, gap) = (self.label_len, self.gap);
            return refused(format!(
                "label_len is {label_len} and gap is {gap}; expected 0 where horizon is 0"
            ));
        }
        if self.label_len > self.context() {
            let (found, most) = (self.label_len, self.context());
            return refused(format!(
                "label_len is {found}; expected at most input_len + gap, which is {most}"
            ));
        }
        Ok(())
    }
}

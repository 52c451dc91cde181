//! `WindowShape`: the shape of a window, and the places of windows in a series.

use super::error::ShapeCause;
use crate::Result;
use crate::named::named;

/// The end of a series from which windows are counted, if they do not fill it exactly.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Anchor {
    /// The first window begins with the series.
    #[default]
    Start,
    /// The last window ends with the series.
    End,
}

named!(Anchor, "anchor", {
    "start" => Start,
    "end" => End,
});

/// The treatment of a series that is too short for its targets: it has fewer than [`WindowShape::least_len`] steps. A
/// series that has these, and fewer than a window, makes one window that begins with zeros; all of its targets are
/// real.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Short {
    /// No dataset is made: the error names the first such series, and counts them.
    #[default]
    Error,
    /// The series makes no window: [`WindowCounts::without`](super::WindowCounts::without) counts it.
    Drop,
    /// The series makes one window that begins with zeros, some of its targets among them. Batches should hold the
    /// [mask](super::WindowDataset::mask). A series without any step makes no window.
    Pad,
}

named!(Short, "short", {
    "error" => Error,
    "drop" => Drop,
    "pad" => Pad,
});

/// The unit that counts the same everywhere in an epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SampledBy {
    /// Every window counts the same, so a long series counts more than a short one.
    #[default]
    Windows,
    /// Every series counts the same: it repeats its windows until it has the number of the series with most windows.
    Series,
}

named!(SampledBy, "sampled_by", {
    "windows" => Windows,
    "series" => Series,
});

/// The shape of a window: steps of input, then `gap` steps that are not looked at, then the horizon.
///
/// ```
/// use batchloom::dataset::WindowShape;
///
/// let shape = WindowShape::new(96).horizon(24).stride(2);
/// assert_eq!((shape.input_len, shape.span()), (96, 120));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct WindowShape {
    /// The number of steps of input.
    pub input_len: usize,
    /// The number of steps to predict; 0 for inputs alone.
    pub horizon: usize,
    /// The number of steps before the horizon with which targets begin.
    pub label_len: usize,
    /// The number of steps between input and horizon.
    pub gap: usize,
    /// The number of steps from one window to the next.
    pub stride: usize,
    /// The most steps of a window that may lie before its series, and are zeros there: input that a window at the
    /// beginning of a series has to do without.
    pub lead: usize,
    /// The most steps of a window that may lie after its series, and are zeros there. Only without a horizon.
    pub trail: usize,
    /// True if a series shorter than a window is too short, even if it has all targets.
    pub whole: bool,
    /// The end of the series from which windows are counted.
    pub anchor: Anchor,
    /// The treatment of short series.
    pub short: Short,
    /// The unit that counts the same in an epoch.
    pub sampled_by: SampledBy,
}

impl WindowShape {
    /// Windows of `input_len` steps that begin at every step, with nothing to predict.
    pub fn new(input_len: usize) -> Self {
        Self {
            input_len,
            horizon: 0,
            label_len: 0,
            gap: 0,
            stride: 1,
            lead: 0,
            trail: 0,
            whole: false,
            anchor: Anchor::default(),
            short: Short::default(),
            sampled_by: SampledBy::default(),
        }
    }

    /// Sets the number of steps to predict. Default: 0, for inputs alone.
    #[must_use]
    pub fn horizon(self, horizon: usize) -> Self {
        Self { horizon, ..self }
    }

    /// Sets the number of steps before the horizon with which targets begin. Default: 0.
    #[must_use]
    pub fn label_len(self, label_len: usize) -> Self {
        Self { label_len, ..self }
    }

    /// Sets the number of steps between input and horizon. Default: 0.
    #[must_use]
    pub fn gap(self, gap: usize) -> Self {
        Self { gap, ..self }
    }

    /// Sets the number of steps from one window to the next. Default: 1.
    #[must_use]
    pub fn stride(self, stride: usize) -> Self {
        Self { stride, ..self }
    }

    /// Sets the most steps of a window that may lie before its series. Default: 0.
    #[must_use]
    pub fn lead(self, lead: usize) -> Self {
        Self { lead, ..self }
    }

    /// Sets the most steps of a window that may lie after its series. Default: 0.
    #[must_use]
    pub fn trail(self, trail: usize) -> Self {
        Self { trail, ..self }
    }

    /// Sets the end of the series from which windows are counted. Default: the start.
    #[must_use]
    pub fn anchor(self, anchor: Anchor) -> Self {
        Self { anchor, ..self }
    }

    /// Makes a series too short if it is shorter than a window, even if it has all targets: no window begins with zeros
    /// but those of [`lead`](Self::lead). Default: such a series makes a window.
    #[must_use]
    pub fn whole(self, whole: bool) -> Self {
        Self { whole, ..self }
    }

    /// Sets the treatment of series that are too short for their targets. Default: an error.
    #[must_use]
    pub fn short(self, short: Short) -> Self {
        Self { short, ..self }
    }

    /// Sets the unit that counts the same in an epoch. Default: windows.
    #[must_use]
    pub fn sampled_by(self, sampled_by: SampledBy) -> Self {
        Self { sampled_by, ..self }
    }

    /// The number of steps of a series that a window takes.
    pub fn span(&self) -> usize {
        self.context().saturating_add(self.horizon)
    }

    /// The number of steps that a series must have for more than one window.
    pub fn least_span(&self) -> usize {
        self.span().saturating_sub(self.lead).saturating_sub(self.trail)
    }

    /// The number of steps that a series must have for a window whose targets are all real: those of its targets, and
    /// one of input. A series with fewer is [`Short`]. Where windows are [`whole`](Self::whole), or leave out steps by
    /// `lead` or `trail`, it is [`least_span`](Self::least_span).
    ///
    /// ```
    /// use batchloom::dataset::WindowShape;
    ///
    /// let shape = WindowShape::new(96).horizon(24);
    /// assert_eq!((shape.least_span(), shape.least_len()), (120, 25));
    /// assert_eq!(shape.label_len(48).least_len(), 72);
    /// ```
    pub fn least_len(&self) -> usize {
        if self.whole || self.lead > 0 || self.trail > 0 {
            return self.least_span();
        }
        let (_, targets) = self.target();
        let from_input = self.gap.saturating_add(self.horizon).saturating_add(1);
        from_input.max(targets).min(self.least_span())
    }

    /// The number of steps from the start of a window to its horizon.
    pub(super) fn context(&self) -> usize {
        self.input_len.saturating_add(self.gap)
    }

    /// The first step of a window that targets hold, and their number.
    pub(super) fn target(&self) -> (usize, usize) {
        (self.context() - self.label_len, self.label_len.saturating_add(self.horizon))
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.input_len == 0 {
            return Err(ShapeCause::NoSteps { option: "input_len" }.into());
        }
        if self.stride == 0 {
            return Err(ShapeCause::NoSteps { option: "stride" }.into());
        }
        let (lead, trail) = (self.lead, self.trail);
        if self.horizon > 0 && trail > 0 {
            return Err(ShapeCause::Trail { trail, horizon: self.horizon }.into());
        }
        if lead.saturating_add(trail) >= self.input_len {
            return Err(ShapeCause::Lead { lead, trail, input_len: self.input_len }.into());
        }
        if self.horizon == 0 && (self.label_len > 0 || self.gap > 0) {
            let (label_len, gap) = (self.label_len, self.gap);
            return Err(ShapeCause::NoHorizon { label_len, gap }.into());
        }
        let least = self.context().saturating_sub(lead);
        if lead > 0 && self.label_len > least && self.short != Short::Pad {
            return Err(ShapeCause::LabelLenShort { label_len: self.label_len, least }.into());
        }
        if self.label_len > self.context() {
            return Err(ShapeCause::LabelLen { label_len: self.label_len, most: self.context() }.into());
        }
        Ok(())
    }
}

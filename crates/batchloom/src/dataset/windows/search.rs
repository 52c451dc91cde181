//! The search for the row of a series that is valid at a time, by the times of its rows.

use std::fmt::{Debug, Display};

use crate::collate::Found;
use crate::tensor::Element;

/// The row that is valid at a time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Match {
    /// The last row at the time or before it: a row of the past.
    #[default]
    Last,
    /// The row that is closest to the time; of two that are as close, the earlier one.
    Nearest,
}

crate::named::named!(Match, "match", {
    "last" => Last,
    "nearest" => Nearest,
});

/// The number that a clock shows: a whole number of some unit, or a float.
pub trait Tick: Element + Copy + Debug + PartialOrd + sealed::Sealed {
    /// The sum of two numbers, which is exact for whole numbers and a float for floats.
    type Moment: Copy + Debug + Display + PartialOrd;

    /// The number as a moment.
    fn moment(self) -> Self::Moment;

    /// The moment that is an offset after this one.
    fn after(self, offset: Self) -> Self::Moment;

    /// The distance from a moment to a later one.
    fn distance(from: Self::Moment, to: Self::Moment) -> Self::Moment;

    /// Returns true if the number can be compared with each other one.
    fn is_finite(self) -> bool;
}

impl Tick for i64 {
    type Moment = i128;

    fn moment(self) -> i128 {
        self.into()
    }

    fn after(self, offset: Self) -> i128 {
        i128::from(self) + i128::from(offset)
    }

    fn distance(from: i128, to: i128) -> i128 {
        to - from
    }

    fn is_finite(self) -> bool {
        true
    }
}

impl Tick for f64 {
    type Moment = Self;

    fn moment(self) -> Self {
        self
    }

    fn after(self, offset: Self) -> Self {
        self + offset
    }

    fn distance(from: Self, to: Self) -> Self {
        to - from
    }

    fn is_finite(self) -> bool {
        self.is_finite()
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for i64 {}
    impl Sealed for f64 {}
}

/// The number of `times`, which grow, at a moment or before it. The search goes out from `guess` in steps that double,
/// so it is short where the guess is close.
fn count_until<T: Tick>(times: &[T], moment: T::Moment, guess: usize) -> usize {
    let is_past = |place: usize| times[place].moment() <= moment;
    let (guess, mut step) = (guess.min(times.len()), 1);
    // The answer lies between both.
    let (low, high) = if guess < times.len() && is_past(guess) {
        let mut low = guess + 1;
        while low + step < times.len() && is_past(low + step) {
            low += step + 1;
            step *= 2;
        }
        (low, times.len().min(low + step))
    } else {
        let mut high = guess;
        while high >= step && !is_past(high - step) {
            high -= step;
            step *= 2;
        }
        (high.saturating_sub(step), high)
    };
    low + times[low..high].partition_point(|time| time.moment() <= moment)
}

/// The rule by which a row is valid at a time, with the greatest distance from it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Search<T> {
    pub(super) matching: Match,
    pub(super) tolerance: Option<T>,
}

impl<T: Tick> Search<T> {
    /// The row of `times`, which grow, that is valid at a moment. `guess` is a row close to it, and becomes one for the
    /// next search.
    pub(super) fn find(&self, times: &[T], moment: T::Moment, guess: &mut usize) -> Found {
        let count = count_until(times, moment, *guess);
        *guess = count.saturating_sub(1);
        let (before, after) = (count.checked_sub(1), Some(count).filter(|&row| row < times.len()));
        let distance = |row: usize| match times[row].moment() {
            time if time <= moment => T::distance(time, moment),
            time => T::distance(moment, time),
        };
        let closest = match (before, after) {
            (Some(before), Some(after)) if distance(after) < distance(before) => Some(after),
            (Some(before), _) => Some(before),
            (None, after) => after,
        };
        let valid = match self.matching {
            Match::Last => before,
            Match::Nearest => closest,
        };
        let is_within =
            |row: &usize| self.tolerance.is_none_or(|tolerance| distance(*row) <= tolerance.moment());
        // A place without a row repeats a row of the past where there is one, if only such rows are valid.
        valid.filter(is_within).map_or(Found::Absent(valid.or(closest)), Found::Row)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Match, Search, Tick, count_until};
    use crate::collate::Found;

    /// The row by a look at each of them.
    fn slow<T: Tick>(times: &[T], wanted: T::Moment, matching: Match, tolerance: Option<T>) -> Option<usize> {
        let mut best: Option<(usize, T::Moment)> = None;
        for (row, time) in times.iter().enumerate() {
            let time = time.moment();
            if time > wanted && matching == Match::Last {
                continue;
            }
            let away = if time > wanted { T::distance(wanted, time) } else { T::distance(time, wanted) };
            // Of rows before the moment the later one is closer, even where their distances round to the same.
            if time <= wanted || best.is_none_or(|(_, least)| away < least) {
                best = Some((row, away));
            }
        }
        let is_within = |away: T::Moment| tolerance.is_none_or(|tolerance| away <= tolerance.moment());
        best.filter(|&(_, away)| is_within(away)).map(|(row, _)| row)
    }

    fn growing() -> impl Strategy<Value = Vec<i64>> {
        let near = prop::collection::btree_set(-30_i64..30, 0..20);
        let edges = prop::collection::btree_set(
            prop::sample::select(vec![i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX]),
            0..7,
        );
        prop_oneof![3 => near, 1 => edges].prop_map(|times| times.into_iter().collect())
    }

    fn matching() -> impl Strategy<Value = Match> {
        prop_oneof![Just(Match::Last), Just(Match::Nearest)]
    }

    proptest! {
        #[test]
        fn the_row_of_a_whole_number_is_found(
            times in growing(),
            (step, offset) in (prop_oneof![4 => -20_i64..20, 1 => any::<i64>()], prop_oneof![4 => -20_i64..20, 1 => any::<i64>()]),
            matching in matching(),
            tolerance in prop::option::of(prop_oneof![0_i64..20, 0..i64::MAX]),
            mut guess in 0_usize..25,
        ) {
            let wanted = step.after(offset);
            let found = Search { matching, tolerance }.find(&times, wanted, &mut guess);
            let expected = slow(&times, wanted, matching, tolerance);
            prop_assert_eq!(matches!(found, Found::Row(_)), expected.is_some());
            prop_assert!(expected.is_none_or(|row| found == Found::Row(row)));
            prop_assert_eq!(found == Found::Absent(None), times.is_empty());
            prop_assert!(guess <= times.len());
        }

        #[test]
        fn the_row_of_a_float_is_found(
            times in prop::collection::btree_set(-30_i64..30, 0..20),
            tenth in any::<bool>(),
            (step, offset) in (-40_i64..40, prop_oneof![-40_i64..40, Just(i64::MAX)]),
            matching in matching(),
            tolerance in prop::option::of(0_i64..20),
            mut guess in 0_usize..25,
        ) {
            let scale = if tenth { 0.1 } else { 0.25 };
            let float = |number: i64| if number == i64::MAX { f64::MAX } else { number as f64 * scale };
            let times: Vec<f64> = times.into_iter().map(float).collect();
            let (wanted, tolerance) = (float(step).after(float(offset)), tolerance.map(float));
            let found = Search { matching, tolerance }.find(&times, wanted, &mut guess);
            let expected = slow(&times, wanted, matching, tolerance);
            prop_assert_eq!(matches!(found, Found::Row(_)), expected.is_some());
            prop_assert!(expected.is_none_or(|row| found == Found::Row(row)));
        }

        #[test]
        fn a_guess_changes_nothing(times in growing(), moment in -40_i64..40, guess in 0_usize..25) {
            let expected = times.iter().filter(|&&time| time <= moment).count();
            prop_assert_eq!(count_until(&times, moment.into(), guess), expected);
        }
    }
}

//! Division by largest differencing, after Karmarkar and Karp: parts of nearly equal cost, without caps.
//!
//! A state divides some of the numbers into all parts. The two states with the largest differences are put together, the
//! costliest part of one with the cheapest of the other, until one state is left.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The members of a part, as a chain through `next`.
#[derive(Debug, Clone, Copy)]
struct Part {
    cost: u64,
    first: usize,
    last: usize,
}

const NOBODY: usize = usize::MAX;
const EMPTY: Part = Part { cost: 0, first: NOBODY, last: NOBODY };

/// Returns the members of each of `parts` parts, by their places in `costs`; with `equal`, parts differ by one member at
/// most.
pub(super) fn divide(costs: &[u64], parts: usize, equal: bool) -> Vec<Vec<usize>> {
    let mut next = vec![NOBODY; costs.len()];
    let mut states = begin(costs, parts, equal);
    let difference = |state: &[Part]| state[0].cost - state[parts - 1].cost;
    let mut heap: BinaryHeap<_> =
        states.iter().enumerate().map(|(number, state)| (difference(state), Reverse(number))).collect();
    while heap.len() > 1 {
        let (Some((_, Reverse(one))), Some((_, Reverse(other)))) = (heap.pop(), heap.pop()) else { break };
        let taken = std::mem::take(&mut states[other]);
        for (part, more) in states[one].iter_mut().zip(taken.iter().rev()) {
            join(part, *more, &mut next);
        }
        states[one].sort_by_key(|part| Reverse(part.cost));
        heap.push((difference(&states[one]), Reverse(one)));
    }
    let last =
        heap.pop().map_or_else(|| vec![EMPTY; parts], |(_, Reverse(one))| std::mem::take(&mut states[one]));
    last.into_iter()
        .map(|part| std::iter::successors(known(part.first), |&at| known(next[at])).collect())
        .collect()
}

/// The states of the beginning: one for each number, or with `equal` one for each run of sorted numbers.
fn begin(costs: &[u64], parts: usize, equal: bool) -> Vec<Vec<Part>> {
    let mut places: Vec<usize> = (0..costs.len()).collect();
    places.sort_by_key(|&place| Reverse(costs[place]));
    let single = |place: usize| Part { cost: costs[place], first: place, last: place };
    let runs = if equal { places.chunks(parts) } else { places.chunks(1) };
    let state = |run: &[usize]| {
        let mut state: Vec<Part> = run.iter().map(|&place| single(place)).collect();
        state.resize(parts, EMPTY);
        state
    };
    runs.map(state).collect()
}

/// Appends the members of one part to another.
fn join(part: &mut Part, more: Part, next: &mut [usize]) {
    if more.first == NOBODY {
        return;
    }
    match part.first {
        NOBODY => *part = more,
        _ => {
            next[part.last] = more.first;
            *part = Part { cost: part.cost + more.cost, first: part.first, last: more.last };
        }
    }
}

fn known(place: usize) -> Option<usize> {
    (place != NOBODY).then_some(place)
}

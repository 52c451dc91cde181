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
    if costs.is_empty() || parts == 0 {
        return vec![Vec::new(); parts];
    }
    let mut next = vec![NOBODY; costs.len()];
    let mut states = begin(costs, parts, equal);
    let difference = |state: &[Part]| state[0].cost - state[parts - 1].cost;
    let mut heap: BinaryHeap<_> = states
        .chunks_exact(parts)
        .enumerate()
        .map(|(number, state)| (difference(state), Reverse(number)))
        .collect();
    let mut last = 0;
    while let Some((_, Reverse(one))) = heap.pop() {
        last = one;
        let Some((_, Reverse(other))) = heap.pop() else { break };
        for part in 0..parts {
            let more = states[(other + 1) * parts - 1 - part];
            join(&mut states[one * parts + part], more, &mut next);
        }
        let state = &mut states[one * parts..(one + 1) * parts];
        state.sort_by_key(|part| Reverse(part.cost));
        heap.push((difference(state), Reverse(one)));
    }
    let members = |part: &Part| std::iter::successors(known(part.first), |&at| known(next[at])).collect();
    states[last * parts..(last + 1) * parts].iter().map(members).collect()
}

/// The states of the beginning, each as its parts: one for each number, or with `equal` one for each run of sorted numbers.
fn begin(costs: &[u64], parts: usize, equal: bool) -> Vec<Part> {
    let mut places: Vec<usize> = (0..costs.len()).collect();
    places.sort_by_key(|&place| Reverse(costs[place]));
    let run = if equal { parts } else { 1 };
    let mut states = vec![EMPTY; costs.len().div_ceil(run) * parts];
    for (state, places) in states.chunks_exact_mut(parts).zip(places.chunks(run)) {
        for (part, &place) in state.iter_mut().zip(places) {
            *part = Part { cost: costs[place], first: place, last: place };
        }
    }
    states
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

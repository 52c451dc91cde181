//! The part of a division that a slice of items stands for.
//!
//! Burn divides a loader among devices by slices of its items, and names neither the device nor their number. Both follow
//! from the slice: `n` parts of `items` have `items / n` items each, and the last one has the rest as well. A part may be
//! one of another number of devices too, if items are no more than the cube of that number. Such a part is refused.

use crate::{Error, Result};

/// The most parts that are looked for.
const MOST: usize = 1 << 16;

/// The rank and the number of ranks of items `start..end` out of `items`.
///
/// # Errors
/// [`Error::Slice`].
pub(crate) fn part_of(start: usize, end: usize, items: usize) -> Result<(u32, u32)> {
    let refused = |reason| Error::Slice { start, end, items, reason };
    if (start, end) == (0, items) {
        return Ok((0, 1));
    }
    if start >= end || end > items {
        return Err(refused("outside"));
    }
    let is_part = |count: usize| {
        let step = items / count;
        if step == items / (count - 1) || step == items / (count + 1) {
            return false;
        }
        let is_last = start == (count - 1) * step && end == items;
        let is_other = start.is_multiple_of(step) && end == start + step && start / step < count - 1;
        is_last || is_other
    };
    let mut counts = (2..=items.min(MOST)).filter(|&count| is_part(count));
    match (counts.next(), counts.next()) {
        (Some(count), None) => {
            let rank = start / (items / count);
            u32::try_from(rank).ok().zip(u32::try_from(count).ok()).ok_or_else(|| refused("too many"))
        }
        (Some(_), Some(_)) => Err(refused("a part of divisions by several numbers of devices")),
        _ => Err(refused("no part of a division by any number of devices")),
    }
}

#[cfg(test)]
mod tests {
    use super::part_of;

    /// The slices that Burn's `split_dataloader` makes.
    fn split(items: usize, count: usize) -> Vec<(usize, usize)> {
        let step = items / count;
        (0..count)
            .map(|rank| (rank * step, if rank + 1 == count { items } else { (rank + 1) * step }))
            .collect()
    }

    #[test]
    fn parts_of_larger_sets_are_found() {
        for items in [100, 101, 127, 1_027, 60_000, 1_000_003] {
            for count in (2..=8).filter(|count| items > count * count * count) {
                for (rank, (start, end)) in split(items, count).into_iter().enumerate() {
                    let part = part_of(start, end, items);
                    assert_eq!(
                        part,
                        Ok((u32::try_from(rank).unwrap_or(0), u32::try_from(count).unwrap_or(0)))
                    );
                }
            }
        }
    }

    #[test]
    fn a_division_is_found_in_all_parts_or_refused() {
        for items in 1..200 {
            for count in 2..=items {
                let parts = split(items, count).into_iter().map(|(start, end)| part_of(start, end, items));
                let parts: Vec<_> = parts.collect();
                let (_, but_last) = parts.split_last().unwrap();
                let is_refused = but_last.iter().all(Result::is_err);
                for (rank, part) in parts.iter().enumerate().filter(|_| !is_refused) {
                    let part = part.as_ref().map(|&(rank, count)| (rank as usize, count as usize));
                    assert!(
                        part.is_err() || part == Ok((rank, count)),
                        "{rank} of {count} of {items}: {part:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn other_slices_are_refused() {
        for (start, end) in [(1, 500), (0, 0), (900, 1_001), (500, 400), (0, 499)] {
            assert!(part_of(start, end, 1_000).is_err(), "{start}..{end}");
        }
        assert_eq!(part_of(0, 1_000, 1_000), Ok((0, 1)));
    }
}

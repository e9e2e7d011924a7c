//! Buffer colouring: assigns each tensor to one of a few buffers, by beam search in step order.
//!
//! The buffers are the colours of a graph whose edges join tensors that one step reads and writes.
//! The cost of a colouring is the sum of the buffers' peaks of live bytes. Few tensors are alive at
//! any step, so there are few live placements: the beam keeps the best, and of states with equal
//! live placements only the cheapest. Unlike a greedy choice, it considers later effects: in a
//! model of equal layers it finds one pattern for all of them.

use std::collections::HashSet;

use smallvec::{SmallVec, smallvec};

use super::arena::Item;
use super::lifetime::Access;

/// Buffers to choose from, unless a step needs more.
const BUFFERS: usize = 8;
/// Beam width of the first attempt.
const NARROW: usize = 8;
/// Widest beam of the second attempt, if the first found no optimal colouring.
const WIDE: usize = 256;
/// Maximum choices that the second attempt considers, which takes some milliseconds.
const CHOICES: usize = 50_000;
/// Maximum tensors for a third attempt, which also distinguishes states by the sizes of their
/// buffers: of two states with equal cost, one may leave less room later.
const FEW: usize = 32;
/// Steps within which a write to the same buffer may make another step wait.
const NEAR: usize = 3;

/// A partial colouring: a state of the beam.
#[derive(Clone)]
struct Way {
    /// Live tensors, with their buffers.
    alive: SmallVec<[(usize, usize); 16]>,
    /// For each buffer: live bytes, their peak, and the step of the last write.
    live: SmallVec<[u64; BUFFERS]>,
    peaks: SmallVec<[u64; BUFFERS]>,
    written: SmallVec<[usize; BUFFERS]>,
    /// Number of writes to a buffer that was written at most `NEAR` steps before.
    waits: usize,
    /// Hash of `alive`.
    key: u64,
    /// Index of this state's last choice in the list of all choices.
    last: usize,
}

/// The assignment of one tensor to a buffer, with the index of the previous choice.
struct Choice {
    before: usize,
    tensor: usize,
    buffer: usize,
}

/// Returns a buffer index for each of `items`; `which` holds the tensor number of each item in
/// `steps`. No colouring costs less than `least`.
pub(super) fn spread(steps: &[Access], which: &[usize], items: &[Item], least: u64) -> Vec<usize> {
    let apart = apart(steps, which);
    let wide = (CHOICES / BUFFERS / items.len().max(1)).clamp(NARROW, WIDE);
    // With one buffer per tensor everything fits.
    let mut buffers = BUFFERS;
    loop {
        let mut best = beam(items, &apart, buffers, NARROW, false);
        let few = items.len() <= FEW;
        for (_, by_size) in [(wide > NARROW, false), (few, true)].into_iter().filter(|a| a.0) {
            if best.as_ref().is_some_and(|(cost, _)| *cost > least) {
                let wider = beam(items, &apart, buffers, wide, by_size);
                best = best.into_iter().chain(wider).min_by_key(|(cost, _)| *cost);
            }
        }
        match best {
            Some((_, of)) => return of,
            None if buffers > items.len() => return (0..items.len()).collect(),
            None => buffers *= 2,
        }
    }
}

/// Returns, for each item, the sorted items that must not share its buffer: one step reads one and
/// writes the other, or writes both.
fn apart(steps: &[Access], which: &[usize]) -> Vec<Vec<usize>> {
    let mut place = vec![None; which.iter().max().map_or(0, |most| most + 1)];
    which.iter().enumerate().for_each(|(i, tensor)| place[*tensor] = Some(i));
    let find = |tensor: &usize| place.get(*tensor).copied().flatten();
    let mut apart = vec![Vec::new(); which.len()];
    for step in steps {
        let writes: Vec<usize> = step.writes.iter().filter_map(find).collect();
        for other in step.reads.iter().filter_map(find).chain(writes.iter().copied()) {
            for write in writes.iter().filter(|write| **write != other) {
                apart[*write].push(other);
                apart[other].push(*write);
            }
        }
    }
    for others in &mut apart {
        others.sort_unstable();
        others.dedup();
    }
    apart
}

/// Returns the cost and the buffers of the best colouring that a beam of `width` states finds, or
/// `None` if no state has a free buffer for some tensor. With `by_size`, states with different
/// buffer sizes are distinct.
fn beam(
    items: &[Item],
    apart: &[Vec<usize>],
    buffers: usize,
    width: usize,
    by_size: bool,
) -> Option<(u64, Vec<usize>)> {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|i| (items[*i].life.0, u64::MAX - items[*i].bytes));
    let mut choices = vec![Choice { before: 0, tensor: 0, buffer: 0 }];
    let mut first = Way {
        alive: SmallVec::new(),
        live: smallvec![0; buffers],
        peaks: smallvec![0; buffers],
        written: smallvec![usize::MAX; buffers],
        waits: 0,
        key: 0,
        last: 0,
    };
    // In any colouring some buffer holds the largest tensor, so that much costs nothing.
    first.peaks[0] = items.iter().map(|item| item.bytes).max().unwrap_or(0);
    let mut ways = vec![first];
    for i in order {
        ways.iter_mut().for_each(|way| bury(way, items, items[i].life.0));
        let width = (width, by_size);
        ways = grown(&ways, i, items, &apart[i], width, &mut choices);
    }
    let cost = |way: &Way| way.peaks.iter().sum::<u64>();
    let best = ways.iter().min_by_key(|way| (cost(way), way.waits))?;
    let mut of = vec![0; items.len()];
    let mut at = best.last;
    while at != 0 {
        of[choices[at].tensor] = choices[at].buffer;
        at = choices[at].before;
    }
    Some((cost(best), of))
}

/// Removes tensors that no step from `now` on touches.
fn bury(way: &mut Way, items: &[Item], now: usize) {
    let Way { alive, live, key, .. } = way;
    alive.retain(|(i, buffer)| {
        let lives = items[*i].life.1 >= now;
        if !lives {
            live[*buffer] -= items[*i].bytes;
            *key ^= stamp(*i, *buffer);
        }
        lives
    });
}

/// Extends the states by a choice of buffer for item `i` and returns the best.
fn grown(
    ways: &[Way],
    i: usize,
    items: &[Item],
    apart: &[usize],
    (width, by_size): (usize, bool),
    choices: &mut Vec<Choice>,
) -> Vec<Way> {
    let Item { bytes, life: (now, _) } = items[i];
    let mut next: Vec<(u64, usize, usize, usize)> = Vec::new();
    for (from, way) in ways.iter().enumerate() {
        let taken: SmallVec<[usize; 8]> = way
            .alive
            .iter()
            .filter(|(other, _)| apart.binary_search(other).is_ok())
            .map(|(_, buffer)| *buffer)
            .collect();
        let sum: u64 = way.peaks.iter().sum();
        for buffer in 0..way.peaks.len() {
            if !taken.contains(&buffer) {
                let cost = sum + (way.live[buffer] + bytes).saturating_sub(way.peaks[buffer]);
                let near = way.written[buffer].checked_add(NEAR).is_some_and(|end| end >= now);
                next.push((cost, way.waits + usize::from(near), from, buffer));
            }
            // Unused buffers are interchangeable.
            if way.peaks[buffer] == 0 {
                break;
            }
        }
    }
    next.sort_unstable();
    let mut seen = HashSet::new();
    next.retain(|(_, _, from, buffer)| {
        let way = &ways[*from];
        let mut key = way.key ^ stamp(i, *buffer);
        for (other, peak) in way.peaks.iter().enumerate().filter(|_| by_size) {
            let grown = if other == *buffer { way.live[other] + bytes } else { 0 };
            key ^= stamp((*peak).max(grown) as usize, other).rotate_left(1);
        }
        seen.len() < width && seen.insert(key)
    });
    let grow = |(_, waits, from, buffer): (u64, usize, usize, usize)| {
        let mut way = ways[from].clone();
        choices.push(Choice { before: way.last, tensor: i, buffer });
        way.last = choices.len() - 1;
        way.alive.push((i, buffer));
        way.key ^= stamp(i, buffer);
        way.live[buffer] += bytes;
        way.peaks[buffer] = way.peaks[buffer].max(way.live[buffer]);
        (way.waits, way.written[buffer]) = (waits, now);
        way
    };
    next.into_iter().map(grow).collect()
}

/// Hashes a pair to pseudo-random bits (SplitMix64).
fn stamp(i: usize, buffer: usize) -> u64 {
    let mut z = ((i as u64) << 32 | buffer as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

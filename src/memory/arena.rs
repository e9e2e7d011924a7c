//! Arena allocation: buffers for tensors with disjoint lifetimes, and their offsets.
//!
//! GPU APIs track the use of whole buffers, and a dispatch may not read and write one buffer
//! through different bindings. So tensors are distributed over a few buffers (buffer colouring)
//! such that no step writes to a buffer that it reads, and each buffer is packed by lifetime.
//! [`arena`] searches for the smallest sum of the buffers' sizes; [`peak`] is a lower bound.

use super::coloring::spread;
use super::lifetime::Access;

/// A tensor to place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Size in bytes.
    pub bytes: u64,
    /// Lifetime: the indices of the first and last steps that touch the tensor.
    pub life: (usize, usize),
}

impl Item {
    fn meets(&self, other: &Item) -> bool {
        self.life.0 <= other.life.1 && other.life.0 <= self.life.1
    }
}

/// Placement of all tensors in buffers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arena {
    /// Buffer index and byte offset of each tensor; `None` for an item that was `None`.
    pub places: Vec<Option<(usize, u64)>>,
    /// Size of each buffer in bytes.
    pub buffers: Vec<u64>,
}

/// Returns the largest total size in bytes of the tensors alive at one step, with each size rounded
/// up to a multiple of `align`.
///
/// # Panics
/// Panics if `align` is 0, and may panic if a lifetime ends before it begins.
pub fn peak(items: &[Option<Item>], align: u64) -> u64 {
    let end = items.iter().flatten().map(|item| item.life.1 + 1).max().unwrap_or(0);
    let mut live = vec![0u64; end];
    for item in items.iter().flatten() {
        let bytes = item.bytes.next_multiple_of(align);
        live[item.life.0..=item.life.1].iter_mut().for_each(|sum| *sum += bytes);
    }
    live.into_iter().max().unwrap_or(0)
}

/// Places every tensor that is `Some`, at multiples of `align` bytes. No step of `steps` writes to
/// a buffer that it reads, or writes two tensors in the same buffer. Equal arguments yield equal
/// arenas.
///
/// # Panics
/// Panics if `align` is 0, and may panic if a lifetime ends before it begins.
pub fn arena(steps: &[Access], items: &[Option<Item>], align: u64) -> Arena {
    let which: Vec<usize> = (0..items.len()).filter(|i| items[*i].is_some()).collect();
    let placed: Vec<Item> = items
        .iter()
        .flatten()
        .map(|item| Item { bytes: item.bytes.next_multiple_of(align), life: item.life })
        .collect();
    let buffers = spread(steps, &which, &placed, peak(items, align));
    packed(&placed, &which, &buffers, items.len())
}

/// Packs each buffer separately. `buffers` holds the buffer of each of the `placed` tensors,
/// `which` their indices among all `count` tensors.
fn packed(placed: &[Item], which: &[usize], buffers: &[usize], count: usize) -> Arena {
    let mut arena = Arena { places: vec![None; count], buffers: Vec::new() };
    for number in 0..buffers.iter().max().map_or(0, |most| most + 1) {
        let members: Vec<usize> = (0..placed.len()).filter(|i| buffers[*i] == number).collect();
        if members.is_empty() {
            continue;
        }
        let buffer = arena.buffers.len();
        let items: Vec<Item> = members.iter().map(|i| placed[*i]).collect();
        let (offsets, bytes) = pack(&items);
        for (i, offset) in members.iter().zip(offsets) {
            arena.places[which[*i]] = Some((buffer, offset));
        }
        arena.buffers.push(bytes);
    }
    arena
}

/// Returns the offset of each item in a buffer and the buffer's size, in bytes, from the best of a
/// few orders of placement.
fn pack(items: &[Item]) -> (Vec<u64>, u64) {
    let length = |item: &Item| (item.life.1 - item.life.0) as u64 + 1;
    let keys: [&dyn Fn(&Item) -> u64; 4] = [
        &|item| u64::MAX - item.bytes,
        &|item| u64::MAX - item.bytes.saturating_mul(length(item)),
        &|item| u64::MAX - length(item),
        &|item| item.life.0 as u64,
    ];
    let all: Vec<Option<Item>> = items.iter().copied().map(Some).collect();
    let least = peak(&all, 1);
    let mut best: Option<(Vec<u64>, u64)> = None;
    for key in keys {
        let mut order: Vec<usize> = (0..items.len()).collect();
        order.sort_by_key(|i| (key(&items[*i]), *i));
        let found = pack_in(items, &order);
        if best.as_ref().is_none_or(|(_, bytes)| found.1 < *bytes) {
            best = Some(found);
        }
        if best.as_ref().is_some_and(|(_, bytes)| *bytes == least) {
            break;
        }
    }
    best.unwrap_or_default()
}

/// Best fit: places each item in the smallest gap between items with overlapping lifetimes, or
/// after them if no gap is large enough.
fn pack_in(items: &[Item], order: &[usize]) -> (Vec<u64>, u64) {
    let mut offsets = vec![0; items.len()];
    let mut placed: Vec<usize> = Vec::with_capacity(items.len());
    let mut size = 0;
    for &i in order {
        let item = items[i];
        let mut busy: Vec<(u64, u64)> = placed
            .iter()
            .filter(|other| items[**other].meets(&item))
            .map(|other| (offsets[*other], offsets[*other] + items[*other].bytes))
            .collect();
        busy.sort_unstable();
        let (mut free, mut gap) = (0, None::<(u64, u64)>);
        for (start, end) in busy {
            let room = start.saturating_sub(free);
            if room >= item.bytes && gap.is_none_or(|(least, _)| room < least) {
                gap = Some((room, free));
            }
            free = free.max(end);
        }
        offsets[i] = gap.map_or(free, |(_, offset)| offset);
        size = size.max(offsets[i] + item.bytes);
        placed.push(i);
    }
    (offsets, size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Builds steps that each write one tensor and read some earlier ones; the last tensor is kept.
    fn graph(raw: &[(u64, [usize; 3])]) -> (Vec<Access>, Vec<Option<Item>>) {
        let steps: Vec<Access> = raw
            .iter()
            .enumerate()
            .map(|(i, (_, back))| Access {
                reads: back.iter().filter(|b| **b > 0 && **b <= i).map(|b| i - b).collect(),
                writes: vec![i],
            })
            .collect();
        let lives = super::super::lifetime::lifetimes(&steps, raw.len(), &[raw.len() - 1]);
        let items = raw.iter().zip(lives);
        let items = items.map(|((bytes, _), life)| Some(Item { bytes: *bytes, life: life? }));
        (steps, items.collect())
    }

    fn check(steps: &[Access], items: &[Option<Item>]) -> Arena {
        let arena = arena(steps, items, 256);
        for (i, item) in items.iter().enumerate() {
            assert_eq!(arena.places[i].is_some(), item.is_some());
            let (Some(item), Some((buffer, offset))) = (item, arena.places[i]) else { continue };
            assert!(offset % 256 == 0 && offset + item.bytes <= arena.buffers[buffer]);
            for (other, place) in items[..i].iter().zip(&arena.places) {
                let (Some(other), Some((b, start))) = (other, place) else { continue };
                let apart = offset + item.bytes <= *start || start + other.bytes <= offset;
                assert!(*b != buffer || apart || !item.meets(other));
            }
        }
        let buffer = |tensor: &usize| arena.places[*tensor].map(|(buffer, _)| buffer);
        for step in steps {
            for (i, write) in step.writes.iter().enumerate() {
                assert!(step.reads.iter().all(|read| buffer(read) != buffer(write)));
                assert!(step.writes[..i].iter().all(|other| buffer(other) != buffer(write)));
            }
        }
        arena
    }

    proptest! {
        #[test]
        fn nothing_alive_overlaps_and_no_step_writes_what_it_reads(
            raw in prop::collection::vec((1u64..5000, [0usize..9, 0usize..5, 0usize..20]), 1..40)
        ) {
            let (steps, items) = graph(&raw);
            check(&steps, &items);
        }
    }

    fn total(raw: &[(u64, [usize; 3])]) -> (u64, u64) {
        let (steps, items) = graph(raw);
        (check(&steps, &items).buffers.iter().sum(), peak(&items, 256))
    }

    #[test]
    fn a_chain_needs_two() {
        assert_eq!(total(&[(256, [1, 0, 0]); 10]), (512, 512));
    }

    #[test]
    fn small_results_between_large_ones_do_not_hold_a_large_buffer() {
        // Sizes are large, small, small, large: with two buffers, both would be large.
        let chain = [(25_600, [0; 3]), (256, [1, 0, 0]), (256, [1, 0, 0]), (25_600, [1, 0, 0])];
        assert_eq!(total(&chain), (25_600 + 512, 25_600 + 256));
    }

    #[test]
    fn a_feed_forward_block_takes_what_is_alive() {
        // x; norm; gate, up; their product; down; x + down: the wide ones meet once.
        let (d, f) = (9 * 256, 24 * 256);
        let block = [
            (d, [0; 3]),
            (d, [1, 0, 0]),
            (f, [1, 0, 0]),
            (f, [2, 0, 0]),
            (f, [1, 2, 0]),
            (d, [1, 0, 0]),
        ];
        let raw: Vec<_> = block.into_iter().chain([(d, [6, 1, 0])]).collect();
        let (bytes, least) = total(&raw);
        assert_eq!(bytes, least);
    }

    #[test]
    fn a_step_may_read_more_tensors_than_there_were_buffers() {
        let mut raw = vec![(512, [0; 3]); 12];
        raw.push((512, [1, 2, 3]));
        let (mut steps, _) = graph(&raw);
        steps[12].reads = (0..12).collect();
        let lives = super::super::lifetime::lifetimes(&steps, 13, &[]);
        let items: Vec<_> =
            lives.into_iter().map(|life| Some(Item { bytes: 512, life: life? })).collect();
        let arena = check(&steps, &items);
        assert_eq!(arena.buffers.iter().sum::<u64>(), 13 * 512);
    }

    #[test]
    fn nothing_takes_nothing() {
        assert_eq!(arena(&[], &[], 256), Arena::default());
        assert_eq!(arena(&[], &[None], 256).buffers, [0u64; 0]);
    }
}

//! Offsets in one buffer for tensors that live at different times.

/// A tensor to place.
#[derive(Clone, Copy, Debug)]
pub struct Item {
    /// Size in bytes.
    pub bytes: u64,
    /// First and last step that touches it.
    pub life: (usize, usize),
}

/// An offset for each item, a multiple of `align`, and the size of the buffer: the largest first,
/// each at the lowest offset where it overlaps none that lives at the same time.
pub fn pack(items: &[Item], align: u64) -> (Vec<u64>, u64) {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|i| (std::cmp::Reverse(items[*i].bytes), *i));
    let mut offsets = vec![0; items.len()];
    let mut placed: Vec<(u64, u64, (usize, usize))> = Vec::new();
    let mut size = 0;
    for i in order {
        let Item { bytes, life } = items[i];
        let bytes = bytes.next_multiple_of(align);
        let mut busy: Vec<(u64, u64)> = placed
            .iter()
            .filter(|(_, _, other)| other.0 <= life.1 && life.0 <= other.1)
            .map(|(start, end, _)| (*start, *end))
            .collect();
        busy.sort_unstable();
        let mut offset = 0;
        for (start, end) in busy {
            if offset + bytes <= start {
                break;
            }
            offset = offset.max(end);
        }
        placed.push((offset, offset + bytes, life));
        offsets[i] = offset;
        size = size.max(offset + bytes);
    }
    (offsets, size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nothing_alive_overlaps(raw in prop::collection::vec((1u64..5000, 0usize..20, 0usize..8), 0..40)) {
            let items: Vec<Item> = raw
                .iter()
                .map(|(bytes, first, len)| Item { bytes: *bytes, life: (*first, first + len) })
                .collect();
            let (offsets, size) = pack(&items, 256);
            for a in 0..items.len() {
                prop_assert!(offsets[a] % 256 == 0 && offsets[a] + items[a].bytes <= size);
                for b in 0..a {
                    let together = items[a].life.0 <= items[b].life.1 && items[b].life.0 <= items[a].life.1;
                    let apart = offsets[a] + items[a].bytes <= offsets[b]
                        || offsets[b] + items[b].bytes <= offsets[a];
                    prop_assert!(!together || apart);
                }
            }
        }
    }

    #[test]
    fn a_chain_needs_two() {
        let items: Vec<Item> = (0..10).map(|i| Item { bytes: 256, life: (i, i + 1) }).collect();
        assert_eq!(pack(&items, 256).1, 512);
    }
}

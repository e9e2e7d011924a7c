//! Subgroup operations, performed by the invocations that reached one.

use super::bytecode::{Group, Grouped, NONE};
use super::cooperative;
use super::number::{binary, f, to_half};

/// Performs an operation for the active lanes, given by ascending lane index. The registers of lane
/// `i` begin at index `i * size` of `r`; a full subgroup has `width` lanes.
pub(super) fn perform(
    group: &Group,
    lanes: &[usize],
    r: &mut [u32],
    (size, width): (usize, usize),
) {
    let Group { what, to, from, n, half } = *group;
    match what {
        Grouped::Barrier => {}
        Grouped::Ballot => {
            let mut words = [0u32; 4];
            for lane in lanes {
                if from == NONE || r[lane * size + from as usize] != 0 {
                    words[lane / 32] |= 1 << (lane % 32);
                }
            }
            for lane in lanes {
                let at = lane * size + to as usize;
                r[at..at + 4].copy_from_slice(&words);
            }
        }
        Grouped::Fold { op, own, higher } => {
            for i in 0..n as usize {
                let mut sum = op.identity;
                for lane in lanes {
                    let value = r[lane * size + from as usize + i];
                    let before = sum;
                    sum = binary(op.op, sum, value);
                    if half {
                        sum = to_half(f(sum)).to_bits();
                    }
                    r[lane * size + to as usize + i] = if own { sum } else { before };
                }
                for lane in lanes.iter().filter(|_| higher) {
                    r[lane * size + to as usize + i] = sum;
                }
            }
        }
        Grouped::Multiply { b, c, side } => {
            cooperative::multiply(group, side, [b, c], r, (size, width));
        }
        _ => gather(group, lanes, r, size),
    }
}

/// Reads values of other lanes; an inactive lane yields the reader's own value.
fn gather(group: &Group, lanes: &[usize], r: &mut [u32], size: usize) {
    let Group { what, to, from, n, .. } = *group;
    let n = n as usize;
    let mut values = Vec::with_capacity(lanes.len() * n);
    for lane in lanes {
        let given = |slot: u32| r[lane * size + slot as usize] as usize;
        let source = match what {
            Grouped::First => lanes[0],
            Grouped::Broadcast(slot) | Grouped::Shuffle(slot) => given(slot),
            Grouped::Down(slot) => lane.saturating_add(given(slot)),
            Grouped::Up(slot) => lane.wrapping_sub(given(slot)),
            Grouped::Xor(slot) => lane ^ given(slot),
            Grouped::QuadBroadcast(slot) => (lane & !3) + (given(slot) & 3),
            Grouped::QuadSwap(mask) => lane ^ mask as usize,
            Grouped::Barrier
            | Grouped::Ballot
            | Grouped::Fold { .. }
            | Grouped::Multiply { .. } => *lane,
        };
        let source = if lanes.contains(&source) { source } else { *lane };
        let at = source * size + from as usize;
        values.extend_from_slice(&r[at..at + n]);
    }
    for (lane, values) in lanes.iter().zip(values.chunks(n.max(1))) {
        let at = lane * size + to as usize;
        r[at..at + n].copy_from_slice(values);
    }
}

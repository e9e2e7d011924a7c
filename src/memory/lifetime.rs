//! Lifetimes of tensors, from the reads and writes of each step.

/// Tensors that one step touches, by index.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Tensors that the step reads.
    pub reads: Vec<usize>,
    /// Tensors that the step writes.
    pub writes: Vec<usize>,
}

/// Returns the indices of the first and last steps that touch each of `count` tensors, or `None` if
/// no step does. Tensors in `kept` live one step past the last step.
///
/// # Panics
/// Panics if a tensor index in `steps` or `kept` is not below `count`.
pub fn lifetimes(steps: &[Access], count: usize, kept: &[usize]) -> Vec<Option<(usize, usize)>> {
    let mut lives: Vec<Option<(usize, usize)>> = vec![None; count];
    let mut touch = |tensor: usize, at: usize| {
        let life = &mut lives[tensor];
        *life = Some(life.map_or((at, at), |(first, last)| (first.min(at), last.max(at))));
    };
    for (at, step) in steps.iter().enumerate() {
        step.reads.iter().chain(&step.writes).for_each(|tensor| touch(*tensor, at));
    }
    kept.iter().for_each(|tensor| touch(*tensor, steps.len()));
    lives
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain() -> Vec<Access> {
        let step = |reads: &[usize], writes: &[usize]| Access {
            reads: reads.to_vec(),
            writes: writes.to_vec(),
        };
        // 0 -> {1, 2, 3} -> 4
        vec![
            step(&[], &[0]),
            step(&[0], &[1]),
            step(&[0], &[2]),
            step(&[0], &[3]),
            step(&[1, 2, 3], &[4]),
        ]
    }

    #[test]
    fn kept_tensors_live_on() {
        let lives = lifetimes(&chain(), 6, &[1]);
        assert_eq!(lives[0], Some((0, 3)));
        assert_eq!(lives[1], Some((1, 5)));
        assert_eq!(lives[5], None);
    }
}

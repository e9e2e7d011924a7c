//! Which buffers steps may share, from what each step reads and writes.

/// What one step touches: indices of tensors.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Tensors that it reads.
    pub reads: Vec<usize>,
    /// Tensors that it writes.
    pub writes: Vec<usize>,
}

/// First and last step that touches each of `count` tensors; `None` where none does. Tensors in
/// `kept` live one step longer than the last.
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

/// A buffer (colour) for each tensor of `arena`, such that no step writes to a buffer that it
/// reads. Among those left the one written longest ago is taken, so that neighbours that do not
/// depend on each other write distinct buffers and need no barrier. `None` where a step reads
/// every colour.
pub fn colour(steps: &[Access], arena: &[bool], colours: usize) -> Option<Vec<Option<usize>>> {
    let mut found: Vec<Option<usize>> = vec![None; arena.len()];
    let mut last_write = vec![None::<usize>; colours];
    for (at, step) in steps.iter().enumerate() {
        for tensor in step.writes.iter().copied().filter(|t| arena[*t]) {
            let colour = match found[tensor] {
                Some(colour) => colour,
                None => {
                    let read = |c: &usize| step.reads.iter().any(|r| found[*r] == Some(*c));
                    (0..colours).filter(|c| !read(c)).min_by_key(|c| last_write[*c])?
                }
            };
            found[tensor] = Some(colour);
            last_write[colour] = Some(at);
        }
    }
    Some(found)
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
    fn no_step_writes_what_it_reads() {
        let steps = chain();
        let colours = colour(&steps, &[true; 5], 4).unwrap();
        for step in &steps {
            for write in &step.writes {
                assert!(step.reads.iter().all(|read| colours[*read] != colours[*write]));
            }
        }
        // The three neighbours do not wait for each other.
        assert!(colours[1] != colours[2] && colours[2] != colours[3] && colours[1] != colours[3]);
        assert!(colour(&steps, &[true; 5], 1).is_none());
    }

    #[test]
    fn kept_tensors_live_on() {
        let lives = lifetimes(&chain(), 6, &[1]);
        assert_eq!(lives[0], Some((0, 3)));
        assert_eq!(lives[1], Some((1, 5)));
        assert_eq!(lives[5], None);
    }
}

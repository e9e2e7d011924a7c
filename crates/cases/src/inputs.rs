//! Deterministic random numbers, chosen so that wrong kernels are detected.
//!
//! Uniform noise around zero hides errors: its sums are small whichever terms are missing, and the
//! mean of wrong elements resembles the mean of the right ones. So the numbers have a bias, a slope
//! along the tensor, and occasional outliers.

/// A small generator, xorshift with a multiplication; machine-independent.
pub(super) struct Random(u64);

impl Random {
    /// Creates a generator seeded by these strings, such as the names of case and tensor.
    pub(super) fn new(words: &[&str]) -> Random {
        // FNV-1a; avoids zero, the fixed point of xorshift.
        let hash = words
            .iter()
            .flat_map(|w| w.bytes().chain([0]))
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
            });
        Random(hash | 1)
    }

    /// Returns 32 random bits.
    pub(super) fn bits(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    /// Returns a number in `low..high`.
    pub(super) fn between(&mut self, low: f32, high: f32) -> f32 {
        let unit = f64::from(self.bits()) / 4_294_967_296.0;
        (f64::from(low) + unit * (f64::from(high) - f64::from(low))) as f32
    }

    /// Returns an integer below `end`, which must not be 0.
    pub(super) fn below(&mut self, end: u32) -> u32 {
        self.bits() % end
    }

    /// Returns numbers of a magnitude near 1: noise plus a bias of 0.2 and a slope along the index.
    /// Every 17th number is four times as large.
    pub(super) fn shaped(&mut self, count: usize) -> Vec<f32> {
        (0..count)
            .map(|i| {
                let slope = 0.4 * (i as f32 / count as f32 - 0.5);
                let value = self.between(-0.8, 0.8) + 0.2 + slope;
                if i % 17 == 5 { value * 4.0 } else { value }
            })
            .collect()
    }

    /// Returns uniformly distributed numbers.
    pub(super) fn evenly(&mut self, count: usize, low: f32, high: f32) -> Vec<f32> {
        (0..count).map(|_| self.between(low, high)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_same_everywhere() {
        let mut random = Random::new(&["case", "x"]);
        let values = random.shaped(1000);
        assert_eq!(values, Random::new(&["case", "x"]).shaped(1000));
        assert_ne!(values, Random::new(&["case", "y"]).shaped(1000));
        let mean = values.iter().sum::<f32>() / 1000.0;
        assert!(mean > 0.1 && mean < 0.4, "{mean}");
        assert!(values.iter().all(|v| v.abs() < 6.0 && *v != 0.0));
        assert!((0..1000).all(|_| random.below(7) < 7));
    }
}

//! Random tensors, by a seed. Their numbers are made on the host, so that every device has the same.

use super::arguments::{self, Sizes};
use super::create::{filled, made, row};
use super::eval::upload;
use super::place::here;
use super::{Element, Tensor};
use crate::base::{DType, Format};
use crate::error::Error;
use crate::provider::Usage;
use crate::runtime::Runtime;

/// Number of values for which random bits are drawn at once, so that the loop over them vectorises.
const BLOCK: usize = 256;

impl Tensor {
    /// Creates a tensor of uniformly distributed `f32` values in [0, 1). A seed yields the same
    /// values on every platform.
    #[track_caller]
    pub fn rand(runtime: &Runtime, shape: impl Sizes, seed: u64) -> Tensor {
        let at = here();
        made(runtime, "rand", at, || {
            let shape = arguments::shape(&shape)?;
            let mut state = seed;
            let count = shape.elements().as_const().unwrap_or(0);
            let values = filled(count as usize, |_| unit(splitmix(&mut state)))?;
            let stored = upload(runtime, &f32::encode(&values)?, Format::F32, Usage::Working)?;
            Ok(Tensor::from_stored(runtime, shape, DType::F32, "rand", at, stored))
        })
    }

    /// Creates a tensor of normally distributed `f32` values with mean 0 and variance 1 from a
    /// seed, which yields the same values on every platform.
    #[track_caller]
    pub fn randn(runtime: &Runtime, shape: impl Sizes, seed: u64) -> Tensor {
        let at = here();
        made(runtime, "randn", at, || {
            let shape = arguments::shape(&shape)?;
            let mut state = seed;
            let count = shape.elements().as_const().unwrap_or(0);
            let mut values = filled(count as usize, |_| 0.0_f32)?;
            for block in values.chunks_mut(BLOCK) {
                let (mut u, mut v) = ([0.0; BLOCK], [0.0; BLOCK]);
                for (u, v) in u.iter_mut().zip(&mut v).take(block.len()) {
                    // The logarithm needs a nonzero value.
                    (*u, *v) = (1.0 - unit(splitmix(&mut state)), unit(splitmix(&mut state)));
                }
                for ((value, u), v) in block.iter_mut().zip(&u).zip(&v) {
                    *value = warploom_cpu::normal(*u, *v);
                }
            }
            let stored = upload(runtime, &f32::encode(&values)?, Format::F32, Usage::Working)?;
            Ok(Tensor::from_stored(runtime, shape, DType::F32, "randn", at, stored))
        })
    }

    /// Creates a tensor of uniformly distributed `i32` values of a range, by a seed.
    #[track_caller]
    pub fn rand_int(
        runtime: &Runtime,
        range: std::ops::Range<i32>,
        shape: impl Sizes,
        seed: u64,
    ) -> Tensor {
        let at = here();
        made(runtime, "rand_int", at, || {
            let shape = arguments::shape(&shape)?;
            let size = i64::from(range.end) - i64::from(range.start);
            if size <= 0 {
                let std::ops::Range { start, end } = range;
                return Err(Error::invalid(format!("no integer in {start}..{end}")));
            }
            let mut state = seed;
            // The high half of a 64-bit product: the bias is below 2^-32.
            let number = |bits: u64| ((u128::from(bits) * size as u128) >> 64) as i64;
            let count = shape.elements().as_const().unwrap_or(0);
            let numbers = (0..count).map(|_| number(splitmix(&mut state)) + i64::from(range.start));
            let values: Vec<i32> = numbers.map(|number| number as i32).collect();
            let format = Format::Plain(DType::I32);
            let stored = upload(runtime, &i32::encode(&values)?, format, Usage::Working)?;
            Ok(Tensor::from_stored(runtime, shape, DType::I32, "rand_int", at, stored))
        })
    }

    /// Creates a tensor `[n]` of the `u32` values 0 to `n - 1` in random order, by a seed.
    #[track_caller]
    pub fn permutation(runtime: &Runtime, n: usize, seed: u64) -> Tensor {
        let at = here();
        made(runtime, "permutation", at, || {
            let count = u32::try_from(n)
                .map_err(|_| Error::invalid(format!("{n} values do not fit u32")))?;
            let mut values = filled(count as usize, |i| i as u32)?;
            let mut state = seed;
            // Fisher and Yates.
            for i in (1..values.len()).rev() {
                let j = (u128::from(splitmix(&mut state)) * (i as u128 + 1)) >> 64;
                values.swap(i, j as usize);
            }
            row(runtime, "permutation", at, &values)
        })
    }
}

/// Advances SplitMix64 (Steele, Lea and Flood, 2014), which works with every seed.
fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Maps random bits to [0, 1).
fn unit(bits: u64) -> f32 {
    (bits >> 40) as f32 / (1 << 24) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix_is_the_published_one() {
        let mut state = 1_234_567;
        let first = [splitmix(&mut state), splitmix(&mut state)];
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }

    #[test]
    fn normal_numbers_are_those_of_the_transform_in_f64() {
        let mut state = 7;
        for _ in 0..10_000 {
            let (u, v) = (1.0 - unit(splitmix(&mut state)), unit(splitmix(&mut state)));
            let angle = std::f64::consts::TAU * f64::from(v);
            let want = (-2.0 * f64::from(u).ln()).sqrt() * angle.cos();
            let got = f64::from(warploom_cpu::normal(u, v));
            assert!((got - want).abs() < 2e-6, "{u} {v}: {got}, not {want}");
        }
        assert_eq!(warploom_cpu::normal(1.0, 0.5), -0.0);
        assert!(warploom_cpu::normal(0.5_f32.powi(24), 0.0) < 5.8);
    }
}

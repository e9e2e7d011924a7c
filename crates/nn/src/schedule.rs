//! Learning rates over the steps of a training.

/// A learning rate that depends on the step.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Schedule {
    /// The same rate always.
    Constant {
        /// The rate.
        rate: f32,
    },
    /// Rises linearly from 0 in the first `warmup` steps, then falls along half a cosine to `last`
    /// at step `steps`.
    Cosine {
        /// The highest rate.
        rate: f32,
        /// The rate at the end and after it.
        last: f32,
        /// Number of steps until the highest rate.
        warmup: u64,
        /// Number of all steps.
        steps: u64,
    },
    /// Rises linearly from 0 in the first `warmup` steps, then falls linearly to 0 at step `steps`.
    Linear {
        /// The highest rate.
        rate: f32,
        /// Number of steps until the highest rate.
        warmup: u64,
        /// Number of all steps.
        steps: u64,
    },
    /// Multiplies the rate by `factor` every `every` steps.
    Step {
        /// The rate of the first steps.
        rate: f32,
        /// The factor.
        factor: f32,
        /// Number of steps with one rate.
        every: u64,
    },
}

impl Schedule {
    /// Returns the rate of a step; the first is 0.
    pub fn rate(&self, step: u64) -> f32 {
        match *self {
            Schedule::Constant { rate } => rate,
            Schedule::Cosine { rate, last, warmup, steps } => match warming(step, warmup) {
                Some(share) => rate * share,
                None => {
                    let turn = std::f32::consts::PI * progress(step, warmup, steps);
                    last + (rate - last) * 0.5 * (1.0 + turn.cos())
                }
            },
            Schedule::Linear { rate, warmup, steps } => match warming(step, warmup) {
                Some(share) => rate * share,
                None => rate * (1.0 - progress(step, warmup, steps)),
            },
            Schedule::Step { rate, factor, every } => {
                let times = i32::try_from(step / every.max(1)).unwrap_or(i32::MAX);
                rate * factor.powi(times)
            }
        }
    }
}

/// Returns the share of the highest rate while it rises.
fn warming(step: u64, warmup: u64) -> Option<f32> {
    (step < warmup).then(|| (step + 1) as f32 / warmup as f32)
}

/// Returns how much of the fall is done: 0 to 1.
fn progress(step: u64, warmup: u64, steps: u64) -> f32 {
    let (done, all) = (step - warmup.min(step), steps.saturating_sub(warmup).max(1));
    (done as f32 / all as f32).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_rise_and_fall() {
        let close = |a: f32, b: f32| assert!((a - b).abs() < 1e-6, "{a}, not {b}");
        let cosine = Schedule::Cosine { rate: 1.0, last: 0.1, warmup: 10, steps: 110 };
        for (step, rate) in [(0, 0.1), (9, 1.0), (10, 1.0), (60, 0.55), (110, 0.1), (999, 0.1)] {
            close(cosine.rate(step), rate);
        }
        let linear = Schedule::Linear { rate: 2.0, warmup: 0, steps: 4 };
        close(linear.rate(0), 2.0);
        close(linear.rate(1), 1.5);
        close(linear.rate(9), 0.0);
        let step = Schedule::Step { rate: 1.0, factor: 0.5, every: 3 };
        close(step.rate(2), 1.0);
        close(step.rate(6), 0.25);
        close(Schedule::Step { rate: 1.0, factor: 0.5, every: 0 }.rate(1), 0.5);
    }
}

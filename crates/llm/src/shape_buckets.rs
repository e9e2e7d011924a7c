//! The shape buckets of a session's plans.

use super::batch;
use super::decoder::{BASE, CacheShape, DecoderInput, PAST, SEQ};
use super::planner::PlanKey;
use warploom::{Error, Result};
use warploom_core::base::ShapeClass;

/// Smallest and largest number of tokens in a run, by shape bucket.
pub(super) const CLASSES: [(usize, usize); 4] = [(1, 1), (2, 8), (9, 64), (65, 512)];

/// Returns the shape buckets of a session's plans, for a cache of `context` positions per sequence.
pub fn classes(context: usize) -> [ShapeClass; 4] {
    CLASSES.map(|(low, high)| {
        let class = ShapeClass::new().with(SEQ, low as u64, high.min(context) as u64);
        class.with(PAST, 0, context as u64)
    })
}

/// Returns the shape bucket of a run of `tokens` tokens over a cache of `context` positions per
/// sequence. A plan for the bucket serves every run in it.
///
/// # Errors
/// Invalid if `tokens` is 0 or more than the largest bucket holds.
pub fn class_of(tokens: usize, context: usize) -> Result<ShapeClass> {
    Ok(classes(context)[bucket_of(tokens)?].clone())
}

pub(super) fn bucket_of(tokens: usize) -> Result<usize> {
    let found = CLASSES.iter().position(|(low, high)| (*low..=*high).contains(&tokens));
    found.ok_or_else(|| {
        Error::invalid(format!("a run of {tokens} tokens, a plan is for 1 to {}", CLASSES[3].1))
    })
}

/// Returns the shape bucket of the plan for `key`.
pub(super) fn class_of_key(key: PlanKey, cache: CacheShape) -> ShapeClass {
    match key.input {
        DecoderInput::Tokens | DecoderInput::RunAhead => {
            let class = match key.input {
                DecoderInput::RunAhead => ShapeClass::new().with(PAST, 0, cache.context as u64),
                _ => classes(cache.context)[key.bucket].clone(),
            };
            match cache.sequences {
                1 => class,
                count => class.with(BASE, 0, ((count - 1) * cache.context) as u64),
            }
        }
        DecoderInput::Batch | DecoderInput::BatchRunAhead => batch::classes()[key.bucket].clone(),
    }
}

//! The shape buckets of a session's plans.

use super::batch;
use super::decoder::{BASE, CacheShape, DecoderInput, PAST, SEQ};
use super::planner::PlanKey;
use warploom::base::ShapeClass;
use warploom::error::{Error, Result};

/// Tokens of a run, by shape bucket: first and last.
pub(super) const CLASSES: [(usize, usize); 4] = [(1, 1), (2, 8), (9, 64), (65, 512)];

/// The shape buckets of a session's plans, with a cache of `context` positions.
pub fn classes(context: usize) -> [ShapeClass; 4] {
    CLASSES.map(|(low, high)| {
        let class = ShapeClass::new().with(SEQ, low as u64, high.min(context) as u64);
        class.with(PAST, 0, context as u64)
    })
}

/// The shape bucket of a run of `tokens` tokens over a cache of `context` positions. A plan made
/// for it serves every run of that bucket.
///
/// # Errors
/// Invalid, for no tokens or more than the largest bucket holds.
pub fn class_of(tokens: usize, context: usize) -> Result<ShapeClass> {
    Ok(classes(context)[bucket_of(tokens)?].clone())
}

pub(super) fn bucket_of(tokens: usize) -> Result<usize> {
    let found = CLASSES.iter().position(|(low, high)| (*low..=*high).contains(&tokens));
    found.ok_or_else(|| {
        Error::invalid(format!("a run of {tokens} tokens, a plan is for 1 to {}", CLASSES[3].1))
    })
}

/// The shape bucket of a plan.
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

//! Choices that were measured on a device: what the tuner found, as plans use it.
//!
//! A choice is a hint. Whether its engine exists, applies, is in the same version and takes those
//! values of its knobs is asked again for every piece of every plan, so a choice that is old, of
//! another machine or damaged costs time at most.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{DriverKey, Engine, EngineId, KnobValues, Query};

/// What a piece of a graph is, wherever in a graph it stands: 32 hexadecimal digits of a hash of
/// its operation, shapes, types, layouts, what is fused with it, the class's ranges and the
/// device's limits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TaskKey(String);

impl TaskKey {
    /// The key of what a text describes.
    pub(crate) fn of(text: &str) -> TaskKey {
        TaskKey(blake3::hash(text.as_bytes()).to_hex()[..32].to_string())
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The engine that was the fastest for a task, and how it was set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tuned {
    /// The engine.
    pub engine: EngineId,
    /// [`Engine::version`] of it when it was measured.
    pub engine_version: u32,
    /// Values of its knobs; those that are missing have their defaults.
    pub knobs: KnobValues,
    /// Median seconds.
    pub seconds: f64,
    /// The engine that estimates would take.
    pub against: EngineId,
    /// Its median seconds, its knobs at their defaults, measured in turn with the other.
    pub against_seconds: f64,
}

impl Tuned {
    /// In words: `tuned: 12.3 us against 15.0 us of wgsl.matvec.q4_k`.
    pub fn why(&self) -> String {
        let (own, other) = (self.seconds * 1e6, self.against_seconds * 1e6);
        match self.engine == self.against && self.knobs == *KnobValues::NONE {
            true => format!("tuned: {own:.1} us, nothing is faster"),
            false => format!("tuned: {own:.1} us against {other:.1} us of {}", self.against),
        }
    }

    /// Whether a plan may take it for this piece.
    ///
    /// # Errors
    /// The reason where it may not.
    pub(super) fn holds(&self, engine: &dyn Engine, query: &Query) -> Result<(), String> {
        if engine.version() != self.engine_version {
            let (now, then) = (engine.version(), self.engine_version);
            return Err(format!("it is version {now} now, version {then} was measured"));
        }
        query.check_knobs(engine).map_err(|e| e.to_string())?;
        engine.workspace(query).map(|_| ()).map_err(|e| e.to_string())
    }
}

/// What was measured on one device.
#[derive(Clone, Debug, PartialEq)]
pub struct TunedChoices {
    /// The device; choices hold on no other.
    pub device: DriverKey,
    /// For each task the best.
    pub choices: BTreeMap<TaskKey, Tuned>,
}

impl TunedChoices {
    /// None yet.
    pub fn new(device: DriverKey) -> TunedChoices {
        TunedChoices { device, choices: BTreeMap::new() }
    }
}

//! Tuned choices: what the tuner measured on a device, as plans use it.
//!
//! A choice is a hint. Planning checks for every query that its engine exists, applies, has the
//! same version and accepts the knob values. So a choice that is stale, of another machine or
//! damaged costs time at most.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{DriverKey, Engine, EngineId, KnobValues, Query};

/// Identity of a query independent of its place in a graph: 32 hexadecimal digits of a hash of its
/// operation, shapes, types, layouts, fusion, the class's ranges and the device's limits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TaskKey(String);

impl TaskKey {
    /// The key of a textual description.
    pub(crate) fn of(text: &str) -> TaskKey {
        TaskKey(blake3::hash(text.as_bytes()).to_hex()[..32].to_string())
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The fastest engine for a task, with its knobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tuned {
    /// The engine.
    pub engine: EngineId,
    /// Its [`Engine::version`] when it was measured.
    pub engine_version: u32,
    /// Its knob values; missing ones are at their defaults.
    pub knobs: KnobValues,
    /// Median seconds.
    pub seconds: f64,
    /// The engine with the lowest estimate.
    pub against: EngineId,
    /// Its median seconds with default knobs, measured in alternation with the other.
    pub against_seconds: f64,
}

impl Tuned {
    /// The reason in words: `tuned: 12.3 us against 15.0 us of wgsl.matvec.q4_k`.
    pub fn why(&self) -> String {
        let (own, other) = (self.seconds * 1e6, self.against_seconds * 1e6);
        match self.engine == self.against && self.knobs == *KnobValues::NONE {
            true => format!("tuned: {own:.1} us, no engine is faster"),
            false => format!("tuned: {own:.1} us against {other:.1} us of {}", self.against),
        }
    }

    /// Whether a plan may use it for this query.
    ///
    /// # Errors
    /// The reason, if it may not.
    pub(super) fn holds(&self, engine: &dyn Engine, query: &Query) -> Result<(), String> {
        if engine.version() != self.engine_version {
            let (now, then) = (engine.version(), self.engine_version);
            return Err(format!("it is version {now} now, version {then} was measured"));
        }
        query.check_knobs(engine).map_err(|e| e.to_string())?;
        engine.workspace(query).map(|_| ()).map_err(|e| e.to_string())
    }
}

/// Tuned choices of one device.
#[derive(Clone, Debug, PartialEq)]
pub struct TunedChoices {
    /// The device; choices are valid on no other.
    pub device: DriverKey,
    /// The best choice by task.
    pub choices: BTreeMap<TaskKey, Tuned>,
}

impl TunedChoices {
    /// No choices yet.
    pub fn new(device: DriverKey) -> TunedChoices {
        TunedChoices { device, choices: BTreeMap::new() }
    }
}

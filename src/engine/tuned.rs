//! Tuned choices: what the tuner measured on a device, for use in plans.
//!
//! A choice is a hint. For every query, planning checks that the chosen engine exists, applies, has
//! the same version and accepts the knob values. So a choice that is stale, damaged or from a
//! different machine can only cost time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{DriverKey, Engine, EngineId, KnobValues, Query};

/// Identity of a query, independent of its place in a graph: 32 hexadecimal digits of a hash of its
/// operation, shapes, types, layouts, fusion, the class's ranges and the device's limits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TaskKey(String);

impl TaskKey {
    /// Hashes a textual description to a key.
    pub(crate) fn of(text: &str) -> TaskKey {
        TaskKey(blake3::hash(text.as_bytes()).to_hex()[..32].to_string())
    }

    /// Returns the hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The fastest engine for a task, with its knobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tuned {
    /// The engine.
    pub engine: EngineId,
    /// The engine's [`Engine::version`] when it was measured.
    pub engine_version: u32,
    /// Knob values of the engine; missing ones are at their defaults.
    pub knobs: KnobValues,
    /// Median seconds of the engine when it was measured.
    pub seconds: f64,
    /// The engine with the lowest estimate, against which it was measured.
    pub against: EngineId,
    /// Median seconds of that engine with default knobs, measured in alternation with the fastest.
    pub against_seconds: f64,
}

impl Tuned {
    /// Returns the reason for the choice as text, such as `tuned: 12.3 us against 15.0 us of
    /// wgsl.matvec.q4_k`.
    pub fn why(&self) -> String {
        let (own, other) = (self.seconds * 1e6, self.against_seconds * 1e6);
        match self.engine == self.against && self.knobs == *KnobValues::NONE {
            true => format!("tuned: {own:.1} us, no engine is faster"),
            false => format!("tuned: {own:.1} us against {other:.1} us of {}", self.against),
        }
    }

    /// Checks that a plan may use the choice for this query.
    ///
    /// # Errors
    /// Returns the reason if it may not.
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
    /// The fastest choice for each task.
    pub choices: BTreeMap<TaskKey, Tuned>,
}

impl TunedChoices {
    /// Creates an empty set of choices for a device.
    pub fn new(device: DriverKey) -> TunedChoices {
        TunedChoices { device, choices: BTreeMap::new() }
    }
}

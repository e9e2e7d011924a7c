//! Knobs: tuning parameters of an engine that a caller or the tuner may set, and their values.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::EngineId;
use crate::error::{Error, Result};

/// A tuning parameter of an engine, such as the threads of a workgroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Knob {
    /// Name of the knob, the same for every query.
    pub name: &'static str,
    /// What the knob counts, for display.
    pub doc: &'static str,
    /// Allowed values for this query, ascending; values of earlier knobs may limit them.
    pub values: Vec<u32>,
    /// The default value.
    pub default: u32,
}

impl Knob {
    /// Creates a knob. The default is always among the values.
    pub fn new(
        name: &'static str,
        doc: &'static str,
        values: impl IntoIterator<Item = u32>,
        default: u32,
    ) -> Knob {
        let mut values: Vec<u32> = values.into_iter().chain([default]).collect();
        values.sort_unstable();
        values.dedup();
        Knob { name, doc, values, default }
    }

    /// Returns the value that is set, or else the default.
    pub fn value(&self, set: &KnobValues) -> u32 {
        set.get(self.name).unwrap_or(self.default)
    }
}

impl fmt::Display for Knob {
    /// Formats the knob, for example as `threads: threads of a workgroup; one of 64, 128, 256,
    /// unset 128`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = listed(&self.values);
        write!(f, "{}: {}; one of {values}, unset {}", self.name, self.doc, self.default)
    }
}

/// Knob values of one engine, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct KnobValues(BTreeMap<String, u32>);

impl KnobValues {
    /// No values: every knob has its default.
    pub const NONE: &'static KnobValues = &KnobValues(BTreeMap::new());

    /// Returns the value of a knob, if it is set.
    pub fn get(&self, name: &str) -> Option<u32> {
        self.0.get(name).copied()
    }

    /// Sets the value of a knob.
    pub fn with(mut self, name: impl Into<String>, value: u32) -> KnobValues {
        self.0.insert(name.into(), value);
        self
    }

    /// Checks every value against the knobs of an engine for a query.
    ///
    /// # Errors
    /// Invalid for a value that is not allowed, listing the allowed ones; or for an unknown knob,
    /// listing the knobs of the engine.
    pub(super) fn check(&self, engine: &EngineId, knobs: &[Knob]) -> Result<()> {
        for (name, value) in &self.0 {
            let Some(knob) = knobs.iter().find(|knob| knob.name == name) else {
                let names: Vec<&str> = knobs.iter().map(|knob| knob.name).collect();
                let has = if names.is_empty() { "none".into() } else { names.join(", ") };
                return Err(Error::invalid(format!(
                    "engine {engine} has no knob {name:?} here; it has {has}"
                )));
            };
            if !knob.values.contains(value) {
                let values = listed(&knob.values);
                return Err(Error::invalid(format!(
                    "engine {engine}: knob {name} = {value} is not one of {values} ({})",
                    knob.doc
                )));
            }
        }
        Ok(())
    }
}

impl fmt::Display for KnobValues {
    /// Formats the values, for example as `rows=4 threads=64`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, value)) in self.0.iter().enumerate() {
            let space = if i > 0 { " " } else { "" };
            write!(f, "{space}{name}={value}")?;
        }
        Ok(())
    }
}

/// Knob values by engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Knobs(BTreeMap<EngineId, KnobValues>);

impl Knobs {
    /// Sets a knob of an engine. Planning checks it against each query that the engine could
    /// execute.
    pub fn set(mut self, engine: EngineId, name: impl Into<String>, value: u32) -> Knobs {
        self.0.entry(engine).or_default().0.insert(name.into(), value);
        self
    }

    /// Returns the values set for an engine; [`KnobValues::NONE`] if none are set.
    pub fn of(&self, engine: &EngineId) -> &KnobValues {
        self.0.get(engine).unwrap_or(KnobValues::NONE)
    }

    /// Iterates over the engines with values set.
    pub fn engines(&self) -> impl Iterator<Item = &EngineId> {
        self.0.keys()
    }
}

/// Iterates over the powers of two from `least` to `most`, inclusive.
pub(super) fn powers(least: u32, most: u32) -> impl Iterator<Item = u32> {
    (0..32).map(|bit| 1u32 << bit).filter(move |value| (least..=most).contains(value))
}

fn listed(values: &[u32]) -> String {
    values.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_range_are_errors_that_list_the_valid_ones() {
        let id = EngineId::new("a.b");
        let knobs = [Knob::new("threads", "threads of a workgroup", powers(32, 256), 128)];
        let check = |name: &str, value| {
            let all = Knobs::default().set(id.clone(), name, value);
            all.of(&id).check(&id, &knobs).map_err(|e| e.to_string())
        };
        assert_eq!(check("threads", 64), Ok(()));
        let what = check("threads", 48).unwrap_err();
        assert!(what.contains("a.b") && what.contains("threads = 48"), "{what}");
        assert!(what.contains("32, 64, 128, 256"), "{what}");
        assert!(check("rows", 2).unwrap_err().contains("it has threads"));
        assert_eq!(knobs[0].value(KnobValues::NONE), 128);
        assert_eq!(
            Knobs::default().set(id.clone(), "threads", 32).of(&id).get("threads"),
            Some(32)
        );
    }
}

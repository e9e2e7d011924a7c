//! Verifies that a partitioned plan is safe to run.

use super::{Action, PartitionedPlan};
use crate::error::{Error, Result};
use crate::plan::SlotRole;

impl PartitionedPlan {
    /// Checks the plan of every segment, and every index and name.
    ///
    /// # Errors
    /// Invalid, naming the broken rule and its place.
    pub fn verify(&self) -> Result<()> {
        self.fault().map_or(Ok(()), |what| Err(Error::invalid(format!("{}: {what}", self.name))))
    }

    fn fault(&self) -> Option<String> {
        let slots = self.devices.len();
        for (i, tensor) in self.passed.iter().enumerate() {
            let name = &tensor.name;
            let distinct =
                tensor.slots.iter().enumerate().all(|(k, s)| !tensor.slots[..k].contains(s));
            if tensor.slots.is_empty() || !distinct || tensor.slots.iter().any(|s| *s >= slots) {
                return Some(format!(
                    "passed tensor {name:?} is on slots {:?} of {slots}",
                    tensor.slots
                ));
            }
            if self.passed[..i].iter().any(|other| other.name == *name) {
                return Some(format!("two passed tensors {name:?}"));
            }
            if let Err(error) = self.passed_bytes(tensor) {
                return Some(format!("passed tensor {name:?}: {error}"));
            }
        }
        for (i, segment) in self.segments.iter().enumerate() {
            let of = |what: String| Some(format!("segment {i}: {what}"));
            if let Err(error) = segment.plan.verify() {
                return of(error.to_string());
            }
            if self.devices.get(segment.slot) != Some(&segment.plan.profile) {
                return of(format!("slot {} is not the device of its plan", segment.slot));
            }
            if segment.plan.class != self.class {
                return of(format!("for {}, not {}", segment.plan.class, self.class));
            }
            for role in &segment.plan.slots {
                let (SlotRole::Input(name) | SlotRole::Output(name)) = role else { continue };
                let own = self.passed.iter().find(|tensor| tensor.name == *name);
                if own.is_none_or(|tensor| !tensor.slots.contains(&segment.slot)) {
                    return of(format!("{name:?} is not passed on slot {}", segment.slot));
                }
            }
        }
        let mut runs = vec![0; self.segments.len()];
        for action in &self.actions {
            match *action {
                Action::Run(segment) => match runs.get_mut(segment) {
                    Some(count) => *count += 1,
                    None => return Some(format!("segment {segment} of {} is run", runs.len())),
                },
                Action::Transfer { tensor, to } => match self.passed.get(tensor) {
                    Some(passed) if passed.slots[1..].contains(&to) => {}
                    _ => return Some(format!("tensor {tensor} is transferred to slot {to}")),
                },
            }
        }
        let other = runs.iter().position(|count| *count != 1)?;
        Some(format!("segment {other} is run {} times", runs[other]))
    }
}

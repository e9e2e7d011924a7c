//! A plan in words.

use std::fmt::Write;

use super::{Plan, SlotRole};
use crate::base::Dim;

impl Plan {
    /// The plan as text: passes, steps with engine, kernel and grid, memory.
    pub fn explain(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write_explain(&mut text);
        text
    }

    fn write_explain(&self, f: &mut String) -> std::fmt::Result {
        writeln!(
            f,
            "plan {} {} for {} {:?}",
            self.name,
            self.class,
            self.profile.id(),
            self.profile.name
        )?;
        writeln!(f, "passes: {}", self.passes.join(", "))?;
        writeln!(f, "{} dispatches, {} kernels", self.steps.len(), self.recording.kernels.len())?;
        for (i, step) in self.steps.iter().enumerate() {
            let [x, y, z] = &step.grid;
            let one = Dim::new(1);
            let grid = match (y == &one, z == &one) {
                (true, true) => format!("{x}"),
                (_, true) => format!("{x} x {y}"),
                _ => format!("{x} x {y} x {z}"),
            };
            writeln!(f, "{i:4}  {:<34} {:<32} {} [{grid}]", step.label, step.engine, step.kernel)?;
        }
        for (role, slot) in self.slots.iter().zip(&self.recording.slots) {
            if let SlotRole::Arena(colour) = role {
                writeln!(f, "arena {colour}: {} bytes", slot.bytes)?;
            }
        }
        writeln!(f, "why:")?;
        for choice in &self.choices {
            let engine = choice.engine.as_ref().map_or("copy", |id| id.as_str());
            writeln!(f, "  {:<34} {engine}: {}", choice.label, choice.why)?;
        }
        Ok(())
    }
}

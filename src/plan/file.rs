//! Plans as files: a line that says what it is, then JSON, trusted in nothing.
//!
//! ```text
//! warploom-plan 2 <blake3 of the rest, in hex> <bytes of the rest>
//! {"name":..}
//! ```
//!
//! The magic word of a plan over several devices is `warploom-partitioned-plan`.
//!
//! The checksum finds damage, not malice: a file from others is verified like any input. Every
//! index, range and size that the host or a device's checks rely on is in bounds after
//! [`Plan::load`]. The kernels themselves are programs, and a GPU runs them without bounds checks
//! of its own: load plans from where you would load programs from.

use super::{PartitionedPlan, Plan};
use crate::base::Sealed;
use crate::error::Result;

const PLAN: Sealed =
    Sealed { magic: "warploom-plan", version: 12, what: "plan file", max_bytes: 256 << 20 };
const PARTITIONED: Sealed = Sealed { magic: "warploom-partitioned-plan", ..PLAN };

impl Plan {
    /// The bytes of a plan file. One plan always gives the same bytes.
    ///
    /// # Errors
    /// Invalid where the plan is: only what can be loaded is saved.
    pub fn save(&self) -> Result<Vec<u8>> {
        self.verify()?;
        PLAN.write(self)
    }

    /// The plan in the bytes of a file. A plan holds kernels, and those in the languages of providers (twins of packs)
    /// run without checks of indices: load those of people you trust.
    ///
    /// # Errors
    /// Bad file, saying what is wrong and where: not a plan file, another version, damaged, or a
    /// plan that breaks a rule of [`Plan::verify`].
    pub fn load(bytes: &[u8]) -> Result<Plan> {
        let plan: Plan = PLAN.read(bytes)?;
        plan.verify().map_err(|e| PLAN.bad(e))?;
        Ok(plan)
    }
}

impl PartitionedPlan {
    /// The bytes of a plan file, as [`Plan::save`].
    ///
    /// # Errors
    /// As [`Plan::save`].
    pub fn save(&self) -> Result<Vec<u8>> {
        self.verify()?;
        PARTITIONED.write(self)
    }

    /// The plan in the bytes of a file.
    ///
    /// # Errors
    /// As [`Plan::load`].
    pub fn load(bytes: &[u8]) -> Result<PartitionedPlan> {
        let plan: PartitionedPlan = PARTITIONED.read(bytes)?;
        plan.verify().map_err(|e| PLAN.bad(e))?;
        Ok(plan)
    }
}

//! Plan files: a header line with a checksum, then JSON, all of it untrusted.
//!
//! ```text
//! warploom-plan 2 <blake3 of the rest, in hex> <bytes of the rest>
//! {"name":..}
//! ```
//!
//! The magic word of a plan over several devices is `warploom-partitioned-plan`.
//!
//! The checksum finds damage, not malice: a file is verified like any untrusted input. After
//! [`Plan::load`] every index, range and size that the host or a device's checks rely on is in
//! bounds. The kernels themselves are programs, which a GPU runs without bounds checks of its own:
//! load plans only from sources whose programs you would run.

use super::{PartitionedPlan, Plan};
use crate::base::Checksummed;
use crate::error::Result;

const PLAN: Checksummed =
    Checksummed { magic: "warploom-plan", version: 12, what: "plan file", max_bytes: 256 << 20 };
const PARTITIONED: Checksummed = Checksummed { magic: "warploom-partitioned-plan", ..PLAN };

impl Plan {
    /// The bytes of a plan file. Equal plans give equal bytes.
    ///
    /// # Errors
    /// Invalid if the plan is: only a loadable plan is saved.
    pub fn save(&self) -> Result<Vec<u8>> {
        self.verify()?;
        PLAN.write(self)
    }

    /// Loads a plan from the bytes of a file. Kernels in the languages of providers (twins of
    /// packs) run without index checks: load plans only from people you trust.
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

    /// Loads a plan from the bytes of a file.
    ///
    /// # Errors
    /// As [`Plan::load`].
    pub fn load(bytes: &[u8]) -> Result<PartitionedPlan> {
        let plan: PartitionedPlan = PARTITIONED.read(bytes)?;
        plan.verify().map_err(|e| PLAN.bad(e))?;
        Ok(plan)
    }
}

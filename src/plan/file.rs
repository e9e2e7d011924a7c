//! Plan files: a header line with a checksum, then JSON. No part of it is trusted.
//!
//! ```text
//! warploom-plan <version> <blake3 of the rest, in hex> <bytes of the rest>
//! {"name":..}
//! ```
//!
//! The magic word of a plan over several devices is `warploom-partitioned-plan`.
//!
//! The checksum finds damage, not malice: a file is verified like any untrusted input. After
//! [`Plan::load`] every index, range and size that the host or a device's checks rely on is in
//! bounds. The kernels themselves are programs, and native kernels run without bounds checks: load
//! plans only from sources you trust.

use super::{PartitionedPlan, Plan};
use crate::base::Checksummed;
use crate::error::Result;

const PLAN: Checksummed =
    Checksummed { magic: "warploom-plan", version: 12, what: "plan file", max_bytes: 256 << 20 };
const PARTITIONED: Checksummed = Checksummed { magic: "warploom-partitioned-plan", ..PLAN };

impl Plan {
    /// Serialises the plan to the bytes of a plan file. Equal plans yield equal bytes.
    ///
    /// # Errors
    /// Invalid if [`Plan::verify`] rejects the plan: only a loadable plan is saved.
    pub fn save(&self) -> Result<Vec<u8>> {
        self.verify()?;
        PLAN.write(self)
    }

    /// Loads a plan from the bytes of a file. A plan can contain native kernels, which run without
    /// bounds checks: load plans only from sources you trust.
    ///
    /// # Errors
    /// Bad file, naming the fault and its place, if the bytes are not a plan file, have a different
    /// version, are damaged, or hold a plan that [`Plan::verify`] rejects.
    pub fn load(bytes: &[u8]) -> Result<Plan> {
        let plan: Plan = PLAN.read(bytes)?;
        plan.verify().map_err(|e| PLAN.bad(e))?;
        Ok(plan)
    }
}

impl PartitionedPlan {
    /// Serialises the plan to the bytes of a plan file. Equal plans yield equal bytes.
    ///
    /// # Errors
    /// Invalid if [`PartitionedPlan::verify`] rejects the plan.
    pub fn save(&self) -> Result<Vec<u8>> {
        self.verify()?;
        PARTITIONED.write(self)
    }

    /// Loads a plan from the bytes of a file. The warning about untrusted sources in [`Plan::load`]
    /// applies here too.
    ///
    /// # Errors
    /// Same as [`Plan::load`].
    pub fn load(bytes: &[u8]) -> Result<PartitionedPlan> {
        let plan: PartitionedPlan = PARTITIONED.read(bytes)?;
        plan.verify().map_err(|e| PLAN.bad(e))?;
        Ok(plan)
    }
}

//! Deterministic mode: fixed reduction orders, so that a result has the same bits on the same
//! device whatever else is computed (batch invariance).
//!
//! The inputs of an element are a row of x and a row of w, a token and its visible keys, a window
//! of an image. The number of rows, tokens, sequences or images, the shape class, the number of
//! threads and the run may change the time, never the bits. Float sums depend on their order, so
//! that order may depend only on the inputs of an element. An engine declares its
//! [`ReductionOrder`], or why it has none, and [`super::choose`] takes the lowest-ranked order that
//! applies, the same for one row as for many. An order may depend on the operation, formats,
//! lengths of sums, the device and knobs set by the caller, never on the number of elements. Among
//! engines of one order the cost decides.
//!
//! On GPUs nothing is fused in this mode: a driver may contract a multiply and an add of one
//! kernel, and which nodes share a kernel depends on sizes. The CPU's functions round each
//! operation, so elementwise work is fused there. Norms, other reductions and rotations are not,
//! since fused kernels compute them differently. Nor may the cost choose between an engine that
//! splits sums and one that does not. If no engine has an order, planning fails with the reason of
//! each.

use std::borrow::Cow;

use super::Query;

/// Order in which an engine does the operations of each element: equal orders give equal bits.
///
/// An engine with an order accepts every number of rows; beyond the limits of one launch, no other
/// order replaces it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReductionOrder {
    /// Its rank: lower ones first.
    rank: u8,
    name: Cow<'static, str>,
}

impl ReductionOrder {
    /// An order that is preferred to those of a higher rank.
    pub fn new(rank: u8, name: impl Into<Cow<'static, str>>) -> ReductionOrder {
        ReductionOrder { rank, name: name.into() }
    }

    /// The result does not depend on the order: copies, pointwise work, integer sums.
    pub fn exact() -> ReductionOrder {
        ReductionOrder::new(0, "exact")
    }

    /// The same order, ranked later.
    pub(super) fn after(self, ranks: u8) -> ReductionOrder {
        ReductionOrder { rank: self.rank.saturating_add(ranks), ..self }
    }

    /// Its name in reports.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The order of sums over a workgroup of `threads`, with subgroups or without.
    ///
    /// # Errors
    /// The reason, if the subgroup size may differ between kernels.
    pub(super) fn of_workgroup(
        query: &Query,
        name: &str,
        threads: u32,
        subgroup: bool,
    ) -> Result<ReductionOrder, String> {
        if !query.is_wgsl() {
            return Ok(ReductionOrder::new(0, name.to_string()));
        }
        if !subgroup {
            return Ok(ReductionOrder::new(1, format!("{name}, {threads} threads")));
        }
        let (min, max) = (query.profile.subgroup_min, query.profile.subgroup_max);
        match min == max && min > 0 {
            true => Ok(ReductionOrder::new(
                0,
                format!("{name}, {threads} threads in subgroups of {min}"),
            )),
            false => Err(format!("subgroups are of {min} to {max} threads, as the driver likes")),
        }
    }
}

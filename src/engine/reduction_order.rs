//! Deterministic mode: fixed reduction orders, so that a result has the same bits on the same
//! device whatever else is computed (batch invariance).
//!
//! The inputs of an element are a row of x and a row of w, a token and its visible keys, or a
//! window of an image. The bits never depend on the number of rows, tokens, sequences or images, on
//! the shape class, on the number of threads, or on other work; these may only change the time.
//! Float sums depend on their order, so that order may depend only on the inputs of an element. An
//! engine declares its [`ReductionOrder`], or why it has none, and [`super::choose`] takes the
//! lowest-ranked order that applies, the same for one row as for many. An order may depend on the
//! operation, formats, lengths of sums, the device and knobs set by the caller, never on the number
//! of elements. Among engines with the same order, the cost decides.
//!
//! On GPUs nothing is fused in this mode: a driver may contract a multiply and an add of one
//! kernel, and which nodes share a kernel depends on sizes. The CPU's functions round each
//! operation, so elementwise work is fused there. Norms, other reductions and rotations are not,
//! since fused kernels compute them differently. The cost may not choose between an engine that
//! splits sums and one that does not. If no engine has an order, planning fails with each engine's
//! reason.

use std::borrow::Cow;

use super::Query;

/// Order in which an engine performs the operations of each element: equal orders yield equal bits.
///
/// An engine with an order accepts every number of rows. If a launch cannot have that number, no
/// engine with another order may take its place, since the bits would change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReductionOrder {
    /// Rank of the order; lower ranks are preferred.
    rank: u8,
    name: Cow<'static, str>,
}

impl ReductionOrder {
    /// Creates an order; lower ranks are preferred.
    pub fn new(rank: u8, name: impl Into<Cow<'static, str>>) -> ReductionOrder {
        ReductionOrder { rank, name: name.into() }
    }

    /// Returns the order of operations that have the same result in any order: copies, pointwise
    /// work, integer sums.
    pub fn exact() -> ReductionOrder {
        ReductionOrder::new(0, "exact")
    }

    /// Returns the same order with its rank raised by `ranks`.
    pub(super) fn after(self, ranks: u8) -> ReductionOrder {
        ReductionOrder { rank: self.rank.saturating_add(ranks), ..self }
    }

    /// Returns the name of the order, for reports.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the order of sums over a workgroup of `threads`, with or without subgroups.
    ///
    /// # Errors
    /// Returns the reason if the subgroup size may differ between kernels.
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

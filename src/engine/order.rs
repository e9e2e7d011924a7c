//! Deterministic mode: the same bits of a result on the same device, whatever else is computed beside it.
//!
//! What an element is made of is the caller's: a row of x and a row of w, a token and the keys that it sees, a
//! window of an image. How many rows, tokens, sequences or images there are, which class of shapes they fall
//! into, how many threads work and which run it is may change the time, never the bits. Sums of floats depend
//! on their order, so that order may depend on nothing but what an element is made of: an engine says its
//! [`Order`] or why it has none, and [`super::choose`] takes the first order of the list that applies, the same
//! for one row as for many. What an order is may depend on the operation, formats, the lengths of sums, the
//! device and knobs that the caller sets, never on the number of elements. Among engines of one order, the
//! cost decides.
//!
//! On GPUs nothing is fused in this mode: a driver may contract a product and a sum of one kernel to one operation
//! with one rounding, and which nodes share a kernel depends on sizes. The CPU's functions round each operation, so
//! elementwise work is fused there; norms, other reductions and rotations are not, since kernels that do them
//! besides something else do them in another way. Nor may the cost choose between an engine that
//! splits sums and one that does not. Where no engine has an order, planning fails and says so for each.

use std::borrow::Cow;

use super::Query;

/// In which order an engine does the operations of each element: engines with equal orders make equal bits.
///
/// An engine that has one takes every number of rows of whatever it takes one row of, or, beyond what one launch
/// has, no other order is taken in its place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Order {
    /// Its place in the list: lower ones first.
    rank: u8,
    name: Cow<'static, str>,
}

impl Order {
    /// An order that is taken before those of a higher rank.
    pub fn new(rank: u8, name: impl Into<Cow<'static, str>>) -> Order {
        Order { rank, name: name.into() }
    }

    /// Nothing that is done can be done in another order with other bits: copies, work on single elements, sums
    /// of whole numbers.
    pub fn exact() -> Order {
        Order::new(0, "exact")
    }

    /// The same so many ranks later.
    pub(super) fn after(self, ranks: u8) -> Order {
        Order { rank: self.rank.saturating_add(ranks), ..self }
    }

    /// What it is called in reports.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// That of sums over a workgroup of so many threads, by subgroups or without.
    ///
    /// # Errors
    /// The reason, where subgroups may be of another size in another kernel.
    pub(super) fn of_workgroup(
        query: &Query,
        name: &str,
        threads: u32,
        subgroup: bool,
    ) -> Result<Order, String> {
        if !query.is_wgsl() {
            return Ok(Order::new(0, name.to_string()));
        }
        if !subgroup {
            return Ok(Order::new(1, format!("{name}, {threads} threads")));
        }
        let (min, max) = (query.profile.subgroup_min, query.profile.subgroup_max);
        match min == max && min > 0 {
            true => Ok(Order::new(0, format!("{name}, {threads} threads in subgroups of {min}"))),
            false => Err(format!("subgroups are of {min} to {max} threads, as the driver likes")),
        }
    }
}

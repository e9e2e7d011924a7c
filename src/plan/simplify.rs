//! Passes on the graph alone.

use super::draft::Draft;
use crate::base::Dim;
use crate::error::Result;
use crate::ir::{rewrite, verify};

/// Puts in the symbols that are numbers in this class, then verifies.
pub(super) fn infer(draft: &mut Draft) -> Result<()> {
    for (symbol, low, high) in draft.class.ranges() {
        if low == high {
            draft.graph = draft.graph.substitute(*symbol, &Dim::from(*low));
        }
    }
    verify(&draft.graph)
}

/// Merges equal nodes and drops those that nothing needs.
pub(super) fn simplify(draft: &mut Draft) -> Result<()> {
    draft.graph = rewrite::eliminate_dead_code(&rewrite::merge_equal_nodes(&draft.graph)?)?;
    Ok(())
}

//! First phase of a submit: evaluates and checks what varies, and writes nothing.

use smallvec::SmallVec;

use super::bind::bind_group;
use super::device::{State, WebGpuDevice};
use super::prepare::{Group, Prepared};
use crate::error::Result;
use crate::provider::checked::Resolved;
use crate::provider::{Args, BufferRange};

/// The varying parts of one submit of prepared work.
pub(super) struct Submission {
    pub(super) resolved: Resolved,
    /// Bind groups with slots bound per submit.
    pub(super) groups: Vec<wgpu::BindGroup>,
    /// Whether this is the work's first occurrence in the submit.
    pub(super) first: bool,
}

impl WebGpuDevice {
    /// Evaluates and checks one submit of `prepared`.
    pub(super) fn resolve(
        &self,
        state: &State,
        prepared: &mut Prepared,
        args: &Args,
    ) -> Result<Submission> {
        let resolved = prepared.work.evaluate(state, args)?;
        let groups = self.open_groups(state, prepared, &resolved)?;
        // A submit that fails later keeps this ticket number; the next one then only stages
        // needlessly.
        let first = prepared.resolved_for != state.tickets + 1;
        prepared.resolved_for = state.tickets + 1;
        Ok(Submission { resolved, groups, first })
    }

    /// Returns the bind groups with open slots, reusing recently built ones.
    fn open_groups(
        &self,
        state: &State,
        prepared: &mut Prepared,
        resolved: &Resolved,
    ) -> Result<Vec<wgpu::BindGroup>> {
        /// Bind groups cached per launch: callers rotate among few buffers.
        const KEPT: usize = 8;
        let mut out = Vec::new();
        if !prepared.work.is_open() {
            return Ok(out);
        }
        for group in &mut prepared.groups {
            let Group::Open(_, open) = group else { continue };
            let ranges = open.bindings.iter().map(|binding| resolved.range_of(binding));
            let ranges: SmallVec<[BufferRange; 8]> = ranges.collect();
            if let Some((_, built)) = open.built.iter().find(|(key, _)| *key == ranges) {
                out.push(built.clone());
                continue;
            }
            let built = bind_group(self, state, &open.kernel, open.params.as_ref(), &ranges)
                .map_err(|error| error.context(format!("dispatch {:?}", open.label)))?;
            if open.built.len() == KEPT {
                open.built.remove(0);
            }
            open.built.push((ranges, built.clone()));
            out.push(built);
        }
        Ok(out)
    }
}

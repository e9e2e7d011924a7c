//! First phase of a submit: evaluates and checks what varies, and writes nothing.

use super::bind::{bind_group, bind_slot, check_range, eval_grid};
use super::device::{State, WebGpuDevice};
use super::prepare::{Bound, Grid, Group, Prepared, Range, Step};
use crate::error::{Error, Result};
use crate::provider::{Args, BufferRange, UploadSource};

/// The varying parts of one submit of prepared work.
pub(super) struct Resolved {
    /// Values of [`Prepared::dims`].
    pub(super) values: Vec<i64>,
    /// Buffers of the slots bound per submit, by slot index; empty if there are none.
    pub(super) buffers: Vec<Option<Bound>>,
    /// Bind groups with slots bound per submit.
    pub(super) groups: Vec<wgpu::BindGroup>,
    /// Bytes of the varying parameter blocks.
    pub(super) params: Vec<u8>,
    /// Whether this is the work's first occurrence in the submit.
    pub(super) first: bool,
}

impl Prepared {
    /// Returns the buffer of a slot, bound in `prepare` or in this submit.
    pub(super) fn bound<'a>(&'a self, resolved: &'a Resolved, slot: u32) -> Option<&'a Bound> {
        bound(self, &resolved.buffers, slot)
    }
}

fn bound<'a>(work: &'a Prepared, open: &'a [Option<Bound>], slot: u32) -> Option<&'a Bound> {
    let fixed = work.slots.get(slot as usize).and_then(|slot| slot.bound.as_ref());
    fixed.or_else(|| open.get(slot as usize).and_then(Option::as_ref))
}

impl WebGpuDevice {
    /// Evaluates and checks one submit of `work`.
    pub(super) fn resolve(
        &self,
        state: &State,
        work: &mut Prepared,
        args: &Args,
    ) -> Result<Resolved> {
        if work.freed != state.freed {
            for bound in work.slots.iter().filter_map(|slot| slot.bound.as_ref()) {
                state.buffer(bound.range)?;
            }
            work.freed = state.freed;
        }
        let buffers = open_buffers(state, work, args)?;
        let values = work.dims.iter().map(|dim| dim.eval(&args.symbols));
        let values = values.collect::<Result<Vec<i64>>>()?;
        for step in &work.changing {
            if let Some(step) = work.steps.get(*step as usize) {
                self.check_step(work, step, &values, &buffers, args)?;
            }
        }
        for range in &work.downloads {
            checked(work, *range, &values)?;
        }
        let params = change_params(work, &values)?;
        let groups = self.open_groups(work, &buffers)?;
        // A submit that fails later keeps this ticket number; the next one then only stages
        // needlessly.
        let first = work.resolved_for != state.tickets + 1;
        work.resolved_for = state.tickets + 1;
        Ok(Resolved { values, buffers, groups, params, first })
    }

    fn check_step(
        &self,
        work: &Prepared,
        step: &Step,
        values: &[i64],
        buffers: &[Option<Bound>],
        args: &Args,
    ) -> Result<()> {
        match step {
            Step::Dispatch { grid: Grid::Changing { sizes, label }, .. } => {
                let named = |error: Error| {
                    let label = work.labels.get(*label as usize).map_or("", String::as_str);
                    error.context(format!("dispatch {label:?}"))
                };
                for size in sizes {
                    size.check(work, values).map_err(named)?;
                }
                let most = self.profile.max_workgroups_per_dim;
                eval_grid(sizes, values, most).map_err(named)?;
            }
            Step::Upload { to, source } => {
                let (_, bytes) = checked(work, *to, values)?;
                let given = match source {
                    UploadSource::Data(data) => data.len(),
                    UploadSource::Arg(index) => {
                        let data = args.uploads.get(*index as usize);
                        let data = data.ok_or_else(|| {
                            Error::invalid(format!("upload {index} is missing from the arguments"))
                        })?;
                        data.len()
                    }
                };
                if (given as u64).next_multiple_of(4) != bytes {
                    return Err(Error::invalid(format!("an upload of {bytes} bytes got {given}")));
                }
            }
            Step::Copy { from, to } => {
                let (from_offset, bytes) = checked(work, *from, values)?;
                let (to_offset, to_bytes) = checked(work, *to, values)?;
                if bytes != to_bytes {
                    return Err(Error::invalid(format!(
                        "a copy of {bytes} bytes to a place of {to_bytes}"
                    )));
                }
                let (a, b) = (bound(work, buffers, from.slot), bound(work, buffers, to.slot));
                if let (Some(a), Some(b)) = (a, b)
                    && a.range.buffer == b.range.buffer
                {
                    let (a, b) = (a.range.offset + from_offset, b.range.offset + to_offset);
                    if a < b + bytes && b < a + bytes {
                        return Err(Error::invalid(format!(
                            "a copy of {bytes} bytes from {a} to {b} of one buffer overlaps"
                        )));
                    }
                }
            }
            Step::Clear { range } => {
                checked(work, *range, values)?;
            }
            Step::Dispatch { .. } | Step::Download { .. } | Step::Timestamp => {}
        }
        Ok(())
    }

    /// Returns the bind groups with open slots, reusing recently built ones.
    fn open_groups(
        &self,
        work: &mut Prepared,
        buffers: &[Option<Bound>],
    ) -> Result<Vec<wgpu::BindGroup>> {
        /// Bind groups cached per dispatch: callers rotate among few buffers.
        const KEPT: usize = 8;
        if !work.open {
            return Ok(Vec::new());
        }
        let Prepared { slots, groups, .. } = work;
        let bound = |slot: u32| {
            let fixed = slots.get(slot as usize).and_then(|slot| slot.bound.as_ref());
            fixed.or_else(|| buffers.get(slot as usize).and_then(Option::as_ref))
        };
        let mut out = Vec::new();
        for group in groups {
            let Group::Open(_, open) = group else { continue };
            let ranges = open.bindings.iter().filter_map(|b| bound(b.slot).map(|b| b.range));
            let ranges: Vec<BufferRange> = ranges.collect();
            if let Some((_, built)) = open.built.iter().find(|(key, _)| *key == ranges) {
                out.push(built.clone());
                continue;
            }
            let built = bind_group(self, &open.kernel, open.params.as_ref(), &open.bindings, bound)
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

fn checked(work: &Prepared, range: Range, values: &[i64]) -> Result<(u64, u64)> {
    range.offset.check(work, values)?;
    range.bytes.check(work, values)?;
    check_range(&work.slots, range, values)
}

fn open_buffers(state: &State, work: &Prepared, args: &Args) -> Result<Vec<Option<Bound>>> {
    if !work.open {
        return match args.buffers.first() {
            Some((slot, _)) => Err(Error::invalid(format!("slot {slot} was bound in prepare"))),
            None => Ok(Vec::new()),
        };
    }
    let mut out: Vec<Option<Bound>> = vec![None; work.slots.len()];
    for (index, range) in &args.buffers {
        let slot = work.slots.get(*index as usize).filter(|slot| slot.bound.is_none());
        let slot = slot.ok_or_else(|| Error::invalid(format!("slot {index} was not left open")))?;
        out[*index as usize] = Some(bind_slot(state, &slot.name, slot.bytes, *range)?);
    }
    let missing = work.slots.iter().zip(&out).find(|(s, b)| s.bound.is_none() && b.is_none());
    match missing {
        Some((slot, _)) => Err(Error::invalid(format!("open slot {:?} has no buffer", slot.name))),
        None => Ok(out),
    }
}

fn change_params(work: &Prepared, values: &[i64]) -> Result<Vec<u8>> {
    let Some(params) = &work.params else { return Ok(Vec::new()) };
    let mut bytes = params.bytes.clone();
    for (offset, place) in &params.words {
        let value = values.get(*place as usize).copied().unwrap_or_default();
        let word = u32::try_from(value).map_err(|_| {
            let dim = &work.dims[*place as usize];
            Error::invalid(format!("parameter {dim} = {value} does not fit 32 bits"))
        })?;
        let offset = *offset as usize;
        bytes[offset..offset + 4].copy_from_slice(&word.to_le_bytes());
    }
    Ok(bytes)
}

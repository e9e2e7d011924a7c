//! Verification of a plan: its indices and ranges are memory-safe, and it fits a device.

use super::{Plan, SlotRole};
use crate::base::{Dim, Symbol, SymbolValues};
use crate::engine::Step;
use crate::error::{Error, Result};
use crate::ir::bounded_dims;
use crate::kernel::{FusedExpr, KernelSpec, Schedule, Value, catalogue};
use crate::provider::{
    Binding, Command, DeviceProfile, Dispatch, GRANULE, SlotRange, Support, UploadSource, Word,
    support,
};

/// Maximum bytes of a tensor or buffer; sums of a few fit 64 bits.
const MAX_BYTES: u64 = 1 << 56;
/// Maximum operands of a body, and bindings of a user kernel.
const MAX_OPERANDS: usize = 64;
/// Maximum values of a body.
const MAX_VALUES: usize = 4096;
/// Maximum size of the expression of one value of a body: the number of values in it, repetitions
/// included.
const MAX_TREE: u64 = 1 << 16;
/// Maximum dimensions of the index space of a body.
const MAX_RANK: u32 = 6;
/// Maximum reasons listed in an error.
const REASONS: usize = 4;

impl Plan {
    /// Checks that every index, range, size and symbol of the plan is in bounds, and that the plan
    /// fits the device it names. Plans from [`Plan::new`] pass; a file may hold anything.
    ///
    /// # Errors
    /// Invalid, naming the fault and its place; unsupported if it does not fit its own device.
    pub fn verify(&self) -> Result<()> {
        self.profile.check().map_err(|what| invalid(format!("profile: {what}")))?;
        let ranges = self.class.ranges();
        let ordered = ranges.windows(2).all(|pair| pair[0].0 < pair[1].0);
        if !ordered || ranges.iter().any(|(_, low, high)| low > high) {
            return Err(invalid(format!("class {} is not ranges of distinct symbols", self.class)));
        }
        for (i, tensor) in self.tensors.iter().enumerate() {
            let bytes = tensor.bytes;
            if bytes == 0 || bytes > MAX_BYTES || !bytes.is_multiple_of(GRANULE) {
                return Err(invalid(format!("tensor {i} {:?}: {bytes} bytes", tensor.name)));
            }
        }
        self.verify_slots()?;
        for (i, spec) in self.recording.kernels.iter().enumerate() {
            kernel_fault(spec)
                .map_or(Ok(()), |what| Err(invalid(format!("kernel {i}: {what}"))))?;
        }
        let dims = self.recording.params.iter().flat_map(|block| &block.0);
        dims.filter_map(|word| match word {
            Word::Dim(dim) => Some(dim),
            Word::Bits(_) => None,
        })
        .try_for_each(|dim| self.verify_dim(dim))?;
        self.verify_steps()?;
        self.verify_commands()?;
        self.fits(&self.profile)
    }

    /// Checks that a device has what the plan needs.
    ///
    /// # Errors
    /// Unsupported, with the limits that are too small and the features that are missing.
    pub fn fits(&self, profile: &DeviceProfile) -> Result<()> {
        let mut reasons: Vec<String> = Vec::new();
        for spec in &self.recording.kernels {
            if let Support::No(reason) = support(profile, spec) {
                reasons.push(reason);
            }
        }
        for slot in &self.recording.slots {
            let (need, have) = (slot.bytes, profile.max_buffer_bytes);
            if need > have {
                reasons.push(format!("buffer {:?} of {need} bytes, at most {have}", slot.name));
            }
        }
        for dispatch in self.dispatches() {
            let label = &dispatch.label;
            for binding in &dispatch.bindings {
                let (need, have) = (binding.bytes, profile.max_binding_bytes);
                if need > have {
                    reasons.push(format!("{label:?} binds {need} bytes, at most {have}"));
                }
                let (offset, align) = (binding.offset, u64::from(profile.binding_alignment));
                if !offset.is_multiple_of(align) {
                    reasons.push(format!("{label:?} binds at {offset}, a multiple of {align}"));
                }
            }
            let most = u64::from(profile.max_workgroups_per_dim);
            let groups = dispatch.grid.iter().filter_map(|dim| self.class.upper(dim).ok());
            if let Some(groups) = groups.filter(|groups| *groups > most).max() {
                reasons.push(format!("{label:?} launches {groups} workgroups, at most {most}"));
            }
        }
        if reasons.is_empty() {
            return Ok(());
        }
        let more = match reasons.len().saturating_sub(REASONS) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        reasons.truncate(REASONS);
        Err(Error::unsupported(format!(
            "plan {}, made for {:?}, does not fit {} {:?}: {}{more}",
            self.name,
            self.profile.name,
            profile.id(),
            profile.name,
            reasons.join("; ")
        )))
    }

    fn verify_slots(&self) -> Result<()> {
        let slots = &self.recording.slots;
        if self.slots.len() != slots.len() {
            let (roles, slots) = (self.slots.len(), slots.len());
            return Err(invalid(format!("{roles} roles of {slots} slots")));
        }
        for (i, (role, slot)) in self.slots.iter().zip(slots).enumerate() {
            let held = match role {
                SlotRole::Constants(bytes) => bytes.len() as u64,
                _ => 0,
            };
            if slot.bytes > MAX_BYTES || held > slot.bytes {
                let (name, bytes) = (&slot.name, slot.bytes);
                return Err(invalid(format!("slot {i} {name:?}: {held} of {bytes} bytes")));
            }
        }
        Ok(())
    }

    fn verify_steps(&self) -> Result<()> {
        let dispatches: Vec<&Dispatch> = self.dispatches().collect();
        if dispatches.len() != self.steps.len() {
            let (steps, dispatches) = (self.steps.len(), dispatches.len());
            return Err(invalid(format!("{steps} steps, {dispatches} dispatches")));
        }
        for (i, (step, dispatch)) in self.steps.iter().zip(dispatches).enumerate() {
            self.verify_step(step, dispatch)
                .map_err(|e| e.context(format_args!("step {i} {:?}", step.label)))?;
        }
        self.verify_beside()
    }

    fn verify_step(&self, step: &Step, dispatch: &Dispatch) -> Result<()> {
        let recording = &self.recording;
        if recording.kernels.get(dispatch.kernel as usize) != Some(&step.kernel) {
            return Err(invalid(format!("kernel {} is not the step's", dispatch.kernel)));
        }
        let params = recording.params.get(dispatch.params as usize).map(|block| &block.0);
        if params != Some(&step.params) {
            return Err(invalid(format!("parameters {} are not the step's", dispatch.params)));
        }
        let interface = catalogue::interface(&step.kernel)?;
        if step.params.len() != interface.param_words as usize {
            let (have, want) = (step.params.len(), interface.param_words);
            return Err(invalid(format!("{have} parameters, not {want}")));
        }
        let counts = (step.bindings.len(), dispatch.bindings.len());
        if counts != (interface.bindings.len(), interface.bindings.len()) {
            let want = interface.bindings.len();
            return Err(invalid(format!("{} and {} bindings, not {want}", counts.0, counts.1)));
        }
        for (i, ((own, bound), access)) in
            step.bindings.iter().zip(&dispatch.bindings).zip(&interface.bindings).enumerate()
        {
            let tensor = self.tensors.get(own.tensor.index());
            let tensor = tensor.ok_or_else(|| {
                invalid(format!("binding {i}: tensor {} does not exist", own.tensor.0))
            })?;
            let left = tensor.bytes.checked_sub(own.offset);
            let bytes = own.bytes.or(left).unwrap_or(0);
            if left.is_none_or(|left| bytes > left) || own.access != *access {
                return Err(invalid(format!(
                    "binding {i}: {own:?} of tensor {:?} with {} bytes",
                    tensor.name, tensor.bytes
                )));
            }
            self.verify_binding(i, bound)?;
            if bound.bytes != bytes || bound.access != *access || bound.offset < own.offset {
                return Err(invalid(format!("binding {i}: {bound:?} is not the step's {own:?}")));
            }
        }
        for dim in &step.grid {
            self.verify_dim(dim)?;
            self.class.upper(dim)?;
        }
        if step.grid != dispatch.grid {
            return Err(invalid("the grid is not the step's"));
        }
        let (cost, seconds) = (&step.estimate.cost, step.estimate.seconds);
        match [cost.bytes, cost.flops, cost.dispatches, cost.efficiency, seconds] {
            numbers if numbers.iter().all(|number| number.is_finite()) => Ok(()),
            _ => Err(invalid("an estimate that is not a number")),
        }
    }

    fn verify_binding(&self, i: usize, bound: &Binding) -> Result<()> {
        let slot = self.recording.slots.get(bound.slot as usize);
        let slot = slot
            .ok_or_else(|| invalid(format!("binding {i}: slot {} does not exist", bound.slot)))?;
        let end = bound.offset.checked_add(bound.bytes);
        match end {
            Some(end) if end <= slot.bytes && bound.bytes.is_multiple_of(4) && bound.bytes > 0 => {
                Ok(())
            }
            _ => Err(invalid(format!(
                "binding {i}: {} bytes at {} of slot {:?} with {}",
                bound.bytes, bound.offset, slot.name, slot.bytes
            ))),
        }
    }

    fn verify_commands(&self) -> Result<()> {
        let (mut uploads, mut downloads) = (0, 0);
        for (i, command) in self.recording.commands.iter().enumerate() {
            let ranges: [Option<&SlotRange>; 2] = match command {
                Command::Dispatch(_) | Command::Timestamp => continue,
                Command::Upload { to, source } => {
                    if let UploadSource::Arg(index) = source {
                        if *index as usize != uploads {
                            return Err(invalid(format!(
                                "command {i}: upload {index}, not {uploads}"
                            )));
                        }
                        uploads += 1;
                    }
                    [Some(to), None]
                }
                Command::Copy { from, to } => [Some(from), Some(to)],
                Command::Clear { range } => [Some(range), None],
                Command::Download { from } => {
                    downloads += 1;
                    [Some(from), None]
                }
            };
            for range in ranges.into_iter().flatten() {
                self.verify_range(range).map_err(|e| e.context(format_args!("command {i}")))?;
            }
        }
        if (uploads, downloads) != (self.inputs.len(), self.outputs.len()) {
            let (inputs, outputs) = (self.inputs.len(), self.outputs.len());
            return Err(invalid(format!(
                "{uploads} uploads of {inputs} inputs, {downloads} downloads of {outputs} outputs"
            )));
        }
        let inputs = self.inputs.iter().map(|input| &input.shape);
        for shape in inputs.chain(self.outputs.iter().map(|output| &output.shape)) {
            bounded_dims(shape.dims())?;
            shape.dims().iter().try_for_each(|dim| self.verify_dim(dim))?;
        }
        Ok(())
    }

    /// Checks a range at the lower and the upper ends of the class; a device checks it again for
    /// each run.
    fn verify_range(&self, range: &SlotRange) -> Result<()> {
        let slot = self.recording.slots.get(range.slot as usize);
        let slot = slot.ok_or_else(|| invalid(format!("slot {} does not exist", range.slot)))?;
        self.verify_dim(&range.offset)?;
        self.verify_dim(&range.bytes)?;
        let end_of = |pick: fn(&(Symbol, u64, u64)) -> (Symbol, u64)| -> Result<Option<u64>> {
            let ends = self.class.ranges().iter().map(pick);
            let values = ends.fold(SymbolValues::new(), |values, (s, v)| values.with(s, v));
            let offset = range.offset.eval_size(&values)?;
            Ok(offset.checked_add(range.bytes.eval_size(&values)?))
        };
        for end in [end_of(|(s, low, _)| (*s, *low))?, end_of(|(s, _, high)| (*s, *high))?] {
            if end.is_none_or(|end| end > slot.bytes) {
                let (name, have) = (&slot.name, slot.bytes);
                return Err(invalid(format!(
                    "{} bytes at {} pass the end of slot {name:?} at {have}",
                    range.bytes, range.offset
                )));
            }
        }
        Ok(())
    }

    fn verify_dim(&self, dim: &Dim) -> Result<()> {
        bounded_dims(std::slice::from_ref(dim))?;
        let known = |symbol: &Symbol| self.class.ranges().iter().any(|(s, ..)| s == symbol);
        match dim.symbols().iter().find(|symbol| !known(symbol)) {
            Some(symbol) => {
                Err(invalid(format!("size {dim}: class {} lacks {symbol}", self.class)))
            }
            None => Ok(()),
        }
    }
}

fn invalid(what: impl Into<String>) -> Error {
    Error::invalid(what)
}

/// Returns why a spec cannot be examined at all, or `None` if it can.
fn kernel_fault(spec: &KernelSpec) -> Option<String> {
    match spec {
        KernelSpec::Asset(asset) => {
            let fusion = asset.fusion.as_ref()?;
            let gain = fusion.quant_epilogue.iter().filter_map(|hand| hand.norm);
            let wide =
                fusion.norm.into_iter().chain(gain).any(|norm| norm as usize >= MAX_OPERANDS);
            let prologue = fusion.prologue.iter().map(|body| (body, 1));
            let segments = fusion.segments.iter().map(|s| (&s.body, s.anchors));
            prologue
                .chain(segments)
                .find_map(|(body, anchors)| body_fault(body, anchors))
                .or_else(|| wide.then(|| "a norm of a binding out of range".into()))
        }
        KernelSpec::Fused(body) => body_fault(body, 0),
        KernelSpec::Routine(routine) => routine.fault(),
        KernelSpec::Source(source) => {
            let (bindings, words) = (source.bindings.len(), source.param_words);
            let twice = |i: usize| {
                let earlier = &source.twins[..i];
                earlier.iter().any(|twin| twin.language == source.twins[i].language)
            };
            if (0..source.twins.len()).any(twice) {
                return Some("two twins of one language".into());
            }
            (bindings > MAX_OPERANDS || words > 1 << 14)
                .then(|| format!("{bindings} bindings and {words} parameter words"))
                .or_else(|| source.twins.iter().find_map(|twin| twin.fault()))
        }
    }
}

/// Returns why the body of a generated kernel is malformed, or `None` if it is not.
fn body_fault(body: &FusedExpr, anchors: u32) -> Option<String> {
    let (inputs, outputs, values) = (body.inputs.len(), body.outputs.len(), body.values.len());
    if body.rank > MAX_RANK || inputs.max(outputs) > MAX_OPERANDS {
        return Some(format!("{inputs} inputs and {outputs} outputs of rank {}", body.rank));
    }
    if values == 0 || values > MAX_VALUES {
        return Some(format!("{values} values"));
    }
    if let Some(operand) = body.operands().find(|o| o.binding as usize >= MAX_OPERANDS) {
        return Some(format!("an operand of binding {}", operand.binding));
    }
    // A value may be used often, so its text can be far longer than the list.
    let mut trees: Vec<u64> = Vec::with_capacity(values);
    for (i, value) in body.values.iter().enumerate() {
        let mut tree = 1u64;
        for operand in value.operands() {
            match trees.get(operand as usize) {
                Some(own) => tree = tree.saturating_add(*own),
                None => return Some(format!("value {i} is computed from value {operand}")),
            }
        }
        trees.push(tree);
        match value {
            Value::Input(input) if *input as usize >= inputs => {
                return Some(format!("value {i} is input {input} of {inputs}"));
            }
            Value::Anchor(anchor) if *anchor >= anchors => {
                return Some(format!("value {i} is anchor {anchor} of {anchors}"));
            }
            _ => {}
        }
    }
    let all = body.outputs.iter().map(|output| output.value as usize);
    for value in all.chain([values - 1]) {
        match trees.get(value) {
            Some(tree) if *tree <= MAX_TREE => {}
            Some(tree) => return Some(format!("value {value} is computed from {tree} values")),
            None => return Some(format!("output of value {value} of {values}")),
        }
    }
    let cut = match body.schedule {
        Schedule::Elements { width } => width == 1 || width == 4,
        Schedule::Rows { threads, held, .. } => {
            threads.is_power_of_two() && threads <= 256 && held <= 1024
        }
    };
    (!cut).then(|| format!("cut as {:?}", body.schedule))
}

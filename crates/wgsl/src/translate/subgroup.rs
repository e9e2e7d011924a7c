//! Subgroup operations: warp intrinsics in CUDA; in OpenCL C the device's sub-groups, or exchange
//! through workgroup memory.
//!
//! WGSL requires uniform control flow for them, so the CUDA masks name every existing lane of the
//! warp and wait for it. Returned lanes are excluded from sums.

use naga::{
    BinaryOperator, BuiltIn, CollectiveOperation as Kind, Direction, Expression, GatherMode,
};
use naga::{Handle, Scalar, ScalarKind, SubgroupOperation as Op, VectorSize};

use super::dialect::Dialect;
use super::function::Body;
use super::operator::tag;
use super::types::{COMPONENTS, is_half};
use super::writer::Writer;
use warploom_core::error::Result;

/// Number of lanes of a warp.
const WARP: u32 = 32;

/// Returns a single-instruction integer reduction for devices that have one; empty if none exists.
fn at_once(op: Op, ty: &str, lanes: &str) -> String {
    match (op, ty) {
        (Op::Add | Op::Min | Op::Max, "u32" | "i32") | (Op::And | Op::Or | Op::Xor, "u32") => {}
        _ => return String::new(),
    }
    let call = format!("__reduce_{}_sync({lanes}, a)", format!("{op:?}").to_lowercase());
    format!("\n#if __CUDA_ARCH__ >= 800\n        return {call};\n#endif\n        ")
}

/// How the operations are implemented.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Warp,
    Extension,
    Memory,
}

impl Writer<'_> {
    fn form(&self) -> Form {
        match self.dialect {
            Dialect::Cuda => Form::Warp,
            Dialect::OpenCl if self.emulates_subgroups() => Form::Memory,
            Dialect::OpenCl => Form::Extension,
        }
    }

    pub(super) fn subgroup_builtin(&mut self, builtin: BuiltIn) -> Result<String> {
        self.index_function()?;
        let threads = self.threads();
        let size = threads.next_power_of_two().max(4);
        Ok(match (builtin, self.form()) {
            (BuiltIn::SubgroupSize, Form::Warp) => format!("{WARP}u"),
            (BuiltIn::SubgroupSize, Form::Extension) => "get_max_sub_group_size()".to_string(),
            (BuiltIn::SubgroupSize, Form::Memory) => format!("{size}u"),
            (BuiltIn::SubgroupId, Form::Warp) => format!("wl_index() / {WARP}u"),
            (BuiltIn::SubgroupId, Form::Extension) => "get_sub_group_id()".to_string(),
            (BuiltIn::SubgroupId, Form::Memory) => "0u".to_string(),
            (BuiltIn::SubgroupInvocationId, Form::Warp) => format!("wl_index() % {WARP}u"),
            (BuiltIn::SubgroupInvocationId, Form::Extension) => {
                "get_sub_group_local_id()".to_string()
            }
            (BuiltIn::SubgroupInvocationId, Form::Memory) => "wl_index()".to_string(),
            (BuiltIn::NumSubgroups, Form::Warp) => format!("{}u", threads.div_ceil(WARP)),
            (BuiltIn::NumSubgroups, Form::Extension) => "get_num_sub_groups()".to_string(),
            (BuiltIn::NumSubgroups, Form::Memory) => "1u".to_string(),
            _ => return self.refuse(format!("the builtin {builtin:?}")),
        })
    }

    /// Defines `wl_mask()`, the existing lanes of the warp, and `wl_active()`, those that have not
    /// returned.
    fn warp_masks(&mut self) -> Result<()> {
        self.index_function()?;
        let threads = self.threads();
        let (full, last) = (threads / WARP, threads % WARP);
        let rest = (1u64 << last) - 1;
        let mask = match (full, last) {
            (_, 0) => "0xffffffffu".to_string(),
            (0, _) => format!("{rest:#x}u"),
            _ => format!("wl_index() < {}u ? 0xffffffffu : {rest:#x}u", full * WARP),
        };
        self.define("wl_mask", |_| Ok(format!("WL_FN u32 wl_mask(void) {{ return {mask}; }}")))?;
        self.define("wl_active", |_| {
            let text = "WL_FN u32 wl_active(void) { return __ballot_sync(wl_mask(), 1); }";
            Ok(text.to_string())
        })
    }

    /// Prints the binary operation of a reduction.
    fn combine(&mut self, op: Op, scalar: Scalar, a: &str, b: &str) -> Result<String> {
        let name = match op {
            Op::Add => return self.binary_form(BinaryOperator::Add, scalar, a, b),
            Op::Mul => return self.binary_form(BinaryOperator::Multiply, scalar, a, b),
            Op::And => return self.binary_form(BinaryOperator::And, scalar, a, b),
            Op::Or => return self.binary_form(BinaryOperator::InclusiveOr, scalar, a, b),
            Op::Xor => return self.binary_form(BinaryOperator::ExclusiveOr, scalar, a, b),
            Op::Min => "min",
            Op::Max => "max",
            Op::All | Op::Any => return self.refuse(format!("subgroup{op:?} of numbers")),
        };
        if scalar.kind == ScalarKind::Float {
            return Ok(self.dialect.math(&format!("f{name}"), &[a.to_string(), b.to_string()]));
        }
        let helper = format!("wl_{name}_{}", tag(scalar));
        self.helper(&helper)?;
        Ok(format!("{helper}({a}, {b})"))
    }

    /// Defines a reduction or scan over a subgroup, and returns its name.
    fn collective_function(&mut self, op: Op, kind: Kind, scalar: Scalar) -> Result<String> {
        let ty = self.scalar(scalar)?;
        let (verb, builtin) = match kind {
            Kind::Reduce => ("reduce", "reduce"),
            Kind::InclusiveScan => ("inclusive", "scan_inclusive"),
            Kind::ExclusiveScan => ("exclusive", "scan_exclusive"),
        };
        let word = format!("{op:?}").to_lowercase();
        if self.form() == Form::Extension {
            // Sums and bounds are in the core extension; the others were added later.
            return Ok(match op {
                Op::Add | Op::Min | Op::Max => format!("sub_group_{builtin}_{word}"),
                _ => {
                    self.extension("cl_khr_subgroup_non_uniform_arithmetic");
                    format!("sub_group_non_uniform_{builtin}_{word}")
                }
            });
        }
        let name = format!("wl_{verb}_{word}_{ty}");
        let both = self.combine(op, scalar, "r", "b")?;
        let start = match (op, ty) {
            (Op::Mul, "f32") => "1.0f",
            (Op::Mul, "i32") => "1",
            (Op::Mul, _) => "1u",
            _ => "0",
        };
        let text = match self.form() {
            Form::Memory => self.memory_collective(&name, ty, kind, start, &both)?,
            _ => self.warp_collective((&name, ty), (op, kind), start, &both)?,
        };
        self.define(&name, |_| Ok(text))?;
        Ok(name)
    }

    fn warp_collective(
        &mut self,
        (name, ty): (&str, &str),
        (op, kind): (Op, Kind),
        start: &str,
        both: &str,
    ) -> Result<String> {
        let threads = self.threads();
        let lanes = if threads.is_power_of_two() { threads.min(WARP) } else { WARP };
        let all = format!("{:#x}u", u32::MAX >> (WARP - lanes));
        let half = lanes / 2;
        // All lanes: log2 steps. If some have returned or do not exist: sequentially.
        let (quick, slow) = match kind {
            Kind::Reduce => (
                format!(
                    "{}for (u32 o = {half}u; o > 0u; o >>= 1) {{
            const {ty} b = __shfl_xor_sync({all}, r, o);
            r = {both};
        }}",
                    at_once(op, ty, &all)
                ),
                format!(
                    "r = __shfl_sync(active, a, __ffs(active) - 1);
    for (u32 rest = active & (active - 1u); rest != 0u; rest &= rest - 1u) {{
        const {ty} b = __shfl_sync(active, a, __ffs(rest) - 1);
        r = {both};
    }}"
                ),
            ),
            _ => {
                let exclusive = kind == Kind::ExclusiveScan;
                let shift = format!(
                    "
        const {ty} before = __shfl_up_sync({all}, r, 1);
        r = lane == 0u ? {start} : before;"
                );
                let bound = if exclusive { "<" } else { "<=" };
                (
                    format!(
                        "for (u32 o = 1u; o < {lanes}u; o <<= 1) {{
            const {ty} b = __shfl_up_sync({all}, r, o);
            if (lane >= o) r = {both};
        }}{}",
                        if exclusive { shift.as_str() } else { "" }
                    ),
                    format!(
                        "r = {start};
    for (u32 rest = active; rest != 0u; rest &= rest - 1u) {{
        const u32 from = (u32)__ffs(rest) - 1u;
        const {ty} b = __shfl_sync(active, a, from);
        if (from {bound} lane) r = {both};
    }}"
                    ),
                )
            }
        };
        let lane = match kind {
            Kind::Reduce => String::new(),
            _ => format!("    const u32 lane = wl_index() % {WARP}u;\n"),
        };
        // Every warp is full, or the only warp is as full as it can be.
        if self.options.returns_together && threads.is_multiple_of(lanes) {
            if kind != Kind::Reduce {
                self.index_function()?;
            }
            return Ok(format!(
                "WL_FN {ty} {name}({ty} a) {{
{lane}    {ty} r = a;
    {{
        {quick}
    }}
    return r;
}}"
            ));
        }
        self.warp_masks()?;
        Ok(format!(
            "WL_FN {ty} {name}({ty} a) {{
    const u32 active = wl_active();
{lane}    {ty} r = a;
    if (active == {all}) {{
        {quick}
        return r;
    }}
    {slow}
    return r;
}}"
        ))
    }

    fn memory_collective(
        &mut self,
        name: &str,
        ty: &str,
        kind: Kind,
        start: &str,
        both: &str,
    ) -> Result<String> {
        self.index_function()?;
        let threads = self.threads();
        let (first, begin, end) = match kind {
            Kind::Reduce => (format!("as_{}(lanes[0])", c_name(ty)), 1, format!("{threads}u")),
            Kind::InclusiveScan => (start.to_string(), 0, "wl_index() + 1u".to_string()),
            Kind::ExclusiveScan => (start.to_string(), 0, "wl_index()".to_string()),
        };
        let from = c_name(ty);
        Ok(format!(
            "WL_FN {ty} {name}({ty} a, __local u32* lanes) {{
    lanes[wl_index()] = as_uint(a);
    barrier(CLK_LOCAL_MEM_FENCE);
    {ty} r = {first};
    for (u32 i = {begin}u; i < {end}; i++) {{
        const {ty} b = as_{from}(lanes[i]);
        r = {both};
    }}
    barrier(CLK_LOCAL_MEM_FENCE);
    return r;
}}"
        ))
    }

    /// Defines a read of a lane through workgroup memory; a missing lane yields the reader's value.
    fn memory_gather(&mut self, ty: &str) -> Result<String> {
        self.index_function()?;
        let name = format!("wl_lane_{ty}");
        let (threads, from) = (self.threads(), c_name(ty));
        self.define(&name, |_| {
            Ok(format!(
                "WL_FN {ty} {name}({ty} a, u32 lane, __local u32* lanes) {{
    lanes[wl_index()] = as_uint(a);
    barrier(CLK_LOCAL_MEM_FENCE);
    const {ty} r = as_{from}(lanes[lane < {threads}u ? lane : wl_index()]);
    barrier(CLK_LOCAL_MEM_FENCE);
    return r;
}}"
            ))
        })?;
        Ok(name)
    }
}

/// Returns the type name in OpenCL's `as_*`.
fn c_name(ty: &str) -> &'static str {
    match ty {
        "f32" => "float",
        "i32" => "int",
        _ => "uint",
    }
}

impl Body<'_, '_> {
    /// Applies `form` to each component; vectors are first stored in a variable.
    fn by_component(
        &mut self,
        argument: Handle<Expression>,
        result: Handle<Expression>,
        form: impl Fn(&str) -> String,
    ) -> Result<()> {
        let operand = self.operand(argument)?;
        let text = match operand.size {
            None => form(&operand.text),
            Some(size) => {
                let ty = self.type_name(argument)?;
                let name = self.pick("lanes");
                self.line(&format!("const {ty} {name} = {};", operand.text));
                let parts: Vec<String> = COMPONENTS[..size as usize]
                    .iter()
                    .map(|component| form(&format!("{name}.{component}")))
                    .collect();
                self.w.dialect.aggregate(&ty, &parts.join(", "))
            }
        };
        let text = match is_half(operand.scalar) {
            true => self.w.rounded_to_half(text, operand.size)?,
            false => text,
        };
        self.bake(result, &text)
    }

    pub(super) fn collective(
        &mut self,
        op: Op,
        kind: Kind,
        argument: Handle<Expression>,
        result: Handle<Expression>,
    ) -> Result<()> {
        let operand = self.operand(argument)?;
        if matches!(op, Op::All | Op::Any) {
            return self.vote(op, &operand.text, result);
        }
        let name = self.w.collective_function(op, kind, operand.scalar)?;
        let more = if self.w.form() == Form::Memory { ", wl_lanes" } else { "" };
        self.by_component(argument, result, |text| format!("{name}({text}{more})"))
    }

    /// Prints `subgroupAll` or `subgroupAny`.
    fn vote(&mut self, op: Op, value: &str, result: Handle<Expression>) -> Result<()> {
        let word = if op == Op::All { "all" } else { "any" };
        let text = match self.w.form() {
            Form::Warp => {
                self.w.warp_masks()?;
                format!("(__{word}_sync(wl_mask(), {value}) != 0)")
            }
            Form::Extension => format!("(sub_group_{word}({value}) != 0)"),
            Form::Memory => {
                let op = if op == Op::All { Op::And } else { Op::Or };
                let name = self.w.collective_function(op, Kind::Reduce, Scalar::U32)?;
                format!("({name}({value} ? 1u : 0u, wl_lanes) != 0u)")
            }
        };
        self.bake(result, &text)
    }

    pub(super) fn ballot(
        &mut self,
        result: Handle<Expression>,
        predicate: Option<Handle<Expression>>,
    ) -> Result<()> {
        let value = match predicate {
            Some(predicate) => self.value(predicate)?,
            None => "true".to_string(),
        };
        let ty = self.w.vector("u32", VectorSize::Quad)?;
        let text = match self.w.form() {
            Form::Warp => {
                self.w.warp_masks()?;
                let word = format!("__ballot_sync(wl_mask(), {value}), 0u, 0u, 0u");
                self.w.dialect.aggregate(&ty, &word)
            }
            Form::Extension => {
                self.w.extension("cl_khr_subgroup_ballot");
                let name = self.pick("ballot");
                self.line(&format!("const uint4 {name} = sub_group_ballot({value});"));
                let parts = COMPONENTS.map(|c| format!("{name}.{c}"));
                self.w.dialect.aggregate(&ty, &parts.join(", "))
            }
            Form::Memory => {
                let or = self.w.collective_function(Op::Or, Kind::Reduce, Scalar::U32)?;
                let name = self.pick("vote");
                self.line(&format!("const bool {name} = {value};"));
                let parts = [0u32, 1, 2, 3].map(|word| {
                    let mine = format!("{name} && wl_index() / 32u == {word}u");
                    format!("{or}({mine} ? 1u << (wl_index() % 32u) : 0u, wl_lanes)")
                });
                self.w.dialect.aggregate(&ty, &parts.join(", "))
            }
        };
        self.bake(result, &text)
    }

    pub(super) fn gather(
        &mut self,
        mode: GatherMode,
        argument: Handle<Expression>,
        result: Handle<Expression>,
    ) -> Result<()> {
        use GatherMode as M;
        let operand = self.operand(argument)?;
        let ty = self.w.scalar(operand.scalar)?;
        let lane = match mode {
            M::Broadcast(h)
            | M::Shuffle(h)
            | M::ShuffleDown(h)
            | M::ShuffleUp(h)
            | M::ShuffleXor(h)
            | M::QuadBroadcast(h) => format!("(u32)({})", self.value(h)?),
            M::QuadSwap(Direction::X) => "1u".to_string(),
            M::QuadSwap(Direction::Y) => "2u".to_string(),
            M::QuadSwap(Direction::Diagonal) => "3u".to_string(),
            M::BroadcastFirst => "0u".to_string(),
        };
        self.w.index_function()?;
        match self.w.form() {
            Form::Warp => self.warp_gather(mode, &lane, argument, result),
            Form::Extension => self.extension_gather(mode, &lane, argument, result),
            Form::Memory => {
                let name = self.w.memory_gather(ty)?;
                let lane = match mode {
                    M::BroadcastFirst | M::Broadcast(_) | M::Shuffle(_) => lane,
                    M::ShuffleDown(_) => format!("wl_index() + {lane}"),
                    M::ShuffleUp(_) => format!("wl_index() - {lane}"),
                    M::ShuffleXor(_) | M::QuadSwap(_) => format!("wl_index() ^ {lane}"),
                    M::QuadBroadcast(_) => format!("(wl_index() & ~3u) + {lane}"),
                };
                self.by_component(argument, result, |a| format!("{name}({a}, {lane}, wl_lanes)"))
            }
        }
    }

    fn warp_gather(
        &mut self,
        mode: GatherMode,
        lane: &str,
        argument: Handle<Expression>,
        result: Handle<Expression>,
    ) -> Result<()> {
        use GatherMode as M;
        self.w.warp_masks()?;
        self.by_component(argument, result, |a| match mode {
            M::BroadcastFirst => {
                format!("__shfl_sync(wl_mask(), {a}, __ffs(wl_active()) - 1)")
            }
            M::Broadcast(_) | M::Shuffle(_) => format!("__shfl_sync(wl_mask(), {a}, {lane})"),
            M::ShuffleDown(_) => format!("__shfl_down_sync(wl_mask(), {a}, {lane})"),
            M::ShuffleUp(_) => format!("__shfl_up_sync(wl_mask(), {a}, {lane})"),
            M::ShuffleXor(_) | M::QuadSwap(_) => {
                format!("__shfl_xor_sync(wl_mask(), {a}, {lane})")
            }
            M::QuadBroadcast(_) => {
                format!("__shfl_sync(wl_mask(), {a}, (wl_index() % {WARP}u & ~3u) + {lane})")
            }
        })
    }

    fn extension_gather(
        &mut self,
        mode: GatherMode,
        lane: &str,
        argument: Handle<Expression>,
        result: Handle<Expression>,
    ) -> Result<()> {
        use GatherMode as M;
        match mode {
            M::BroadcastFirst | M::Broadcast(_) => {}
            M::ShuffleDown(_) | M::ShuffleUp(_) => {
                self.w.extension("cl_khr_subgroup_shuffle_relative");
            }
            _ => self.w.extension("cl_khr_subgroup_shuffle"),
        }
        self.by_component(argument, result, |a| match mode {
            M::BroadcastFirst | M::Broadcast(_) => format!("sub_group_broadcast({a}, {lane})"),
            M::Shuffle(_) => format!("sub_group_shuffle({a}, {lane})"),
            M::ShuffleDown(_) => format!("sub_group_shuffle_down({a}, {lane})"),
            M::ShuffleUp(_) => format!("sub_group_shuffle_up({a}, {lane})"),
            M::ShuffleXor(_) | M::QuadSwap(_) => format!("sub_group_shuffle_xor({a}, {lane})"),
            M::QuadBroadcast(_) => {
                format!("sub_group_shuffle({a}, (get_sub_group_local_id() & ~3u) + {lane})")
            }
        })
    }

    pub(super) fn subgroup_barrier(&mut self) -> Result<()> {
        let line = match self.w.form() {
            Form::Warp => {
                self.w.warp_masks()?;
                "__syncwarp(wl_mask());"
            }
            Form::Extension => "sub_group_barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
            Form::Memory => "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
        };
        self.line(line);
        Ok(())
    }
}

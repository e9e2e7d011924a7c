//! Prints fused expressions as WGSL text.
//!
//! A thread computes one element or some neighbours ([`Schedule::Elements`]), or works on a row by
//! itself or with other threads ([`Schedule::Rows`]). The elements that it computes at once are its
//! *slots*: element values are printed per slot, as separate variables and never as arrays, so that
//! they stay in registers and their loads overlap.
//!
//! Functions of `shaders/shared/math_*.wgsl` define what WGSL leaves open (division by zero,
//! conversions out of range, powers of negative numbers, accuracy of `tanh`, or of `sin` for large
//! arguments), so that every device computes what `ir::scalar` specifies. Equal expressions give
//! equal text.
//!
//! Not here: the choice of fusions (`plan`), and any knowledge of a device.

mod elements;
mod fusion;
mod ops;
mod printer;
mod rows;
mod tasks;

use std::borrow::Cow;
use std::fmt::Write;

pub use fusion::kernel_wgsl;
use printer::Printer;

#[cfg(feature = "translate")]
use crate::catalogue;
use crate::{Addressing, FusedExpr, KernelSpec, Operand, Schedule, source};
use warploom_core::base::DType;
use warploom_core::error::{Error, Result};
#[cfg(feature = "translate")]
use warploom_wgsl::translate::{Bounds, Options};

/// Threads per workgroup of a fused kernel without reductions; workgroups are folded over grid x
/// and y.
pub const FUSED_WORKGROUP: u32 = 256;

/// Minimum threads per workgroup of a fused kernel with reductions: short rows share a workgroup.
pub const ROWS_WORKGROUP: u32 = 64;

/// Largest rank of an index space.
pub const MAX_RANK: u32 = 6;

/// Maximum number of elements of a row that a thread keeps in registers.
pub const MAX_HELD: u32 = 64;

/// Bytes of workgroup memory that every device has.
const FLOOR_MEMORY: u32 = 16 << 10;

/// Returns the number of threads per workgroup.
pub fn workgroup(schedule: &Schedule) -> u32 {
    match *schedule {
        Schedule::Elements { .. } => FUSED_WORKGROUP,
        Schedule::Rows { threads, .. } => threads.max(ROWS_WORKGROUP),
    }
}

/// Returns the number of elements per workgroup, or of rows for a schedule of rows. The number of
/// workgroups of a dispatch is the total divided by this, rounded up.
pub fn group_work(schedule: &Schedule) -> u32 {
    match *schedule {
        Schedule::Elements { width } => FUSED_WORKGROUP * width,
        Schedule::Rows { threads, .. } => workgroup(schedule) / threads.max(1),
    }
}

/// Returns the WGSL text of a kernel of any kind.
///
/// # Errors
/// Same as [`kernel_wgsl`] and [`fused_wgsl`]; unsupported for a routine; compile or invalid if a
/// user's WGSL or one of its constants is wrong.
pub fn spec_wgsl(spec: &KernelSpec) -> Result<Cow<'_, str>> {
    Ok(match spec {
        #[cfg(feature = "translate")]
        KernelSpec::Source(source) => {
            let constants = &source.constants;
            let constants = constants.iter().map(|(name, value)| (name.clone(), value.value()));
            let file = format!("{}.wgsl", source.name);
            warploom_wgsl::source::settled(
                &file,
                &source.wgsl,
                Some(&source.entry),
                &constants.collect(),
            )?
            .text
        }
        #[cfg(not(feature = "translate"))]
        KernelSpec::Source(source) => Cow::Borrowed(source.wgsl.as_str()),
        KernelSpec::Asset(asset) => Cow::Owned(kernel_wgsl(asset)?),
        KernelSpec::Fused(expr) => Cow::Owned(fused_wgsl(expr)?),
        KernelSpec::Routine(routine) => {
            return Err(Error::unsupported(format!("{routine} is a call of a library, no WGSL")));
        }
    })
}

/// Returns a text for a browser's compiler: one that uses subgroups has the directive for them. It
/// is no part of other texts, since naga rejects it and always enables subgroups.
pub fn with_subgroups_enabled(text: Cow<'_, str>) -> Cow<'_, str> {
    match text.contains("subgroup") {
        true => Cow::Owned(format!("enable subgroups;\n{text}")),
        false => text,
    }
}

/// Returns the options with which a kernel's WGSL is translated to CUDA C and OpenCL C. A user's WGSL
/// is translated with bounds checks and with clearing of workgroup memory; catalogue kernels and
/// generated kernels have neither.
#[cfg(feature = "translate")]
pub fn translate_options(spec: &KernelSpec) -> Options {
    let trusted = !matches!(spec, KernelSpec::Source(_));
    let asset = match spec {
        KernelSpec::Asset(asset) => Some(asset),
        _ => None,
    };
    let known = spec.known();
    let steady = known.iter().flat_map(|known| known.steady.iter());
    Options {
        entry: spec.entry().to_owned(),
        label: spec.name().to_owned(),
        bounds: if trusted { Bounds::Unchecked } else { Bounds::Restrict },
        zero_workgroup_memory: !trusted,
        returns_together: trusted,
        reads_ahead: asset.is_some_and(catalogue::reads_ahead),
        steady: steady.map(|place| place + 1).collect(),
        allows_overlap: known.is_some_and(|known| known.allows_overlap),
        overlaps_previous: known.is_some_and(|known| known.overlaps_previous),
        resident: asset.map_or(0, catalogue::resident),
        multiplies_codes: asset.is_some(),
        ..Options::default()
    }
}

/// Returns the WGSL text of a fused expression, with entry point `main` and parameters laid out as
/// in [`crate::fused`]. Input buffers are named `in0`, `in1`.., output buffers `out0`, `out1`...
///
/// # Errors
/// Invalid if the expression is malformed: an operand is not an earlier value, an operation does
/// not support a type, a result and its output differ in type, the schedule does not fit, or a
/// buffer has 16-bit and 32-bit elements. Unsupported if the rank is above [`MAX_RANK`], or the
/// reductions do not fit in workgroup memory.
pub fn fused_wgsl(expr: &FusedExpr) -> Result<String> {
    let fail = |what: String| Error::invalid(format!("fused kernel: {what}"));
    let unsupported = |what: String| Error::unsupported(format!("fused kernel: {what}"));
    if expr.rank > MAX_RANK {
        return Err(unsupported(format!("rank {} is above {MAX_RANK}", expr.rank)));
    }
    let body = ops::Body::new(expr, 0).map_err(fail)?;
    for (i, output) in expr.outputs.iter().enumerate() {
        let made = body.dtype(output.value).map_err(|what| fail(format!("output {i}: {what}")))?;
        if made != output.operand.dtype {
            return Err(fail(format!("{made} for output {i} of {}", output.operand.dtype)));
        }
    }
    check_schedule(expr).map_err(fail)?;
    check_buffers(expr).map_err(fail)?;
    let mut printer = Printer::new(expr, body);
    match expr.schedule {
        Schedule::Elements { .. } => elements::entry(&mut printer),
        Schedule::Rows { threads, held, subgroup, .. } => {
            rows::entry(&mut printer, rows::Cut { threads, held, subgroup });
        }
    }
    let (entry, body, scratch) = printer.finish();
    if 4 * scratch > FLOOR_MEMORY {
        return Err(unsupported(format!("{scratch} words of workgroup memory for reductions")));
    }

    let mut text = String::new();
    header(expr, &mut text);
    for name in body.imports() {
        text.push_str(&source::shared_wgsl(name)?);
    }
    text.push_str(&body.declarations());
    if scratch > 0 {
        line!(text, "var<workgroup> scratch: array<f32, {scratch}>;");
    }
    text.push_str(&entry);
    Ok(text)
}

/// Checks that the schedule fits the expression; the error is the reason why it does not.
fn check_schedule(expr: &FusedExpr) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("{:?}: {what}", expr.schedule));
    match expr.schedule {
        Schedule::Elements { .. } if expr.has_reductions() => wrong("a reduction needs rows"),
        Schedule::Elements { .. } if expr.operands().any(|o| o.addressing == Addressing::Row) => {
            wrong("what is of rows needs rows")
        }
        Schedule::Elements { width: 1 } => Ok(()),
        Schedule::Elements { width: 4 } => {
            let flat = |o: &crate::Output| o.operand.addressing == Addressing::Flat;
            if expr.outputs.iter().all(flat) { Ok(()) } else { wrong("an output that is not flat") }
        }
        Schedule::Rows { .. } if expr.rank == 0 => wrong("no dimension to reduce"),
        Schedule::Rows { threads, held, width, .. } => {
            if !(threads.is_power_of_two() && threads <= FUSED_WORKGROUP) {
                return wrong("threads are a power of two up to 256");
            }
            match width {
                1 | 4 if held > MAX_HELD => wrong("too many elements to hold"),
                1 | 4 if held.is_multiple_of(width) => Ok(()),
                1 | 4 => wrong("held elements are a multiple of the width"),
                _ => wrong("a width is 1 or 4"),
            }
        }
        Schedule::Elements { .. } => wrong("a width is 1 or 4"),
    }
}

fn check_buffers(expr: &FusedExpr) -> Result<(), String> {
    let apart = |what: &str, operands: &[&Operand]| {
        let mixed = operands.iter().find(|a| {
            let other = |b: &&&Operand| b.binding == a.binding && !b.dtype.is_half();
            a.dtype.is_half() && operands.iter().any(|b| other(&b))
        });
        match mixed {
            Some(one) => Err(format!(
                "{} and elements of 4 bytes in buffer {} that is {what}",
                one.dtype, one.binding
            )),
            None => Ok(()),
        }
    };
    apart("read", &expr.inputs.iter().collect::<Vec<_>>())?;
    apart("written", &expr.outputs.iter().map(|output| &output.operand).collect::<Vec<_>>())
}

/// Appends a line. Writing to a string cannot fail.
macro_rules! line {
    ($text:expr, $($arg:tt)*) => {{
        let _ = writeln!($text, $($arg)*);
    }};
}
use line;

/// Returns the WGSL type of an element in memory, or of the word that it shares with another.
fn stored(dtype: DType) -> &'static str {
    match dtype {
        DType::I32 => "i32",
        DType::U32 | DType::Bool | DType::F16 | DType::BF16 => "u32",
        DType::F32 => "f32",
    }
}

/// Iterates over the operands with their names: `x0`, `x1`.. for inputs, `y0`, `y1`.. for outputs.
fn operands(expr: &FusedExpr) -> impl Iterator<Item = (String, &Operand)> {
    let inputs = expr.inputs.iter().enumerate().map(|(i, o)| (format!("x{i}"), o));
    let outputs = expr.outputs.iter().enumerate();
    inputs.chain(outputs.map(|(i, output)| (format!("y{i}"), &output.operand)))
}

/// A storage buffer of a generated kernel.
struct Buffer {
    name: String,
    access: &'static str,
    /// Type of its elements; operands of several types share a buffer of words.
    element: &'static str,
    /// Whether it is bound as vectors of four elements.
    wide: bool,
    /// Whether two elements share a word.
    halves: bool,
    /// Whether threads write parts of a word, by atomic operations.
    atomic: bool,
}

impl Buffer {
    /// Returns the element type of the buffer's array.
    fn item(&self) -> String {
        match (self.atomic, self.wide, self.halves) {
            (true, ..) => format!("atomic<{}>", self.element),
            (_, true, true) => format!("vec2<{}>", self.element),
            (_, true, false) => format!("vec4<{}>", self.element),
            _ => self.element.to_string(),
        }
    }
}

/// Returns the number of elements that a thread reads and writes at once.
fn width(schedule: &Schedule) -> u32 {
    match *schedule {
        Schedule::Elements { width } | Schedule::Rows { width, .. } => width,
    }
}

/// Returns the input buffers, then the output buffers.
fn buffers(expr: &FusedExpr) -> Vec<Buffer> {
    let buffer = |name: &str, access, binding: u32, operands: &[&Operand]| {
        let mine = || operands.iter().filter(|o| o.binding == binding);
        let mut types = mine().map(|o| stored(o.dtype));
        let element = match types.next() {
            Some(first) if types.all(|other| other == first) => first,
            _ => "u32",
        };
        let four = |o: &&Operand| o.addressing == Addressing::Flat && width(&expr.schedule) == 4;
        let halves = mine().any(|o| o.dtype.is_half());
        let atomic = halves && access != "read" && !mine().copied().all(|o| four(&o));
        let wide = !atomic && mine().copied().any(|o| four(&o));
        Buffer { name: format!("{name}{binding}"), access, element, wide, halves, atomic }
    };
    let read: Vec<&Operand> = expr.inputs.iter().collect();
    let written: Vec<&Operand> = expr.outputs.iter().map(|output| &output.operand).collect();
    let reads = (0..expr.reads()).map(|b| buffer("in", "read", b, &read));
    reads.chain((0..expr.writes()).map(|b| buffer("out", "read_write", b, &written))).collect()
}

/// Prints the parameter words of the operands as fields of the parameter block.
fn operand_fields(expr: &FusedExpr, prefix: &str, text: &mut String) {
    for (name, operand) in operands(expr) {
        line!(text, "    {prefix}{name}_offset: u32,");
        if matches!(operand.addressing, Addressing::Strided | Addressing::Row) {
            for d in 0..expr.rank {
                line!(text, "    {prefix}{name}_stride{d}: u32,");
            }
        }
    }
}

/// Prints the parameter block and the bindings.
fn header(expr: &FusedExpr, text: &mut String) {
    line!(text, "// fused: {expr}");
    line!(text, "struct Params {{\n    n: u32,");
    for d in 0..expr.rank {
        line!(text, "    size{d}: u32,");
    }
    operand_fields(expr, "", text);
    line!(text, "}}\n\n@group(0) @binding(0) var<uniform> params: Params;");
    for (i, buffer) in buffers(expr).into_iter().enumerate() {
        let (name, access, item) = (&buffer.name, buffer.access, buffer.item());
        let binding = format!("@group(0) @binding({})", i + 1);
        line!(text, "{binding} var<storage, {access}> {name}: array<{item}>;");
    }
    text.push('\n');
}

/// Returns the address of an operand's element as an expression of `i` and the coordinates `c0`,
/// `c1`..
fn address(name: &str, operand: &Operand, rank: u32) -> String {
    let mut sum = format!("params.{name}_offset");
    match operand.addressing {
        Addressing::Flat => sum.push_str(" + i"),
        Addressing::Single => {}
        Addressing::Strided | Addressing::Row => {
            for d in 0..rank {
                let _ = write!(sum, " + c{d} * params.{name}_stride{d}");
            }
        }
    }
    sum
}

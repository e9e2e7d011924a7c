//! Fused expressions as WGSL text.
//!
//! A kernel is one function of one element. What WGSL leaves open (division by zero, conversions
//! out of range, powers of negative numbers, accuracy of `tanh` or of `sin` far out) is spelled
//! out by functions of `shaders/shared/math_*.wgsl`, so that every device computes what
//! `ir::scalar` says. Equal expressions give equal text.
//!
//! Absent on purpose: what to fuse (that is `plan`), and any knowledge of a device.

mod ops;

use std::fmt::Write;

use crate::base::DType;
use crate::error::{Error, Result};
use crate::kernel::{Addressing, FusedExpr, Operand, Schedule, source};

/// Threads of a workgroup of a fused kernel, one element each; workgroups are folded over grid x
/// and y.
pub const FUSED_WORKGROUP: u32 = 256;

/// Largest rank of an index space.
pub const MAX_RANK: u32 = 6;

/// The WGSL text of a fused expression. Entry point `main`, parameters as `kernel::fused` lays
/// them out, inputs `x0`, `x1`.. and outputs `y0`, `y1`...
///
/// # Errors
/// Invalid, for an expression that is not well formed: an operand that is not an earlier value,
/// a type that an operation does not take, a result of another type than the output. Unsupported,
/// for elements of two bytes and ranks above [`MAX_RANK`].
pub fn fused_wgsl(expr: &FusedExpr) -> Result<String> {
    let fail = |what: String| Error::invalid(format!("fused kernel: {what}"));
    for operand in expr.operands() {
        if operand.dtype.bytes() != 4 {
            return Err(Error::unsupported(format!(
                "fused kernel: an operand of {}, whose elements have 2 bytes",
                operand.dtype
            )));
        }
    }
    if expr.rank > MAX_RANK {
        return Err(Error::unsupported(format!(
            "fused kernel: rank {} is above {MAX_RANK}",
            expr.rank
        )));
    }
    if expr.schedule != (Schedule::Elements { width: 1 }) {
        return Err(Error::unsupported(format!("fused kernel: {:?}", expr.schedule)));
    }
    let mut body = ops::Body::default();
    for (i, value) in expr.values.iter().enumerate() {
        body.value(expr, *value).map_err(|what| fail(format!("value {i}: {what}")))?;
    }
    for (i, output) in expr.outputs.iter().enumerate() {
        let made = body.dtype(output.value).map_err(|what| fail(format!("output {i}: {what}")))?;
        if made != output.operand.dtype {
            return Err(fail(format!("{made} for output {i} of {}", output.operand.dtype)));
        }
    }

    let mut text = String::new();
    header(expr, &mut text);
    for name in body.imports() {
        text.push_str(&source::shared_wgsl(name)?);
    }
    text.push_str(body.declarations());
    entry(expr, body.lines(), &mut text);
    Ok(text)
}

/// Appends a line. Writing to a string cannot fail.
macro_rules! line {
    ($text:expr, $($arg:tt)*) => {{
        let _ = writeln!($text, $($arg)*);
    }};
}
use line;

/// The type of an element in memory.
fn stored(dtype: DType) -> &'static str {
    match dtype {
        DType::I32 => "i32",
        DType::U32 | DType::Bool => "u32",
        DType::F32 | DType::F16 | DType::BF16 => "f32",
    }
}

/// Operands with their names.
fn operands(expr: &FusedExpr) -> impl Iterator<Item = (String, &Operand)> {
    let inputs = expr.inputs.iter().enumerate().map(|(i, o)| (format!("x{i}"), o));
    let outputs = expr.outputs.iter().enumerate();
    inputs.chain(outputs.map(|(i, output)| (format!("y{i}"), &output.operand)))
}

/// The buffers with their names and the types of their elements; a buffer that operands of several
/// types share is one of words.
fn buffers(expr: &FusedExpr) -> Vec<(String, &'static str, &'static str)> {
    let typed = |operands: &mut dyn Iterator<Item = &Operand>, binding: u32| {
        let mut types = operands.filter(|o| o.binding == binding).map(|o| stored(o.dtype));
        match types.next() {
            Some(first) if types.all(|other| other == first) => first,
            _ => "u32",
        }
    };
    let reads =
        (0..expr.reads()).map(|b| (format!("in{b}"), "read", typed(&mut expr.inputs.iter(), b)));
    let written = || expr.outputs.iter().map(|output| &output.operand);
    let writes =
        (0..expr.writes()).map(|b| (format!("out{b}"), "read_write", typed(&mut written(), b)));
    reads.chain(writes).collect()
}

/// Parameters and bindings.
fn header(expr: &FusedExpr, text: &mut String) {
    line!(text, "// fused: {expr}, one element a thread.");
    line!(text, "struct Params {{\n    n: u32,");
    for d in 0..expr.rank {
        line!(text, "    size{d}: u32,");
    }
    for (name, operand) in operands(expr) {
        line!(text, "    {name}_offset: u32,");
        if operand.addressing == Addressing::Strided {
            for d in 0..expr.rank {
                line!(text, "    {name}_stride{d}: u32,");
            }
        }
    }
    line!(text, "}}\n\n@group(0) @binding(0) var<uniform> params: Params;");
    for (i, (name, access, element)) in buffers(expr).into_iter().enumerate() {
        line!(
            text,
            "@group(0) @binding({}) var<storage, {access}> {name}: array<{element}>;",
            i + 1
        );
    }
    text.push('\n');
}

/// The address of an operand's element, in terms of `i` and the coordinates `c0`, `c1`..
fn address(name: &str, operand: &Operand, rank: u32) -> String {
    let mut sum = format!("params.{name}_offset");
    match operand.addressing {
        Addressing::Flat => sum.push_str(" + i"),
        Addressing::Single => {}
        Addressing::Strided => {
            for d in 0..rank {
                let _ = write!(sum, " + c{d} * params.{name}_stride{d}");
            }
        }
    }
    sum
}

/// The entry point around the lines of the body.
fn entry(expr: &FusedExpr, lines: &str, text: &mut String) {
    line!(text, "@compute @workgroup_size({FUSED_WORKGROUP})");
    text.push_str(
        "fn main(\n    @builtin(workgroup_id) wid: vec3<u32>,\n    \
         @builtin(num_workgroups) grid: vec3<u32>,\n    \
         @builtin(local_invocation_index) lid: u32,\n) {\n",
    );
    line!(text, "    let i = (wid.y * grid.x + wid.x) * {FUSED_WORKGROUP}u + lid;");
    text.push_str("    if (i >= params.n) {\n        return;\n    }\n");
    if operands(expr).any(|(_, o)| o.addressing == Addressing::Strided) {
        // Innermost first; what is left for the outermost needs no remainder.
        let mut rest = "i".to_string();
        for d in (1..expr.rank).rev() {
            line!(text, "    let c{d} = {rest} % params.size{d};");
            line!(text, "    let r{d} = {rest} / params.size{d};");
            rest = format!("r{d}");
        }
        if expr.rank > 0 {
            line!(text, "    let c0 = {rest};");
        }
    }
    text.push_str(lines);
    let buffers = buffers(expr);
    for (i, output) in expr.outputs.iter().enumerate() {
        let operand = &output.operand;
        let value = format!("v{}", output.value);
        let value = match operand.dtype {
            DType::Bool => format!("select(0u, 1u, {value})"),
            _ => value,
        };
        let (buffer, _, element) = &buffers[(expr.reads() + operand.binding) as usize];
        let value = if *element == stored(operand.dtype) {
            value
        } else {
            format!("bitcast<{element}>({value})")
        };
        line!(text, "    {buffer}[{}] = {value};", address(&format!("y{i}"), operand, expr.rank));
    }
    line!(text, "}}");
}

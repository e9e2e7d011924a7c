//! Prints fusions as WGSL: text that replaces the assets' `fusion_*` files.
//!
//! An asset calls `prologue`, `task_of`, `row_of` and `store`. Its default files define them; this
//! module prints replacements from the fusion's bodies. Parameter words and buffers are laid out as
//! [`crate::fusion`] specifies. Parameters of the norm's weight are named `norm_*`, those of
//! prologue operand 0 `p_x0_*`, and those of segment 1 `s1_x0_*` (input 0) and `s1_y0_*` (output
//! 0); buffers are named `in0`, `in1`.. and `out0`, `out1`...

use std::collections::BTreeSet;
use std::fmt::Write;

use super::ops::Body;
use super::printer::half_assign;
use super::tasks::{FETCH, quant_target, tasks};
use super::{line, operand_fields, stored};
use crate::catalogue::{self, Entry};
use crate::fusion::supports;
use crate::source::{self, Splice};
use crate::{
    Addressing, AssetSpec, FusedExpr, KernelFusion, Neighbours, Operand, OperandLayout, Segment,
    Value,
};
use warploom_core::base::DType;
use warploom_core::error::{Error, Result};

/// Returns the WGSL text of a catalogue kernel with its fusion.
///
/// # Errors
/// Same as [`source::asset_wgsl`]; unsupported if the kernel does not support the fusion; invalid
/// if a body is malformed.
pub fn kernel_wgsl(spec: &AssetSpec) -> Result<String> {
    let Some(fusion) = &spec.fusion else { return source::asset_wgsl(spec) };
    let fail = |what: String| Error::invalid(format!("kernel {}: {what}", spec.name));
    supports(&spec.name, fusion).map_err(|what| {
        Error::unsupported(format!("kernel {}: the operations fused into it: {what}", spec.name))
    })?;
    let (entry, _) = catalogue::find(&spec.name).ok_or_else(|| {
        Error::unsupported(format!("kernel {:?} is not in the catalogue", spec.name))
    })?;
    let mut splice = Splice::default();
    splice.files.insert("fusion_params", params(fusion, entry.is_linear()));
    let vec4 = spec.defines.iter().any(|define| define == "vec4");
    let mut printer = Printer::new(fusion, entry, vec4);
    if fusion.prologue.is_some() {
        let text = printer.prologue().map_err(|what| fail(format!("prologue: {what}")))?;
        splice.files.insert("fusion_x", text);
    }
    if fusion.segments.is_empty() {
        splice.constants.push(("ATTACHED", fusion.reads()));
    } else {
        let text = printer.segments().map_err(fail)?;
        let file = if entry.is_linear() { "fusion_rows" } else { "fusion_store" };
        splice.files.insert(file, text);
        splice.files.insert("fusion_fetch", String::new());
    }
    if fusion.norm.is_some() {
        splice.defines.push("norm");
    }
    if let Some(epilogue) = &fusion.quant_epilogue {
        splice.defines.push("quant_epilogue");
        splice.files.insert("fusion_quant_target", quant_target(epilogue, fusion.stored()));
        let apart = match epilogue.form {
            OperandLayout::Codes { neighbours, .. } => neighbours == Neighbours::Apart,
            OperandLayout::Halves(_) => true,
        };
        splice.defines.extend((!apart).then_some("wide"));
    }
    splice.tail = printer.tail();
    source::spliced_wgsl(spec, &splice)
}

/// Returns the fusion's fields of the parameter block, in the order that [`crate::fusion`]
/// specifies.
fn params(fusion: &KernelFusion, linear: bool) -> String {
    let mut text = String::new();
    if fusion.norm.is_some() {
        text.push_str("    norm_eps: f32,\n    norm_offset: u32,\n");
    }
    if let Some(body) = &fusion.prologue {
        operand_fields(body, "p_", &mut text);
    }
    if linear {
        for i in 0..fusion.segments.len() {
            for name in ["first_row", "size0", "size1", "stride0", "stride1", "distance"] {
                line!(text, "    s{i}_{name}: u32,");
            }
        }
    }
    for (i, segment) in fusion.segments.iter().enumerate() {
        operand_fields(&segment.body, &format!("s{i}_"), &mut text);
    }
    if let Some(epilogue) = &fusion.quant_epilogue {
        text.push_str("    quant_columns: u32,\n    quant_offset: u32,\n");
        if matches!(epilogue.form, OperandLayout::Halves(_)) {
            text.push_str("    quant_eps: f32,\n    quant_factors: u32,\n");
        }
    }
    text
}

/// State of printing a fusion.
struct Printer<'a> {
    fusion: &'a KernelFusion,
    entry: &'a Entry,
    /// WGSL element type of each buffer that the fusion reads.
    reads: Vec<&'static str>,
    /// WGSL element type of each buffer that the fusion writes.
    writes: Vec<&'static str>,
    imports: BTreeSet<&'static str>,
    declarations: BTreeSet<String>,
}

impl<'a> Printer<'a> {
    fn new(fusion: &'a KernelFusion, entry: &'a Entry, vec4: bool) -> Printer<'a> {
        let bodies = || fusion.prologue.iter().chain(fusion.segments.iter().map(|s| &s.body));
        let element = |operands: &mut dyn Iterator<Item = &Operand>, binding: u32| {
            let mut types =
                operands.filter(|o| o.binding == binding).map(|o| stored(o.dtype)).peekable();
            let first = types.peek().copied()?;
            Some(if types.all(|other| other == first) { first } else { "u32" })
        };
        let read = |binding| {
            let inputs = element(&mut bodies().flat_map(|body| &body.inputs), binding);
            let gain = fusion.quant_epilogue.as_ref().and_then(|epilogue| epilogue.norm);
            match (inputs, fusion.norm == Some(binding) || gain == Some(binding)) {
                (None, true) if vec4 && gain != Some(binding) => "vec4<f32>",
                (None, _) | (Some("f32"), _) => "f32",
                (Some(_), true) => "u32",
                (Some(other), false) => other,
            }
        };
        let outputs = || bodies().flat_map(|body| &body.outputs).map(|output| &output.operand);
        let codes = fusion.quant_epilogue.as_ref().map(|_| fusion.stored());
        let write = |binding| match codes == Some(binding) {
            true => "u32",
            false => element(&mut outputs(), binding).unwrap_or("f32"),
        };
        Printer {
            fusion,
            entry,
            reads: (0..fusion.reads()).map(read).collect(),
            writes: (0..fusion.writes()).map(write).collect(),
            imports: BTreeSet::new(),
            declarations: BTreeSet::new(),
        }
    }

    /// Returns whether elements of an output buffer have 16 bits, so that two share a word.
    fn shares_words(&self, binding: u32) -> bool {
        let outputs = self.fusion.segments.iter().flat_map(|segment| &segment.body.outputs);
        let mut operands = outputs.map(|output| &output.operand);
        operands.any(|operand| operand.binding == binding && operand.dtype.is_half())
    }

    /// Returns the text that follows the asset: declarations of the fusion's buffers, and the
    /// module-scope variables, functions and imports that its bodies use.
    fn tail(&self) -> String {
        let first = 1 + self.entry.before_output();
        let mut text = String::new();
        let reads = self.reads.iter().enumerate().map(|(i, e)| (format!("in{i}"), "read", e));
        let writes = self.writes.iter().enumerate().map(|(i, e)| {
            let element = if self.shares_words(i as u32) { &"atomic<u32>" } else { e };
            (format!("out{i}"), "read_write", element)
        });
        for (i, (name, access, element)) in reads.chain(writes).enumerate() {
            let binding = first + i;
            line!(
                text,
                "@group(0) @binding({binding}) var<storage, {access}> {name}: array<{element}>;"
            );
        }
        if let Some(binding) = self.fusion.norm {
            text.push_str(&norm_weight(binding, self.reads[binding as usize]));
        }
        if let Some(binding) =
            self.fusion.quant_epilogue.as_ref().and_then(|epilogue| epilogue.norm)
        {
            line!(text, "fn quant_weight{binding}(at: u32) -> f32 {{");
            match self.reads[binding as usize] {
                "f32" => line!(text, "    return in{binding}[at];\n}}"),
                _ => line!(text, "    return bitcast<f32>(in{binding}[at]);\n}}"),
            }
        }
        for declaration in &self.declarations {
            text.push_str(declaration);
        }
        for name in &self.imports {
            line!(text, "#import {name}");
        }
        text
    }

    /// Returns the prologue functions: for one element of x and, in kernels that multiply by a
    /// weight matrix or fuse a norm, for four neighbours.
    fn prologue(&mut self) -> Result<String, String> {
        let Some(body) = &self.fusion.prologue else { return Ok(String::new()) };
        let columns = match self.entry.name {
            "conv2d" => "params.in_h * params.in_w",
            _ => "params.k",
        };
        let scope = Scope {
            prefix: "p",
            index: format!("c0 * {columns} + c1"),
            anchors: &["x"],
            fetched: false,
        };
        let printed = self.body(body, &scope)?;
        let last = body.values.len().checked_sub(1).ok_or("no value")? as u32;
        match printed.body.dtype(last)? {
            DType::F32 => {}
            other => return Err(format!("a result of {other}")),
        }
        let mut text = String::new();
        line!(text, "// {body}");
        line!(text, "fn prologue(c0: u32, c1: u32, x: f32) -> f32 {{");
        text.push_str(&printed.lines);
        line!(text, "    return v{last};\n}}\n");
        if self.entry.is_linear() || self.entry.takes_norm() {
            // If columns may be past the end, x is 0 there and must stay 0.
            let masked = if self.entry.takes_norm() { "PARTIAL" } else { "true" };
            line!(text, "fn prologue4(row: u32, column: u32, x: vec4<f32>) -> vec4<f32> {{");
            line!(text, "    let last = select(0xffffffffu, params.k - 1u, {masked});");
            text.push_str("    let made = vec4(\n");
            for (i, part) in ["x", "y", "z", "w"].iter().enumerate() {
                line!(text, "        prologue(row, min(column + {i}u, last), x.{part}),");
            }
            text.push_str("    );\n    let columns = vec4(column) + vec4(0u, 1u, 2u, 3u);\n");
            text.push_str("    return select(vec4(0.0), made, columns <= vec4(last));\n}\n\n");
        }
        Ok(text)
    }

    /// Returns the functions that evaluate the epilogue of each segment. For products with a weight
    /// matrix, also those that assign rows of the matrix to evaluations.
    fn segments(&mut self) -> Result<String, String> {
        let mut text = String::new();
        let segments = &self.fusion.segments;
        if self.entry.is_linear() {
            let anchors = segments.iter().map(|s| s.anchors).max().unwrap_or(1);
            // Epilogue operands are fetched early: accumulators of tensor cores are stored many at
            // a time, and a GEMV has latency to hide while it sums.
            let early = self.entry.fetches();
            let gives = if self.fusion.quant_epilogue.is_some() { " -> f32" } else { "" };
            text.push_str(&tasks(segments, anchors, early, gives));
            if early {
                text.push_str(&self.fetches(segments)?);
            }
            let more = if early { ", fetched: Fetched" } else { "" };
            for (i, segment) in segments.iter().enumerate() {
                let prefix = format!("s{i}");
                let sizes = [format!("params.s{i}_size0"), format!("params.s{i}_size1")];
                let head = format!(
                    "fn segment{i}(c0: u32, c1: u32, c2: u32, product: f32, second: f32{more}){gives} {{"
                );
                let anchors = &["product", "second"][..segment.anchors as usize];
                let made = self.segment(&segment.body, &prefix, sizes, anchors);
                let made = made.map_err(|what| format!("segment {i}: {what}"))?;
                line!(text, "// {}\n{head}\n{made}}}\n", segment.body);
            }
        } else if let [segment] = &segments[..] {
            let sizes = ["sizes().x".to_string(), "sizes().y".to_string()];
            let made = self.segment(&segment.body, "s0", sizes, &["product"])?;
            line!(text, "// {}", segment.body);
            let gives = if self.fusion.quant_epilogue.is_some() { " -> f32" } else { "" };
            line!(text, "fn store(c0: u32, c1: u32, c2: u32, product: f32){gives} {{\n{made}}}\n");
        }
        Ok(text)
    }

    /// Returns the functions that load the input elements of each segment's epilogue, as bits.
    fn fetches(&mut self, segments: &[Segment]) -> Result<String, String> {
        let inputs = |segment: &Segment| segment.body.inputs.len();
        let most = segments.iter().map(inputs).max().unwrap_or(0).max(1);
        let mut text = String::from("struct Fetched {\n");
        (0..most).for_each(|x| line!(text, "    x{x}: u32,"));
        text.push_str("}\n\n");
        for (i, segment) in segments.iter().enumerate() {
            line!(text, "fn fetch{i}(c0: u32, c1: u32, c2: u32) -> Fetched {{");
            text.push_str("    var fetched = Fetched();\n");
            for (x, operand) in segment.body.inputs.iter().enumerate() {
                let at = address(&format!("s{i}_x{x}"), operand, segment.body.rank);
                line!(text, "    fetched.x{x} = bitcast<u32>(in{}[{at}]);", operand.binding);
            }
            text.push_str("    return fetched;\n}\n\n");
        }
        text.push_str(FETCH);
        for i in 0..segments.len() {
            line!(
                text,
                "        case {i}u: {{\n            return fetch{i}(row, s0, s1);\n        }}"
            );
        }
        text.push_str("        default: {\n            return Fetched();\n        }\n    }\n}\n\n");
        Ok(text)
    }

    fn segment(
        &mut self,
        body: &FusedExpr,
        prefix: &str,
        [size0, size1]: [String; 2],
        anchors: &[&str],
    ) -> Result<String, String> {
        let index = format!("(c0 * {size0} + c1) * {size1} + c2");
        let fetched = self.entry.fetches();
        let printed = self.body(body, &Scope { prefix, index, anchors, fetched })?;
        let Printed { body: typed, lines: mut text } = printed;
        let given = self.fusion.quant_epilogue.as_ref().filter(|epilogue| !epilogue.kept);
        for (i, output) in body.outputs.iter().enumerate() {
            if given.is_some_and(|epilogue| epilogue.output as usize == i) {
                continue;
            }
            let operand = &output.operand;
            let made = typed.dtype(output.value).map_err(|what| format!("output {i}: {what}"))?;
            if made != operand.dtype {
                return Err(format!("{made} for output {i} of {}", operand.dtype));
            }
            let value = match made {
                DType::Bool => format!("select(0u, 1u, v{})", output.value),
                _ => format!("v{}", output.value),
            };
            let value = match self.writes[operand.binding as usize] {
                element if element == stored(made) => value,
                element => format!("bitcast<{element}>({value})"),
            };
            let at = address(&format!("{prefix}_y{i}"), operand, body.rank);
            let buffer = format!("out{}", operand.binding);
            match made.is_half() {
                true => text.push_str(&half_assign(&buffer, &at, &value, "    ")),
                false => line!(text, "    {buffer}[{at}] = {value};"),
            }
        }
        if let Some(epilogue) = &self.fusion.quant_epilogue {
            line!(text, "    return v{};", body.outputs[epilogue.output as usize].value);
        }
        Ok(text)
    }

    /// Prints one line per value of a body, and collects the declarations and imports that the
    /// values need.
    fn body<'e>(&mut self, expr: &'e FusedExpr, scope: &Scope) -> Result<Printed<'e>, String> {
        let mut body = Body::new(expr, scope.anchors.len() as u32)?;
        let mut lines = String::new();
        for (i, value) in expr.values.iter().enumerate() {
            let text = match *value {
                Value::Input(x) => self.load(expr, x, scope)?,
                Value::Index => scope.index.clone(),
                Value::Anchor(a) => scope.anchors[a as usize].to_string(),
                _ => body
                    .text(i as u32, |operand| format!("v{operand}"))
                    .ok_or_else(|| format!("value {i}: a reduction"))?,
            };
            line!(lines, "    let v{i} = {text};");
        }
        self.imports.extend(body.imports());
        self.declarations.extend(body.declarations().lines().map(|line| format!("{line}\n")));
        Ok(Printed { body, lines })
    }

    /// Returns the expression for the element of input `x`.
    fn load(&self, expr: &FusedExpr, x: u32, scope: &Scope) -> Result<String, String> {
        let operand = expr
            .inputs
            .get(x as usize)
            .ok_or_else(|| format!("input {x} of {}", expr.inputs.len()))?;
        let test = if operand.dtype == DType::Bool { " != 0u" } else { "" };
        if scope.fetched {
            return Ok(format!("bitcast<{}>(fetched.x{x}){test}", stored(operand.dtype)));
        }
        let at = address(&format!("{}_x{x}", scope.prefix), operand, expr.rank);
        let load = format!("in{}[{at}]", operand.binding);
        let load = match (stored(operand.dtype), self.reads[operand.binding as usize]) {
            (own, element) if own == element => load,
            (own, _) => format!("bitcast<{own}>({load})"),
        };
        Ok(load + test)
    }
}

/// A printed body: its lines, and the checked expression with the values' types.
struct Printed<'e> {
    body: Body<'e>,
    lines: String,
}

/// Names that a printed body uses.
struct Scope<'a> {
    /// Prefix of its parameters' names.
    prefix: &'a str,
    /// Expression for the flat index.
    index: String,
    /// Names of the anchor's results.
    anchors: &'a [&'a str],
    /// Whether input elements were already loaded into the variable `fetched`.
    fetched: bool,
}

/// Returns the function that loads four neighbours of the norm's weight.
fn norm_weight(binding: u32, element: &str) -> String {
    let mut text = String::from("fn norm_weight(column: u32) -> vec4<f32> {\n");
    if element == "vec4<f32>" {
        line!(text, "    return in{binding}[(params.norm_offset + column) >> 2u];\n}}");
        return text;
    }
    text.push_str("    let last = select(0xffffffffu, params.k - 1u, PARTIAL);\n");
    text.push_str("    return vec4(\n");
    for i in 0..4 {
        let load = format!("in{binding}[params.norm_offset + min(column + {i}u, last)]");
        match element {
            "f32" => line!(text, "        {load},"),
            _ => line!(text, "        bitcast<f32>({load}),"),
        }
    }
    text.push_str("    );\n}\n");
    text
}

/// Returns the address of an operand's element as an expression of the coordinates `c0`, `c1`..
fn address(name: &str, operand: &Operand, rank: u32) -> String {
    let mut sum = format!("params.{name}_offset");
    if operand.addressing == Addressing::Strided {
        for d in 0..rank {
            let _ = write!(sum, " + c{d} * params.{name}_stride{d}");
        }
    }
    sum
}

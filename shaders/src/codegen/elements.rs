//! Elementwise kernels: each thread computes one element, or four neighbours.

use std::fmt::Write;

use super::printer::Printer;
use super::{FUSED_WORKGROUP, line, operands, width};
use crate::Addressing;

/// Prints the entry point.
pub(super) fn entry(printer: &mut Printer) {
    let width = width(&printer.expr.schedule);
    let text = &mut printer.text;
    line!(text, "@compute @workgroup_size({FUSED_WORKGROUP})");
    text.push_str(
        "fn main(\n    @builtin(workgroup_id) wid: vec3<u32>,\n    \
         @builtin(num_workgroups) grid: vec3<u32>,\n    \
         @builtin(local_invocation_index) lid: u32,\n) {\n",
    );
    let times = if width == 1 { String::new() } else { format!(" * {width}u") };
    line!(text, "    let i = ((wid.y * grid.x + wid.x) * {FUSED_WORKGROUP}u + lid){times};");
    text.push_str("    if (i >= params.n) {\n        return;\n    }\n");
    if operands(printer.expr).any(|(_, o)| o.addressing == Addressing::Strided) {
        printer.coordinates("i", printer.expr.rank);
    }
    let values: Vec<u32> = (0..printer.expr.values.len() as u32).collect();
    printer.values(&values, width, "    ");
    for output in 0..printer.expr.outputs.len() {
        printer.store(output, 0, "    ");
    }
    printer.text.push_str("}\n");
}

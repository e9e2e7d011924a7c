//! Prints the WGSL functions that epilogues of weight GEMMs need: those that map a workgroup's
//! anchor results to epilogue evaluations, and those that store quantised rows.

use std::fmt::Write;

use super::line;
use crate::{CodeOrder, F16Layout, Neighbours, OperandLayout, QuantEpilogue, Segment, prequant};

/// Returns the functions for the segment and evaluations of a workgroup, for the rows of w that its
/// products use, and for storing the products. A workgroup computes evaluations of only one
/// segment. `early` is whether epilogue operands are fetched early, `gives` the functions' return
/// type with its arrow.
pub(super) fn tasks(segments: &[Segment], anchors: u32, early: bool, gives: &str) -> String {
    let mut text = format!("const ANCHORS: u32 = {anchors}u;\n");
    text.push_str(
        "const_assert TASK_ROWS % ANCHORS == 0u;\n
struct Task {
    segment: u32,
    // Evaluations: the first one of the workgroup, most in a workgroup, all of the segment.
    first: u32,
    most: u32,
    count: u32,
    size1: u32,
    first_row: u32,
    stride0: u32,
    stride1: u32,
    distance: u32,
}

fn task_of(group: u32) -> Task {
    var left = group;
",
    );
    for (i, segment) in segments.iter().enumerate() {
        let s = format!("params.s{i}");
        // Indices past the end belong to the last segment, whose evaluations do not exist. So with
        // one segment a compiler knows all of a task except its first.
        let last = i + 1 == segments.len();
        let (indent, close) = if last { ("", "") } else { ("    ", "\n    }") };
        line!(text, "    let most{i} = TASK_ROWS / {}u;", segment.anchors);
        line!(text, "    let count{i} = {s}_size0 * {s}_size1;");
        if !last {
            line!(text, "    let groups{i} = (count{i} + most{i} - 1u) / most{i};");
            line!(text, "    if (left < groups{i}) {{");
        }
        line!(text, "    {indent}return Task(");
        line!(text, "        {indent}{i}u, left * most{i}, most{i}, count{i}, {s}_size1,");
        line!(text, "        {indent}{s}_first_row, {s}_stride0, {s}_stride1, {s}_distance,");
        line!(text, "    {indent});{close}");
        if !last {
            line!(text, "    left -= groups{i};");
        }
    }
    text.push_str(
        "}

fn exists(task: Task) -> bool {
    return task.first < task.count;
}

fn evaluations(task: Task) -> u32 {
    return task.most;
}

// Product r is number r / most of evaluation r % most. Those past the end repeat the last one and
// are not stored.
fn row_of(task: Task, r: u32) -> u32 {
",
    );
    text.push_str(match anchors {
        1 => "    let e = min(task.first + r, task.count - 1u);\n    let further = 0u;\n",
        _ => {
            "    let late = r >= task.most;
    let e = min(task.first + r - select(0u, task.most, late), task.count - 1u);
    let further = select(0u, task.distance, late);\n"
        }
    });
    text.push_str(
        "    let s0 = e / task.size1;
    let s1 = e - s0 * task.size1;
    let row = task.first_row + s0 * task.stride0 + s1 * task.stride1 + further;
    return min(row, params.n - 1u);
}

",
    );
    let (name, more) = if early { ("finish", ", fetched: Fetched") } else { ("store", "") };
    let hand = if early { ", fetched" } else { "" };
    line!(text, "fn {name}(task: Task, e: u32, i: u32, product: f32, second: f32{more}){gives} {{");
    let (nothing, give) = if gives.is_empty() { ("return", "") } else { ("return 0.0", "return ") };
    line!(text, "    let at = task.first + e;\n    if (at >= task.count || i >= params.m) {{");
    line!(text, "        {nothing};\n    }}");
    text.push_str(
        "    let s0 = at / task.size1;
    let s1 = at - s0 * task.size1;
",
    );
    if segments.len() == 1 {
        line!(text, "    {give}segment0(i, s0, s1, product, second{hand});\n}}\n");
        return text;
    }
    text.push_str("    switch (task.segment) {\n");
    for i in 0..segments.len() {
        line!(
            text,
            "        case {i}u: {{\n            segment{i}(i, s0, s1, product, second{hand});"
        );
        text.push_str("        }\n");
    }
    text.push_str("        default: {\n        }\n    }\n}\n\n");
    text
}

/// Start of the function that loads the epilogue operands of an evaluation; evaluations past the
/// end load those of the last one.
pub(super) const FETCH: &str = "fn fetch(task: Task, e: u32, i: u32) -> Fetched {
    let at = min(task.first + e, task.count - 1u);
    let row = min(i, params.m - 1u);
    let s0 = at / task.size1;
    let s1 = at - s0 * task.size1;
    switch (task.segment) {
";

/// Returns the functions that store quantised rows in output buffer `binding`.
pub(super) fn quant_target(epilogue: &QuantEpilogue, binding: u32) -> String {
    let mut text = String::new();
    line!(text, "const QUANT_NORM: bool = {};\n", epilogue.norm.is_some());
    line!(text, "fn quant_put(at: u32, word: u32) {{\n    out{binding}[at] = word;\n}}\n");
    text.push_str("fn quant_gain(column: u32) -> f32 {\n");
    match epilogue.norm {
        Some(norm) => {
            line!(text, "    return quant_weight{norm}(params.quant_offset + column);\n}}\n");
        }
        None => text.push_str("    return 1.0;\n}\n\n"),
    }
    match &epilogue.form {
        OperandLayout::Codes { orders, neighbours } => {
            let whole = *neighbours == Neighbours::Subgroup;
            line!(text, "const QUANT_WHOLE: bool = {whole};\n");
            text.push_str(&quant_epilogue_codes(orders, epilogue.norm.is_some()));
        }
        OperandLayout::Halves(F16Layout { rounded, plain }) => {
            line!(text, "const QUANT_ROUNDED: bool = {rounded};");
            line!(text, "const QUANT_PLAIN: bool = {plain};");
        }
    }
    text
}

/// Returns the functions that store int8 values in each order, and locate the factors that all
/// orders share.
fn quant_epilogue_codes(orders: &[CodeOrder], norm: bool) -> String {
    let rest = prequant::factor_words(1, norm);
    // Rows are interleaved in all orders or in none.
    let together = orders.first().map_or(1, |order| order.rows());
    let words = orders.iter().map(|order| match order.goes_along() {
        true => "plane_words(params.quant_columns)",
        false => "params.quant_columns / 4u",
    });
    let words: Vec<&str> = words.collect();
    let mut text = String::new();
    line!(text, "const QUANT_TOGETHER: u32 = {together}u;\n");
    line!(text, "fn quant_factors() -> u32 {{\n    return {};\n}}\n", words.join(" + "));
    text.push_str("fn quant_words() -> u32 {\n");
    line!(
        text,
        "    return quant_factors() + (params.quant_columns + 127u) / 128u * {rest}u;\n}}\n"
    );
    let [mut code, mut half, mut sum] = [const { String::new() }; 3];
    let mut at = "words".to_string();
    for (order, words) in orders.iter().zip(words) {
        let CodeOrder { groups, run, chunk, planes, tiles } = order;
        let place = format!("code_place(block, j, {groups}u, {run}u, {chunk}u)");
        if order.goes_along() {
            line!(code, "    quant_put({at} + plane_place(block, j), code);");
            line!(
                half,
                "    quant_lane({at} + plane_lane(params.quant_columns, block, half), block, d, sum);"
            );
            let lane = "plane_lane(params.quant_columns, block, block % 2u)";
            line!(sum, "    quant_put({at} + {lane} + 3u, bitcast<u32>(sum));");
        } else if *planes {
            line!(code, "    quant_put({at} + apart_place(block, j), code);");
        } else if *tiles {
            line!(code, "    quant_put({at} + tile_place(row, {place}), code);");
        } else {
            line!(code, "    quant_put({at} + {place}, code);");
        }
        at = format!("{at} + {together}u * ({words})");
    }
    let begin = "    let words = row / QUANT_TOGETHER * QUANT_TOGETHER * quant_words();";
    line!(text, "fn quant_code(row: u32, block: u32, j: u32, code: u32) {{\n{begin}\n{code}}}\n");
    text.push_str(QUANT_LANE);
    line!(text, "fn quant_half(row: u32, block: u32, half: u32, d: f32, sum: i32) {{");
    line!(text, "{begin}\n{half}}}\n");
    line!(text, "fn quant_sum(row: u32, block: u32, sum: f32) {{\n{begin}\n{sum}}}\n");
    let factor = if together > 1 { "tile_factor(row, block)" } else { "block" };
    line!(text, "fn quant_factor(row: u32, block: u32) -> u32 {{\n{begin}");
    line!(text, "    return words + QUANT_TOGETHER * quant_factors() + {factor};\n}}\n");
    text
}

/// Function that stores the per-lane factors of the plane layout for half a block of 32 columns.
const QUANT_LANE: &str = "fn quant_lane(at: u32, block: u32, d: f32, sum: i32) {
    if (block % 2u == 0u) {
        quant_put(at, bitcast<u32>(d));
    } else {
        quant_put(at + 1u, bitcast<u32>(d / 16.0));
        quant_put(at + 2u, plane_begin(sum));
    }
}

";

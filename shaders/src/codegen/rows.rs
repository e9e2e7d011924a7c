//! Prints kernels with reductions along rows.
//!
//! The threads of a row take its columns in turn: thread `lane` has columns `lane`,
//! `lane + threads` and so on, or groups of `width` neighbours in this order. A kernel runs in
//! stages: each computes the values whose reductions are done, then the next reductions, per thread
//! and then over the threads of the row through workgroup memory; all reductions of a stage share
//! the same barriers. Held elements are computed once; otherwise each stage walks over the row
//! again and recomputes the values that it needs.
//!
//! All threads reach every barrier: in a workgroup of several rows, those past the last row repeat
//! it and store nothing.

use std::fmt::Write;

use super::printer::Printer;
use super::{group_work, line, operands, width, workgroup};
use crate::{Addressing, Operand, Value};
use warploom_core::ir::ReduceOp;

/// Loads in flight per iteration of a loop over a row, for widths 1 and 4.
const LOOP_READS: [u32; 2] = [4, 2];
/// Maximum number of partial results that every thread reduces by itself; more are first reduced in
/// rounds.
const LAST_ROUND: u32 = 16;
/// Number of partial results that a thread reduces per round.
const ROUND: u32 = 8;

/// The fields of [`crate::Schedule::Rows`], except `width`.
#[derive(Clone, Copy)]
pub(super) struct Cut {
    pub(super) threads: u32,
    pub(super) held: u32,
    pub(super) subgroup: bool,
}

/// A reduction that an output needs. `value` is the index of its result, `of` that of its operand.
#[derive(Clone, Copy)]
struct Reduction {
    value: u32,
    op: ReduceOp,
    of: u32,
}

/// Prints the entry point.
pub(super) fn entry(printer: &mut Printer, cut: Cut) {
    let (expr, stages) = (printer.expr, printer.expr.stages());
    let live = needed(printer, expr.outputs.iter().map(|output| output.value), |_| true);
    let after = |value: u32| stages[value as usize].after;
    let is_reduction = |value: u32| matches!(expr.values[value as usize], Value::Reduce(..));
    let last = live.iter().map(|v| after(*v)).max().unwrap_or(0);
    let walk = Walk { cut, width: width(&expr.schedule), group: workgroup(&expr.schedule) };
    walk.prelude(printer);
    for stage in 0..=last {
        let now = live.iter().copied().filter(|v| after(*v) == stage && !is_reduction(*v));
        let (elements, rows): (Vec<u32>, Vec<u32>) = now.partition(|v| printer.is_own(*v));
        printer.values(&rows, 1, "    ");
        if cut.held > 0 {
            printer.values(&elements, cut.held, "    ");
        }
        let next = live.iter().filter(|v| after(**v) == stage + 1);
        let reductions = next.filter_map(|v| match expr.values[*v as usize] {
            Value::Reduce(op, of) => Some(Reduction { value: *v, op, of }),
            _ => None,
        });
        let reductions: Vec<Reduction> = reductions.collect();
        walk.fold(printer, &reductions);
        walk.share(printer, &reductions);
    }
    walk.outputs(printer);
    printer.text.push_str("}\n");
}

/// Returns the indices of `roots` and their transitive operands, in ascending order. Values that
/// `through` rejects are left out, and their operands are not followed.
fn needed(
    printer: &Printer,
    roots: impl Iterator<Item = u32>,
    through: impl Fn(u32) -> bool,
) -> Vec<u32> {
    let values = &printer.expr.values;
    let mut marked = vec![false; values.len()];
    for root in roots {
        marked[root as usize] |= through(root);
    }
    for v in (0..values.len()).rev() {
        if marked[v] {
            for operand in values[v].operands() {
                marked[operand as usize] |= through(operand);
            }
        }
    }
    (0..).zip(marked).filter_map(|(v, marked)| marked.then_some(v)).collect()
}

/// How the threads of a workgroup walk over rows.
struct Walk {
    cut: Cut,
    width: u32,
    /// Number of threads per workgroup.
    group: u32,
}

impl Walk {
    fn has_subgroups(&self) -> bool {
        // WGSL does not define how subgroups map to a workgroup, so only sums over an entire
        // workgroup can be composed of subgroup sums.
        self.cut.subgroup && self.cut.threads == self.group
    }

    /// Prints the start of the entry point: its signature, the row and lane of the thread, and the
    /// address of the row in each operand.
    fn prelude(&self, printer: &mut Printer) {
        let (expr, cut, group) = (printer.expr, self.cut, self.group);
        let (last, at_once) = (expr.rank - 1, group_work(&expr.schedule));
        let text = &mut printer.text;
        line!(text, "@compute @workgroup_size({group})");
        text.push_str(
            "fn main(\n    @builtin(workgroup_id) wid: vec3<u32>,\n    \
             @builtin(num_workgroups) grid: vec3<u32>,\n    \
             @builtin(local_invocation_index) lid: u32,\n",
        );
        if self.has_subgroups() && expr.has_reductions() {
            text.push_str(
                "    @builtin(subgroup_invocation_id) sub_lane: u32,\n    \
                 @builtin(subgroup_id) sub: u32,\n    @builtin(num_subgroups) subs: u32,\n",
            );
        }
        text.push_str(") {\n");
        let sizes: Vec<String> = (0..last).map(|d| format!("params.size{d}")).collect();
        let rows = if sizes.is_empty() { "1u".to_string() } else { sizes.join(" * ") };
        line!(text, "    let len = params.size{last};");
        line!(text, "    let rows = {rows};");
        line!(text, "    let first_row = (wid.y * grid.x + wid.x) * {at_once}u;");
        text.push_str("    if (first_row >= rows) {\n        return;\n    }\n");
        line!(text, "    let lane = lid % {}u;", cut.threads);
        if at_once == 1 {
            text.push_str("    let row = first_row;\n");
        } else {
            line!(text, "    let mine = first_row + lid / {}u;", cut.threads);
            text.push_str("    let owns = mine < rows;\n    let row = min(mine, rows - 1u);\n");
        }
        text.push_str("    let first = row * len;\n");
        let strided = |o: &Operand| matches!(o.addressing, Addressing::Strided | Addressing::Row);
        if operands(expr).any(|(_, o)| strided(o)) {
            printer.coordinates("row", last);
        }
        let inputs = expr.inputs.len();
        for (i, (name, operand)) in operands(expr).enumerate() {
            let mut start = format!("params.{name}_offset");
            match operand.addressing {
                Addressing::Single => continue,
                Addressing::Flat => start.push_str(" + first"),
                Addressing::Strided | Addressing::Row => {
                    for d in 0..last {
                        let _ = write!(start, " + c{d} * params.{name}_stride{d}");
                    }
                }
            }
            // Held columns are read even of an empty row: from an element that exists.
            if i < inputs && cut.held > 0 && operand.addressing != Addressing::Row {
                start = format!("select({start}, 0u, len == 0u)");
            }
            line!(printer.text, "    let {name}_row = {start};");
        }
        line!(printer.text, "    let top = max(len, {0}u) - {0}u;", self.width);
        for read in 0..cut.held / self.width {
            let at = format!("lane * {}u + {}u", self.width, read * cut.threads * self.width);
            self.column(printer, read, &at, "    ");
        }
    }

    /// Prints `col` of a load, its first column, and `ok`, whether the row contains that column.
    fn column(&self, printer: &mut Printer, read: u32, at: &str, indent: &str) {
        line!(printer.text, "{indent}let ok{read} = {at} < len;");
        line!(printer.text, "{indent}let col{read} = min({at}, top);");
    }

    /// Opens a loop over the row; returns the number of slots per iteration.
    fn open(&self, printer: &mut Printer) -> u32 {
        let reads = LOOP_READS[usize::from(self.width == 4)];
        let each = self.cut.threads * self.width;
        let (start, step) = (format!("lane * {}u", self.width), reads * each);
        line!(printer.text, "    for (var at = {start}; at < len; at += {step}u) {{");
        for read in 0..reads {
            self.column(printer, read, &format!("at + {}u", read * each), "        ");
        }
        reads * self.width
    }

    /// Prints the variable `r` of each reduction: its partial result over the thread's columns.
    fn fold(&self, printer: &mut Printer, reductions: &[Reduction]) {
        if reductions.is_empty() {
            return;
        }
        let identities: Vec<String> = reductions
            .iter()
            .map(|reduction| match reduction.op {
                ReduceOp::Sum | ReduceOp::Mean => "0.0".into(),
                ReduceOp::Prod => "1.0".into(),
                ReduceOp::Max => printer.body.of_bits(f32::NEG_INFINITY.to_bits()),
                ReduceOp::Min => printer.body.of_bits(f32::INFINITY.to_bits()),
            })
            .collect();
        for (reduction, identity) in reductions.iter().zip(&identities) {
            line!(printer.text, "    let id{} = {identity};", reduction.value);
        }
        let slots_of = |printer: &Printer, reduction: &Reduction, slots: u32| {
            let term = |slot: u32| {
                let value = printer.name(reduction.of, slot);
                format!("select(id{}, {value}, ok{})", reduction.value, slot / self.width)
            };
            balanced(reduction.op, &(0..slots).map(term).collect::<Vec<_>>())
        };
        if self.cut.held > 0 {
            for reduction in reductions {
                let all = slots_of(printer, reduction, self.cut.held);
                line!(printer.text, "    let r{} = {all};", reduction.value);
            }
            return;
        }
        for Reduction { value, .. } in reductions {
            line!(printer.text, "    var r{value} = id{value};");
        }
        let slots = self.open(printer);
        let roots = reductions.iter().map(|reduction| reduction.of);
        let values = needed(printer, roots, |value| printer.is_own(value));
        printer.values(&values, slots, "        ");
        for reduction in reductions {
            let (all, r) = (slots_of(printer, reduction, slots), format!("r{}", reduction.value));
            line!(printer.text, "        {r} = {};", combine(reduction.op, &r, &all));
        }
        printer.text.push_str("    }\n");
    }

    /// Prints the variable `v` of each reduction, its result: `r` reduced over the row's threads.
    fn share(&self, printer: &mut Printer, reductions: &[Reduction]) {
        if self.cut.threads > 1 && !reductions.is_empty() {
            let words = if self.has_subgroups() { self.group / 4 } else { self.group };
            let base = printer.scratch;
            let places: Vec<u32> = (0..).take(reductions.len()).map(|i| base + i * words).collect();
            printer.scratch += words * reductions.len() as u32;
            let shared: Vec<_> = reductions.iter().copied().zip(places).collect();
            let parts = match self.has_subgroups() {
                true => self.by_subgroups(&mut printer.text, &shared),
                false => self.by_rounds(&mut printer.text, &shared),
            };
            let text = &mut printer.text;
            let row = if self.cut.threads == self.group { "" } else { " + lid - lane" };
            for (Reduction { value, .. }, place) in &shared {
                line!(text, "    var t{value} = scratch[{place}u{row}];");
            }
            line!(text, "    for (var k = 1u; k < {parts}; k++) {{");
            for (Reduction { value, op, .. }, place) in &shared {
                let part = format!("scratch[{place}u{row} + k]");
                line!(text, "        t{value} = {};", combine(*op, &format!("t{value}"), &part));
            }
            text.push_str("    }\n");
        }
        let all = if self.cut.threads > 1 { "t" } else { "r" };
        for Reduction { value, op, .. } in reductions {
            let result = match op {
                // Compilers take 0 / x for 0.
                ReduceOp::Mean => {
                    let nan = printer.body.of_bits(f32::NAN.to_bits());
                    format!("select({all}{value} / f32(len), {nan}, len == 0u)")
                }
                _ => format!("{all}{value}"),
            };
            line!(printer.text, "    let v{value} = {result};");
        }
    }

    /// Prints the reduction to one partial result per subgroup; returns the expression for the
    /// number of subgroups.
    fn by_subgroups(&self, text: &mut String, shared: &[(Reduction, u32)]) -> String {
        for (Reduction { value, op, .. }, _) in shared {
            let function = match op {
                ReduceOp::Sum | ReduceOp::Mean => "Add",
                ReduceOp::Prod => "Mul",
                ReduceOp::Max => "Max",
                ReduceOp::Min => "Min",
            };
            let all = format!("subgroup{function}(r{value})");
            let all = match op {
                // WGSL leaves open what they return if one is NaN.
                ReduceOp::Max | ReduceOp::Min => {
                    format!("nan_if(subgroupAny(!(r{value} == r{value})), {all})")
                }
                _ => all,
            };
            line!(text, "    let s{value} = {all};");
        }
        text.push_str("    if (sub_lane == 0u) {\n");
        for (Reduction { value, .. }, place) in shared {
            line!(text, "        scratch[{place}u + sub] = s{value};");
        }
        text.push_str("    }\n    workgroupBarrier();\n");
        format!("min(subs, {}u)", self.group / 4)
    }

    /// Prints the rounds that reduce the partial results of threads; returns the expression for the
    /// number of results that remain.
    fn by_rounds(&self, text: &mut String, shared: &[(Reduction, u32)]) -> String {
        for (Reduction { value, .. }, place) in shared {
            line!(text, "    scratch[{place}u + lid] = r{value};");
        }
        text.push_str("    workgroupBarrier();\n");
        let mut parts = self.cut.threads;
        while parts > LAST_ROUND {
            parts /= ROUND;
            line!(text, "    if (lane < {parts}u) {{");
            line!(text, "        for (var k = 1u; k < {ROUND}u; k++) {{");
            for (Reduction { op, .. }, place) in shared {
                let to = format!("scratch[{place}u + lid]");
                let from = format!("scratch[{place}u + lid + k * {parts}u]");
                line!(text, "            {to} = {};", combine(*op, &to, &from));
            }
            text.push_str("        }\n    }\n    workgroupBarrier();\n");
        }
        format!("{parts}u")
    }

    /// Prints the stores of element outputs, then of row outputs.
    fn outputs(&self, printer: &mut Printer) {
        let expr = printer.expr;
        let (of_rows, of_elements): (Vec<usize>, Vec<usize>) =
            (0..expr.outputs.len()).partition(|output| expr.writes_rows(*output));
        let owns = if group_work(&expr.schedule) == 1 { "" } else { " && owns" };
        if !of_elements.is_empty() {
            let (slots, indent) = match self.cut.held {
                0 => (self.open(printer), "        "),
                held => (held, "    "),
            };
            if self.cut.held == 0 {
                let roots = of_elements.iter().map(|output| expr.outputs[*output].value);
                let values = needed(printer, roots, |value| printer.is_own(value));
                printer.values(&values, slots, indent);
            }
            for read in 0..slots / self.width {
                line!(printer.text, "{indent}if (ok{read}{owns}) {{");
                for output in &of_elements {
                    printer.store(*output, read * self.width, &format!("{indent}    "));
                }
                line!(printer.text, "{indent}}}");
            }
            if self.cut.held == 0 {
                printer.text.push_str("    }\n");
            }
        }
        if !of_rows.is_empty() {
            line!(printer.text, "    if (lane == 0u{owns}) {{");
            for output in of_rows {
                printer.store_row(output, "        ");
            }
            printer.text.push_str("    }\n");
        }
    }
}

fn combine(op: ReduceOp, a: &str, b: &str) -> String {
    match op {
        ReduceOp::Sum | ReduceOp::Mean => format!("({a} + {b})"),
        ReduceOp::Prod => format!("({a} * {b})"),
        ReduceOp::Max => format!("max_f32({a}, {b})"),
        ReduceOp::Min => format!("min_f32({a}, {b})"),
    }
}

/// Combines all terms as a balanced tree, which shortens the dependency chain.
fn balanced(op: ReduceOp, terms: &[String]) -> String {
    match terms {
        [] => String::new(),
        [one] => one.clone(),
        _ => {
            let (left, right) = terms.split_at(terms.len() / 2);
            combine(op, &balanced(op, left), &balanced(op, right))
        }
    }
}

//! Programmatic dependent launch in CUDA: a kernel waits for earlier launches before the first
//! statement that may access their data, or at its end if there is none, and lets the next kernel
//! start. `README.md` has the argument for correctness.

use naga::{AddressSpace, Block, Expression, GlobalVariable, Handle, Statement};

use super::dialect::{BEGIN, Dialect, FRESH, FRESH_DEFINITION, WAIT};
use super::function::Body;
use super::kernel::blocks;
use super::writer::Writer;
use warploom_core::error::Result;

impl Writer<'_> {
    /// Returns whether the kernel may start before earlier ones are complete.
    pub(super) fn begins_early(&self) -> bool {
        self.dialect == Dialect::Cuda && !self.options.reads_ahead
    }
}

impl Body<'_, '_> {
    /// Prints the statements at the start of a kernel.
    pub(super) fn begin(&mut self) -> Result<()> {
        if !self.w.begins_early() {
            return Ok(());
        }
        // The next kernel may wait only at its end: it must not start before all else is complete.
        if !self.w.options.allows_overlap {
            self.line(BEGIN);
        }
        if self.w.options.overlaps_previous {
            self.w.define("wl_fresh", |_| Ok(FRESH_DEFINITION.to_string()))?;
            self.line(FRESH);
        }
        Ok(())
    }

    fn has_to_wait(&self) -> bool {
        self.entry && self.w.begins_early() && !self.waited
    }

    /// Prints the wait before a top-level statement of the kernel, if necessary. A nested return
    /// has its own wait: a kernel that ended before its predecessors would let its successors start
    /// too early.
    pub(super) fn wait_before(&mut self, statement: &Statement) {
        if !self.has_to_wait() {
            return;
        }
        match statement {
            Statement::Return { .. } if self.is_outermost() => self.wait(),
            Statement::Return { .. } => self.print_wait(),
            // It shares no data with a running kernel.
            _ if self.w.options.overlaps_previous => {}
            // The wait is placed between its expressions.
            Statement::Emit(_) => {}
            _ if self.is_outermost() && self.meets(statement) => self.wait(),
            _ => {}
        }
    }

    /// Prints the wait before an expression that reads shared data.
    pub(super) fn wait_before_load(&mut self, h: Handle<Expression>) {
        if self.has_to_wait() && !self.w.options.overlaps_previous && self.is_load(h) {
            self.wait();
        }
    }

    /// Prints the wait at the end of the kernel, if it has not waited before.
    pub(super) fn wait_at_end(&mut self) {
        if self.has_to_wait() {
            self.wait();
        }
    }

    fn wait(&mut self) {
        self.print_wait();
        self.waited = true;
    }

    fn print_wait(&mut self) {
        self.line(WAIT);
        if self.w.options.allows_overlap {
            self.line(BEGIN);
        }
    }

    /// Returns whether earlier kernels may write the variable, or still read it when this one
    /// writes. Parameters are written before all of them.
    fn is_shared(&self, h: Handle<GlobalVariable>) -> bool {
        let variable = &self.w.module.global_variables[h];
        let place = variable.binding.as_ref().filter(|place| place.group == 0);
        let steady = place.is_some_and(|place| self.w.options.steady.contains(&place.binding));
        matches!(variable.space, AddressSpace::Storage { .. }) && !steady
    }

    fn points_to_shared(&self, pointer: Handle<Expression>) -> bool {
        self.function.originating_global(pointer).is_some_and(|h| self.is_shared(h))
    }

    fn is_load(&self, h: Handle<Expression>) -> bool {
        match self.function.expressions[h] {
            Expression::Load { pointer } => self.points_to_shared(pointer),
            Expression::CooperativeLoad { ref data, .. } => self.points_to_shared(data.pointer),
            _ => false,
        }
    }

    /// Returns whether a statement, or one nested in it, accesses data of earlier kernels.
    fn meets(&self, statement: &Statement) -> bool {
        let own = match *statement {
            Statement::Emit(ref range) => range.clone().any(|h| self.is_load(h)),
            Statement::Store { pointer, .. } | Statement::Atomic { pointer, .. } => {
                self.points_to_shared(pointer)
            }
            Statement::CooperativeStore { ref data, .. } => self.points_to_shared(data.pointer),
            Statement::Call { function, .. } => {
                self.w.used(&self.w.info[function]).into_iter().any(|h| self.is_shared(h))
            }
            _ => false,
        };
        let any = |block: &Block| block.iter().any(|statement| self.meets(statement));
        own || blocks(statement).into_iter().any(any)
    }
}

#[cfg(test)]
mod tests {
    use crate::translate::{Bounds, Options, cuda, parse};

    /// Returns the marks in the lines of the kernel itself, in order.
    fn order<'a>(body: &str, marks: &[&'a str]) -> Vec<&'a str> {
        order_with(body, marks, Options::default())
    }

    fn order_with<'a>(body: &str, marks: &[&'a str], options: Options) -> Vec<&'a str> {
        let wgsl = format!(
            "@group(0) @binding(0) var<uniform> n: vec4<u32>;
             @group(0) @binding(1) var<storage, read> x: array<f32>;
             @group(0) @binding(2) var<storage, read_write> y: array<f32>;
             fn at(i: u32) -> f32 {{ return x[i]; }}
             @compute @workgroup_size(32)
             fn main(@builtin(local_invocation_index) lid: u32) {{ {body} }}"
        );
        let (module, info) = parse(&wgsl).unwrap();
        let options = Options { bounds: Bounds::Unchecked, ..options };
        let text = cuda(&module, &info, &options).unwrap().text;
        let (_, kernel) = text.split_once("kernel_main").unwrap();
        let mark = |line: &str| marks.iter().copied().find(|mark| line.contains(mark));
        kernel.lines().filter_map(mark).collect()
    }

    const MARKS: [&str; 6] = ["wl_wait();", "n->", "call_at(", "= x[", "y[", "for (;;)"];

    #[test]
    fn parameters_are_read_before() {
        let found = order("let k = n.x; let b = x[lid + k]; y[lid] = b;", &MARKS);
        assert_eq!(found, ["n->", "wl_wait();", "= x[", "y["]);
        let found = order("let k = n.x; let b = at(lid + k); y[lid] = b;", &MARKS);
        assert_eq!(found, ["n->", "wl_wait();", "call_at(", "y["]);
        // It accesses no shared data, and must wait all the same.
        assert_eq!(order("var a = n.x; a = a * 2u;", &MARKS), ["n->", "wl_wait();"]);
    }

    #[test]
    fn kernels_that_read_ahead_neither_wait_nor_allow_an_early_start() {
        let marks = ["wl_begin();", "wl_wait();", "* __restrict__ x", "y["];
        let body = "if (lid >= n.x) { return; } y[lid] = at(lid);";
        let ahead = Options { reads_ahead: true, ..Options::default() };
        assert_eq!(order_with(body, &marks, ahead), ["* __restrict__ x", "y["]);
        let found = order(body, &marks);
        assert_eq!(found, ["wl_begin();", "wl_wait();", "wl_wait();", "y["]);
    }

    #[test]
    fn what_nothing_writes_is_read_before() {
        let steady = || Options { steady: vec![1], ..Options::default() };
        let body = "let b = x[lid]; let k = at(lid); y[lid] = b + k;";
        assert_eq!(order(body, &MARKS), ["wl_wait();", "= x[", "call_at(", "y["]);
        assert_eq!(order_with(body, &MARKS, steady()), ["= x[", "call_at(", "wl_wait();", "y["]);
        // Only if nothing else inside accesses shared data.
        let body =
            "var b = 0.0; if (lid < n.x) { b = x[lid]; } if (lid < n.y) { y[lid] = x[lid] + b; }";
        let found = order_with(body, &MARKS, steady());
        assert_eq!(found, ["n->", "= x[", "n->", "wl_wait();", "= x[", "y["]);
        // A kernel that writes the buffer waits all the same.
        let body = "let b = y[lid]; y[lid + 32u] = b;";
        assert_eq!(order_with(body, &MARKS, steady()), ["wl_wait();", "y[", "y["]);
    }

    #[test]
    fn a_loop_waits_before_its_first_turn() {
        let found = order("for (var i = lid; i < n.x; i += 32u) { y[i] = at(i); }", &MARKS);
        assert_eq!(found, ["wl_wait();", "for (;;)", "n->", "call_at(", "y["]);
    }

    #[test]
    fn an_early_return_waits() {
        let marks = ["wl_wait();", "return;", "y["];
        let found = order("if (lid >= n.x) { return; } y[lid] = 1.0;", &marks);
        assert_eq!(found, ["wl_wait();", "return;", "wl_wait();", "y[", "return;"]);
    }

    const TURNS: [&str; 7] =
        ["wl_begin();", "wl_fresh();", "wl_wait();", "return;", "= x[", "y[", "for (;;)"];

    /// Kernels with all kinds of exits: at the end, early, from a loop with or without access, from
    /// a switch.
    const WAYS: [&str; 6] = [
        "y[lid] = x[lid];",
        "if (lid >= n.x) { return; } y[lid] = x[lid];",
        "for (var i = lid; i < 64u; i += 32u) { if (i == n.x) { return; } } y[lid] = x[lid];",
        "for (var i = lid; i < 64u; i += 32u) { y[i] = x[i]; if (i == n.x) { return; } }",
        "switch n.x { case 0u: { return; } case 1u: { y[0] = x[0]; return; } default: {} } y[1] = x[1];",
        "if (lid > n.x) { y[lid] = x[lid]; return; } else { return; }",
    ];

    #[test]
    fn a_kernel_that_allows_overlap_waits_before_the_next_starts() {
        let followed = || Options { allows_overlap: true, ..Options::default() };
        let steady = Options { steady: vec![1], ..followed() };
        let found = order_with("let b = x[lid]; y[lid] = b;", &TURNS, steady);
        assert_eq!(found, ["= x[", "wl_wait();", "wl_begin();", "y[", "return;"]);
        let found = order_with("var a = n.x; a = a * 2u;", &TURNS, followed());
        assert_eq!(found, ["wl_wait();", "wl_begin();", "return;"]);
        for body in WAYS {
            // Same as without overlap, except that the start signal follows each wait.
            let plain: Vec<&str> = order(body, &TURNS)[1..].to_vec();
            let with = |mark: &&'static str| match *mark {
                "wl_wait();" => vec!["wl_wait();", "wl_begin();"],
                mark => vec![mark],
            };
            let expected: Vec<&str> = plain.iter().flat_map(with).collect();
            assert!(expected.contains(&"wl_begin();"), "{body}");
            assert_eq!(order_with(body, &TURNS, followed()), expected, "{body}");
        }
    }

    #[test]
    fn an_overlapping_kernel_waits_at_every_exit() {
        let beside = || Options { overlaps_previous: true, ..Options::default() };
        let found = order_with(WAYS[1], &TURNS, beside());
        let ends = ["wl_wait();", "return;"];
        let expected =
            [&["wl_begin();", "wl_fresh();"], &ends[..], &["= x[", "y["], &ends].concat();
        assert_eq!(found, expected);
        for body in WAYS {
            let plain = order(body, &TURNS);
            let found = order_with(body, &TURNS, beside());
            assert_eq!(found[..2], ["wl_begin();", "wl_fresh();"], "{body}");
            let ways = found.iter().filter(|mark| **mark == "return;").count();
            assert_eq!(ways, plain.iter().filter(|mark| **mark == "return;").count(), "{body}");
            for (i, mark) in found.iter().enumerate() {
                let waits = *mark == "wl_wait();";
                let at_end = found.get(i + 1).is_none_or(|next| *next == "return;");
                assert!(!waits || at_end, "{body}: {found:?}");
                assert!(*mark != "return;" || found[i - 1] == "wl_wait();", "{body}: {found:?}");
            }
            assert!(found.last().is_some_and(|last| ends.contains(last)), "{body}: {found:?}");
        }
    }

    #[test]
    fn a_kernel_that_reads_ahead_takes_no_part_in_overlap() {
        let options = Options {
            reads_ahead: true,
            allows_overlap: true,
            overlaps_previous: true,
            ..Options::default()
        };
        assert_eq!(order_with(WAYS[0], &TURNS, options), ["= x[", "y[", "return;"]);
    }
}

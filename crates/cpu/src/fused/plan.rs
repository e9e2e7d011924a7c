//! Plans an expression: assigns its values to passes over tiles, and to registers.

use super::ops::{binary, cast, cost, unary};
use super::steps::StepOp;
use warploom_core::base::DType;
use warploom_core::error::Result;
use warploom_core::ir::ReduceOp;
use warploom_kernels::{Addressing, FusedExpr, Output, Stage, Value};

/// The passes of an expression, for one choice of the values kept between them.
pub(super) struct Plan {
    /// Values that are constant over the index space, evaluated once for many tiles.
    pub(super) uniform: Vec<Instruction>,
    /// Per-row values that need no reduction, evaluated before the first pass.
    pub(super) given: Vec<Instruction>,
    /// Passes over the rows, at least one.
    pub(super) passes: Vec<Pass>,
    /// Number of registers that hold all elements of the current rows; they come first.
    pub(super) held: usize,
    /// Number of the remaining registers, which hold one tile.
    pub(super) registers: usize,
    /// The operation of each reduction.
    pub(super) folds: Vec<ReduceOp>,
    /// Register of each output.
    pub(super) results: Vec<usize>,
}

/// One pass over the current rows.
#[derive(Default)]
pub(super) struct Pass {
    /// Instructions for each tile.
    pub(super) elements: Vec<Instruction>,
    /// Registers to accumulate after each tile, each with the index of its reduction.
    pub(super) folds: Vec<(usize, usize)>,
    /// Instructions for row values, executed after all tiles.
    pub(super) rows: Vec<Instruction>,
}

/// An instruction that writes one register.
#[derive(Clone, Copy, Debug)]
pub(super) enum Instruction {
    /// Loads elements of an input. If `direct` is set, the register may alias the input's memory.
    Load { input: usize, to: usize, direct: bool },
    /// Fills the register with one value.
    Fill { bits: u32, to: usize },
    /// Writes the flat element indices.
    Index { to: usize },
    /// Reads results of the surrounding kernel.
    Anchor { anchor: usize, to: usize },
    /// Executes an arithmetic step; `to` differs from the registers that it reads.
    Step { op: StepOp, to: usize, from: [usize; 3] },
    /// Writes the final result of a reduction for each row.
    Finish { fold: usize, to: usize },
    /// Broadcasts the value of each row to all of its elements.
    Spread { from: usize, to: usize },
}

/// Which values are kept from one pass to the next; the others are recomputed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// All values: the current rows fit in one tile.
    All,
    /// Values that cost more to recompute than to load.
    Costly,
    /// No values: rows are too long.
    Nothing,
}

/// Minimum cost of a value worth keeping, in the units of `ops::cost`.
const COSTLY: u32 = 4;

const NONE: usize = usize::MAX;

/// The values of an expression with the properties that planning needs.
pub(super) struct Values<'a> {
    expr: &'a FusedExpr,
    outputs: &'a [Output],
    stages: Vec<Stage>,
    /// For each value, whether there is one per row (neither per element nor constant).
    of_row: Vec<bool>,
    /// The step of each value that has one.
    steps: Vec<Option<StepOp>>,
    /// Cost of a value, including its operands.
    costs: Vec<u32>,
    /// Whether an output depends on the value.
    used: Vec<bool>,
    /// Whether the value is an output.
    written: Vec<bool>,
    types: &'a [DType],
}

impl<'a> Values<'a> {
    /// Analyses the values of an expression.
    ///
    /// # Errors
    /// Unsupported if an operation is undefined for the type of its operands.
    pub(super) fn new(
        expr: &'a FusedExpr,
        types: &'a [DType],
        outputs: &'a [Output],
    ) -> Result<Values<'a>> {
        let of = |a: u32| types[a as usize];
        let (mut steps, mut costs) = (Vec::new(), Vec::<u32>::new());
        for value in &expr.values {
            steps.push(match *value {
                Value::Unary(op, a) => Some(unary(op, of(a))?),
                Value::Binary(op, a, _) => Some(binary(op, of(a))?),
                Value::Select(..) => Some(StepOp::Select),
                Value::Cast(dtype, a) => Some(cast(of(a), dtype)),
                _ => None,
            });
            let own = steps.last().copied().flatten().map_or(0, cost);
            let operands = value.operands().map(|a| costs[a as usize]);
            costs.push(operands.fold(own, u32::saturating_add));
        }
        let (mut used, mut written) =
            (vec![false; expr.values.len()], vec![false; expr.values.len()]);
        for output in outputs {
            used[output.value as usize] = true;
            written[output.value as usize] = true;
        }
        for (v, value) in expr.values.iter().enumerate().rev() {
            if used[v] {
                value.operands().for_each(|a| used[a as usize] = true);
            }
        }
        let stages = expr.stages();
        let mut of_row = vec![false; expr.values.len()];
        for (v, value) in expr.values.iter().enumerate() {
            let read = matches!(value, Value::Input(i)
                if expr.inputs[*i as usize].addressing == Addressing::Row);
            let made = value.operands().any(|a| of_row[a as usize]);
            of_row[v] = !stages[v].element && (stages[v].after > 0 || read || made);
        }
        Ok(Values { expr, outputs, stages, of_row, steps, costs, used, written, types })
    }

    /// Returns the outputs that are written per element.
    fn of_elements(&self) -> impl Iterator<Item = &Output> {
        let outputs = self.outputs.iter().enumerate();
        outputs.filter(|(i, _)| !self.expr.writes_rows(*i)).map(|(_, output)| output)
    }

    fn is_uniform(&self, v: usize) -> bool {
        !self.stages[v].element && !self.of_row[v]
    }

    fn is_row(&self, v: usize) -> bool {
        self.of_row[v]
    }

    fn operands(&self, v: usize) -> impl Iterator<Item = usize> + use<> {
        self.expr.values[v].operands().map(|a| a as usize)
    }

    /// Returns the used reductions, each as value, operation and operand.
    fn reductions(&self) -> impl Iterator<Item = (usize, ReduceOp, usize)> + '_ {
        self.expr.values.iter().enumerate().filter(|(v, _)| self.used[*v]).filter_map(
            |(v, value)| match value {
                Value::Reduce(op, a) => Some((v, *op, *a as usize)),
                _ => None,
            },
        )
    }

    fn count_passes(&self) -> usize {
        let elements = self.of_elements().map(|output| self.stages[output.value as usize].after);
        let folds = self.reductions().map(|(.., a)| self.stages[a].after);
        elements.chain(folds).max().unwrap_or(0) as usize + 1
    }

    /// Returns the element values that a pass must produce.
    fn wanted(&self, pass: usize, last: bool) -> Vec<usize> {
        let folds = self.reductions().filter(|(.., a)| self.stages[*a].after as usize == pass);
        let mut wanted: Vec<usize> = folds.map(|(.., a)| a).collect();
        if last {
            wanted.extend(self.of_elements().map(|output| output.value as usize));
        }
        wanted
    }

    fn may_keep(&self, v: usize, keep: Keep) -> bool {
        match keep {
            Keep::All => true,
            Keep::Costly => self.costs[v] >= COSTLY,
            Keep::Nothing => false,
        }
    }

    /// Returns the element values that each pass evaluates, and the values that are kept between
    /// passes.
    fn lists(&self, keep: Keep) -> (Vec<Vec<usize>>, Vec<usize>) {
        let count = self.expr.values.len();
        let mut first = vec![NONE; count];
        let mut held = vec![false; count];
        let passes = self.count_passes();
        let mut lists = Vec::with_capacity(passes);
        for pass in 0..passes {
            let mut stack = self.wanted(pass, pass + 1 == passes);
            let mut here = vec![false; count];
            while let Some(v) = stack.pop() {
                if !self.stages[v].element || here[v] {
                    continue;
                }
                if first[v] < pass && self.may_keep(v, keep) {
                    held[v] = true;
                    continue;
                }
                here[v] = true;
                first[v] = first[v].min(pass);
                stack.extend(self.operands(v));
            }
            lists.push((0..count).filter(|v| here[*v]).collect());
        }
        (lists, (0..count).filter(|v| held[*v]).collect())
    }

    /// Returns, for each value, whether it is read per element. A row value must then be broadcast.
    fn spread(&self) -> Vec<bool> {
        let mut spread = vec![false; self.expr.values.len()];
        for v in (0..spread.len()).filter(|v| self.used[*v] && self.stages[*v].element) {
            self.operands(v).for_each(|a| spread[a] = true);
        }
        self.reductions().for_each(|(.., a)| spread[a] = true);
        for output in self.of_elements() {
            spread[output.value as usize] = true;
        }
        spread
    }

    /// Plans the passes and assigns registers.
    pub(super) fn plan(&self, keep: Keep) -> Plan {
        let (lists, held) = self.lists(keep);
        let mut places = Places::new(self.expr.values.len(), held.len());
        for (register, v) in held.iter().enumerate() {
            places.element[*v] = register;
        }
        let spread = self.spread();
        let mut uniform = Vec::new();
        for v in (0..spread.len()).filter(|v| self.used[*v] && !self.stages[*v].element) {
            let own = places.fresh();
            (places.row[v], places.element[v]) = (own, own);
            if self.is_uniform(v) {
                uniform.push(self.translate(v, own, &places.row));
            } else if spread[v] {
                places.element[v] = places.fresh();
            }
        }
        let mut plan = Plan {
            uniform,
            given: self.rows(0, &spread, &places),
            passes: Vec::with_capacity(lists.len()),
            held: held.len(),
            registers: 0,
            folds: self.reductions().map(|(_, op, _)| op).collect(),
            results: Vec::new(),
        };
        let base = places.next;
        for (pass, list) in lists.iter().enumerate() {
            let wanted = self.wanted(pass, pass + 1 == lists.len());
            let elements = self.elements(list, &held, &wanted, base, &mut places);
            let folds = self.reductions().enumerate();
            let folds = folds.filter(|(_, (.., a))| self.stages[*a].after as usize == pass);
            let folds = folds.map(|(fold, (.., a))| (places.element[a], fold)).collect();
            let rows = self.rows(pass + 1, &spread, &places);
            plan.passes.push(Pass { elements, folds, rows });
        }
        let result = |(i, output): (usize, &Output)| {
            let of_row = self.expr.writes_rows(i);
            let places = if of_row { &places.row } else { &places.element };
            places[output.value as usize]
        };
        plan.results = self.outputs.iter().enumerate().map(result).collect();
        plan.registers = places.most - held.len();
        plan
    }

    /// Assigns registers to the element values of one pass, and returns its instructions for a
    /// tile.
    fn elements(
        &self,
        list: &[usize],
        held: &[usize],
        wanted: &[usize],
        base: usize,
        places: &mut Places,
    ) -> Vec<Instruction> {
        let mut last = vec![NONE; self.expr.values.len()];
        for (at, v) in list.iter().enumerate() {
            self.operands(*v).for_each(|a| last[a] = at);
        }
        wanted.iter().for_each(|v| last[*v] = NONE);
        let mut free = Vec::new();
        places.next = base;
        let mut instructions = Vec::with_capacity(list.len());
        for (at, v) in list.iter().enumerate() {
            if !held.contains(v) {
                places.element[*v] = free.pop().unwrap_or_else(|| places.fresh());
            }
            instructions.push(self.translate(*v, places.element[*v], &places.element));
            for a in self.operands(*v) {
                // A repeated operand must not be freed twice.
                if last[a] == at && list.contains(&a) && !held.contains(&a) {
                    free.push(places.element[a]);
                    last[a] = NONE;
                }
            }
        }
        instructions
    }

    /// Returns the instructions for the row values that are computable once `after` passes are
    /// done.
    fn rows(&self, after: usize, spread: &[bool], places: &Places) -> Vec<Instruction> {
        let mut instructions = Vec::new();
        for v in (0..spread.len()).filter(|v| self.used[*v] && self.is_row(*v)) {
            if self.stages[v].after as usize != after {
                continue;
            }
            instructions.push(self.translate(v, places.row[v], &places.row));
            if spread[v] {
                instructions
                    .push(Instruction::Spread { from: places.row[v], to: places.element[v] });
            }
        }
        instructions
    }

    fn translate(&self, v: usize, to: usize, places: &[usize]) -> Instruction {
        match self.expr.values[v] {
            Value::Input(input) => {
                // A stored value must not alias memory that another output overwrites.
                let direct = self.types[v] != DType::Bool && !self.written[v];
                Instruction::Load { input: input as usize, to, direct }
            }
            Value::Constant(DType::Bool, bits) => {
                Instruction::Fill { bits: u32::from(bits != 0), to }
            }
            Value::Constant(dtype, bits) if dtype.is_half() => {
                Instruction::Fill { bits: bits & 0xffff, to }
            }
            Value::Constant(_, bits) => Instruction::Fill { bits, to },
            Value::Index => Instruction::Index { to },
            Value::Anchor(anchor) => Instruction::Anchor { anchor: anchor as usize, to },
            Value::Reduce(..) => {
                let fold = self.reductions().position(|(of, ..)| of == v).unwrap_or(NONE);
                Instruction::Finish { fold, to }
            }
            _ => {
                let mut from = [NONE; 3];
                self.operands(v).zip(&mut from).for_each(|(a, from)| *from = places[a]);
                Instruction::Step { op: self.steps[v].unwrap_or(StepOp::Copy), to, from }
            }
        }
    }
}

/// The registers assigned to values.
struct Places {
    /// Register of each value as a row value.
    row: Vec<usize>,
    /// Register of each value as an element value.
    element: Vec<usize>,
    next: usize,
    most: usize,
}

impl Places {
    fn new(values: usize, next: usize) -> Places {
        Places { row: vec![NONE; values], element: vec![NONE; values], next, most: next }
    }

    fn fresh(&mut self) -> usize {
        self.next += 1;
        self.most = self.most.max(self.next);
        self.next - 1
    }
}

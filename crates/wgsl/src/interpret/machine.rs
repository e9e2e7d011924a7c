//! Runs one invocation until it ends or must wait.

use super::bytecode::{Code, Op, Root, Slot};
use super::fault::{FaultKind, Trap};
use super::layout::{Cell, Layout};
use super::math::{self, Form, Function};
use super::memory::{self, Words};
use super::number::{binary, f, to_half, unary};
use super::packing;
use super::shadow::{How, Now, Shadow, WRITES};
use super::vectors;

/// Why an invocation stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    End,
    Barrier {
        storage: bool,
        workgroup: bool,
    },
    /// A subgroup operation, by index in [`Code::groups`].
    Subgroup(u32),
}

/// Cost of a function call, in steps.
const CALL_STEPS: u64 = 16;

/// The memory and checks of a run.
pub(super) struct Machine<'a> {
    pub(super) code: &'a Code,
    pub(super) regions: Vec<Words<'a>>,
    /// Number of elements of each region's runtime-sized array; 0 without one.
    pub(super) lengths: &'a [u32],
    pub(super) bounds: bool,
    pub(super) shadow: Option<Shadow>,
    pub(super) now: Now,
    /// Subgroup size.
    pub(super) width: u32,
}

/// Returns the layout of an atomic word.
fn atomic_word() -> Layout {
    Layout { cells: vec![(0, Cell::Word)], plain: true, atomic: true }
}

fn copy(r: &mut [u32], to: Slot, from: Slot, n: u32) {
    match n {
        1 => r[to as usize] = r[from as usize],
        _ => r.copy_within(from as usize..(from + n) as usize, to as usize),
    }
}

impl Machine<'_> {
    /// Runs an invocation from instruction `at` until it stops, with registers `r` and the
    /// remaining `steps`; returns the reason for the stop, and the next instruction.
    pub(super) fn resume(
        &mut self,
        r: &mut [u32],
        at: u32,
        steps: &mut u64,
    ) -> Result<(Stop, u32), Box<Trap>> {
        let code = self.code;
        let mut at = at as usize;
        loop {
            let op = &code.ops[at];
            at += 1;
            match *op {
                Op::Copy { to, from, n } => copy(r, to, from, n),
                Op::Jump { to } => at = to as usize,
                Op::Unless { condition, to } => {
                    if r[condition as usize] == 0 {
                        at = to as usize;
                    }
                }
                Op::Back { to } => {
                    self.spend(steps, (at - to as usize) as u64, at)?;
                    at = to as usize;
                }
                Op::Switch { selector, table } => {
                    let (value, table) = (r[selector as usize], &code.tables[table as usize]);
                    let case = table.cases.iter().find(|(case, _)| *case == value);
                    at = case.map_or(table.default, |(_, to)| *to) as usize;
                }
                Op::Call { to, back } => {
                    self.spend(steps, CALL_STEPS, at)?;
                    r[back as usize] = at as u32;
                    at = to as usize;
                }
                Op::Return { back } => at = r[back as usize] as usize,
                Op::End => return Ok((Stop::End, at as u32)),
                Op::Barrier { storage, workgroup } => {
                    return Ok((Stop::Barrier { storage, workgroup }, at as u32));
                }
                Op::Subgroup { table } => return Ok((Stop::Subgroup(table), at as u32)),
                Op::Binary { op, to, a, b, n: 1, .. } => {
                    r[to as usize] = binary(op, r[a as usize], r[b as usize]);
                }
                Op::Index { to, base, index, stride, count, root, signed } => {
                    let region = match root {
                        Root::Region(region) => Some(region),
                        Root::Own => None,
                    };
                    let count = match region {
                        Some(region) if count == 0 => self.lengths[region as usize],
                        _ => count,
                    };
                    let index = self.inside(r[index as usize], count, signed, at, region)?;
                    r[to as usize] = r[base as usize].wrapping_add(index.wrapping_mul(stride));
                }
                Op::Pick { to, from, index, count, n, signed } => {
                    let index = self.inside(r[index as usize], count, signed, at, None)?;
                    copy(r, to, from + index * n, n);
                }
                Op::Coop { table } => self.transfer(r, table, at as u32 - 1)?,
                Op::Load { .. } | Op::Store { .. } | Op::Atomic { .. } => {
                    self.access(r, op, at as u32 - 1)?;
                }
                Op::Length { to, region } => r[to as usize] = self.lengths[region as usize],
                _ => calculate(code, r, op),
            }
        }
    }

    fn spend(&self, steps: &mut u64, n: u64, at: usize) -> Result<(), Box<Trap>> {
        match steps.checked_sub(n) {
            Some(left) => {
                *steps = left;
                Ok(())
            }
            None => Err(self.trap(FaultKind::StepLimit, at - 1, None, String::new())),
        }
    }

    #[cold]
    pub(super) fn trap(
        &self,
        kind: FaultKind,
        op: usize,
        region: Option<u32>,
        detail: String,
    ) -> Box<Trap> {
        let (op, local) = (op as u32, self.now.local);
        Box::new(Trap { kind, op, local, other: None, region, detail })
    }

    /// Returns the index, clamped to the last element; if bounds are checked, an index out of
    /// bounds is a fault.
    fn inside(
        &self,
        index: u32,
        count: u32,
        signed: bool,
        at: usize,
        region: Option<u32>,
    ) -> Result<u32, Box<Trap>> {
        if index < count {
            return Ok(index);
        }
        if self.bounds {
            let shown = if signed { i64::from(index as i32) } else { i64::from(index) };
            let detail = format!("index {shown} of {count} elements");
            return Err(self.trap(FaultKind::OutOfBounds, at - 1, region, detail));
        }
        Ok(count.saturating_sub(1))
    }

    fn access(&mut self, r: &mut [u32], op: &Op, at: u32) -> Result<(), Box<Trap>> {
        let code = self.code;
        match *op {
            Op::Load { to, region, at: byte, layout } => {
                let (region, byte) = (region as usize, r[byte as usize]);
                let layout = &code.layouts[layout as usize];
                self.note(region, byte, layout, How::Read, at)?;
                let to = &mut r[to as usize..to as usize + layout.cells.len()];
                memory::load(self.regions[region], byte, layout, to);
            }
            Op::Store { region, at: byte, from, layout } => {
                let (region, byte) = (region as usize, r[byte as usize]);
                let layout = &code.layouts[layout as usize];
                let from = &r[from as usize..from as usize + layout.cells.len()];
                let noted = self.note(region, byte, layout, How::Write, at);
                noted.map_err(|trap| self.with_values(trap, region, byte, layout, from))?;
                memory::store(self.regions[region], byte, layout, from);
            }
            Op::Atomic { to, region, at: byte, value, fun } => {
                let (region, byte) = (region as usize, r[byte as usize]);
                if self.shadow.is_some() {
                    self.note(region, byte, &atomic_word(), How::Atomic, at)?;
                }
                let what = &code.atomics[fun as usize];
                let words = self.regions[region];
                let (old, held) = memory::atomic(words, byte, what, r[value as usize], r);
                if to != super::bytecode::NONE {
                    r[to as usize] = old;
                    if what.compare != super::bytecode::NONE {
                        r[to as usize + 1] = u32::from(held);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn note(
        &mut self,
        region: usize,
        byte: u32,
        layout: &Layout,
        how: How,
        op: u32,
    ) -> Result<(), Box<Trap>> {
        match &mut self.shadow {
            Some(shadow) => shadow.touch(region as u32, byte, layout, how, self.now, op),
            None => Ok(()),
        }
    }

    /// Adds to the detail of a write-write race whether both invocations wrote the same values.
    #[cold]
    fn with_values(
        &self,
        mut trap: Box<Trap>,
        region: usize,
        byte: u32,
        layout: &Layout,
        from: &[u32],
    ) -> Box<Trap> {
        if trap.detail.starts_with(WRITES) {
            let mut is = vec![0; from.len()];
            memory::load(self.regions[region], byte, layout, &mut is);
            let same = if is == from { "the same values" } else { "other values" };
            trap.detail.push_str(&format!(", with {same}"));
        }
        trap
    }
}

/// Executes instructions that access only registers.
fn calculate(code: &Code, r: &mut [u32], op: &Op) {
    match *op {
        Op::Zero { to, n } => r[to as usize..(to + n) as usize].fill(0),
        Op::Unary { op, to, a, n } => {
            for i in 0..usize::from(n) {
                r[to as usize + i] = unary(op, r[a as usize + i]);
            }
        }
        Op::Binary { op, to, a, b, n, steps } => {
            let (step_a, step_b) = (usize::from(steps & 1), usize::from(steps >> 1 & 1));
            for i in 0..usize::from(n) {
                let (a, b) = (r[a as usize + i * step_a], r[b as usize + i * step_b]);
                r[to as usize + i] = binary(op, a, b);
            }
        }
        Op::Halves { at, n } => {
            for register in &mut r[at as usize..(at + n) as usize] {
                *register = to_half(f(*register)).to_bits();
            }
        }
        Op::Select { to, condition, accept, reject, n, by_component } => {
            for i in 0..n as usize {
                let which = r[condition as usize + if by_component { i } else { 0 }];
                let from = if which != 0 { accept } else { reject };
                r[to as usize + i] = r[from as usize + i];
            }
        }
        Op::Swizzle { to, from, pattern, n } => {
            for (i, component) in pattern[..usize::from(n)].iter().enumerate() {
                r[to as usize + i] = r[from as usize + usize::from(*component)];
            }
        }
        Op::Join { to, from, n, all } => {
            let parts = &r[from as usize..from as usize + usize::from(n)];
            let joined = match all {
                true => parts.iter().all(|part| *part != 0),
                false => parts.iter().any(|part| *part != 0),
            };
            r[to as usize] = u32::from(joined);
        }
        Op::Math { fun, to, args, n, steps } => {
            let slots = &code.math[args as usize];
            for i in 0..usize::from(n) {
                let mut values = [0; 4];
                for (j, slot) in slots.iter().enumerate().take_while(|(_, s)| **s != u32::MAX) {
                    values[j] = r[*slot as usize + i * usize::from(steps >> j & 1)];
                }
                r[to as usize + i] = math::component(fun, values);
            }
        }
        Op::Whole { fun, to, args, n } => whole(r, fun, to, code.math[args as usize], n),
        Op::Matrix { to, a, b, rows, shared, columns } => {
            vectors::product(r, to, a, b, [rows, shared, columns]);
        }
        Op::Transpose { to, a, rows, columns } => vectors::transpose(r, to, a, rows, columns),
        Op::LoadOwn { to, at, n } => {
            let from = r[at as usize];
            copy(r, to, from, n);
        }
        Op::StoreOwn { at, from, n } => {
            let to = r[at as usize];
            copy(r, to, from, n);
        }
        _ => {}
    }
}

/// Executes a built-in function that does not work by component ([`Op::Whole`]).
fn whole(r: &mut [u32], fun: Function, to: Slot, args: [Slot; 4], n: u8) {
    let (at, n) = (to as usize, usize::from(n));
    let a = args[0] as usize;
    match math::form(fun.fun) {
        Form::Packed if packing::packs(fun.fun) => r[at] = packing::pack(fun.fun, &r[a..a + n]),
        Form::Packed => {
            let word = r[a];
            for i in 0..n {
                r[at + i] = packing::unpack(fun.fun, word, i);
            }
        }
        Form::Split => {
            for i in 0..n {
                (r[at + i], r[at + n + i]) = math::split(fun.fun, r[a + i]);
            }
        }
        Form::Matrix => r[at] = vectors::determinant(r, args[0], n).to_bits(),
        _ => vectors::geometry(r, fun, to, args, n),
    }
}

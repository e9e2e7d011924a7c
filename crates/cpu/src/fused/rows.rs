//! Evaluates launches with reductions: chooses which rows to evaluate together and how to tile
//! them.

use std::ops::Range;

use super::plan::{Instruction, Pass, Plan};
use super::run::{Frame, GRAIN, Launch, Tile};
use super::steps::{Fold, finish, nothing};
use super::{Addressing, Operands, TILE};
use crate::arch::Arch;
use crate::pool::Pool;

/// Maximum number of elements of the current rows for which costly values are kept between passes.
const HELD: usize = 16 << 10;

/// Smallest number of rows evaluated together column by column.
const SHORT: usize = 128;

/// How the current rows are split into tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// This number of whole rows forms one tile.
    Whole(usize),
    /// One row, tile by tile.
    Long,
    /// This number of rows, column by column: neighbours in memory belong to different rows.
    Columns(usize),
}

impl Cut {
    /// Returns the maximum number of current rows.
    fn rows(self) -> usize {
        match self {
            Cut::Whole(rows) | Cut::Columns(rows) => rows,
            Cut::Long => 1,
        }
    }
}

impl Launch<'_> {
    /// Evaluates every row.
    pub(super) fn all_rows(&self, arch: &Arch, pool: &Pool) {
        let (cols, plans) = (self.space.cols, &self.program.plans);
        let cut = self.cut(pool.threads());
        let kept = if cut.rows() * cols <= HELD { 1 } else { 2 };
        let plan = match cut {
            Cut::Whole(_) => &plans[0],
            // A single pass has a single plan.
            Cut::Long | Cut::Columns(_) => plans.get(kept).unwrap_or(&plans[0]),
        };
        let work = |range: Range<usize>| {
            let held_len = (cut.rows() * cols).max(TILE);
            Frame::with(plan, held_len, |frame| {
                // SAFETY: ranges of rows do not overlap, or there is one; the frame is the plan's.
                unsafe {
                    self.uniform(arch, plan, frame, TILE);
                    for first in range.clone().step_by(cut.rows()) {
                        let rows = cut.rows().min(range.end - first);
                        Rows { launch: self, arch, plan, cut, first, rows }.evaluate(frame);
                    }
                }
            });
        };
        match self.once {
            true => pool.split(self.space.rows, GRAIN / cols.max(1) + 1, cut.rows(), work),
            false => work(0..self.space.rows),
        }
    }

    fn cut(&self, threads: usize) -> Cut {
        let space = &self.space;
        if self.is_columnwise() {
            let passes = self.program.plans[0].passes.len();
            // With several passes, the rows stay in the L2 cache from pass to pass, unless a tile would be
            // so short that its steps cost more than another read of main memory.
            let most = if passes > 1 { (HELD * 4 / space.cols).clamp(SHORT, TILE) } else { TILE };
            let share = space.rows.div_ceil(threads).next_multiple_of(16);
            return Cut::Columns(most.min(share));
        }
        match space.cols <= TILE {
            true => Cut::Whole(TILE / space.cols.max(1)),
            false => Cut::Long,
        }
    }

    /// Whether, for most operands, neighbours in memory belong to different rows.
    fn is_columnwise(&self) -> bool {
        let Some(before) = self.space.rank.checked_sub(2) else { return false };
        let (last, cols) = (before + 1, self.space.cols);
        if cols < 2 || self.space.sizes[before] < 16 {
            return false;
        }
        let mut votes = 0i32;
        for place in self.places() {
            match place.addressing {
                Addressing::Flat => votes -= 1,
                Addressing::Strided if place.strides[last] == 1 => votes -= 1,
                Addressing::Strided if place.strides[last] > 1 && place.strides[before] == 1 => {
                    votes += 1;
                }
                Addressing::Strided | Addressing::Row | Addressing::Single => {}
            }
        }
        votes > 0
    }
}

/// The current rows.
struct Rows<'l, 'a> {
    launch: &'l Launch<'a>,
    arch: &'l Arch,
    plan: &'l Plan,
    cut: Cut,
    first: usize,
    rows: usize,
}

impl Rows<'_, '_> {
    /// Evaluates the current rows.
    ///
    /// # Safety
    /// The frame belongs to the plan and has room for the rows in its held registers; no other
    /// thread accesses these rows of the outputs.
    unsafe fn evaluate(&self, frame: &mut Frame<'_>) {
        for (fold, op) in self.plan.folds.iter().enumerate() {
            // SAFETY: each reduction has TILE partial results, and there are no more rows.
            unsafe {
                let partial = frame.folds.add(fold * TILE);
                std::slice::from_raw_parts_mut(partial, self.rows).fill(nothing(*op));
            }
        }
        // SAFETY: the caller's contract.
        unsafe { self.row_values(frame, &self.plan.given) };
        for (i, pass) in self.plan.passes.iter().enumerate() {
            let last = i + 1 == self.plan.passes.len();
            // SAFETY: the caller's contract.
            unsafe {
                self.tiles(frame, i == 0, |frame, tile, at| self.tile(frame, pass, tile, at, last));
                self.row_values(frame, &pass.rows);
            }
        }
        // SAFETY: the caller's contract.
        unsafe { self.store(frame) };
    }

    /// Calls `work` with every tile and its position in the held registers. `fresh` is set for the
    /// first pass.
    unsafe fn tiles(
        &self,
        frame: &mut Frame<'_>,
        fresh: bool,
        mut work: impl FnMut(&mut Frame<'_>, &Tile, usize),
    ) {
        let (space, cols) = (&self.launch.space, self.launch.space.cols);
        let (anchors, start) = ([std::ptr::null(); 2], self.first * cols);
        let mut index = space.index_of_row(self.first);
        let along = space.rank - 1;
        match self.cut {
            Cut::Whole(_) if cols == 0 => {}
            Cut::Whole(_) => {
                // Later passes reuse the values in the memory of the inputs.
                if fresh {
                    frame.turn(0);
                }
                let len = self.rows * cols;
                work(frame, &Tile { start, step: 1, len, index, along, anchors }, 0);
            }
            Cut::Long => {
                for c in (0..cols).step_by(TILE) {
                    let len = TILE.min(cols - c);
                    index[along] = c;
                    frame.turn(c);
                    let tile = Tile { start: start + c, step: 1, len, index, along, anchors };
                    work(frame, &tile, c);
                }
            }
            Cut::Columns(most) => {
                for c in 0..cols {
                    index[along] = c;
                    frame.turn(c * most);
                    let (start, step, len) = (start + c, cols, self.rows);
                    let tile = Tile { start, step, len, index, along: along - 1, anchors };
                    work(frame, &tile, c * most);
                }
            }
        }
    }

    /// Executes a pass for a tile; the last pass also writes the element outputs.
    ///
    /// # Safety
    /// Same as [`Rows::evaluate`], and the tile lies in these rows.
    unsafe fn tile(&self, frame: &mut Frame<'_>, pass: &Pass, tile: &Tile, at: usize, last: bool) {
        let (rows, cols) = match self.cut {
            Cut::Whole(_) => (self.rows, self.launch.space.cols),
            Cut::Long => (1, tile.len),
            Cut::Columns(_) => (self.rows, 1),
        };
        // SAFETY: the caller's contract.
        unsafe {
            self.launch.tile(self.arch, &pass.elements, frame, tile, at);
            for (register, fold) in &pass.folds {
                let from = frame.at[*register].cast();
                let (op, to) = (self.plan.folds[*fold], frame.folds.add(fold * TILE));
                (self.arch.fold)(&Fold { op, from, rows, cols, to });
            }
            if last {
                self.launch.store(self.plan, frame, tile);
            }
        }
    }

    /// Executes instructions for row values.
    ///
    /// # Safety
    /// Same as [`Rows::evaluate`].
    unsafe fn row_values(&self, frame: &mut Frame<'_>, instructions: &[Instruction]) {
        let cols = self.launch.space.cols;
        for instruction in instructions {
            // SAFETY: registers and partial results have room for TILE values: at most this number
            // of rows, or of elements of whole rows.
            unsafe {
                match *instruction {
                    Instruction::Load { input, to, .. } => {
                        let own = frame.write(to, 0);
                        self.launch.load(input, own, &self.of_rows(), false);
                    }
                    Instruction::Finish { fold, to } => {
                        let to = frame.write(to, 0).cast::<f32>();
                        let from = frame.folds.add(fold * TILE);
                        for r in 0..self.rows {
                            *to.add(r) = finish(self.plan.folds[fold], *from.add(r), cols);
                        }
                    }
                    Instruction::Spread { from, to } => {
                        let (from, to) = (frame.at[from], frame.write(to, 0));
                        let each = match self.cut {
                            Cut::Whole(_) => cols,
                            Cut::Long => cols.min(TILE),
                            Cut::Columns(_) => 1,
                        };
                        for r in 0..self.rows {
                            let to = to.add(r * each);
                            std::slice::from_raw_parts_mut(to, each).fill(*from.add(r));
                        }
                    }
                    Instruction::Step { op, to, from } => {
                        let null = std::ptr::null();
                        let from = from.map(|r| frame.at.get(r).copied().unwrap_or(null));
                        let to = frame.write(to, 0);
                        (self.arch.step)(op, &Operands { to, from, len: self.rows });
                    }
                    _ => warploom_core::error::broken_invariant(
                        "a value of elements among those of rows",
                    ),
                }
            }
        }
    }

    /// Returns the current rows as a tile with one element per row.
    fn of_rows(&self) -> Tile {
        let space = &self.launch.space;
        let index = space.index_of_row(self.first);
        // A single row lies along a nonexistent dimension, of size 1.
        let along = space.rank.checked_sub(2).unwrap_or(5);
        let (start, step, len, anchors) = (self.first, 1, self.rows, [std::ptr::null(); 2]);
        Tile { start, step, len, index, along, anchors }
    }

    /// Writes the row outputs.
    ///
    /// # Safety
    /// Same as [`Rows::evaluate`], and all passes are done.
    unsafe fn store(&self, frame: &Frame<'_>) {
        let tile = self.of_rows();
        for (i, sink) in self.launch.program.outputs.iter().enumerate() {
            if sink.of_row {
                // SAFETY: the caller's contract.
                unsafe { self.launch.store_one(i, frame.at[self.plan.results[i]], &tile) };
            }
        }
    }
}

//! One launch of a translated expression: tiles, their loads and stores.

use std::cell::RefCell;
use std::ops::Range;

use smallvec::SmallVec;

use super::place::{Place, Placed, Space, Words};
use super::plan::{Instruction, Plan};
use super::{Addressing, Operands, Program, TILE};
use crate::arch::Arch;
use crate::call::{Call, Input, Out, volume};
use warploom_core::base::DType;
use warploom_core::error::{Error, Result};

/// Number of elements below which a launch uses one thread.
pub(super) const GRAIN: usize = 16 << 10;

/// One cache line; aligns the registers.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "room that is reached by pointers only")] [u32; 16]);

thread_local! {
    /// Registers of this thread, reused from launch to launch.
    static REGISTERS: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

/// An input that is read tile by tile.
pub(super) enum Source<'a> {
    Memory(Input<'a, u32>),
    /// Two-byte elements.
    Halves(Input<'a, u16>),
    /// The memory of an output, with the same addressing.
    InPlace(Out<'a>),
}

/// An output and the addresses of its elements.
pub(super) struct Target<'a> {
    pub(super) out: Out<'a>,
    pub(super) place: Place,
}

/// A program with its operands, ready to be evaluated at any point of its index space.
pub(crate) struct Launch<'a> {
    pub(super) program: &'a Program,
    pub(super) space: Space,
    /// Whether threads may share the work, since each output element is written once.
    pub(super) once: bool,
    sources: SmallVec<[(Source<'a>, Place); 4]>,
    pub(super) targets: SmallVec<[Target<'a>; 2]>,
}

/// Evaluates `program` with the parameters and buffers of `call`.
///
/// # Errors
/// Invalid if the parameters do not fit the buffers.
pub(crate) fn run(program: &Program, call: &Call<'_>) -> Result<()> {
    let mut words = Words::new(call.params, 0);
    let n = words.next()?;
    let mut sizes = [1; 6];
    for size in &mut sizes[..program.rank] {
        *size = words.next()?;
    }
    let sizes = &sizes[..program.rank];
    if volume(sizes) != n as u64 {
        return Err(Error::invalid(format!("{n} elements of an index space of {sizes:?}")));
    }
    let of_rows = program.outputs.iter().any(|sink| sink.of_row);
    if n == 0 && (!of_rows || volume(&sizes[..sizes.len() - 1]) == 0) {
        return Ok(());
    }
    let reads = call.names.len() - program.writes();
    let placed = Placed::new(program, call, sizes, &mut words, reads, None)?;
    let outs: SmallVec<[Out<'_>; 4]> = placed.outs().collect();
    let launch = placed.bind(call, 0, &outs)?;
    let (arch, pool) = (call.context.arch, &call.context.pool);
    if program.reduces {
        launch.all_rows(arch, pool);
    } else if launch.once {
        // SAFETY: ranges do not overlap, and every element is written once.
        pool.split(n, GRAIN, TILE, |range| unsafe { launch.elements(arch, range, [NO_ANCHOR; 2]) });
    } else {
        // SAFETY: one thread evaluates all.
        unsafe { launch.elements(arch, 0..n, [NO_ANCHOR; 2]) };
    }
    Ok(())
}

/// Anchor pointer of programs without anchors.
const NO_ANCHOR: *const f32 = std::ptr::null();

/// Elements that are evaluated together: `len` of them along dimension `along`.
pub(super) struct Tile {
    /// Flat index of the first element, and the step to the next.
    pub(super) start: usize,
    pub(super) step: usize,
    pub(super) len: usize,
    /// Index of the first element in each dimension.
    pub(super) index: [usize; 6],
    pub(super) along: usize,
    /// Addresses of the anchor values of the first element.
    pub(super) anchors: [*const f32; 2],
}

/// The registers of a thread for one plan.
pub(super) struct Frame<'m> {
    /// Address of each register's values: its own memory, or an input's.
    pub(super) at: SmallVec<[*const u32; 32]>,
    held: usize,
    held_len: usize,
    /// Memory of the held registers, then of the registers of one tile.
    base: *mut u32,
    /// `TILE` partial results for each reduction.
    pub(super) folds: *mut f64,
    memory: std::marker::PhantomData<&'m mut Line>,
}

impl Frame<'_> {
    /// Calls `work` with the registers of this thread; each held register has room for `held_len`
    /// words.
    pub(super) fn with(plan: &Plan, held_len: usize, work: impl FnOnce(&mut Frame<'_>)) {
        REGISTERS.with_borrow_mut(|memory| {
            const LINE: usize = size_of::<Line>() / size_of::<u32>();
            let held_len = held_len.next_multiple_of(LINE);
            let words = plan.held * held_len + plan.registers * TILE;
            let lines = (words + plan.folds.len() * TILE * 2) / LINE;
            if memory.len() < lines {
                memory.resize(lines, Line([0; 16]));
            }
            let base = memory.as_mut_ptr().cast::<u32>();
            work(&mut Frame {
                at: SmallVec::from_elem(base.cast_const(), plan.held + plan.registers),
                held: plan.held,
                held_len,
                base,
                // SAFETY: the partial results follow the words, in the same allocation; both are
                // whole lines.
                folds: unsafe { base.add(words) }.cast(),
                memory: std::marker::PhantomData,
            });
        });
    }

    /// Returns the memory of a register. In a held register, the tile starts at word `at`.
    fn own(&self, register: usize, at: usize) -> *mut u32 {
        let place = match register.checked_sub(self.held) {
            None => register * self.held_len + at,
            Some(later) => self.held * self.held_len + later * TILE,
        };
        // SAFETY: `with` made room for all.
        unsafe { self.base.add(place) }
    }

    /// Points each held register at the tile that starts at its word `at`.
    pub(super) fn turn(&mut self, at: usize) {
        for register in 0..self.held {
            self.at[register] = self.own(register, at);
        }
    }

    /// Points a register at its own memory and returns that memory, to be written.
    pub(super) fn write(&mut self, register: usize, at: usize) -> *mut u32 {
        let own = self.own(register, at);
        self.at[register] = own;
        own
    }
}

impl<'a> Launch<'a> {
    /// Returns the places of all operands.
    pub(super) fn places(&self) -> impl Iterator<Item = &Place> {
        let sources = self.sources.iter().map(|(_, place)| place);
        sources.chain(self.targets.iter().map(|target| &target.place))
    }

    pub(super) fn new(
        program: &'a Program,
        space: Space,
        once: bool,
        sources: SmallVec<[(Source<'a>, Place); 4]>,
        targets: SmallVec<[Target<'a>; 2]>,
    ) -> Launch<'a> {
        Launch { program, space, once, sources, targets }
    }

    /// Evaluates elements of a program without reductions. `anchors` are the results of the
    /// surrounding kernel for these elements.
    ///
    /// # Safety
    /// The range lies inside the index space, each anchor that the program has points to a float
    /// for each element of the range, and no other thread accesses these elements of the outputs.
    pub(crate) unsafe fn elements(
        &self,
        arch: &Arch,
        range: Range<usize>,
        anchors: [*const f32; 2],
    ) {
        let plan = &self.program.plans[0];
        Frame::with(plan, 0, |frame| {
            let along = self.space.rank.saturating_sub(1);
            // SAFETY: the caller's contract.
            unsafe {
                self.uniform(arch, plan, frame, TILE.min(range.len()));
                for start in range.clone().step_by(TILE) {
                    let anchors = anchors.map(|p| p.wrapping_add(start - range.start));
                    let (len, index) = (TILE.min(range.end - start), self.space.index(start));
                    let tile = Tile { start, step: 1, len, index, along, anchors };
                    self.tile(arch, &plan.passes[0].elements, frame, &tile, 0);
                    self.store(plan, frame, &tile);
                }
            }
        });
    }

    /// Evaluates the values that are constant over the index space into `len` elements of each
    /// register.
    ///
    /// # Safety
    /// Same as [`Launch::elements`].
    pub(super) unsafe fn uniform(
        &self,
        arch: &Arch,
        plan: &Plan,
        frame: &mut Frame<'_>,
        len: usize,
    ) {
        let anchors = [NO_ANCHOR; 2];
        let tile = Tile { start: 0, step: 1, len, index: [0; 6], along: 0, anchors };
        // SAFETY: the caller's contract; no element is accessed.
        unsafe { self.tile(arch, &plan.uniform, frame, &tile, 0) };
    }

    /// Executes instructions for a tile, which starts at word `at` of the held registers.
    ///
    /// # Safety
    /// The frame belongs to the program's plan, the tile lies inside the index space, and no other
    /// thread accesses its elements of the outputs.
    pub(super) unsafe fn tile(
        &self,
        arch: &Arch,
        instructions: &[Instruction],
        frame: &mut Frame<'_>,
        tile: &Tile,
        at: usize,
    ) {
        for instruction in instructions {
            // SAFETY: the caller's contract; every register has room for a tile.
            unsafe {
                match *instruction {
                    Instruction::Load { input, to, direct } => {
                        let own = frame.write(to, at);
                        frame.at[to] = self.load(input, own, tile, direct);
                    }
                    Instruction::Fill { bits, to } => {
                        let to = frame.write(to, at);
                        std::slice::from_raw_parts_mut(to, tile.len).fill(bits);
                    }
                    Instruction::Index { to } => {
                        let to = frame.write(to, at);
                        for i in 0..tile.len {
                            *to.add(i) = (tile.start + i * tile.step) as u32;
                        }
                    }
                    Instruction::Anchor { anchor, to } => {
                        frame.at[to] = tile.anchors[anchor].cast();
                    }
                    Instruction::Step { op, to, from } => {
                        let null = std::ptr::null();
                        let from = from.map(|r| frame.at.get(r).copied().unwrap_or(null));
                        let to = frame.write(to, at);
                        (arch.step)(op, &Operands { to, from, len: tile.len });
                    }
                    Instruction::Finish { .. } | Instruction::Spread { .. } => {
                        warploom_core::error::broken_invariant(
                            "a value of rows among those of elements",
                        )
                    }
                }
            }
        }
    }

    /// Loads elements of an input and returns their address: `to`, or the input's own memory if
    /// `direct` allows it.
    ///
    /// # Safety
    /// Same as [`Launch::tile`], and `to` has room for a tile.
    pub(super) unsafe fn load(
        &self,
        input: usize,
        to: *mut u32,
        tile: &Tile,
        direct: bool,
    ) -> *const u32 {
        let (source, place) = &self.sources[input];
        let dtype = self.program.inputs[input].dtype;
        // SAFETY: the addresses of the tile lie inside the extent that was checked.
        unsafe {
            let from = match source {
                Source::Halves(input) => return self.widened(place, tile, input.as_ptr(), to),
                Source::InPlace(out) if dtype.is_half() => {
                    return self.widened(place, tile, out.at(0).cast::<u16>(), to);
                }
                Source::Memory(input) => input.as_ptr(),
                Source::InPlace(out) => out.at(0).cast::<u32>().cast_const(),
            };
            let mut at = to.cast_const();
            self.runs(place, tile, |done, address, stride, count| {
                let (to, from) = (to.add(done), from.add(address));
                match stride {
                    1 if direct && count == tile.len => at = from,
                    1 => from.copy_to_nonoverlapping(to, count),
                    0 => std::slice::from_raw_parts_mut(to, count).fill(*from),
                    _ => (0..count).for_each(|i| *to.add(i) = *from.add(i * stride)),
                }
            });
            if dtype == DType::Bool {
                for i in 0..tile.len {
                    *to.add(i) = u32::from(*to.add(i) != 0);
                }
            }
            at
        }
    }

    /// Loads two-byte elements, each zero-extended to a word at `to`; returns `to`.
    ///
    /// # Safety
    /// Same as [`Launch::load`].
    unsafe fn widened(
        &self,
        place: &Place,
        tile: &Tile,
        from: *const u16,
        to: *mut u32,
    ) -> *const u32 {
        self.runs(place, tile, |done, address, stride, count| {
            // SAFETY: the caller's contract.
            unsafe {
                let (to, from) = (to.add(done), from.add(address));
                match stride {
                    0 => std::slice::from_raw_parts_mut(to, count).fill((*from).into()),
                    _ => (0..count).for_each(|i| *to.add(i) = (*from.add(i * stride)).into()),
                }
            }
        });
        to
    }

    /// Writes the element outputs.
    ///
    /// # Safety
    /// Same as [`Launch::tile`], and all instructions for the tile have been executed.
    pub(super) unsafe fn store(&self, plan: &Plan, frame: &Frame<'_>, tile: &Tile) {
        for (i, sink) in self.program.outputs.iter().enumerate() {
            if !sink.of_row {
                // SAFETY: the caller's contract.
                unsafe { self.store_one(i, frame.at[plan.results[i]], tile) };
            }
        }
    }

    /// Writes one output.
    ///
    /// # Safety
    /// Same as [`Launch::tile`], and `from` holds the values of the tile.
    pub(super) unsafe fn store_one(&self, output: usize, from: *const u32, tile: &Tile) {
        let target = &self.targets[output];
        // SAFETY: the addresses of the tile lie inside the extent that was checked.
        unsafe {
            if self.program.outputs[output].operand.dtype.is_half() {
                let to = target.out.at(0).cast::<u16>();
                self.runs(&target.place, tile, |done, address, stride, count| {
                    let (to, from) = (to.add(address), from.add(done));
                    (0..count).for_each(|i| *to.add(i * stride) = *from.add(i) as u16);
                });
                return;
            }
            let to = target.out.at(0).cast::<u32>();
            self.runs(&target.place, tile, |done, address, stride, count| {
                let (to, from) = (to.add(address), from.add(done));
                match stride {
                    // The values may already be in place: anchors of a prologue.
                    1 => from.copy_to(to, count),
                    0 => *to = *from.add(count - 1),
                    _ => (0..count).for_each(|i| *to.add(i * stride) = *from.add(i)),
                }
            });
        }
    }

    /// Splits a tile into runs of constant stride, and calls `run` with each one's position in the
    /// tile, address, stride and count.
    #[inline(always)]
    fn runs(&self, place: &Place, tile: &Tile, mut run: impl FnMut(usize, usize, usize, usize)) {
        match place.addressing {
            Addressing::Flat => return run(0, tile.start, tile.step, tile.len),
            Addressing::Single => return run(0, 0, 0, tile.len),
            Addressing::Strided | Addressing::Row => {}
        }
        let (space, mut index) = (&self.space, tile.index);
        let mut done = 0;
        while done < tile.len {
            let count = (space.sizes[tile.along] - index[tile.along]).min(tile.len - done);
            let address = (0..space.rank).map(|d| index[d] * place.strides[d]).sum();
            run(done, address, place.strides[tile.along], count);
            done += count;
            index[tile.along] += count;
            for d in (1..=tile.along).rev() {
                if index[d] == space.sizes[d] {
                    index[d] = 0;
                    index[d - 1] += 1;
                }
            }
        }
    }
}

impl Space {
    /// Returns the index of an element in each dimension.
    pub(super) fn index(&self, flat: usize) -> [usize; 6] {
        self.unravel(flat, self.rank)
    }

    /// Returns the index of the first element of a row in each dimension.
    pub(super) fn index_of_row(&self, row: usize) -> [usize; 6] {
        self.unravel(row, self.rank - 1)
    }

    fn unravel(&self, mut rest: usize, dims: usize) -> [usize; 6] {
        let mut index = [0; 6];
        for d in (0..dims).rev() {
            index[d] = rest % self.sizes[d].max(1);
            rest /= self.sizes[d].max(1);
        }
        index
    }
}

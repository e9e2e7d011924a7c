//! One launch of a fused kernel.

use std::cell::RefCell;

use smallvec::SmallVec;

use super::{Addressing, Instruction, Operand, Program, Registers, TILE};
use crate::base::DType;
use crate::cpu::call::{Call, Input, Out, extent};
use crate::error::{Error, Result};

/// Elements below which a launch stays on one thread.
const GRAIN: usize = 16 << 10;

thread_local! {
    /// Registers of this thread, kept from launch to launch.
    static REGISTERS: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

/// Where the elements of an operand lie, relative to its first.
struct Place {
    addressing: Addressing,
    offset: usize,
    strides: [usize; 6],
    /// Elements from the first to the last.
    extent: u64,
}

/// An input that is read in tiles.
enum Source<'a> {
    Memory(Input<'a, u32>),
    /// The output's own memory, addressed in the same way: an element is read by the tile that
    /// writes it, before it is written.
    InPlace,
}

struct Launch<'a> {
    program: &'a Program,
    sizes: [usize; 6],
    sources: SmallVec<[(Source<'a>, Place); 4]>,
    out: Out<'a>,
    to: Place,
}

/// Evaluates `program` with the parameters and buffers of `call`.
///
/// # Errors
/// Invalid, where parameters do not fit the buffers.
pub(in crate::cpu) fn run(program: &Program, call: &Call<'_>) -> Result<()> {
    let mut words = call.params.iter().map(|w| *w as usize);
    let mut next = || words.next().ok_or_else(|| Error::invalid("too few parameters"));
    let n = next()?;
    let mut sizes = [1; 6];
    for size in &mut sizes[..program.rank] {
        *size = next()?;
    }
    if n == 0 {
        return Ok(());
    }
    let mut place = |operand: &Operand| -> Result<Place> {
        let mut place =
            Place { addressing: operand.addressing, offset: next()?, strides: [0; 6], extent: 1 };
        match operand.addressing {
            Addressing::Flat => place.extent = n as u64,
            Addressing::Single => {}
            Addressing::Strided => {
                let mut dims = [(1, 0); 6];
                for d in 0..program.rank {
                    place.strides[d] = next()?;
                    dims[d] = (sizes[d], place.strides[d]);
                }
                let elements = crate::cpu::call::volume(&sizes);
                if elements != n as u64 {
                    return Err(Error::invalid(format!(
                        "{n} elements of an index space of {elements}"
                    )));
                }
                place.extent = extent(&dims);
            }
        }
        Ok(place)
    };
    let mut places = SmallVec::<[Place; 4]>::new();
    for operand in &program.inputs {
        places.push(place(operand)?);
    }
    let to = place(&program.output)?;
    let out = call.output(to.offset, to.extent)?;
    let mut sources = SmallVec::new();
    for (binding, place) in places.into_iter().enumerate() {
        let same = place.addressing == to.addressing
            && place.strides == to.strides
            && call.shares_start(binding, place.offset, &out);
        let source = if same {
            call.check::<u32>(binding, place.offset, place.extent)?;
            Source::InPlace
        } else {
            Source::Memory(call.input(binding, place.offset, place.extent, &out)?)
        };
        sources.push((source, place));
    }
    let launch = Launch { program, sizes, sources, out, to };
    if launch.writes_once() {
        call.context.pool.split(n, GRAIN, TILE, |range| launch.range(call, range));
    } else {
        launch.range(call, 0..n);
    }
    Ok(())
}

impl Launch<'_> {
    /// Whether no two elements certainly have one address in the output. Elsewhere the launch
    /// stays on one thread, and the last element wins.
    fn writes_once(&self) -> bool {
        match self.to.addressing {
            Addressing::Flat => true,
            Addressing::Single => false,
            Addressing::Strided => {
                let mut dims: SmallVec<[(usize, usize); 6]> =
                    (0..6).map(|d| (self.to.strides[d], self.sizes[d])).collect();
                dims.retain(|(_, size)| *size > 1);
                dims.sort_unstable();
                let mut reach = 0u64;
                dims.iter().all(|(stride, size)| {
                    let apart = *stride as u64 > reach;
                    reach += *stride as u64 * (*size as u64 - 1);
                    apart
                })
            }
        }
    }

    fn range(&self, call: &Call<'_>, range: std::ops::Range<usize>) {
        REGISTERS.with_borrow_mut(|memory| {
            let words = self.program.registers * TILE;
            if memory.len() < words {
                memory.resize(words, 0);
            }
            for start in range.clone().step_by(TILE) {
                let len = TILE.min(range.end - start);
                // SAFETY: the memory holds every register, and only this thread has it. The tile
                // lies below n; every address was checked against its binding, and no other
                // thread writes to the elements of this tile.
                unsafe { self.tile(call, Registers { base: memory.as_mut_ptr(), len }, start) };
            }
        });
    }

    /// # Safety
    /// The registers hold the program's, the tile lies inside the index space, and no other
    /// thread touches its elements of the output.
    unsafe fn tile(&self, call: &Call<'_>, registers: Registers, start: usize) {
        for instruction in &self.program.instructions {
            // SAFETY: the caller's contract.
            unsafe {
                match instruction {
                    Instruction::Load { input, to } => {
                        let (source, place) = &self.sources[*input];
                        let from = match source {
                            Source::Memory(input) => input.as_ptr(),
                            Source::InPlace => self.out.at(0).cast::<u32>().cast_const(),
                        };
                        let to = registers.base.add(to * TILE);
                        self.load(from, place, to, start, registers.len);
                        if self.program.inputs[*input].dtype == DType::Bool {
                            for i in 0..registers.len {
                                *to.add(i) = u32::from(*to.add(i) != 0);
                            }
                        }
                    }
                    Instruction::Fill { bits, to } => {
                        let to = registers.base.add(to * TILE);
                        std::slice::from_raw_parts_mut(to, registers.len).fill(*bits);
                    }
                    Instruction::Index { to } => {
                        let to = registers.base.add(to * TILE);
                        for i in 0..registers.len {
                            *to.add(i) = (start + i) as u32;
                        }
                    }
                    Instruction::Step(step) => (call.context.arch.step)(step, &registers),
                }
            }
        }
        // SAFETY: the result is one of the registers; the rest is the caller's contract.
        unsafe {
            let from = registers.base.add(self.program.result * TILE);
            self.store(from, start, registers.len);
        }
    }

    /// # Safety
    /// As [`Launch::tile`].
    unsafe fn load(&self, from: *const u32, place: &Place, to: *mut u32, start: usize, len: usize) {
        // SAFETY: the addresses of the tile lie inside the extent that was checked.
        unsafe {
            match place.addressing {
                Addressing::Flat => from.add(start).copy_to_nonoverlapping(to, len),
                Addressing::Single => std::slice::from_raw_parts_mut(to, len).fill(*from),
                Addressing::Strided => {
                    self.runs(place, start, len, |at, address, stride, count| {
                        let (to, from) = (to.add(at), from.add(address));
                        match stride {
                            1 => from.copy_to_nonoverlapping(to, count),
                            0 => std::slice::from_raw_parts_mut(to, count).fill(*from),
                            _ => (0..count).for_each(|i| *to.add(i) = *from.add(i * stride)),
                        }
                    })
                }
            }
        }
    }

    /// # Safety
    /// As [`Launch::tile`].
    unsafe fn store(&self, from: *const u32, start: usize, len: usize) {
        // SAFETY: the addresses of the tile lie inside the extent that was checked.
        unsafe {
            let to = self.out.at(0).cast::<u32>();
            match self.to.addressing {
                Addressing::Flat => from.copy_to_nonoverlapping(to.add(start), len),
                Addressing::Single => *to = *from.add(len - 1),
                Addressing::Strided => {
                    self.runs(&self.to, start, len, |at, address, stride, count| {
                        for i in 0..count {
                            *to.add(address + i * stride) = *from.add(at + i);
                        }
                    })
                }
            }
        }
    }

    /// Cuts a tile into runs along the innermost dimension: place in the tile, address, stride
    /// and count of each.
    fn runs(
        &self,
        place: &Place,
        start: usize,
        len: usize,
        mut run: impl FnMut(usize, usize, usize, usize),
    ) {
        let rank = self.program.rank;
        let mut index = [0; 6];
        let mut rest = start;
        for d in (0..rank).rev() {
            index[d] = rest % self.sizes[d];
            rest /= self.sizes[d];
        }
        let Some(last) = rank.checked_sub(1) else {
            return run(0, 0, 0, len);
        };
        let mut at = 0;
        while at < len {
            let count = (self.sizes[last] - index[last]).min(len - at);
            let address = (0..rank).map(|d| index[d] * place.strides[d]).sum();
            run(at, address, place.strides[last], count);
            at += count;
            index[last] += count;
            for d in (1..rank).rev() {
                if index[d] == self.sizes[d] {
                    index[d] = 0;
                    index[d - 1] += 1;
                }
            }
        }
    }
}

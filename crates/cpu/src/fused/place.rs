//! Operand addresses of a launch: read from parameters and checked against the bindings.

use smallvec::SmallVec;

use super::run::{Launch, Source, Target};
use super::{Addressing, Operand, Program, Sink};
use crate::call::{Call, Out, extent, volume};
use warploom_core::error::{Error, Result};

/// Sequential reader of parameter words.
pub(crate) struct Words<'a>(std::slice::Iter<'a, u32>);

impl<'a> Words<'a> {
    /// Creates a reader that starts at word `start`.
    pub(crate) fn new(params: &'a [u32], start: usize) -> Words<'a> {
        Words(params.get(start..).unwrap_or(&[]).iter())
    }

    /// Reads the next word.
    ///
    /// # Errors
    /// Invalid if there are no more words.
    pub(crate) fn next(&mut self) -> Result<usize> {
        let word = self.0.next().ok_or_else(|| Error::invalid("too few parameters"))?;
        Ok(*word as usize)
    }
}

/// The index space of a launch.
pub(super) struct Space {
    pub(super) rank: usize,
    /// Number of elements.
    pub(super) n: usize,
    pub(super) sizes: [usize; 6],
    /// Number of rows, and their length.
    pub(super) rows: usize,
    pub(super) cols: usize,
}

impl Space {
    fn new(sizes: &[usize]) -> Result<Space> {
        let mut space = Space { rank: sizes.len(), n: 0, sizes: [1; 6], rows: 0, cols: 0 };
        space.sizes[..sizes.len()].copy_from_slice(sizes);
        space.cols = sizes.last().copied().unwrap_or(1);
        let rows = volume(&sizes[..sizes.len().saturating_sub(1)]);
        let n = volume(sizes);
        // Words have 32 bits: no tensor has more elements.
        if rows.max(n) > u64::from(u32::MAX) {
            return Err(Error::invalid(format!("an index space of {sizes:?}")));
        }
        (space.rows, space.n) = (rows as usize, n as usize);
        Ok(space)
    }
}

/// Addresses of an operand's elements, relative to its first element.
pub(super) struct Place {
    pub(super) addressing: Addressing,
    pub(super) strides: [usize; 6],
    offset: usize,
    /// Number of elements from the first to the last.
    extent: u64,
}

impl Place {
    fn new(operand: &Operand, space: &Space, words: &mut Words<'_>, of_row: bool) -> Result<Place> {
        let addressing = operand.addressing;
        let mut place = Place { addressing, strides: [0; 6], offset: words.next()?, extent: 1 };
        match addressing {
            Addressing::Flat => place.extent = space.n as u64,
            Addressing::Single => {}
            Addressing::Strided | Addressing::Row => {
                let mut dims = [(1, 0); 6];
                for (d, dim) in dims.iter_mut().enumerate().take(space.rank) {
                    place.strides[d] = words.next()?;
                    *dim = (space.sizes[d], place.strides[d]);
                }
                if of_row || addressing == Addressing::Row {
                    dims[space.rank - 1] = (1, 0);
                    place.strides[space.rank - 1] = 0;
                }
                place.extent = extent(&dims);
            }
        }
        Ok(place)
    }

    /// Returns whether no two elements share an address; false if the strides do not prove it.
    fn is_injective(&self, space: &Space, of_row: bool) -> bool {
        match self.addressing {
            Addressing::Flat => true,
            Addressing::Single => (if of_row { space.rows } else { space.n }) <= 1,
            Addressing::Strided | Addressing::Row => {
                let used = if of_row { space.rank - 1 } else { space.rank };
                let mut dims: SmallVec<[(usize, usize); 6]> =
                    (0..used).map(|d| (self.strides[d], space.sizes[d])).collect();
                dims.retain(|(_, size)| *size > 1);
                dims.sort_unstable();
                let mut reach = 0u64;
                dims.iter().all(|(stride, size)| {
                    let apart = *stride as u64 > reach;
                    reach = reach.saturating_add(*stride as u64 * (*size as u64 - 1));
                    apart
                })
            }
        }
    }
}

/// The operands of a launch. Outputs are checked; inputs are checked later by [`Placed::bind`],
/// which needs to know the outputs of all bodies of the launch.
pub(crate) struct Placed<'a> {
    program: &'a Program,
    space: Space,
    inputs: SmallVec<[Place; 4]>,
    targets: SmallVec<[Target<'a>; 2]>,
}

impl<'a> Placed<'a> {
    /// Reads the words of the operands over an index space with these sizes. The outputs' binding 0
    /// is the kernel's binding `first`. The result of a prologue goes to `result`.
    ///
    /// # Errors
    /// Invalid if words are missing or an output exceeds its binding.
    pub(crate) fn new(
        program: &'a Program,
        call: &Call<'a>,
        sizes: &[usize],
        words: &mut Words<'_>,
        first: usize,
        result: Option<Out<'a>>,
    ) -> Result<Placed<'a>> {
        let space = Space::new(sizes)?;
        let mut inputs = SmallVec::new();
        for operand in &program.inputs {
            inputs.push(Place::new(operand, &space, words, false)?);
        }
        let mut targets = SmallVec::new();
        for sink in &program.outputs {
            let target = match result.filter(|_| program.returns) {
                Some(out) => {
                    let place = Place {
                        addressing: Addressing::Flat,
                        strides: [0; 6],
                        offset: 0,
                        extent: space.n as u64,
                    };
                    Target { out, place }
                }
                None => {
                    let place = Place::new(&sink.operand, &space, words, sink.of_row)?;
                    let binding = first + sink.operand.binding as usize;
                    let out = match sink.operand.dtype.is_half() {
                        true => call.f16_of(binding, place.offset, place.extent)?,
                        false => call.output_of(binding, place.offset, place.extent)?,
                    };
                    Target { out, place }
                }
            };
            targets.push(target);
        }
        Ok(Placed { program, space, inputs, targets })
    }

    /// Returns whether the strides prove that each element of every output is written once.
    pub(crate) fn writes_once(&self) -> bool {
        let sinks = self.targets.iter().zip(&self.program.outputs);
        sinks.into_iter().all(|(target, sink)| target.place.is_injective(&self.space, sink.of_row))
    }

    /// Returns the outputs.
    pub(crate) fn outs(&self) -> impl Iterator<Item = Out<'a>> + '_ {
        self.targets.iter().map(|target| target.out)
    }

    /// Checks the inputs. Their binding 0 is the kernel's binding `first`; `outs` are all outputs
    /// that are written while the inputs are read.
    ///
    /// # Errors
    /// Invalid if an input exceeds its binding.
    pub(crate) fn bind(
        self,
        call: &Call<'a>,
        first: usize,
        outs: &[Out<'a>],
    ) -> Result<Launch<'a>> {
        let once = self.writes_once();
        let mut sources = SmallVec::new();
        for (operand, place) in self.program.inputs.iter().zip(self.inputs) {
            let binding = first + operand.binding as usize;
            // An input at the same addresses as an output is read by the tile that writes it, in
            // all passes before the write.
            let half = operand.dtype.is_half();
            let same = |(target, sink): &(&Target<'_>, &Sink)| {
                let starts = match half {
                    true => call.shares_start::<u16>(binding, place.offset, &target.out),
                    false => call.shares_start::<u32>(binding, place.offset, &target.out),
                };
                target.place.addressing == place.addressing
                    && target.place.strides == place.strides
                    && sink.operand.dtype.is_half() == half
                    && starts
            };
            let mut targets = self.targets.iter().zip(&self.program.outputs);
            let (offset, extent) = (place.offset, place.extent);
            let source = match (targets.find(|target| once && same(target)), half) {
                (Some((target, _)), true) => {
                    call.check::<u16>(binding, offset, extent)?;
                    Source::InPlace(target.out)
                }
                (Some((target, _)), false) => {
                    call.check::<u32>(binding, offset, extent)?;
                    Source::InPlace(target.out)
                }
                (None, true) => Source::Halves(call.input_apart(binding, offset, extent, outs)?),
                (None, false) => Source::Memory(call.input_apart(binding, offset, extent, outs)?),
            };
            sources.push((source, place));
        }
        Ok(Launch::new(self.program, self.space, once, sources, self.targets))
    }
}

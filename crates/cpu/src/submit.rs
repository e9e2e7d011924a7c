//! Executes prepared work: first all checks, then the steps in order.

use smallvec::SmallVec;

use super::call::{Call, Context, Span};
use super::clock::Clock;
use super::memory::Memory;
use super::prepare::{Body, Place, Prepared, Step, fits};
use warploom_core::error::{Error, Result};
use warploom_hal::{Args, Completion, Counters, UploadSource};

/// Resolved slots and parameters of the current work; reused, so that a submit allocates nothing.
#[derive(Default)]
pub(super) struct Scratch {
    spans: Vec<Span>,
    words: Vec<u32>,
    /// Start of each work item in `spans` and in `words`.
    starts: Vec<(usize, usize)>,
}

impl Scratch {
    pub(super) fn clear(&mut self) {
        self.spans.clear();
        self.words.clear();
        self.starts.clear();
    }

    /// Resolves the slots and parameters of one more work item.
    ///
    /// # Errors
    /// Invalid if a slot has no buffer or is bound twice, if a buffer is not live or is too small,
    /// or if a symbol is not bound.
    pub(super) fn resolve(&mut self, work: &Prepared, args: &Args, memory: &Memory) -> Result<()> {
        self.resolve_inner(work, args, memory)
            .map_err(|e| e.context(format!("recording {:?}", work.label)))
    }

    fn resolve_inner(&mut self, work: &Prepared, args: &Args, memory: &Memory) -> Result<()> {
        self.starts.push((self.spans.len(), self.words.len()));
        for (i, slot) in work.slots.iter().enumerate() {
            let given = args.buffers.iter().find(|(to, _)| *to as usize == i);
            let range = match (slot.fixed, given) {
                (Some(range), None) => range,
                (None, Some((_, range))) => {
                    fits(&slot.decl, *range)?;
                    *range
                }
                (fixed, _) => {
                    let what =
                        if fixed.is_some() { "has a buffer already" } else { "has no buffer" };
                    return Err(Error::invalid(format!("slot {i} {:?} {what}", slot.decl.name)));
                }
            };
            let span = memory.span(range);
            self.spans.push(span.map_err(|e| e.context(format!("slot {:?}", slot.decl.name)))?);
        }
        let start = self.words.len();
        self.words.extend_from_slice(&work.words);
        for (place, word) in &work.changing {
            self.words[start + place] = word.eval(&args.symbols)?;
        }
        Ok(())
    }

    /// Executes the resolved work item at `index`, and adds its results to `done`.
    ///
    /// # Errors
    /// Invalid, naming the step, if an access exceeds its buffer; the remaining steps are skipped.
    pub(super) fn run(
        &self,
        index: usize,
        work: &Prepared,
        args: &Args,
        machine: &Machine<'_>,
        counters: &mut Counters,
        done: &mut Completion,
    ) -> Result<()> {
        let (spans, words) = self.starts[index];
        let mut run = Run {
            spans: &self.spans[spans..spans + work.slots.len()],
            words: &self.words[words..words + work.words.len()],
            args,
            machine,
            counters,
            done,
        };
        for step in &work.steps {
            run.step(step).map_err(|e| match step {
                Step::Dispatch { label, .. } => {
                    e.context(format!("recording {:?}, {label:?}", work.label))
                }
                _ => e.context(format!("recording {:?}", work.label)),
            })?;
        }
        Ok(())
    }
}

/// The parts of a device that execute work: threads, vector functions and the clock.
pub(super) struct Machine<'a> {
    pub(super) context: &'a Context,
    pub(super) clock: &'a Clock,
}

struct Run<'a> {
    spans: &'a [Span],
    words: &'a [u32],
    args: &'a Args,
    machine: &'a Machine<'a>,
    counters: &'a mut Counters,
    done: &'a mut Completion,
}

impl Run<'_> {
    fn step(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Dispatch { kernel, params, bindings, grid, .. } => {
                let mut groups = [0; 3];
                for (groups, size) in groups.iter_mut().zip(grid) {
                    *groups = size.eval_size(&self.args.symbols)?;
                }
                if groups.contains(&0) {
                    return Ok(());
                }
                let spans: SmallVec<[Span; 8]> = bindings
                    .iter()
                    .map(|(slot, offset, bytes)| {
                        // The slot's buffer holds its declared bytes, and the binding lies in
                        // those; both were checked.
                        let ptr = self.spans[*slot].ptr.wrapping_add(*offset as usize);
                        Span { ptr, bytes: *bytes }
                    })
                    .collect();
                let call = Call {
                    params: &self.words[params.clone()],
                    spans: &spans,
                    format: kernel.format,
                    in_order: kernel.in_order,
                    token: kernel.token,
                    names: &kernel.bindings,
                    fusion: kernel.fusion.as_ref(),
                    context: self.machine.context,
                };
                self.counters.dispatches += 1;
                match &kernel.body {
                    Body::Function(function) => function(&call),
                    Body::Fused(program) => super::fused::run(program, &call),
                    Body::Source(source) => source.run(&call, groups),
                }
            }
            Step::Upload { to, source } => self.upload(to, source),
            Step::Copy { from, to } => {
                let (from, to) = (self.place(from)?, self.place(to)?);
                if from.bytes != to.bytes {
                    let (from, to) = (from.bytes, to.bytes);
                    return Err(Error::invalid(format!("a copy of {from} bytes to {to} bytes")));
                }
                // SAFETY: both ranges are checked; `copy` allows them to overlap.
                unsafe { from.ptr.copy_to(to.ptr, to.bytes as usize) };
                Ok(())
            }
            Step::Clear(place) => {
                let to = self.place(place)?;
                // SAFETY: the range is checked.
                unsafe { to.ptr.write_bytes(0, to.bytes as usize) };
                Ok(())
            }
            Step::Download(place) => {
                let from = self.place(place)?;
                // SAFETY: the range is checked, initialised, and nothing writes meanwhile.
                let bytes = unsafe { std::slice::from_raw_parts(from.ptr, from.bytes as usize) };
                self.done.downloads.push(bytes.to_vec());
                self.counters.downloaded_bytes += from.bytes;
                Ok(())
            }
            Step::Timestamp => {
                self.done.timestamps.push(self.machine.clock.nanoseconds());
                Ok(())
            }
        }
    }

    fn upload(&mut self, to: &Place, source: &UploadSource) -> Result<()> {
        let bytes = match source {
            UploadSource::Data(bytes) => bytes,
            UploadSource::Arg(index) => {
                let have = self.args.uploads.len();
                self.args.uploads.get(*index as usize).ok_or_else(|| {
                    Error::invalid(format!("upload {index} is missing, {have} were given"))
                })?
            }
        };
        let to = self.place(to)?;
        // Ranges are whole words; the bytes need not be.
        if (bytes.len() as u64).checked_next_multiple_of(4) != Some(to.bytes) {
            let have = bytes.len();
            return Err(Error::invalid(format!("an upload of {have} bytes to {} bytes", to.bytes)));
        }
        // SAFETY: the range is checked, and host bytes are never part of a device's buffer.
        unsafe { bytes.as_ptr().copy_to_nonoverlapping(to.ptr, bytes.len()) };
        self.counters.uploaded_bytes += bytes.len() as u64;
        Ok(())
    }

    fn place(&self, place: &Place) -> Result<Span> {
        let offset = place.offset.eval(&self.args.symbols)?;
        let bytes = place.bytes.eval(&self.args.symbols)?;
        let span = self.spans[place.slot];
        let end = offset.checked_add(bytes);
        if end.is_none_or(|end| end > span.bytes)
            || !offset.is_multiple_of(4)
            || !bytes.is_multiple_of(4)
        {
            return Err(Error::invalid(format!(
                "{bytes} bytes from byte {offset} of slot {} with {}; both are multiples of 4",
                place.slot, span.bytes
            )));
        }
        Ok(Span { ptr: span.ptr.wrapping_add(offset as usize), bytes })
    }
}

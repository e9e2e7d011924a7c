//! Prologue and epilogue fusion into catalogue kernels: the translated expressions (*bodies*), and
//! their use by kernels.
//!
//! A kernel calls [`rows`] if a prologue may change its input, and writes to a [`Sink`] if an
//! epilogue may change its output: results go to thread-local memory, and the body stores what it
//! computes from them. Products with a weight matrix may have several bodies, one for each segment
//! of the weight rows: see [`parts`].

use std::cell::Cell;
use std::ops::Range;

use smallvec::SmallVec;

use super::arch::{Arch, Normalise};
use super::call::{Call, Out, volume};
use super::fused::{Launch, Placed, Program, Role, Words};
use warploom_core::error::{Error, Result};
use warploom_kernels::catalogue::Entry;
use warploom_kernels::{Access, KernelFusion, fusion};

/// Number of elements below which the prologue runs on one thread.
const GRAIN: usize = 16 << 10;

thread_local! {
    /// Results of this thread that a body has yet to consume.
    static ROOM: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// A translated [`KernelFusion`].
pub(super) struct Epilogue {
    /// Binding of the norm's weight, if rows are normalised.
    norm: Option<usize>,
    prologue: Option<Program>,
    /// Number of anchors and the body of each segment.
    segments: Vec<(usize, Program)>,
    /// Indices of the first parameter words of the norm, of the prologue and of the segments; all
    /// follow the kernel's own words.
    words: [usize; 3],
    /// Binding of the fusion's first input (`reads`) and of the first output (`writes`).
    reads: usize,
    writes: usize,
}

impl Epilogue {
    /// Checks and translates the fusion of a kernel.
    ///
    /// # Errors
    /// Invalid if it is malformed; unsupported if the kernel does not accept it.
    pub(super) fn new(name: &str, entry: &Entry, attachment: &KernelFusion) -> Result<Epilogue> {
        if let Some(fault) = attachment.fault() {
            return Err(Error::invalid(fault));
        }
        fusion::supports(name, attachment).map_err(Error::unsupported)?;
        let own = entry.bindings.iter().filter(|(_, access)| *access == Access::Read).count();
        let norm = entry.params.len();
        let prologue = norm + if attachment.norm.is_some() { 2 } else { 0 };
        let words = attachment.prologue.as_ref().map_or(0, |body| body.operand_words() as usize);
        let body = |body, role| Program::new(body, role);
        Ok(Epilogue {
            norm: attachment.norm.map(|n| own + n as usize),
            prologue: match &attachment.prologue {
                Some(expr) => Some(body(expr, Role::Prologue)?),
                None => None,
            },
            segments: attachment
                .segments
                .iter()
                .map(|s| Ok((s.anchors as usize, body(&s.body, Role::Segment(s.anchors))?)))
                .collect::<Result<_>>()?,
            words: [norm, prologue, prologue + words],
            reads: own,
            writes: own + attachment.reads() as usize,
        })
    }

    /// Returns the names and accesses of all bindings: inputs of the kernel, inputs of the fusion,
    /// outputs.
    pub(super) fn bindings(
        &self,
        entry: &Entry,
        attachment: &KernelFusion,
    ) -> Vec<(&'static str, Access)> {
        let of = |wanted: Access| {
            entry.bindings.iter().copied().filter(move |(_, access)| *access == wanted)
        };
        let mut bindings: Vec<_> = of(Access::Read).collect();
        bindings.resize(self.writes, ("fusion", Access::Read));
        match attachment.writes() as usize {
            0 => bindings.extend(of(Access::ReadWrite)),
            writes => bindings.resize(self.writes + writes, ("out", Access::ReadWrite)),
        }
        bindings
    }
}

/// An input that is read in rows of `cols` values, which are `col_stride` elements apart. `first`
/// returns the index of a row's first element.
pub(super) struct Read<'x, F> {
    pub(super) x: &'x [f32],
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) first: F,
    pub(super) col_stride: usize,
}

/// Returns the rows as changed by the prologue and the norm, contiguous in `room`, or `None` if the
/// kernel has neither. `room` is a parameter so that a thread can reuse it.
///
/// # Errors
/// Invalid if an operand exceeds its binding.
pub(super) fn rows<'r, F: Fn(usize) -> usize + Sync>(
    call: &Call<'_>,
    read: &Read<'_, F>,
    room: &'r mut Vec<f32>,
) -> Result<Option<&'r [f32]>> {
    let Some(fusion) = call.fusion else { return Ok(None) };
    if fusion.norm.is_none() && fusion.prologue.is_none() {
        return Ok(None);
    }
    let (rows, cols) = (read.rows, read.cols);
    let count = usize::try_from(volume(&[rows, cols])).ok().filter(|n| *n <= u32::MAX as usize);
    let count = count.ok_or_else(|| Error::invalid(format!("{rows} rows of {cols}")))?;
    if room.len() < count {
        room.resize(count, 0.0);
    }
    let room = &mut room[..count];
    if let Some(program) = &fusion.prologue {
        let words = &mut Words::new(call.params, fusion.words[1]);
        let out = Out::of(room);
        let sizes = [rows, cols];
        let placed = Placed::new(program, call, &sizes, words, fusion.writes, Some(out))?;
        // All inputs are read before the kernel writes anything.
        let launch = placed.bind(call, fusion.reads, &[])?;
        call.context.pool.split(count, GRAIN, 1, |range| {
            let mut at = range.start;
            while at < range.end {
                let (row, col) = (at / cols, at % cols);
                let len = (cols - col).min(range.end - at);
                let x = &read.x[(read.first)(row) + col * read.col_stride..];
                // SAFETY: these elements of the room belong to this chunk alone; they are both the
                // anchor and the result.
                unsafe {
                    let to = out.slice(at, len);
                    match read.col_stride {
                        1 => to.copy_from_slice(&x[..len]),
                        stride => (0..len).for_each(|i| to[i] = x[i * stride]),
                    }
                    let anchor = to.as_ptr();
                    launch.elements(call.context.arch, at..at + len, [anchor; 2]);
                }
                at += len;
            }
        });
    }
    if let Some(binding) = fusion.norm {
        normalise(call, fusion, binding, read, room)?;
    }
    Ok(Some(room))
}

/// RMS-normalises rows: those in `room` if a prologue computed them, else the input rows, whose
/// columns are contiguous.
fn normalise<F: Fn(usize) -> usize + Sync>(
    call: &Call<'_>,
    fusion: &Epilogue,
    binding: usize,
    read: &Read<'_, F>,
    room: &mut [f32],
) -> Result<()> {
    let cols = read.cols;
    let mut words = Words::new(call.params, fusion.words[0] + 1);
    let (eps, offset) = (call.float(fusion.words[0]), words.next()?);
    let w = call.input_apart::<f32>(binding, offset, cols as u64, &[])?;
    let made = fusion.prologue.is_some();
    let (arch, out) = (call.context.arch, Out::of(room));
    call.context.pool.split(read.rows, GRAIN / cols.max(1) + 1, 1, |range| {
        for row in range {
            // SAFETY: the row lies inside the room and inside the input; it belongs to this chunk
            // alone. `normalise` may work in place.
            unsafe {
                let y = out.at(row * cols);
                let x = match made {
                    true => y.cast_const(),
                    false => read.x[(read.first)(row)..][..cols].as_ptr(),
                };
                let square = (arch.sum_squares)(x, cols, 0.0) / cols as f32;
                let scale = 1.0 / (square + eps).sqrt();
                let (w, b) = (w.as_ptr(), std::ptr::null());
                (arch.normalise)(&Normalise { x, w, b, y, n: cols, shift: 0.0, scale });
            }
        }
    });
    Ok(())
}

/// Destination of a kernel's results: its output, or the body of its segment.
#[expect(clippy::large_enum_variant, reason = "one on the stack of a launch; a box would allocate")]
pub(super) enum Sink<'a> {
    Store(Out<'a>),
    Body { launch: Launch<'a>, outs: SmallVec<[Out<'a>; 2]>, len: usize },
}

impl<'a> Sink<'a> {
    /// Creates the destination for results over an index space with these sizes. Without an
    /// epilogue, the output starts at element `offset`.
    ///
    /// # Errors
    /// Invalid if an operand exceeds its binding.
    pub(super) fn new(call: &Call<'a>, offset: usize, sizes: [usize; 3]) -> Result<Sink<'a>> {
        let body = call.fusion.and_then(|a| Some((a, &a.segments.first()?.1)));
        let Some((fusion, program)) = body else {
            return Ok(Sink::Store(call.output(offset, volume(&sizes))?));
        };
        let words = &mut Words::new(call.params, fusion.words[2]);
        let placed = Placed::new(program, call, &sizes, words, fusion.writes, None)?;
        let placed = once(placed)?;
        let outs: SmallVec<[Out<'a>; 2]> = placed.outs().collect();
        let launch = placed.bind(call, fusion.reads, &outs)?;
        Ok(Sink::Body { launch, outs, len: volume(&sizes) as usize })
    }

    /// Returns the number of results.
    pub(super) fn len(&self) -> usize {
        match self {
            Sink::Store(out) => out.len(),
            Sink::Body { len, .. } => *len,
        }
    }

    /// Returns the outputs.
    pub(super) fn outs(&self) -> &[Out<'a>] {
        match self {
            Sink::Store(out) => std::slice::from_ref(out),
            Sink::Body { outs, .. } => outs,
        }
    }

    /// Stores the results `start .. start + len`, which `make` writes to the slice passed to it.
    /// The initial content of the slice is unspecified.
    ///
    /// # Safety
    /// The results lie inside the index space, and no other thread stores any of them.
    pub(super) unsafe fn fill(
        &self,
        arch: &Arch,
        start: usize,
        len: usize,
        make: impl FnOnce(&mut [f32]),
    ) {
        match self {
            // SAFETY: the caller's contract.
            Sink::Store(out) => make(unsafe { out.slice(start, len) }),
            Sink::Body { launch, .. } => {
                let mut room = ROOM.take();
                if room.len() < len {
                    room.resize(len, 0.0);
                }
                make(&mut room[..len]);
                // SAFETY: the caller's contract; the room holds the results.
                unsafe { launch.elements(arch, start..start + len, [room.as_ptr(); 2]) };
                ROOM.set(room);
            }
        }
    }
}

fn once(placed: Placed<'_>) -> Result<Placed<'_>> {
    match placed.writes_once() {
        true => Ok(placed),
        false => Err(Error::invalid("elements of a segment's output share addresses")),
    }
}

/// A segment of a product with the weight matrix w.
pub(super) struct Part<'a> {
    /// Number of rows of w per evaluation; they are `distance` rows apart.
    pub(super) anchors: usize,
    pub(super) distance: usize,
    /// Number of evaluations for each row of x.
    pub(super) count: usize,
    pub(super) launch: Launch<'a>,
    /// Evaluation 0 starts at row `first` of w. A run has `run` evaluations, `stride` rows apart;
    /// the next run starts `next` rows later.
    first: usize,
    run: usize,
    stride: usize,
    next: usize,
}

/// Segments and outputs of a product with a weight matrix.
pub(super) type Parts<'a> = (SmallVec<[Part<'a>; 2]>, SmallVec<[Out<'a>; 4]>);

/// Reads the segments of a product of `m` rows of x and `n` rows of w; `None` if the product
/// stores its results unchanged.
///
/// # Errors
/// Invalid if an operand exceeds its binding or a segment exceeds the rows of w.
pub(super) fn parts<'a>(call: &Call<'a>, m: usize, n: usize) -> Result<Option<Parts<'a>>> {
    let Some(fusion) = call.fusion.filter(|a| !a.segments.is_empty()) else {
        return Ok(None);
    };
    let table = warploom_kernels::SEGMENT_WORDS as usize * fusion.segments.len();
    let mut tables = Words::new(call.params, fusion.words[2]);
    let mut words = Words::new(call.params, fusion.words[2] + table);
    let mut placed = SmallVec::<[_; 2]>::new();
    let mut outs = SmallVec::<[Out<'a>; 4]>::new();
    for (i, (anchors, program)) in fusion.segments.iter().enumerate() {
        let mut next = || tables.next();
        let [first, size0, size1] = [next()?, next()?, next()?];
        let [stride0, stride1, distance] = [next()?, next()?, next()?];
        let steps = [(size0, stride0), (size1, stride1), (*anchors, distance)];
        let rows = super::call::extent(&steps);
        if rows > 0 && rows.saturating_add(first as u64) > n as u64 {
            return Err(Error::invalid(format!(
                "segment {i} reaches row {} of w, which has {n}",
                (rows - 1).saturating_add(first as u64)
            )));
        }
        let sizes = [m, size0, size1];
        let one = Placed::new(program, call, &sizes, &mut words, fusion.writes, None)?;
        let one = once(one)?;
        outs.extend(one.outs());
        let steps = match (size0, size1) {
            (_, 1) => (size0, stride0, 0),
            _ if stride0 as u64 == volume(&[size1, stride1]) => (size0 * size1, stride1, 0),
            _ => (size1, stride1, stride0),
        };
        placed.push((one, *anchors, distance, size0 * size1, first, steps));
    }
    let mut parts = SmallVec::new();
    for (one, anchors, distance, count, first, (run, stride, next)) in placed {
        let launch = one.bind(call, fusion.reads, &outs)?;
        if m > 0 && count > 0 {
            parts.push(Part { anchors, distance, count, launch, first, run, stride, next });
        }
    }
    Ok(Some((parts, outs)))
}

impl Part<'_> {
    /// Splits a range of evaluations into runs. Calls `run` with each one's position in the range,
    /// its first row of w for anchor `anchor`, the row stride and the number of evaluations.
    pub(super) fn runs(
        &self,
        range: Range<usize>,
        anchor: usize,
        mut run: impl FnMut(usize, usize, usize, usize),
    ) {
        let mut at = range.start;
        while at < range.end {
            let (major, minor) = (at / self.run, at % self.run);
            let count = (self.run - minor).min(range.end - at);
            let row = self.first + major * self.next + minor * self.stride;
            run(at - range.start, row + anchor * self.distance, self.stride, count);
            at += count;
        }
    }
}

#[cfg(test)]
mod test_case;
#[cfg(test)]
mod tests;

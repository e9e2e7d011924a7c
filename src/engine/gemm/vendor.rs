//! GEMM as a call to a vendor's library (cuBLASLt), with its bias and ReLU epilogues.
//!
//! Operands are both `f32`, or both of one two-byte type. The pass `fuse` proposes the latter if
//! the operands of a product are converted to `f32` first. That loses nothing, since products of
//! f16 are exact in `f32` and sums are `f32`. A two-byte weight with an `f32` operand is converted
//! by a separate launch, which is worth its time with many rows. Integer products are not
//! supported: every such operation has block scales.

use smallvec::{SmallVec, smallvec};

use crate::base::{self, DType, Dim, Format, Shape};
use crate::engine::attention::single_pass::units;
use crate::engine::elementwise::convert;
use crate::engine::gemm::batched::{batched, last_two};
use crate::engine::lowering::{Lowering, StepBinding, View};
use crate::engine::{
    Cost, Engine, EngineId, Notes, OTHER_OPERATION, Query, ReductionOrder, SegmentBody, Sums,
};
use crate::error::{Error, Result};
use crate::ir::{BinaryOp, Op, UnaryOp};
use crate::kernel::{Access, Epilogue, Gemm, GemmCompute, KernelSpec, Routine, Value};
use crate::provider::Word;

/// Estimated f16 speed, as a multiple of the estimated f32 peak: on an H200, cuBLAS reaches 765
/// Tflop/s in f16, and the estimated f32 peak is 39.6 Tflop/s.
pub(in crate::engine) const HALVES: f64 = 19.3;
/// Estimated f32 speed, as a multiple of the same peak: cuBLAS reaches 51 Tflop/s.
const SINGLES: f64 = 1.29;
/// Overhead of a call, in launch times: a call cannot be part of a captured graph.
pub(in crate::engine) const CALL: f64 = 4.0;
/// Assumed rows and columns of the tiles of the library.
pub(in crate::engine) const TILE: f64 = 128.0;
/// Maximum of each size of a call.
pub(in crate::engine) const MOST: u64 = i32::MAX as u64;

/// Maximum matrices per batch: with more, some kernels of the library have no valid grid.
const MOST_MATRICES: u64 = 65_535;

/// Engine `cuda.cublaslt.matmul`.
pub(in crate::engine) struct Library {
    id: EngineId,
}

/// The epilogue of a call and the destination of its result.
pub(in crate::engine) struct Finish {
    pub(in crate::engine) epilogue: Epilogue,
    bias: Option<View>,
    pub(in crate::engine) result: DType,
    pub(in crate::engine) to: View,
    /// Elements from one matrix of the result to the next, and from one row to the next.
    pub(in crate::engine) steps: [Dim; 2],
}

/// A matrix operand with its memory layout.
pub(in crate::engine) struct Matrix {
    pub(in crate::engine) view: View,
    pub(in crate::engine) batch: Dim,
    pub(in crate::engine) stride: Dim,
    pub(in crate::engine) transposed: bool,
}

impl Library {
    pub(in crate::engine) fn new() -> Library {
        Library { id: EngineId::new("cuda.cublaslt.matmul") }
    }
}

/// Returns the element type of an operand that is stored as plain floats.
pub(in crate::engine) fn stored(view: &View) -> Option<DType> {
    match view.format {
        Format::Plain(dtype) if dtype.is_float() => Some(dtype),
        _ => None,
    }
}

/// Returns the type in which the operands are multiplied.
fn operand_type(query: &Query) -> Result<DType, String> {
    let [a, b] = query.operands else { return Err("it needs two operands".into()) };
    let linear = matches!(query.op, Op::Linear { .. });
    match (stored(a), stored(b)) {
        (Some(a), Some(b)) if a == b => Ok(a),
        // The weight is converted.
        (Some(DType::F32), Some(_)) if linear => Ok(DType::F32),
        _ => Err(format!("operands of {} and {}", a.format, b.format)),
    }
}

/// Returns the number of matrices, m, n and k, at the upper ends of the shape class.
pub(in crate::engine) fn sizes(query: &Query) -> Option<[u64; 4]> {
    let dims = query.output.shape.dims();
    let n = query.upper(dims.last()?).ok()?;
    let k = query.upper(query.operands.first()?.shape.dims().last()?).ok()?;
    let product = |dims: &[Dim]| {
        let mut sizes = dims.iter().map(|dim| query.upper(dim).ok());
        sizes.try_fold(1u64, |all, size| all.checked_mul(size?))
    };
    match query.op {
        Op::MatMul => {
            let lead = dims.len().checked_sub(2)?;
            Some([product(&dims[..lead])?, query.upper(&dims[lead]).ok()?, n, k])
        }
        _ => Some([1, product(&dims[..dims.len() - 1])?, n, k]),
    }
}

impl Finish {
    /// Returns the epilogue and the destination of a query.
    ///
    /// # Errors
    /// Returns the reason if a call does not support them.
    pub(in crate::engine) fn of(query: &Query) -> Result<Finish, String> {
        let fusion = query.fusion;
        if fusion.is_some_and(|fusion| fusion.norm.is_some() || fusion.prologue.is_some()) {
            return Err("a call reads operands as they lie".into());
        }
        match fusion.map_or(&[][..], |fusion| &fusion.segments) {
            [] => {
                let to = query.output;
                let rank = to.shape.rank();
                let row = to.shape.dims().last().cloned().unwrap_or_else(|| Dim::new(1));
                let rows = rank.checked_sub(2).map(|axis| to.shape[axis].clone());
                let matrix = row.clone() * rows.unwrap_or_else(|| Dim::new(1));
                let (epilogue, bias, result) = (Epilogue::None, None, DType::F32);
                Ok(Finish { epilogue, bias, result, to: to.clone(), steps: [matrix, row] })
            }
            [segment] => Finish::segment(query, segment),
            _ => Err("a call stores one result".into()),
        }
    }

    fn segment(query: &Query, segment: &SegmentBody) -> Result<Finish, String> {
        let columns = query.output.shape.dims().last().cloned().unwrap_or_else(|| Dim::new(1));
        let SegmentBody { body, strides, sizes, steps, .. } = segment;
        if matches!(query.op, Op::Linear { .. }) {
            let whole = segment.anchors == 1 && segment.first_row.is(0);
            let [s0, s1] = sizes;
            if !(whole && s0.is(1) && *s1 == columns && steps[1].is(1)) {
                return Err("a call computes whole rows, in order".into());
            }
        }
        let ([(to, value)], Some(to_strides)) = (&body.outputs[..], strides.last()) else {
            return Err("a call stores one result".into());
        };
        let [outer, inner, step] = &to_strides[..] else {
            return Err("a call stores rows".into());
        };
        if !step.is(1) && !columns.is(1) {
            return Err("a call stores rows without gaps".into());
        }
        let mut at = *value;
        let node = |at: u32| body.values.get(at as usize).copied();
        if let (true, Some(Value::Cast(dtype, from))) = (to.dtype.is_half(), node(at))
            && dtype == to.dtype
            && operand_type(query) == Ok(dtype)
        {
            at = from;
        } else if to.dtype != DType::F32 {
            let (to, operands) = (to.dtype.name(), operand_type(query)?.name());
            return Err(format!("a call with {operands} cannot store {to}"));
        }
        let relu = match node(at) {
            Some(Value::Unary(UnaryOp::Relu, from)) => {
                at = from;
                true
            }
            _ => false,
        };
        let bias = match node(at) {
            Some(Value::Anchor(0)) => None,
            Some(Value::Binary(BinaryOp::Add, x, y)) => match [node(x), node(y)] {
                [Some(Value::Anchor(0)), Some(Value::Input(i))]
                | [Some(Value::Input(i)), Some(Value::Anchor(0))] => Some(i as usize),
                _ => return Err(OTHER_WORK.into()),
            },
            _ => return Err(OTHER_WORK.into()),
        };
        let bias = bias.map(|i| row_of_bias(&body.inputs[i], &strides[i])).transpose()?;
        if bias.is_some() && to.dtype != DType::F32 {
            return Err("a call adds a bias only to f32".into());
        }
        let epilogue = match (bias.is_some(), relu) {
            (false, false) => Epilogue::None,
            (true, false) => Epilogue::Bias,
            (false, true) => Epilogue::Relu,
            (true, true) => Epilogue::BiasRelu,
        };
        let steps = match query.op {
            Op::Linear { .. } => [Dim::new(0), outer.clone()],
            _ => [outer.clone(), inner.clone()],
        };
        Ok(Finish { epilogue, bias, result: to.dtype, to: to.clone(), steps })
    }

    /// Checks that the rows of the result have a layout that a call can store.
    pub(in crate::engine) fn fits(&self, query: &Query) -> Result<(), String> {
        let columns = query.output.shape.dims().last().cloned().unwrap_or_else(|| Dim::new(1));
        let [.., m, _, _] = sizes(query).ok_or("sizes without bounds")?;
        match m <= 1 || at_least(query, &self.steps[1], &columns) {
            true => Ok(()),
            false => Err("a call stores rows that do not overlap".into()),
        }
    }
}

/// The reason why a call does not support an epilogue.
const OTHER_WORK: &str = "a call adds a bias and takes max(x, 0), and does nothing else";

/// Checks that a bias has an f32 element per column and starts at a multiple of 16 bytes, the
/// alignment for which the algorithm of a call is chosen. Returns the bias.
fn row_of_bias(view: &View, strides: &[Dim]) -> Result<View, String> {
    let along = matches!(strides, [a, b, c] if a.is(0) && b.is(0) && c.is(1));
    let plain = view.format == Format::F32 && view.layout.offset.is_multiple_of(4);
    match along && plain {
        true => Ok(view.clone()),
        false => Err("a call adds a bias of f32 that has an element for each column, from a multiple of four on".into()),
    }
}

/// Returns whether `size` is never less than `least` in the shape class.
fn at_least(query: &Query, size: &Dim, least: &Dim) -> bool {
    let apart = size.clone() - least.clone();
    size == least || query.class.bounds(&apart).is_ok_and(|(low, _)| low >= 0)
}

impl Matrix {
    /// Returns a view as matrices, which are its last two dimensions. It is copied if neither rows
    /// nor columns are contiguous.
    fn of(query: &Query, (view, batch): (View, Dim), out: &mut Lowering) -> Result<Matrix> {
        let rank = view.shape.rank();
        let [rows, columns] = [view.shape[rank - 2].clone(), view.shape[rank - 1].clone()];
        let [down, along] = last_two(&view);
        let lies = |along: &Dim, each: &Dim, down: &Dim, count: &Dim| {
            (along.is(1) || each.is(1)) && (count.is(1) || at_least(query, down, each))
        };
        if lies(&along, &columns, &down, &rows) {
            return Ok(Matrix { view, batch, stride: down, transposed: false });
        }
        if lies(&down, &rows, &along, &columns) {
            return Ok(Matrix { view, batch, stride: along, transposed: true });
        }
        let view = out.copied(&view)?;
        let batch = rows * columns.clone();
        Ok(Matrix { view, batch, stride: columns, transposed: false })
    }

    /// Returns the offset, the row stride and the stride between matrices as parameter words.
    fn words(&self) -> Result<[Word; 3]> {
        Ok([
            Word::dim(&self.view.layout.offset)?,
            Word::dim(&self.stride)?,
            Word::dim(&self.batch)?,
        ])
    }
}

impl Engine for Library {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn notes(&self, _query: &Query) -> Notes {
        Notes { deterministic: true, sums: Sums::F32, needs_compiling: false, capturable: false }
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        let product = matches!(
            query.op,
            Op::MatMul | Op::Linear { mode: base::ComputeMode::F32 | base::ComputeMode::F16 }
        );
        if !query.profile.supports_gemm_library || !product {
            return Err(OTHER_OPERATION.into());
        }
        if !query.profile.has_gemm_library {
            return Err("not here: cuBLASLt is missing".into());
        }
        operand_type(query)?;
        if stored(query.output) != Some(DType::F32) {
            return Err(format!("a result of {}", query.output.format));
        }
        let sizes = sizes(query).ok_or("sizes without bounds")?;
        if let Some(size) = sizes.into_iter().find(|size| *size > MOST) {
            return Err(format!("a size of {size}, it takes {MOST}"));
        }
        if sizes[0] > MOST_MATRICES {
            return Err(format!("{} matrices, a call takes {MOST_MATRICES}", sizes[0]));
        }
        let length = query.operands[0].shape.dims().last();
        if !length.is_some_and(|k| query.class.bounds(k).is_ok_and(|(low, _)| low >= 1)) {
            return Err("sums may have no products".into());
        }
        let most = query.profile.max_binding_bytes;
        for view in query.operands.iter().chain([query.output]) {
            let elements = query.upper(&view.shape.elements()).ok();
            // A weight may be converted to f32.
            let bytes = elements.and_then(|elements| elements.checked_mul(4));
            if bytes.is_none_or(|bytes| bytes > most) {
                return Err(format!("{} is larger than a binding of {most} bytes", view.shape));
            }
        }
        Ok(())
    }

    fn fuses(&self, query: &Query) -> Result<(), String> {
        Finish::of(query)?.fits(query)
    }

    fn order(&self, _query: &Query) -> Result<ReductionOrder, String> {
        Err("the library's choice of algorithm depends on sizes".into())
    }

    fn cost(&self, query: &Query) -> Cost {
        let (Some([batch, m, n, k]), Ok(dtype)) = (sizes(query), operand_type(query)) else {
            return Cost::default();
        };
        let [batch, m, n, k] = [batch, m, n, k].map(|size| size as f64);
        let tiles = batch * (m / TILE).ceil() * (n / TILE).ceil();
        let rate = if dtype.is_half() { HALVES } else { SINGLES };
        let mut bytes = query.total_bytes();
        let mut dispatches = CALL;
        if query.operands.get(1).is_some_and(|b| stored(b) != Some(dtype)) {
            // The converted weight is written and read.
            bytes += 8.0 * n * k;
            dispatches += 1.0;
        }
        let efficiency = (tiles / units(query.profile)).min(1.0).powf(0.4);
        Cost { bytes, flops: 2.0 * batch * m * n * k / rate, dispatches, efficiency }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let refused = |reason: String| Error::unsupported(format!("{}: {reason}", query.label));
        let (operands, finish) = operand_type(query)
            .and_then(|dtype| Ok((dtype, Finish::of(query)?)))
            .map_err(refused)?;
        let (call, a, b) = match query.op {
            Op::MatMul => matmul(query, &finish, out)?,
            _ => linear(query, operands, out)?,
        };
        let gemm = Gemm {
            operands,
            result: finish.result,
            a_transposed: a.transposed,
            b_transposed: b.transposed,
            compute: GemmCompute::F32,
            epilogue: finish.epilogue,
        };
        step(gemm, call, &a, &b, &finish, out)
    }
}

/// Adds a call for an f16 GEMM of x `[m, k]` and w `[n, k]`, both contiguous, to `[m, n]` in f32.
pub(in crate::engine) fn halves(
    [x, w, to]: [&View; 3],
    [m, n, k]: [&Dim; 3],
    out: &mut Lowering,
) -> Result<()> {
    let gemm = Gemm {
        operands: DType::F16,
        result: DType::F32,
        a_transposed: false,
        b_transposed: true,
        compute: GemmCompute::F32,
        epilogue: Epilogue::None,
    };
    let rows = |view: &View, transposed| Matrix {
        view: view.clone(),
        batch: Dim::new(0),
        stride: k.clone(),
        transposed,
    };
    let finish = Finish {
        epilogue: Epilogue::None,
        bias: None,
        result: DType::F32,
        to: to.clone(),
        steps: [Dim::new(0), n.clone()],
    };
    let sizes = [Dim::new(1), m.clone(), n.clone(), k.clone()];
    step(gemm, sizes, &rows(x, false), &rows(w, true), &finish, out)
}

/// Adds one call; `sizes` are the number of matrices, m, n and k.
fn step(
    gemm: Gemm,
    sizes: [Dim; 4],
    a: &Matrix,
    b: &Matrix,
    finish: &Finish,
    out: &mut Lowering,
) -> Result<()> {
    let [d_batch, d_stride] = &finish.steps;
    let bias = finish.bias.as_ref().map_or_else(|| Dim::new(0), |b| b.layout.offset.clone());
    let mut params = Vec::with_capacity(16);
    for size in &sizes {
        params.push(Word::dim(size)?);
    }
    params.extend(a.words()?);
    params.extend(b.words()?);
    for dim in [&finish.to.layout.offset, d_stride, d_batch, &bias] {
        params.push(Word::dim(dim)?);
    }
    params.resize(gemm.interface().param_words as usize, Word::Bits(0));
    let bind =
        |view: &View, access| StepBinding { tensor: view.tensor, offset: 0, bytes: None, access };
    let mut bindings: SmallVec<[StepBinding; 4]> =
        smallvec![bind(&a.view, Access::Read), bind(&b.view, Access::Read)];
    bindings.extend(finish.bias.iter().map(|bias| bind(bias, Access::Read)));
    bindings.push(bind(&finish.to, Access::ReadWrite));
    let grid = [Dim::new(1), Dim::new(1), Dim::new(1)];
    out.step(KernelSpec::Routine(Routine::Gemm(gemm)), params, bindings, grid)
}

/// Sizes of a call (number of matrices, m, n, k) and its two operands.
pub(in crate::engine) type Operands = ([Dim; 4], Matrix, Matrix);

pub(in crate::engine) fn matmul(
    query: &Query,
    finish: &Finish,
    out: &mut Lowering,
) -> Result<Operands> {
    let dims = query.output.shape.dims();
    let (lead, last) = dims.split_at(dims.len() - 2);
    let lead: Shape = lead.iter().cloned().collect();
    let (m, n, batch) = (last[0].clone(), last[1].clone(), lead.elements());
    let a = batched(&query.operands[0], &lead, out)?;
    let b = batched(&query.operands[1], &lead, out)?;
    let (a, b) = (Matrix::of(query, a, out)?, Matrix::of(query, b, out)?);
    let k = a.view.shape[a.view.shape.rank() - 1].clone();
    // Consecutive matrices with the same right operand are one taller matrix.
    let [d_batch, d_stride] = &finish.steps;
    let one_behind =
        a.batch == m.clone() * a.stride.clone() && *d_batch == m.clone() * d_stride.clone();
    let fits = query.upper(&(batch.clone() * m.clone())).is_ok_and(|rows| rows <= MOST);
    if b.batch.is(0) && !a.transposed && one_behind && fits && !batch.is(1) {
        return Ok(([Dim::new(1), batch * m, n, k], a, b));
    }
    Ok(([batch, m, n, k], a, b))
}

fn linear(query: &Query, operands: DType, out: &mut Lowering) -> Result<Operands> {
    let [x, w] = query.operands else {
        return Err(Error::invalid(format!("{}: linear needs two operands", query.label)));
    };
    let (mut x, m, k, mut stride) = out.rows(x)?;
    if !m.is(1) && !at_least(query, &stride, &k) {
        (x, stride) = (out.copied(&x)?, k.clone());
    }
    let mut weight = w.clone();
    if let Some(dtype) = stored(w).filter(|dtype| *dtype != operands) {
        weight = out.temp(format!("{}.w", out.label), &w.shape, operands)?;
        convert(&View { dtype, ..w.clone() }, &weight, out)?;
    }
    let (n, zero) = (w.shape[0].clone(), Dim::new(0));
    let a = Matrix { view: x, batch: zero.clone(), stride, transposed: false };
    let b = Matrix { view: weight, batch: zero, stride: k.clone(), transposed: true };
    Ok(([Dim::new(1), m, n, k], a, b))
}

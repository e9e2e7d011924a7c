//! Data movement: gather, state update, scatter, concat, pad.

use super::elementwise::{self, part};
use super::lowering::{Call, Lowering, View};
use super::{Cost, Engine, EngineId, OTHER_OPERATION, Query, ReductionOrder};
use crate::base::{DType, Dim, Format};
use crate::engine::gemm::quantized;
use crate::error::{Error, Result};
use crate::ir::Op;
use crate::kernel::{AssetSpec, catalogue};

/// Engine that gathers rows of a table in any format, or elements along an axis of a plain tensor.
pub(super) struct Gather {
    id: EngineId,
    rows: bool,
}

impl Gather {
    pub(super) fn all() -> [Gather; 2] {
        [
            Gather { id: EngineId::new("catalogue.gather_rows"), rows: true },
            Gather { id: EngineId::new("catalogue.gather"), rows: false },
        ]
    }
}

impl Engine for Gather {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        let (Op::Gather { axis }, [x, _]) = (query.op, query.operands) else {
            return Err(OTHER_OPERATION.into());
        };
        let table = *axis == 0 && x.shape.rank() == 2 && x.is_contiguous() && x.dtype.is_float();
        match (self.rows, quantized::is_packed(x)) {
            (true, _) if x.format.is_kept() && !query.is_wgsl() => {
                Err(format!("{} is how GPUs keep a table", x.format))
            }
            (true, _) if table && x.layout.offset.is(0) => Ok(()),
            (true, _) => Err("the operand is not a table of rows".into()),
            (false, true) if x.format != Format::Plain(x.dtype) => {
                Err(format!("the operand is packed as {}", x.format))
            }
            (false, _) => Ok(()),
        }
    }

    fn order(&self, _query: &Query) -> Result<ReductionOrder, String> {
        Ok(ReductionOrder::exact())
    }

    fn cost(&self, query: &Query) -> Cost {
        let bytes = 8.0 * query.output_elements();
        let efficiency = if self.rows { 0.5 } else { 0.3 };
        Cost { bytes, flops: 0.0, dispatches: 1.0, efficiency }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let Op::Gather { axis } = query.op else {
            return Err(Error::invalid(format!("{} is not a gather", query.op.name())));
        };
        let output = query.output;
        if !output.dtype.is_half() {
            return self.gather(query, *axis, &query.operands[0], output, out);
        }
        // The kernels write f32: convert from an f16 table, or from a copy.
        let y = out.temp(format!("{}.f32", out.label), &output.shape, DType::F32)?;
        let mut x = query.operands[0].clone();
        if !self.rows {
            let wide = out.temp(format!("{}.wide", out.label), &x.shape, DType::F32)?;
            elementwise::convert(&x, &wide, out)?;
            x = wide;
        }
        self.gather(query, *axis, &x, &y, out)?;
        elementwise::convert(&y, output, out)
    }
}

impl Gather {
    fn gather(
        &self,
        query: &Query,
        axis: usize,
        x: &View,
        y: &View,
        out: &mut Lowering,
    ) -> Result<()> {
        let ids = out.contiguous(&query.operands[1])?;
        let count = ids.shape.elements();
        let y_offset = &y.layout.offset;
        if self.rows {
            let table = x;
            let name = catalogue::family_name("gather_rows_*", table.format);
            let cols = &table.shape[1];
            let [gy, gz, _] = out.fold(count.clone());
            let call = Call::new(AssetSpec::new(name))
                .dim("count", &count)?
                .dim("rows", &table.shape[0])?
                .dim("cols", cols)?
                .dim("ids_offset", &ids.layout.offset)?
                .dim("y_offset", y_offset)?
                .bind(table.tensor)
                .bind(ids.tensor)
                .bind(y.tensor)
                .grid([cols.ceil_div(&Dim::from(catalogue::GATHER_COLUMNS)), gy, gz]);
            return out.call(call);
        }
        let x = out.contiguous(x)?;
        let product = |dims: &[Dim]| dims.iter().cloned().fold(Dim::new(1), |a, b| a * b);
        let dims = x.shape.dims();
        let (outer, inner) = (product(&dims[..axis]), product(&dims[axis + 1..]));
        let elements = outer.clone() * count.clone() * inner.clone();
        let grid = out.fold(elements.ceil_div(&Dim::from(catalogue::GATHER_GROUP)));
        out.call(
            Call::new(AssetSpec::new("gather"))
                .dim("outer", &outer)?
                .dim("axis_len", &dims[axis])?
                .dim("inner", &inner)?
                .dim("count", &count)?
                .dim("x_offset", &x.layout.offset)?
                .dim("ids_offset", &ids.layout.offset)?
                .dim("y_offset", y_offset)?
                .bind(x.tensor)
                .bind(ids.tensor)
                .bind(y.tensor)
                .grid(grid),
        )
    }
}

/// Engine for scatter, which writes rows of a state at given row indices.
pub(super) struct Scatter {
    id: EngineId,
}

impl Scatter {
    pub(super) fn new() -> Scatter {
        Scatter { id: EngineId::new("catalogue.scatter_rows") }
    }
}

/// Returns the elements per row: the product of all dimensions but the first.
fn row_of(view: &View) -> Dim {
    view.shape.dims()[1..].iter().cloned().fold(Dim::new(1), |a, b| a * b)
}

impl Engine for Scatter {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        let (Op::Scatter, [state, ..]) = (query.op, query.operands) else {
            return Err(OTHER_OPERATION.into());
        };
        // f16 rows are copied as words.
        match state.dtype.is_half() && !row_of(state).is_multiple_of(2) {
            true => {
                Err(format!("rows of {} elements of 2 bytes are not whole words", row_of(state)))
            }
            false => Ok(()),
        }
    }

    fn order(&self, _query: &Query) -> Result<ReductionOrder, String> {
        Ok(ReductionOrder::exact())
    }

    fn cost(&self, query: &Query) -> Cost {
        let src = query.operands.get(1);
        let rows = src.and_then(|src| query.upper(&src.shape.elements()).ok()).unwrap_or(0);
        Cost { bytes: 8.0 * rows as f64, flops: 0.0, dispatches: 1.0, efficiency: 0.5 }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let src = &query.operands[1];
        let per_word = if src.dtype.is_half() { 2 } else { 1 };
        let words = |dim: &Dim| dim.floor_div(&Dim::new(per_word));
        let cols = row_of(src);
        // Rows may be strided, but each is contiguous.
        let one = part(src, 0, &Dim::new(0), &Dim::new(1));
        let whole = one.shape.dims().iter().zip(&one.layout.strides).skip(1);
        let mut step = cols.clone();
        let mut dense = true;
        for (size, stride) in whole {
            step = step.floor_div(size);
            dense &= size.is(1) || *stride == step;
        }
        let aligned = [&src.layout.offset, &src.layout.strides[0]];
        let src = match dense && aligned.iter().all(|d| per_word == 1 || d.is_multiple_of(2)) {
            true => src.clone(),
            false => out.contiguous(src)?,
        };
        let rows = out.contiguous(&query.operands[2])?;
        let count = &src.shape[0];
        let [gy, gz, _] = out.fold(count.clone());
        let columns = words(&cols).ceil_div(&Dim::from(catalogue::GATHER_COLUMNS));
        out.call(
            Call::new(AssetSpec::new("scatter_rows"))
                .dim("count", count)?
                .dim("size", &query.output.shape[0])?
                .dim("cols", &words(&cols))?
                .dim("x_offset", &words(&src.layout.offset))?
                .dim("x_stride", &words(&src.layout.strides[0]))?
                .dim("rows_offset", &rows.layout.offset)?
                .dim("y_offset", &words(&query.output.layout.offset))?
                .bind(src.tensor)
                .bind(rows.tensor)
                .bind(query.output.tensor)
                .grid([columns, gy, gz]),
        )
    }
}

/// Engine for update, concat and pad, which copy into parts of the result.
pub(super) struct CopyInto {
    id: EngineId,
}

impl CopyInto {
    pub(super) fn new() -> CopyInto {
        CopyInto { id: EngineId::new("fused.copy") }
    }
}

impl Engine for CopyInto {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        match query.op {
            Op::Update { .. } | Op::Concat { .. } | Op::Pad { .. } => Ok(()),
            _ => Err(OTHER_OPERATION.into()),
        }
    }

    fn order(&self, _query: &Query) -> Result<ReductionOrder, String> {
        Ok(ReductionOrder::exact())
    }

    fn cost(&self, query: &Query) -> Cost {
        let dispatches = query.operands.len() as f64;
        Cost { bytes: query.total_bytes(), flops: 0.0, dispatches, efficiency: 0.8 }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        match query.op {
            Op::Update { at } => {
                let src = &query.operands[1];
                let to = part(query.output, 0, at, &src.shape[0]);
                elementwise::copy(src, &to, out)
            }
            Op::Concat { axis } => {
                let mut start = Dim::new(0);
                for operand in query.operands {
                    let len = &operand.shape[*axis];
                    elementwise::copy(operand, &part(query.output, *axis, &start, len), out)?;
                    start = start + len.clone();
                }
                Ok(())
            }
            Op::Pad { amounts, word } => {
                let x = &query.operands[0];
                elementwise::fill(*word, query.output, out)?;
                let mut inside = query.output.clone();
                for (axis, (before, _)) in amounts.iter().enumerate() {
                    inside = part(&inside, axis, &Dim::from(*before), &x.shape[axis]);
                }
                elementwise::copy(x, &inside, out)
            }
            other => Err(Error::invalid(format!("{} is not a copy into parts", other.name()))),
        }
    }
}

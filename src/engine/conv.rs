//! Direct convolution and pooling over images.

use super::lowering::{Call, Lowering};
use super::{Cost, Engine, EngineId, OTHER_OPERATION, Query, ReductionOrder};
use crate::base::{Dim, Format};
use crate::error::{Error, Result};
use crate::ir::{Op, PoolKind};
use crate::kernel::AssetSpec;
use crate::kernel::catalogue::POINT_GROUP;

/// Engine for `conv2d` or `pool2d_*`, with one thread per output element.
pub(super) struct Conv {
    id: EngineId,
    pool: bool,
}

impl Conv {
    pub(super) fn all() -> [Conv; 2] {
        [
            Conv { id: EngineId::new("catalogue.conv2d"), pool: false },
            Conv { id: EngineId::new("catalogue.pool2d"), pool: true },
        ]
    }
}

impl Engine for Conv {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        match (query.op, self.pool) {
            (Op::Conv2d(_), false) | (Op::Pool2d(_), true) => {}
            _ => return Err(OTHER_OPERATION.into()),
        }
        match query.operands.iter().all(|v| v.format == Format::F32) {
            true => Ok(()),
            false => Err("the operands are not f32".into()),
        }
    }

    fn fuses(&self, query: &Query) -> Result<(), String> {
        match self.pool {
            true => Err("executes single operations".into()),
            false => query.only_a_segment(0),
        }
    }

    fn order(&self, _query: &Query) -> Result<ReductionOrder, String> {
        Ok(ReductionOrder::new(0, "taps in turn"))
    }

    fn cost(&self, query: &Query) -> Cost {
        let taps = match query.operands {
            [_, w] => {
                let dims = w.shape.dims()[1..].iter();
                dims.map(|d| query.upper(d).unwrap_or(1) as f64).product()
            }
            _ => 9.0,
        };
        let flops = 2.0 * taps * query.output_elements();
        Cost { bytes: query.total_bytes(), flops, dispatches: 1.0, efficiency: 0.1 }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let x = out.contiguous(&query.operands[0])?;
        let y = query.output;
        let grid = out.fold(y.shape.elements().ceil_div(&Dim::from(POINT_GROUP)));
        let (name, stride, pad, dilation) = match query.op {
            Op::Conv2d(c) => ("conv2d", c.stride, c.pad_before, c.dilation),
            Op::Pool2d(p) => {
                let name = match p.kind {
                    PoolKind::Max => "pool2d_max",
                    PoolKind::Mean => "pool2d_avg",
                };
                (name, p.stride, p.pad_before, p.dilation)
            }
            other => return Err(Error::invalid(format!("{} is not a window", other.name()))),
        };
        let mut call = Call::new(AssetSpec::new(name))
            .dim("batch", &x.shape[0])?
            .dim("in_h", &x.shape[2])?
            .dim("in_w", &x.shape[3])?
            .dim("out_h", &y.shape[2])?
            .dim("out_w", &y.shape[3])?
            .u32("stride_h", stride.0)
            .u32("stride_w", stride.1)
            .u32("pad_top", pad.0)
            .u32("pad_left", pad.1)
            .u32("dilation_h", dilation.0)
            .u32("dilation_w", dilation.1)
            .dim("x_offset", &x.layout.offset)?
            .dim("y_offset", &y.layout.offset)?
            .bind(x.tensor)
            .grid(grid);
        match query.op {
            Op::Conv2d(c) => {
                let w = out.contiguous(&query.operands[1])?;
                call = call
                    .dim("in_c", &x.shape[1])?
                    .dim("out_c", &y.shape[1])?
                    .dim("kernel_h", &w.shape[2])?
                    .dim("kernel_w", &w.shape[3])?
                    .u32("groups", c.groups)
                    .dim("w_offset", &w.layout.offset)?
                    .bind(w.tensor);
            }
            Op::Pool2d(p) => {
                call = call
                    .dim("channels", &x.shape[1])?
                    .u32("kernel_h", p.kernel.0)
                    .u32("kernel_w", p.kernel.1)
                    .u32("count_pad", u32::from(p.count_pad));
            }
            _ => {}
        }
        out.call(call.bind(y.tensor).around_query(query)?)
    }
}

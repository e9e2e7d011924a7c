//! Rows added at given indices.

use super::lowering::{Call, Lowering};
use super::{Cost, Engine, EngineId, OTHER_OPERATION, Query, ReductionOrder};
use crate::base::{DType, Dim};
use crate::error::Result;
use crate::ir::Op;
use crate::kernel::{AssetSpec, catalogue};

/// Engine for `index_add`.
pub(super) struct IndexAdd {
    id: EngineId,
}

impl IndexAdd {
    pub(super) fn new() -> IndexAdd {
        IndexAdd { id: EngineId::new("catalogue.index_add") }
    }
}

impl Engine for IndexAdd {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        match query.op {
            Op::IndexAdd if query.output.dtype == DType::F32 => Ok(()),
            Op::IndexAdd => Err(format!("rows of {}", query.output.dtype)),
            _ => Err(OTHER_OPERATION.into()),
        }
    }

    fn order(&self, _query: &Query) -> Result<ReductionOrder, String> {
        Ok(ReductionOrder::new(0, "in sequence"))
    }

    fn cost(&self, query: &Query) -> Cost {
        // Each row compares all ids.
        let size = |dim: &Dim| query.upper(dim).unwrap_or(0) as f64;
        let ids = query.operands.get(2).map_or(0.0, |ids| size(&ids.shape.elements()));
        let flops = size(&query.output.shape[0]) * ids;
        Cost { bytes: query.total_bytes(), flops, dispatches: 1.0, efficiency: 0.5 }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let x = out.contiguous(&query.operands[0])?;
        let source = out.contiguous(&query.operands[1])?;
        let ids = out.contiguous(&query.operands[2])?;
        let y = query.output;
        let rows = &y.shape[0];
        let cols = y.shape.dims()[1..].iter().cloned().fold(Dim::new(1), |a, b| a * b);
        let [gy, gz, _] = out.fold(rows.clone());
        out.call(
            Call::new(AssetSpec::new("index_add"))
                .dim("rows", rows)?
                .dim("cols", &cols)?
                .dim("count", &ids.shape[0])?
                .dim("x_offset", &x.layout.offset)?
                .dim("source_offset", &source.layout.offset)?
                .dim("ids_offset", &ids.layout.offset)?
                .dim("y_offset", &y.layout.offset)?
                .bind(x.tensor)
                .bind(source.tensor)
                .bind(ids.tensor)
                .bind(y.tensor)
                .grid([cols.ceil_div(&Dim::from(catalogue::GATHER_COLUMNS)), gy, gz]),
        )
    }
}

//! On-device sampling of a token from each row of logits.

use super::lowering::{Call, Lowering};
use super::{Cost, Engine, EngineId, OTHER_OPERATION, Query, ReductionOrder};
use crate::base::DType;
use crate::error::Result;
use crate::ir::Op;
use crate::kernel::AssetSpec;
use crate::kernel::catalogue::SAMPLE_THREADS;
use crate::provider::DeviceKind;

/// Engine for the kernel `sample`.
pub(super) struct Sample {
    id: EngineId,
}

impl Sample {
    pub(super) fn new() -> Sample {
        Sample { id: EngineId::new("catalogue.sample") }
    }
}

impl Engine for Sample {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        if !matches!(query.op, Op::Sample) {
            return Err(OTHER_OPERATION.into());
        }
        let most = query.profile.max_threads_per_workgroup;
        if query.is_wgsl() && most < SAMPLE_THREADS {
            return Err(format!(
                "it needs workgroups of {SAMPLE_THREADS} threads, the device has {most}"
            ));
        }
        match query.operands.first().is_some_and(|x| x.dtype == DType::F32) {
            true => Ok(()),
            false => Err("the logits are not f32".into()),
        }
    }

    fn order(&self, _query: &Query) -> Result<ReductionOrder, String> {
        Ok(ReductionOrder::exact())
    }

    fn cost(&self, query: &Query) -> Cost {
        // One workgroup per row reads the logits twice.
        let bytes = 2.0 * query.total_bytes();
        let efficiency = match (query.is_wgsl(), query.profile.kind) {
            (false, _) => 0.6,
            (true, DeviceKind::Software) => 0.15,
            (true, _) => 0.02,
        };
        Cost { bytes, flops: bytes, dispatches: 1.0, efficiency }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let (x, rows, cols, stride) = out.rows(&query.operands[0])?;
        let draws = out.contiguous(&query.operands[1])?;
        let grid = out.fold(rows.clone());
        out.call(
            Call::new(AssetSpec::new("sample"))
                .dim("rows", &rows)?
                .dim("cols", &cols)?
                .dim("x_offset", &x.layout.offset)?
                .dim("x_stride", &stride)?
                .dim("draws_offset", &draws.layout.offset)?
                .dim("y_offset", &query.output.layout.offset)?
                .bind(x.tensor)
                .bind(draws.tensor)
                .bind(query.output.tensor)
                .grid(grid),
        )
    }
}

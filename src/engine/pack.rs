//! Kernel packs that implement a built-in operation, as engines.

use std::sync::Arc;

use super::custom::Custom;
use super::{Cost, Engine, EngineId, Lowering, Notes, OTHER_OPERATION, Query, ReductionOrder};
use crate::base::{DType, Format, Shape};
use crate::error::{Error, Result};
use crate::ir::{self, Op};
use crate::kernel::pack::{Pack, PackCost};

/// Factor of a kernel's efficiency if the CPU interpreter runs it.
const INTERPRETED: f64 = 1e-3;

/// The engine `pack.<name>` for the operation that the pack's manifest `implements`.
pub struct PackEngine {
    id: EngineId,
    pack: Pack,
    version: u32,
    launch: Custom,
}

impl PackEngine {
    /// Creates the engine of a pack.
    ///
    /// # Errors
    /// Invalid if the manifest implements no operation.
    pub fn new(pack: Pack) -> Result<Arc<PackEngine>> {
        if pack.operation().is_none() {
            return Err(Error::invalid(format!(
                "pack {}: its manifest has no `implements`, so it is its own operation, not an \
                 engine",
                pack.name()
            )));
        }
        let [a, b, c, d, ..] = pack.texts_hash();
        let (id, version) =
            (EngineId::new(format!("pack.{}", pack.name())), u32::from_le_bytes([a, b, c, d]));
        Ok(Arc::new(PackEngine { id, pack, version, launch: Custom::new() }))
    }

    /// Returns the pack.
    pub fn pack(&self) -> &Pack {
        &self.pack
    }

    /// Returns the pack's kernel for a query and the cost that the manifest states, or the reason
    /// why the pack does not apply.
    fn call(&self, query: &Query) -> Result<(ir::Custom, PackCost), String> {
        if self.pack.operation() != Some(query.op.name()) {
            return Err(OTHER_OPERATION.into());
        }
        let names = self.pack.inputs().map(|spec| spec.name.to_string());
        for (view, name) in query.operands.iter().zip(names) {
            // A pack reads plain elements; dequantising a weight for it at each run is never worth
            // it.
            if view.format != Format::Plain(view.dtype) {
                return Err(format!("{name} is stored as {}", view.format));
            }
        }
        let operands: Vec<(Shape, DType)> =
            query.operands.iter().map(|view| (view.shape.clone(), view.dtype)).collect();
        let output = (&query.output.shape, query.output.dtype);
        let device = query.profile.tuned_name();
        self.pack.implement(&device, query.op, &operands, output, query.class)
    }
}

impl Engine for PackEngine {
    fn id(&self) -> &EngineId {
        &self.id
    }

    /// Returns a hash of manifest, shader and native kernels, so that any change is a new version.
    fn version(&self) -> u32 {
        self.version
    }

    fn notes(&self, query: &Query) -> Notes {
        self.launch.notes(query)
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        let (custom, _) = self.call(query)?;
        let op = Op::Custom(Box::new(custom));
        self.launch.applies(&Query { op: &op, ..*query })
    }

    fn order(&self, query: &Query) -> Result<ReductionOrder, String> {
        if self.pack.is_conditional() {
            return Err("its `where` may not hold for another number of rows".into());
        }
        let (custom, _) = self.call(query)?;
        let op = Op::Custom(Box::new(custom));
        self.launch.order(&Query { op: &op, ..*query })
    }

    fn cost(&self, query: &Query) -> Cost {
        let Ok((custom, said)) = self.call(query) else { return Cost::default() };
        let mut cost = self.launch.cost(query);
        cost.flops = said.flops.unwrap_or(cost.flops);
        cost.bytes = said.bytes.unwrap_or(cost.bytes);
        cost.efficiency = said.efficiency.unwrap_or(cost.efficiency);
        // Zero fills before it, and copies of operands with gaps, are separate launches.
        let gaps = |view: &&super::View| !(view.is_contiguous() && view.layout.offset.is(0));
        let copies = query.operands.iter().filter(gaps).count() + usize::from(!custom.writes_all);
        cost.dispatches += copies as f64;
        cost.bytes += copies as f64 * query.total_bytes();
        if !query.is_wgsl() {
            cost.efficiency *= INTERPRETED;
        }
        cost
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let (custom, _) = self.call(query).map_err(Error::unsupported)?;
        let op = Op::Custom(Box::new(custom));
        self.launch.lower(&Query { op: &op, ..*query }, out)
    }
}

//! Products with the matrices of chosen experts, whose weights stay in their storage format.
//!
//! On GPUs each pair of a token and an expert is a GEMV of its own; the CPU sorts pairs by expert,
//! as the module `expert_tiles` does for tensor cores.
//! A weight larger than one binding is split by experts into several launches.

use super::operands::{of_few_rows, pieces};
use super::quantized::{Rounding, rounded_before};
use crate::base::{ComputeMode, Dim, Format};
use crate::engine::gemm::activation_quant::ROUNDING;
use crate::engine::gemm::int8_cost::int8_operations;
use crate::engine::lowering::{Call, Lowering};
use crate::engine::{Cost, Engine, EngineId, OTHER_OPERATION, Query, ReductionOrder};
use crate::error::{Error, Result};
use crate::ir::Op;
use crate::kernel::{AssetSpec, catalogue};
use crate::provider::GRANULE;

/// Engine for products with experts and one weight format.
pub(in crate::engine) struct Experts {
    id: EngineId,
    format: Format,
    cpu: bool,
    subgroup: bool,
    rounding: Rounding,
}

/// Sizes at the upper ends of the shape class.
pub(super) struct Sizes {
    pub(super) pairs: f64,
    pub(super) experts: f64,
    pub(super) n: f64,
    pub(super) k: f64,
}

impl Sizes {
    pub(super) fn of(query: &Query) -> Option<Sizes> {
        let [_, w, ids] = query.operands else { return None };
        let size = |dim: &Dim| query.upper(dim).ok().map(|n| n as f64);
        let [experts, n, k] = w.shape.dims() else { return None };
        Some(Sizes {
            pairs: size(&ids.shape.elements())?,
            experts: size(experts)?,
            n: size(n)?,
            k: size(k)?,
        })
    }
}

impl Experts {
    /// Returns every engine of a weight format.
    pub(in crate::engine) fn all(format: Format) -> impl Iterator<Item = Experts> {
        use Rounding::{Before, Inside, None};
        let engines = [
            (None, true, false),
            (Inside, true, false),
            (None, false, false),
            (None, false, true),
            (Before, false, false),
            (Before, false, true),
        ];
        let made = engines.into_iter().filter(move |e| e.0 == None || format.is_quantised());
        let made = made.filter(move |e| !(e.1 && format.is_kept()));
        made.map(move |(rounding, cpu, subgroup)| {
            let place = if cpu { "cpu" } else { "wgsl" };
            let how = match rounding {
                None => "",
                Inside => "_int8",
                Before => "_rounded",
            };
            let tail = if subgroup { ".subgroup" } else { "" };
            let id = EngineId::new(format!("{place}.expert_matvec{how}.{format}{tail}"));
            Experts { id, format, cpu, subgroup, rounding }
        })
    }

    /// Returns the threads of a workgroup, and the rows of w that it computes.
    fn cut(&self, query: &Query) -> (u32, u32) {
        of_few_rows(query.profile, (64, 4), 1)
    }

    fn spec(&self, query: &Query, aligned: bool) -> AssetSpec {
        let spec = AssetSpec::new(catalogue::family_name("expert_matvec_*", self.format));
        if self.cpu {
            let spec = if query.deterministic { spec.define(catalogue::IN_ORDER) } else { spec };
            return match self.rounding {
                Rounding::Inside => spec.define(catalogue::ROUNDED),
                _ => spec,
            };
        }
        let (threads, rows) = self.cut(query);
        let spec = spec.constant("WG", threads).constant("ROWS", rows);
        let spec = if self.subgroup { spec.define("subgroup") } else { spec };
        if aligned { spec.define("vec4") } else { spec }
    }
}

impl Engine for Experts {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        let (Op::ExpertLinear { mode }, [x, w, _]) = (query.op, query.operands) else {
            return Err(OTHER_OPERATION.into());
        };
        // Each format has its own engines, for operands of f32; others are not candidates.
        let other_mode = (*mode == ComputeMode::Int8) == (self.rounding == Rounding::None);
        if other_mode || w.format != self.format || x.format != Format::F32 {
            return Err(OTHER_OPERATION.into());
        }
        if self.cpu == query.is_wgsl() {
            let takes = if query.is_wgsl() { "WGSL" } else { "Rust functions" };
            return Err(format!("the device takes {takes}"));
        }
        if self.subgroup && !query.profile.has_subgroups {
            return Err("the device has no subgroups".into());
        }
        Ok(())
    }

    fn order(&self, query: &Query) -> Result<ReductionOrder, String> {
        match (self.cpu, self.rounding) {
            (true, Rounding::Inside) => Ok(ReductionOrder::new(0, "by blocks of 32")),
            (true, _) => Ok(ReductionOrder::new(0, "by vectors")),
            (false, rounding) => {
                let rank = if rounding == Rounding::Before { 2 } else { 0 };
                let (threads, _) = self.cut(query);
                ReductionOrder::of_workgroup(query, "matvec", threads, self.subgroup)
                    .map(|order| order.after(rank))
            }
        }
    }

    fn cost(&self, query: &Query) -> Cost {
        let Some(Sizes { pairs, experts, n, k }) = Sizes::of(query) else {
            return Cost::default();
        };
        let matrix = n * k * self.format.block_bytes() as f64 / self.format.block_len() as f64;
        let (read, each) = match (self.cpu, self.rounding) {
            (true, Rounding::Inside) => {
                (pairs.min(experts), int8_operations(query.profile, pairs / experts))
            }
            (true, _) => (pairs.min(experts), 2.0),
            // Pairs of one expert share its weights in the cache alone.
            (false, _) => (pairs, 2.0),
        };
        let rounding = if self.rounding == Rounding::None { 0.0 } else { ROUNDING };
        Cost {
            bytes: matrix * read + 4.0 * pairs * (n + k),
            flops: each * pairs * n * k + rounding * pairs * k,
            dispatches: if self.rounding == Rounding::Before { 2.0 } else { 1.0 },
            efficiency: match self.subgroup {
                true => 0.5,
                false => 0.4,
            },
        }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let [x, w, ids] = query.operands else {
            return Err(Error::invalid(format!("{}: needs three operands", query.label)));
        };
        let shared = x.shape[1].is(1);
        let (x, m, k, stride) = out.rows(x)?;
        let (x, stride) = match self.rounding {
            Rounding::Before => (rounded_before(&x, [&m, &k, &stride], out)?, k.clone()),
            _ => (x, stride),
        };
        let ids = out.contiguous(ids)?;
        let sizes = [0, 1, 2].map(|axis| query.upper(&w.shape[axis]));
        let [experts, n, k_size] = sizes;
        let (experts, n) = (experts?, n?);
        let row_bytes = self.format.bytes(k_size?).ok_or_else(|| {
            let len = self.format.block_len();
            Error::invalid(format!("{}: {k} columns are not blocks of {len}", query.label))
        })?;
        let share = if shared { ids.shape[1].clone() } else { Dim::new(1) };
        let aligned = [&k, &x.layout.offset, &stride].iter().all(|d| d.is_multiple_of(4));
        let (_, tile) = self.cut(query);
        let pairs = ids.shape.elements();
        let [gy, gz, _] = out.fold(pairs.clone());
        for (first, count) in pieces(experts, n * row_bytes, query)? {
            let bytes = (count * n * row_bytes).max(1).next_multiple_of(GRANULE);
            out.call(
                Call::new(self.spec(query, aligned))
                    .dim("pairs", &pairs)?
                    .dim("share", &share)?
                    .dim("first", &Dim::from(first))?
                    .dim("count", &Dim::from(count))?
                    .dim("total", &Dim::from(experts))?
                    .dim("n", &Dim::from(n))?
                    .dim("k", &k)?
                    .dim("x_offset", &x.layout.offset)?
                    .dim("x_stride", &stride)?
                    .dim("ids_offset", &ids.layout.offset)?
                    .dim("y_offset", &query.output.layout.offset)?
                    .bind_part(w.tensor, first * n * row_bytes, bytes)
                    .bind(x.tensor)
                    .bind(ids.tensor)
                    .bind(query.output.tensor)
                    .grid([Dim::from(n.div_ceil(u64::from(tile))), gy.clone(), gz.clone()]),
            )?;
        }
        Ok(())
    }
}

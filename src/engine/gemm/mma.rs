//! Quantised GEMV/GEMM for a few rows of x on int8 matrix instructions (tensor cores, `mma`).
//!
//! As in `prequantized`, x is quantised to int8, with eight rows interleaved: by
//! `quantize_activations` or by the quant epilogue of the previous kernel. `matvec_mma_*`
//! multiplies 16 rows of w with 8 of x at a time. With a quant epilogue of its own, a workgroup
//! computes 32 neighbouring results of eight rows with several such tiles. Only CUDA offers these
//! instructions to WGSL (`translate::Options::multiplies_codes`).

use crate::base::{ComputeMode, Format};
use crate::engine::attention::single_pass::units;
use crate::engine::gemm::activation_quant::{ROUNDING, given_codes, rounded};
use crate::engine::gemm::operands::{in_one_launch, layers_fit, sizes};
use crate::engine::gemm::prequantized::{has_tiles, multiplies_tiles, quant_epilogue_anchors};
use crate::engine::gemm::prequantized_launch::CodesProduct;
use crate::engine::knobs::{Knob, powers};
use crate::engine::lowering::Lowering;
use crate::engine::{
    Cost, Engine, EngineId, Fusion, OTHER_OPERATION, PreparedLayout, PreparedOperand, Query,
    ReductionOrder,
};
use crate::error::{Error, Result};
use crate::ir::Op;
use crate::kernel::prequant::TILE_ROWS;
use crate::kernel::{AHEAD_THREADS, AssetSpec, CodeOrder, catalogue};

/// Rows of x and rows of w per tile.
const TILE: [u32; 2] = [TILE_ROWS as u32, 16];
/// Minimum threads per workgroup by default. On an H200, the output head of Llama-3.1-8B takes 178
/// us with 64 threads and 192 us with 32.
const LEAST_THREADS: u32 = 64;
/// Maximum threads per tile.
const MOST_THREADS: u32 = 256;
/// Maximum threads per workgroup of several tiles.
const MOST_TEAM_THREADS: u32 = 1024;

/// Engine that launches `quantize_activations` and `matvec_mma_*` for one weight format.
pub(in crate::engine) struct TilesLinear {
    id: EngineId,
    format: Format,
}

impl TilesLinear {
    /// Returns the engine of a weight format, if there is a kernel for it.
    pub(in crate::engine) fn of(format: Format) -> Option<TilesLinear> {
        let id = EngineId::new(format!("wgsl.matvec_mma.{format}"));
        has_tiles(format).then_some(TilesLinear { id, format })
    }

    /// Returns the order of the int8 values that the kernel reads: four lanes read two words each
    /// of a block of 32 columns. The two words are neighbours, except for Q6_Kx8.
    fn codes(&self) -> CodeOrder {
        let chunk = if self.format == Format::Q6Kx8 { 1 } else { 2 };
        CodeOrder { groups: 2, run: 2, chunk, planes: false, tiles: true }
    }

    /// Returns the number of tiles per workgroup: with a quant epilogue enough for 32 results, else
    /// one.
    fn teams(query: &Query) -> u32 {
        quant_epilogue_anchors(query)
            .map_or(1, |anchors| anchors * ComputeMode::BLOCK as u32 / TILE[1])
    }

    /// Returns the knob for the threads of a workgroup, whose subgroups split k of a tile. By
    /// default, as many as let all workgroups run at once, but at least [`LEAST_THREADS`].
    fn threads(&self, query: &Query) -> Knob {
        let n = sizes(query).map_or(1.0, |(_, n, _)| n);
        let teams = TilesLinear::teams(query);
        let groups = n / f64::from(teams * TILE[1]);
        let least = 32 * teams;
        let most = (teams * MOST_THREADS).min(MOST_TEAM_THREADS);
        let most = most.min(query.profile.max_threads_per_workgroup).max(least);
        let room = f64::from(AHEAD_THREADS) * units(query.profile) / groups.ceil().max(1.0);
        let fit = powers(least, most).filter(|threads| f64::from(*threads) <= room);
        let wanted = fit.last().unwrap_or(least).max(LEAST_THREADS);
        Knob::new("threads", "threads of a workgroup", powers(least, most), wanted)
    }
}

impl Engine for TilesLinear {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        if !matches!(query.op, Op::Linear { mode: ComputeMode::Int8 }) {
            return Err(OTHER_OPERATION.into());
        }
        let [_, w] = query.operands else { return Err("linear needs two operands".into()) };
        if w.format != self.format || !query.is_wgsl() {
            return Err(OTHER_OPERATION.into());
        }
        if !multiplies_tiles(query.profile) {
            return Err("the device has no int8 tensor core operation for WGSL".into());
        }
        if sizes(query).is_none_or(|(m, ..)| m < 2.0) {
            return Err("one row of x leaves seven of a tile idle".into());
        }
        layers_fit(query, TILE[0])
    }

    fn fuses(&self, query: &Query) -> Result<(), String> {
        in_one_launch(query, self.format, 2).map(|_| ())
    }

    fn supports_quant_epilogue(&self, query: &Query) -> Result<(), String> {
        if quant_epilogue_anchors(query).is_none() {
            return Err("rounds what one segment stores".into());
        }
        let (least, most) =
            (32 * TilesLinear::teams(query), query.profile.max_threads_per_workgroup);
        match least > most {
            true => Err(format!("takes {least} threads a workgroup, the device has {most}")),
            false => Ok(()),
        }
    }

    fn takes(&self, _query: &Query) -> Option<PreparedLayout> {
        Some(PreparedLayout::Codes(self.codes()))
    }

    fn order(&self, _query: &Query) -> Result<ReductionOrder, String> {
        Err("rows of x share tiles".into())
    }

    fn knobs(&self, query: &Query) -> Vec<Knob> {
        vec![self.threads(query)]
    }

    fn cost(&self, query: &Query) -> Cost {
        let Some((m, n, k)) = sizes(query) else { return Cost::default() };
        let weight = n * k * self.format.block_bytes() as f64 / self.format.block_len() as f64;
        let (before, after) = query.fusion.map_or((0.0, 0.0), |fusion| fusion.operations());
        let passes = (m / f64::from(TILE[0])).ceil();
        let (read, rounding, dispatches) = match query.given {
            Some(_) => (1.25, 0.0, 1.0),
            None => (6.5, before + ROUNDING, 2.0),
        };
        Cost {
            bytes: weight * passes + m * (4.0 * n + read * k),
            flops: 0.25 * m * n * k + rounding * m * k + after * m * n,
            dispatches,
            // `matvec_prequant_*` has the same estimate and multiplies for longer.
            efficiency: if passes > 1.0 { 0.25 } else { 0.9 },
        }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let [x, w] = query.operands else {
            return Err(Error::invalid(format!("{}: linear needs two operands", query.label)));
        };
        let (x, m, k, x_stride) = out.rows(x)?;
        let columns = query.upper(&w.shape[1])?;
        let fusion = query.fusion.filter(|fusion| !fusion.is_empty());
        let norm = fusion.and_then(|fusion| fusion.norm.as_ref());
        let (codes, words, places) = match query.given {
            Some(PreparedOperand::Codes(given)) => {
                given_codes(given, self.codes(), columns, norm.is_some())
            }
            _ => rounded(true, &x, ([&m, &k, &x_stride], columns), (self.codes(), fusion), out)?,
        };
        let name = catalogue::family_name("matvec_mma_*", self.format);
        let teams = TilesLinear::teams(query);
        let spec = AssetSpec::new(name)
            .constant("WG", self.threads(query).value(query.knobs))
            .constant("TEAMS", teams)
            .constant("K", columns as u32)
            .define("subgroup");
        let scaled = norm.filter(|_| query.given.is_some());
        let spec = if scaled.is_some() { spec.define("scaled") } else { spec };
        let after = fusion.map(|fusion| Fusion {
            segments: fusion.segments.clone(),
            quant_epilogue: fusion.quant_epilogue.clone(),
            ..Fusion::default()
        });
        let product = CodesProduct {
            spec,
            format: self.format,
            sizes: [m, k],
            codes,
            words,
            places,
            tile: [TILE[0], teams * TILE[1]],
            eps: scaled.map_or(0.0, |(_, eps)| *eps),
        };
        product.lower(query, after, out)
    }
}

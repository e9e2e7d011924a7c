//! Products of many rows with the matrices of chosen experts on tensor cores (grouped GEMM).
//!
//! `expert_groups` sorts the pairs of a token and an expert by expert and cuts them into tiles;
//! `quantize_to_f16` rounds x as the compute mode requires; `expert_coop_*` multiplies each tile by
//! the matrix of its expert, which it dequantises inside its main loop (like `matmul_coop_*`).

use super::coop::{CoopLinear, DECODES, DECODING, MATRIX_UNITS, ROUNDING, Tile, Way};
use super::experts::Sizes;
use super::f16;
use super::operands::{filled, pieces};
use crate::base::{ComputeMode, DType, Dim, Format, Shape};
use crate::engine::knobs::{Knob, powers};
use crate::engine::lowering::{Call, Lowering, View};
use crate::engine::{Cost, Engine, EngineId, Notes, OTHER_OPERATION, Query, ReductionOrder};
use crate::error::{Error, Result};
use crate::ir::Op;
use crate::kernel::{AssetSpec, catalogue};
use crate::provider::GRANULE;

/// Maximum number of experts: `expert_groups` counts them in workgroup memory.
const MOST_EXPERTS: f64 = 2048.0;
/// Maximum number of pairs, which one workgroup sorts.
const MOST_PAIRS: f64 = (1 << 20) as f64;
/// Threads of the workgroup that sorts.
const SORTING_THREADS: u32 = 1024;

/// Engine for products with experts on tensor cores and one weight format.
pub(in crate::engine) struct ExpertTiles {
    id: EngineId,
    format: Format,
}

impl ExpertTiles {
    /// Returns the engine of a weight format, if it is quantised.
    pub(in crate::engine) fn of(format: Format) -> Option<ExpertTiles> {
        let id = EngineId::new(format!("wgsl.expert_coop.{format}"));
        format.is_quantised().then_some(ExpertTiles { id, format })
    }

    /// Returns the knobs for the pairs and the rows of an expert's matrix of a tile: by default as
    /// many pairs as an expert has on average, so that most experts are one or two tiles.
    fn knobs_of(query: &Query) -> [Knob; 2] {
        let each = Sizes::of(query).map_or(1.0, |s| s.pairs / s.experts.max(1.0));
        let rows = match each {
            ..12.0 => 16,
            ..28.0 => 32,
            ..80.0 => 64,
            _ => 128,
        };
        [
            Knob::new("tile_m", "pairs of a tile", powers(16, 128), rows),
            Knob::new("tile_n", "rows of an expert's matrix of a tile", powers(32, 128), 64),
        ]
    }

    fn tile(query: &Query) -> Tile {
        Tile::of(ExpertTiles::knobs_of(query).map(|knob| knob.value(query.knobs)), query)
    }

    /// Adds the launch that sorts pairs; returns their order and the tiles, `[tiles, 4]`.
    fn groups(ids: &View, experts: u64, rows: u32, out: &mut Lowering) -> Result<(View, View)> {
        let ids = out.contiguous(ids)?;
        let pairs = ids.shape.elements();
        let tiles = pairs.ceil_div(&Dim::from(rows)) + Dim::from(experts + 1);
        let order = Shape::new([pairs.clone()]);
        let order = out.temp(format!("{}.order", out.label), &order, DType::U32)?;
        let shape = Shape::new([tiles.clone(), Dim::new(4)]);
        let cut = out.temp(format!("{}.tiles", out.label), &shape, DType::U32)?;
        let threads = SORTING_THREADS.min(out.profile.max_threads_per_workgroup);
        let spec = AssetSpec::new("expert_groups")
            .constant("WG", threads)
            .constant("EXPERTS", experts as u32 + 1)
            .constant("ROWS", rows);
        out.call(
            Call::new(spec)
                .dim("pairs", &pairs)?
                .dim("tiles", &tiles)?
                .dim("ids_offset", &ids.layout.offset)?
                .bind(ids.tensor)
                .bind(order.tensor)
                .bind(cut.tensor)
                .grid([Dim::new(1), Dim::new(1), Dim::new(1)]),
        )?;
        Ok((order, cut))
    }
}

impl Engine for ExpertTiles {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        let (Op::ExpertLinear { mode }, [x, w, _]) = (query.op, query.operands) else {
            return Err(OTHER_OPERATION.into());
        };
        let formats = w.format == self.format && x.format == Format::F32;
        if *mode == ComputeMode::F32 || !formats || !query.is_wgsl() {
            return Err(OTHER_OPERATION.into());
        }
        CoopLinear::fits_tiles(query)?;
        let sizes = Sizes::of(query).ok_or("the operand has no rows")?;
        CoopLinear::fits_rounding(query, sizes.k as u64)?;
        if sizes.experts > MOST_EXPERTS || sizes.pairs > MOST_PAIRS {
            let (pairs, experts) = (sizes.pairs, sizes.experts);
            return Err(format!("one workgroup does not sort {pairs} pairs of {experts} experts"));
        }
        let tile = ExpertTiles::tile(query);
        let layers = (sizes.pairs / f64::from(tile.rows)).ceil() + sizes.experts + 1.0;
        if layers > f64::from(query.profile.max_workgroups_per_dim) {
            return Err(format!("{layers} tiles are more than a grid has"));
        }
        let room = u64::from(query.profile.workgroup_memory_bytes);
        // Each row also has the index of its pair.
        let need = tile.bytes(Way::Decoding) + 4 * u64::from(tile.rows);
        let sorting = 4 * (sizes.experts as u64 + 1) + 8 * u64::from(SORTING_THREADS);
        match need.max(sorting) > room {
            true => {
                Err(format!("it takes {} bytes of the {room} a workgroup has", need.max(sorting)))
            }
            false => Ok(()),
        }
    }

    fn notes(&self, query: &Query) -> Notes {
        Notes {
            deterministic: true,
            sums: crate::engine::Sums::F32,
            needs_compiling: query.is_wgsl(),
            capturable: true,
        }
    }

    fn order(&self, _query: &Query) -> Result<ReductionOrder, String> {
        Err("the summation order of tensor cores is unknown".into())
    }

    fn knobs(&self, query: &Query) -> Vec<Knob> {
        ExpertTiles::knobs_of(query).into()
    }

    fn cost(&self, query: &Query) -> Cost {
        let Some(Sizes { pairs, experts, n, k }) = Sizes::of(query) else {
            return Cost::default();
        };
        let tile = ExpertTiles::tile(query);
        let rows = f64::from(tile.rows);
        // The last tile of an expert is half full on average.
        let used = pairs.min(experts);
        let tiles = pairs / rows + 0.5 * used;
        let across = (n / f64::from(tile.columns)).ceil();
        let efficiency = DECODES * filled(tiles * across, query);
        let products = 2.0 * n * k / MATRIX_UNITS * tiles * rows;
        let matrix = n * k * self.format.block_bytes() as f64 / self.format.block_len() as f64;
        Cost {
            bytes: matrix * used + 4.0 * pairs * n + 6.0 * pairs * k,
            flops: products + DECODING * tiles * n * k + ROUNDING * pairs * k,
            dispatches: 3.0,
            efficiency,
        }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let ([x, w, ids], Op::ExpertLinear { mode }) = (query.operands, query.op) else {
            return Err(Error::invalid(format!("{}: needs three operands", query.label)));
        };
        let shared = x.shape[1].is(1);
        let share = if shared { ids.shape[1].clone() } else { Dim::new(1) };
        let (x, m, k, x_stride) = out.rows(x)?;
        let [experts, n, columns] = [0, 1, 2].map(|axis| query.upper(&w.shape[axis]));
        let (experts, n, columns) = (experts?, n?, columns?);
        let row_bytes = self.format.bytes(columns).ok_or_else(|| {
            let len = self.format.block_len();
            Error::invalid(format!("{}: {columns} columns are not blocks of {len}", query.label))
        })?;
        let tile = ExpertTiles::tile(query);
        let (order, tiles) = ExpertTiles::groups(ids, experts, tile.rows, out)?;
        let (x, factors) =
            f16::rounded(&x, (*mode, false, None), [&m, &k, &x_stride], columns, out)?;
        let name = catalogue::family_name("expert_coop_*", self.format);
        let constants = tile.constants.iter();
        let spec = constants
            .fold(AssetSpec::new(name), |spec, (name, value)| spec.constant(*name, *value));
        let across = Dim::from(n.div_ceil(u64::from(tile.columns)));
        for (first, count) in pieces(experts, n * row_bytes, query)? {
            let bytes = (count * n * row_bytes).max(1).next_multiple_of(GRANULE);
            out.call(
                Call::new(spec.clone())
                    .dim("m", &m)?
                    .dim("n", &Dim::from(n))?
                    .dim("k", &k)?
                    .dim("share", &share)?
                    .dim("first", &Dim::from(first))?
                    .dim("count", &Dim::from(count))?
                    .dim("total", &Dim::from(experts))?
                    .dim("y_offset", &query.output.layout.offset)?
                    .bind_part(w.tensor, first * n * row_bytes, bytes)
                    .bind(x.tensor)
                    .bind_part(factors.tensor, factors.offset, factors.bytes)
                    .bind(order.tensor)
                    .bind(tiles.tensor)
                    .bind(query.output.tensor)
                    .grid([across.clone(), tiles.shape[0].clone(), Dim::new(1)]),
            )?;
        }
        Ok(())
    }
}

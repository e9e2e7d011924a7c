//! Batched GEMM of two computed `f16` matrices on tensor cores (cooperative matrices).
//!
//! The pass `fuse` proposes it, like the vendor GEMM, for a product of operands that are converted
//! from `f16` to `f32`: products of f16 are exact in `f32` and sums are `f32`, so nothing is lost.
//! The result is stored as `f32` or rounded once to `f16`. If the plan allows it
//! ([`f16_accumulate`](crate::plan::Options::f16_accumulate)), an `f16` result may also be
//! accumulated in `f16`.

use crate::base::{DType, Dim};
use crate::engine::attention::single_pass::units;
use crate::engine::gemm::coop::{CoopLinear, MATRIX_UNITS, STEP};
use crate::engine::gemm::vendor::{self, Finish, Matrix};
use crate::engine::gemm::wave_model::{Tile, Waves};
use crate::engine::knobs::{Knob, powers};
use crate::engine::lowering::{Call, Lowering};
use crate::engine::{Cost, Engine, EngineId, Notes, OTHER_OPERATION, Query, Sums};
use crate::error::{Error, Result};
use crate::ir::Op;
use crate::kernel::{AssetSpec, Epilogue};

/// Elements per memory access.
const QUAD: i64 = 4;
/// Rows and columns of the largest workgroup tile, which accumulator registers limit.
const LARGE: u32 = 256;
/// Time of f16 accumulation relative to f32 accumulation.
const HALF_TIME: f64 = 0.75;
/// Wave model of the tiles: tensor cores wait for the loads of their tile.
const WAVES: Waves = Waves { reads: 1.0 };

/// Engine `wgsl.matmul_batched_coop`, or its variant with f16 accumulators.
pub(in crate::engine) struct CoopProduct {
    id: EngineId,
    /// Whether accumulators are f16.
    f16_accumulate: bool,
}

impl Tile {
    /// Returns the number of 16-row matrices and of pairs of 16-column matrices per subgroup, then
    /// of subgroups along the rows and along the columns. f16 accumulators take half the registers,
    /// so a subgroup of a large tile computes 128 x 64 results.
    fn shape(self) -> [u32; 4] {
        match self.columns {
            LARGE => [8, 2, self.rows / 128, 4],
            columns => [self.rows / 32, columns / 64, 2, 2],
        }
    }

    fn subgroups(self) -> u32 {
        let [_, _, down, along] = self.shape();
        down * along
    }
}

impl CoopProduct {
    pub(in crate::engine) fn new() -> CoopProduct {
        CoopProduct { id: EngineId::new("wgsl.matmul_batched_coop"), f16_accumulate: false }
    }

    /// Creates the engine `wgsl.matmul_batched_coop.f16_accumulate`.
    pub(in crate::engine) fn with_f16_accumulate() -> CoopProduct {
        CoopProduct {
            id: EngineId::new("wgsl.matmul_batched_coop.f16_accumulate"),
            f16_accumulate: true,
        }
    }

    fn knobs_of(&self, query: &Query) -> [Knob; 2] {
        let Tile { rows, columns } = self.usual(query);
        let most = if self.f16_accumulate { LARGE } else { 128 };
        let set = Knob::new("tile_m", "rows of y of a tile", powers(64, most), rows);
        let rows = set.value(query.knobs);
        let fits: Vec<u32> = powers(64, most)
            .filter(|columns| match (rows, *columns) {
                (LARGE, columns) => columns == LARGE,
                (64, columns) => columns < LARGE,
                _ => true,
            })
            .collect();
        let columns = if fits.contains(&columns) { columns } else { fits[0] };
        [set, Knob::new("tile_n", "columns of y of a tile", fits, columns)]
    }

    /// Returns the default tile. It may be too large for the device; `applies` then refuses it.
    fn usual(&self, query: &Query) -> Tile {
        let [batch, m, n, _] = vendor::sizes(query).unwrap_or([1; 4]);
        // A compute unit runs one workgroup with a large tile at a time.
        let large = [([LARGE, LARGE], 1.6), ([128, LARGE], 0.9)].into_iter().find_map(
            |([rows, columns], each)| {
                let tile = Tile { rows, columns };
                let tiles = m.div_ceil(rows.into()) * n.div_ceil(columns.into());
                let filled = batch.saturating_mul(tiles) as f64 >= each * units(query.profile);
                (self.f16_accumulate && filled && self.fits(query, tile).is_ok()).then_some(tile)
            },
        );
        large.unwrap_or_else(|| WAVES.usual(query, |_| true))
    }

    fn tile(&self, query: &Query) -> Tile {
        let [rows, columns] = self.knobs_of(query).map(|knob| knob.value(query.knobs));
        Tile { rows, columns }
    }

    /// Checks that the device has the workgroup memory and threads for a tile.
    fn fits(&self, query: &Query, tile: Tile) -> Result<(), String> {
        let (need, room) = (self.bytes(tile), query.profile.workgroup_memory_bytes);
        let threads = tile.subgroups() * query.profile.subgroup_max;
        let most = query.profile.max_threads_per_workgroup;
        match need > room || threads > most {
            true => Err(format!(
                "a tile takes {need} bytes of the {room} a workgroup has, and {threads} threads of {most}"
            )),
            false => Ok(()),
        }
    }

    /// Returns the size in bytes of a tile's workgroup memory: `rows` x 32 and 32 x `columns`
    /// elements of the operands in f16, with rows padded by 8; an accumulator matrix per subgroup;
    /// and whether there is work.
    fn bytes(&self, tile: Tile) -> u32 {
        let each = if self.f16_accumulate { 2 } else { 4 };
        80 * tile.rows + 32 * 2 * (tile.columns + 8) + tile.subgroups() * 16 * 20 * each + 16
    }

    /// Returns the epilogue and destination of the result, if tiles can store it that way.
    fn finish(query: &Query) -> Result<Finish, String> {
        let finish = Finish::of(query)?;
        finish.fits(query)?;
        if finish.epilogue != Epilogue::None {
            return Err("tiles have no epilogue".into());
        }
        if !matches!(finish.result, DType::F32 | DType::F16) {
            return Err(format!("tiles store no {}", finish.result));
        }
        let [matrix, row] = &finish.steps;
        let in_quads =
            [matrix, row, &finish.to.layout.offset].iter().all(|d| d.is_multiple_of(QUAD));
        match in_quads {
            true => Ok(finish),
            false => Err("tiles store four elements together, from a multiple of four on".into()),
        }
    }
}

impl Engine for CoopProduct {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        let ([a, b], Op::MatMul) = (query.operands, query.op) else {
            return Err(OTHER_OPERATION.into());
        };
        if !query.is_wgsl() {
            return Err(OTHER_OPERATION.into());
        }
        if self.f16_accumulate && !query.f16_accumulate {
            return Err("f16 sums are not enabled".into());
        }
        CoopLinear::fits_tiles(query)?;
        if self.f16_accumulate && !query.profile.has_f16_accumulate {
            return Err("the tensor cores of the device sum only in f32".into());
        }
        if [a, b].iter().any(|view| vendor::stored(view) != Some(DType::F16)) {
            return Err("the operands are not f16".into());
        }
        if vendor::stored(query.output) != Some(DType::F32) {
            return Err(format!("a result of {}", query.output.format));
        }
        let (Some(k), Some(n)) = (a.shape.dims().last(), b.shape.dims().last()) else {
            return Err(OTHER_OPERATION.into());
        };
        if !k.is_multiple_of(STEP as i64) || !n.is_multiple_of(QUAD) {
            return Err(format!(
                "{k} x {n}, it takes {STEP} columns of a at a time and {QUAD} of b"
            ));
        }
        if !query.class.bounds(k).is_ok_and(|(low, _)| low >= 1) {
            return Err("sums may have no products".into());
        }
        let sizes = vendor::sizes(query).ok_or("sizes without bounds")?;
        if sizes.iter().any(|size| *size > vendor::MOST) {
            return Err(format!("a size of {sizes:?}, it takes {}", vendor::MOST));
        }
        let most = query.profile.max_binding_bytes;
        for view in query.operands.iter().chain([query.output]) {
            let elements = query.upper(&view.shape.elements()).ok();
            if elements.and_then(|count| count.checked_mul(4)).is_none_or(|bytes| bytes > most) {
                return Err(format!("{} is larger than a binding of {most} bytes", view.shape));
            }
        }
        self.fits(query, self.tile(query))
    }

    fn notes(&self, query: &Query) -> Notes {
        let sums = if self.f16_accumulate { Sums::F16 } else { Sums::F32 };
        let needs_compiling = query.is_wgsl();
        Notes { deterministic: true, sums, needs_compiling, capturable: true }
    }

    fn fuses(&self, query: &Query) -> Result<(), String> {
        let finish = CoopProduct::finish(query)?;
        match self.f16_accumulate && finish.result != DType::F16 {
            true => Err(format!("sums of f16 are for results of f16, not of {}", finish.result)),
            false => Ok(()),
        }
    }

    fn order(&self, _query: &Query) -> Result<crate::engine::ReductionOrder, String> {
        Err("the summation order of tensor cores is unknown".into())
    }

    fn knobs(&self, query: &Query) -> Vec<Knob> {
        self.knobs_of(query).into()
    }

    fn cost(&self, query: &Query) -> Cost {
        let Some(sizes) = vendor::sizes(query) else { return Cost::default() };
        let time = if self.f16_accumulate { HALF_TIME } else { 1.0 };
        let flops = time * WAVES.flops(sizes, self.tile(query), query.profile) / MATRIX_UNITS;
        Cost { bytes: query.total_bytes(), flops, dispatches: 1.0, efficiency: 1.0 }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let finish = CoopProduct::finish(query)
            .map_err(|reason| Error::unsupported(format!("{}: {reason}", query.label)))?;
        let ([batch, m, n, k], a, b) = vendor::matmul(query, &finish, out)?;
        let (a, b) = (in_quads(a, out)?, in_quads(b, out)?);
        let tile = self.tile(query);
        let [down, along, groups_down, groups_along] = tile.shape();
        let steps = [4, 2].into_iter().find(|steps| k.is_multiple_of(steps * STEP as i64));
        let mut spec = AssetSpec::new("matmul_batched_coop")
            .constant("TI", down)
            .constant("TH", along)
            .constant("WI", groups_down)
            .constant("WJ", groups_along)
            .constant("SUB", query.profile.subgroup_max)
            .constant("STEPS", steps.unwrap_or(1) as u32);
        if finish.result == DType::F16 {
            spec = spec.define("f16_y");
        }
        if self.f16_accumulate {
            spec = spec.define("f16_accumulate");
        }
        let most = Dim::from(query.profile.max_workgroups_per_dim);
        let tiles = |size: &Dim, of: u32| size.ceil_div(&Dim::from(of));
        out.call(
            Call::new(spec)
                .dim("batch", &batch)?
                .dim("m", &m)?
                .dim("n", &n)?
                .dim("k", &k)?
                .dim("a_offset", &a.view.layout.offset)?
                .dim("a_batch_stride", &a.batch)?
                .dim("a_row_stride", &a.stride)?
                .dim("b_offset", &b.view.layout.offset)?
                .dim("b_batch_stride", &b.batch)?
                .dim("b_row_stride", &b.stride)?
                .dim("y_offset", &finish.to.layout.offset)?
                .dim("y_batch_stride", &finish.steps[0])?
                .dim("y_row_stride", &finish.steps[1])?
                .bind(a.view.tensor)
                .bind(b.view.tensor)
                .bind(finish.to.tensor)
                .grid([tiles(&n, tile.columns), tiles(&m, tile.rows), batch.minimum(&most)]),
        )
    }
}

/// Returns the matrix if its rows are contiguous and start at multiples of four elements, else a
/// copy.
fn in_quads(matrix: Matrix, out: &mut Lowering) -> Result<Matrix> {
    let places = [&matrix.view.layout.offset, &matrix.batch, &matrix.stride];
    if !matrix.transposed && places.iter().all(|place| place.is_multiple_of(QUAD)) {
        return Ok(matrix);
    }
    let view = out.copied(&matrix.view)?;
    let rank = view.shape.rank();
    let [rows, columns] = [view.shape[rank - 2].clone(), view.shape[rank - 1].clone()];
    Ok(Matrix { view, batch: rows * columns.clone(), stride: columns, transposed: false })
}

//! Batched GEMM of two computed `f32` tensors with arbitrary strides, without tensor cores: one
//! result per thread, or register tiles.

use crate::base::{Dim, Format, Shape};
use crate::engine::gemm::vendor;
use crate::engine::gemm::wave_model::{Tile, Waves};
use crate::engine::knobs::{Knob, powers};
use crate::engine::lowering::{Call, Lowering, View};
use crate::engine::{Cost, Engine, EngineId, OTHER_OPERATION, Query, ReductionOrder};
use crate::error::Result;
use crate::ir::Op;
use crate::kernel::AssetSpec;
use crate::kernel::catalogue::{BATCHED_TILE, IN_ORDER, TILE_QUADS};
use crate::provider::DeviceKind;

/// Threads per workgroup of `matmul_batched_tiled`.
const TILE_THREADS: u32 = 256;
/// Extent of k per step of a tile.
const TILE_STEP: u32 = 16;
/// Fraction of a GPU's peak that `matmul_batched_tiled` reaches: 35 Tflop/s on an H200, where the
/// vendor GEMM reaches 51.
const TILES_REACH: f64 = 0.9;
/// Fraction of a software GPU's peak that `matmul_batched_tiled` reaches: a guess, low because its
/// threads share registers.
const SOFTWARE_REACH: f64 = 0.1;
/// Wave model of the tiles: each thread reuses its loads for 8 x 8 results, so it waits less for
/// memory.
const WAVES: Waves = Waves { reads: 0.4 };
/// Fraction of a GPU's peak that `matmul_batched` reaches with one result per thread: 2.5 Tflop/s
/// for 256 x 256 on an H200.
const ELEMENTS_REACH: f64 = 0.07;
/// Fraction of the peak that `matmul_batched` reaches on other devices; a guess.
const OTHER_REACH: f64 = 0.2;

/// Engine for the kernel `matmul_batched`.
pub(in crate::engine) struct MatMul {
    id: EngineId,
}

impl MatMul {
    pub(in crate::engine) fn new() -> MatMul {
        MatMul { id: EngineId::new("catalogue.matmul_batched") }
    }
}

impl Engine for MatMul {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        is_product(query)
    }

    fn fuses(&self, query: &Query) -> Result<(), String> {
        query.only_a_segment(0)
    }

    fn order(&self, _query: &Query) -> Result<ReductionOrder, String> {
        Ok(ReductionOrder::new(0, "columns in turn"))
    }

    fn cost(&self, query: &Query) -> Cost {
        let k = query.operands.first().and_then(|a| a.shape.dims().last().cloned());
        let k = k.and_then(|k| query.upper(&k).ok()).unwrap_or(1) as f64;
        let flops = 2.0 * k * query.output_elements();
        let efficiency = match query.profile.kind {
            DeviceKind::Discrete | DeviceKind::Integrated => ELEMENTS_REACH,
            _ => OTHER_REACH,
        };
        Cost { bytes: query.total_bytes(), flops, dispatches: 1.0, efficiency }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let tiles = |d: &Dim| d.ceil_div(&Dim::from(BATCHED_TILE));
        let in_order = query.deterministic && !query.is_wgsl();
        product(query, out, |_| {
            let spec = AssetSpec::new("matmul_batched");
            (if in_order { spec.define(IN_ORDER) } else { spec }, [tiles, tiles])
        })
    }
}

/// Engine for the kernel `matmul_batched_tiled`.
pub(in crate::engine) struct Tiles {
    id: EngineId,
}

impl Tiles {
    pub(in crate::engine) fn new() -> Tiles {
        Tiles { id: EngineId::new("wgsl.matmul_batched_tiled") }
    }

    /// Returns the size in bytes of a tile's workgroup memory.
    fn bytes(tile: Tile) -> u32 {
        16 * TILE_STEP * (tile.rows / 4 + tile.columns / 4)
    }

    fn knobs_of(query: &Query) -> [Knob; 2] {
        let room = query.profile.workgroup_memory_bytes;
        let fits = |tile: Tile| Tiles::bytes(tile) <= room;
        let small = TILE_QUADS;
        let Tile { rows, columns } = WAVES.usual(query, fits);
        let set = Knob::new("tile_m", "rows of y of a tile", powers(small, 128), rows);
        let rows = set.value(query.knobs);
        let fits = move |columns: u32| fits(Tile { rows, columns });
        let columns = if fits(columns) { columns } else { small };
        let along = powers(small, 128).filter(move |columns| fits(*columns));
        [set, Knob::new("tile_n", "columns of y of a tile", along, columns)]
    }

    fn tile(query: &Query) -> Tile {
        let [rows, columns] = Tiles::knobs_of(query).map(|knob| knob.value(query.knobs));
        Tile { rows, columns }
    }
}

impl Engine for Tiles {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        is_product(query)?;
        if !query.is_wgsl() {
            return Err("the device does not run WGSL".into());
        }
        let need = Tiles::bytes(Tiles::tile(query));
        let (threads, most) = (TILE_THREADS, query.profile.max_threads_per_workgroup);
        let have = query.profile.workgroup_memory_bytes;
        match threads > most || need > have {
            true => Err(format!(
                "{threads} threads and {need} bytes a workgroup, the device has {most} and {have}"
            )),
            false => Ok(()),
        }
    }

    fn fuses(&self, query: &Query) -> Result<(), String> {
        query.only_a_segment(0)
    }

    fn order(&self, _query: &Query) -> Result<ReductionOrder, String> {
        Ok(ReductionOrder::new(0, "columns in turn"))
    }

    fn knobs(&self, query: &Query) -> Vec<Knob> {
        Tiles::knobs_of(query).into()
    }

    fn cost(&self, query: &Query) -> Cost {
        let Some(sizes) = vendor::sizes(query) else { return Cost::default() };
        let tile = Tiles::tile(query);
        let (flops, efficiency) = match query.profile.kind {
            DeviceKind::Software => (tile.flops(sizes), SOFTWARE_REACH),
            _ => (WAVES.flops(sizes, tile, query.profile), TILES_REACH),
        };
        Cost { bytes: query.total_bytes(), flops, dispatches: 1.0, efficiency }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let Tile { rows, columns } = Tiles::tile(query);
        let tile = [rows, columns];
        product(query, out, |[a, b]| {
            let quads = tile.map(|size| size / TILE_QUADS);
            let spec = AssetSpec::new("matmul_batched_tiled");
            let spec = spec.constant("QM", quads[0]).constant("QN", quads[1]);
            // Neighbouring threads read neighbouring elements (coalesced loads).
            let is_down = |view: &View| {
                let [down, along] = last_two(view);
                down.is(1) && !along.is(1)
            };
            let spec = if is_down(a) { spec.define("a_down") } else { spec };
            let spec = if is_down(b) { spec.define("b_down") } else { spec };
            (spec, tile.map(|size| move |d: &Dim| d.ceil_div(&Dim::from(size))))
        })
    }
}

/// Checks that the query is a matrix product of computed `f32` operands.
fn is_product(query: &Query) -> Result<(), String> {
    if !matches!(query.op, Op::MatMul) {
        return Err(OTHER_OPERATION.into());
    }
    match query.operands.iter().all(|v| v.format == Format::F32) {
        true => Ok(()),
        false => Err("the operands are not f32".into()),
    }
}

/// Adds one launch of a kernel with the parameters of `matmul_batched`. `choose` receives the
/// operands as the kernel reads them. It returns the kernel, and functions that map the rows and
/// the columns of the result to numbers of tiles.
fn product<F: Fn(&Dim) -> Dim>(
    query: &Query,
    out: &mut Lowering,
    choose: impl FnOnce([&View; 2]) -> (AssetSpec, [F; 2]),
) -> Result<()> {
    let rank = query.output.shape.rank();
    let lead: Shape = query.output.shape.dims()[..rank - 2].iter().cloned().collect();
    let (a, a_batch) = batched(&query.operands[0], &lead, out)?;
    let (b, b_batch) = batched(&query.operands[1], &lead, out)?;
    let (m, n) = (&query.output.shape[rank - 2], &query.output.shape[rank - 1]);
    let k = a.shape[a.shape.rank() - 1].clone();
    let [a_row, a_col] = last_two(&a);
    let [b_row, b_col] = last_two(&b);
    let batch = lead.elements();
    let most = Dim::from(query.profile.max_workgroups_per_dim);
    let (spec, [down, along]) = choose([&a, &b]);
    out.call(
        Call::new(spec)
            .dim("batch", &batch)?
            .dim("m", m)?
            .dim("n", n)?
            .dim("k", &k)?
            .dim("a_offset", &a.layout.offset)?
            .dim("a_batch_stride", &a_batch)?
            .dim("a_row_stride", &a_row)?
            .dim("a_col_stride", &a_col)?
            .dim("b_offset", &b.layout.offset)?
            .dim("b_batch_stride", &b_batch)?
            .dim("b_row_stride", &b_row)?
            .dim("b_col_stride", &b_col)?
            .dim("y_offset", &query.output.layout.offset)?
            .bind(a.tensor)
            .bind(b.tensor)
            .bind(query.output.tensor)
            .around_query(query)?
            .grid([along(n), down(m), batch.minimum(&most)]),
    )
}

pub(in crate::engine) fn last_two(view: &View) -> [Dim; 2] {
    let rank = view.shape.rank();
    [view.layout.strides[rank - 2].clone(), view.layout.strides[rank - 1].clone()]
}

/// Returns the operand, broadcast to the leading dimensions `lead`, and the stride between its
/// matrices in elements. The operand is copied if those dimensions have no common stride.
pub(in crate::engine) fn batched(
    view: &View,
    lead: &Shape,
    out: &mut Lowering,
) -> Result<(View, Dim)> {
    let rank = view.shape.rank();
    let to: Shape = lead.dims().iter().chain(&view.shape.dims()[rank - 2..]).cloned().collect();
    let mut full = view.clone();
    full.layout = view.layout.broadcast(&view.shape, &to);
    full.shape = to;
    if let Some(stride) = one_distance(&full, lead.rank()) {
        return Ok((full, stride));
    }
    let copy = out.contiguous(&full)?;
    let matrix =
        copy.shape[copy.shape.rank() - 2].clone() * copy.shape[copy.shape.rank() - 1].clone();
    Ok((copy, matrix))
}

fn one_distance(view: &View, lead: usize) -> Option<Dim> {
    let (mut count, mut stride) = (Dim::new(1), None::<Dim>);
    for axis in (0..lead).rev() {
        if view.shape[axis].is(1) {
            continue;
        }
        match &stride {
            None => stride = Some(view.layout.strides[axis].clone()),
            Some(s) if view.layout.strides[axis] == s.clone() * count.clone() => {}
            Some(_) => return None,
        }
        count = count * view.shape[axis].clone();
    }
    Some(stride.unwrap_or(Dim::new(0)))
}

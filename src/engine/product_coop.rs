//! Products of two computed matrices of `f16` on cooperative matrices.
//!
//! What `plan::group` proposes where conversions come before a product, as for a vendor's library: products of halves are
//! exact in `f32` and sums are `f32`, so nothing is lost. The result is stored as `f32` or rounded once to `f16`.

use super::knobs::{Knob, powers};
use super::library::{self, Finish, Matrix};
use super::linear_coop::{CoopLinear, MATRIX_UNITS, STEP};
use super::lowering::{Call, Lowering};
use super::matmul::usual_tile;
use super::product::filled;
use super::{Cost, Engine, EngineId, OTHER_OPERATION, Query};
use crate::base::{DType, Dim};
use crate::error::{Error, Result};
use crate::ir::Op;
use crate::kernel::{AssetSpec, Epilogue};

/// Elements that are moved together.
const QUAD: i64 = 4;

/// `wgsl.product_coop`.
pub(super) struct CoopProduct {
    id: EngineId,
}

impl CoopProduct {
    pub(super) fn new() -> CoopProduct {
        CoopProduct { id: EngineId::new("wgsl.product_coop") }
    }

    fn knobs_of(query: &Query) -> [Knob; 2] {
        // Where they do not fit, `applies` says so.
        let [rows, columns] = usual_tile(query, |_, _| true);
        [
            Knob::new("tile_m", "rows of y of a tile", powers(64, 128), rows),
            Knob::new("tile_n", "columns of y of a tile", powers(64, 128), columns),
        ]
    }

    fn tile(query: &Query) -> [u32; 2] {
        CoopProduct::knobs_of(query).map(|knob| knob.value(query.knobs))
    }

    /// Bytes of workgroup memory: rows of 32 and of all columns with 8 halves of padding, a tile of sums of each of four
    /// subgroups, and whether there is work.
    fn bytes([rows, columns]: [u32; 2]) -> u32 {
        80 * rows + 32 * 2 * (columns + 8) + 4 * 16 * 20 * 4 + 16
    }

    /// The result, if it is stored as tiles store it.
    fn finish(query: &Query) -> Result<Finish, String> {
        let finish = Finish::of(query)?;
        finish.fits(query)?;
        if finish.epilogue != Epilogue::None {
            return Err("tiles store what they sum, and do nothing else".into());
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
        CoopLinear::fits_tiles(query)?;
        if [a, b].iter().any(|view| library::stored(view) != Some(DType::F16)) {
            return Err("the operands are not f16".into());
        }
        if library::stored(query.output) != Some(DType::F32) {
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
        let sizes = library::sizes(query).ok_or("sizes without bounds")?;
        if sizes.iter().any(|size| *size > library::MOST) {
            return Err(format!("a size of {sizes:?}, it takes {}", library::MOST));
        }
        let most = query.profile.max_binding_bytes;
        for view in query.operands.iter().chain([query.output]) {
            let elements = query.upper(&view.shape.elements()).ok();
            if elements.and_then(|count| count.checked_mul(4)).is_none_or(|bytes| bytes > most) {
                return Err(format!("{} is larger than a binding of {most} bytes", view.shape));
            }
        }
        let (need, room) =
            (CoopProduct::bytes(CoopProduct::tile(query)), query.profile.workgroup_memory_bytes);
        match need > room {
            true => Err(format!("a tile takes {need} bytes of the {room} a workgroup has")),
            false => Ok(()),
        }
    }

    fn fuses(&self, query: &Query) -> Result<(), String> {
        CoopProduct::finish(query).map(|_| ())
    }

    fn order(&self, _query: &Query) -> Result<super::Order, String> {
        Err("in which order matrix units add is not known".into())
    }

    fn knobs(&self, query: &Query) -> Vec<Knob> {
        CoopProduct::knobs_of(query).into()
    }

    fn cost(&self, query: &Query) -> Cost {
        let Some(sizes) = library::sizes(query) else { return Cost::default() };
        let [batch, m, n, k] = sizes.map(|size| size as f64);
        let [rows, columns] = CoopProduct::tile(query).map(f64::from);
        let tiles = batch * (m / rows).ceil() * (n / columns).ceil();
        Cost {
            bytes: query.total_bytes(),
            flops: 2.0 * tiles * rows * columns * k / MATRIX_UNITS,
            dispatches: 1.0,
            efficiency: filled(tiles, query),
        }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let finish = CoopProduct::finish(query)
            .map_err(|reason| Error::unsupported(format!("{}: {reason}", query.label)))?;
        let ([batch, m, n, k], a, b) = library::matmul(query, &finish, out)?;
        let (a, b) = (in_quads(a, out)?, in_quads(b, out)?);
        let tile = CoopProduct::tile(query);
        let steps = [4, 2].into_iter().find(|steps| k.is_multiple_of(steps * STEP as i64));
        let mut spec = AssetSpec::new("product_coop")
            .constant("TI", tile[0] / 32)
            .constant("TH", tile[1] / 64)
            .constant("SUB", query.profile.subgroup_max)
            .constant("STEPS", steps.unwrap_or(1) as u32);
        if finish.result == DType::F16 {
            spec = spec.define("half_y");
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
                .grid([tiles(&n, tile[1]), tiles(&m, tile[0]), batch.minimum(&most)]),
        )
    }
}

/// The matrices with rows that begin at multiples of four and have no gaps in them, copied where they lie otherwise.
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

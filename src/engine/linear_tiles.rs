//! Products with a weight matrix for some rows of x, rounded to 8 bits, by tiles on matrix hardware.
//!
//! As `linear_codes` does it, `round_codes` writes rows of x as whole numbers, eight of them together, in which order nothing
//! hands them on; `matvec_tiles_*` multiplies 16 rows of w with 8 of x at a time. CUDA alone has such products for WGSL
//! (`translate::Options::multiplies_codes`).

use super::codes_product::CodesProduct;
use super::knobs::{Knob, powers};
use super::linear_codes::{has_tiles, multiplies_tiles};
use super::lowering::Lowering;
use super::product::{in_one_launch, layers_fit, sizes};
use super::rounded::{ROUNDING, TILE_ROWS, rounded};
use super::{Around, Cost, Engine, EngineId, OTHER_OPERATION, Order, Query};
use crate::base::{ComputeMode, Format};
use crate::error::{Error, Result};
use crate::ir::Op;
use crate::kernel::{AssetSpec, CodeOrder, catalogue};

/// Rows of x and of w of a tile.
const TILE: [u32; 2] = [TILE_ROWS as u32, 16];
/// Rows of w from which a workgroup is one of few subgroups: there are enough workgroups.
const MANY_ROWS: f64 = 8192.0;

/// `round_codes` and `matvec_tiles_*` of one weight format.
pub(super) struct TilesLinear {
    id: EngineId,
    format: Format,
}

impl TilesLinear {
    /// The engine of a format, where its kernel knows it.
    pub(super) fn of(format: Format) -> Option<TilesLinear> {
        let id = EngineId::new(format!("wgsl.matvec_tiles.{format}"));
        has_tiles(format).then_some(TilesLinear { id, format })
    }

    /// Codes of two blocks of 32 by lanes: four threads have two words of each. Of Q4_K neighbouring ones.
    fn codes(&self) -> CodeOrder {
        let chunk = if self.format == Format::Q4K { 2 } else { 1 };
        CodeOrder { groups: 2, run: 2, chunk, planes: false }
    }

    /// Threads of a workgroup, whose subgroups share the columns.
    fn threads(&self, query: &Query) -> Knob {
        let n = sizes(query).map_or(1.0, |(_, n, _)| n);
        let most = query.profile.max_threads_per_workgroup.min(256);
        let wanted = if n >= MANY_ROWS { 64 } else { 256 };
        Knob::new("threads", "threads of a workgroup", powers(32, most.max(32)), wanted.min(most))
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
            return Err("the device has no matrices of whole numbers for WGSL".into());
        }
        if sizes(query).is_none_or(|(m, ..)| m < 2.0) {
            return Err("one row of x leaves seven of a tile idle".into());
        }
        layers_fit(query, TILE[0])
    }

    fn fuses(&self, query: &Query) -> Result<(), String> {
        in_one_launch(query, self.format, 2).map(|_| ())
    }

    fn order(&self, _query: &Query) -> Result<Order, String> {
        Err("rows of x share tiles".into())
    }

    fn knobs(&self, query: &Query) -> Vec<Knob> {
        vec![self.threads(query)]
    }

    fn cost(&self, query: &Query) -> Cost {
        let Some((m, n, k)) = sizes(query) else { return Cost::default() };
        let weight = n * k * self.format.block_bytes() as f64 / self.format.block_len() as f64;
        let (before, after) = query.around.map_or((0.0, 0.0), |around| around.operations());
        let passes = (m / f64::from(TILE[0])).ceil();
        Cost {
            bytes: weight * passes + m * (4.0 * n + 6.5 * k),
            flops: 0.25 * m * n * k + (before + ROUNDING) * m * k + after * m * n,
            dispatches: 2.0,
            // `matvec_codes_*` are estimated the same, and multiply for longer.
            efficiency: if passes > 1.0 { 0.25 } else { 0.9 },
        }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let [x, w] = query.operands else {
            return Err(Error::invalid(format!("{}: linear needs two operands", query.label)));
        };
        let (x, m, k, x_stride) = out.rows(x)?;
        let columns = query.upper(&w.shape[1])?;
        let around = query.around.filter(|around| !around.is_empty());
        let (codes, words, places) =
            rounded(true, &x, ([&m, &k, &x_stride], columns), (self.codes(), true, around), out)?;
        let name = catalogue::family_name("matvec_tiles_*", self.format);
        let spec = AssetSpec::new(name)
            .constant("WG", self.threads(query).value(query.knobs))
            .constant("K", columns as u32)
            .define("subgroup");
        let after = around.map(|around| {
            let segments = around.segments.clone();
            Around { segments, ..Around::default() }
        });
        let product = CodesProduct {
            spec,
            format: self.format,
            sizes: [m, k],
            codes,
            words,
            places,
            tile: TILE,
            eps: None,
        };
        product.lower(query, after, out)
    }
}

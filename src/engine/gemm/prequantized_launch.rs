//! Launches of GEMV with pre-quantised activations: `matvec_prequant_*` and `matvec_mma_*`.

use crate::base::{Dim, Format};
use crate::engine::gemm::operands::{groups, pieces};
use crate::engine::lowering::{Call, Lowering, TensorId};
use crate::engine::{Fusion, Query};
use crate::error::{Error, Result};
use crate::kernel::AssetSpec;
use crate::provider::GRANULE;

/// A product with a weight, after x is quantised.
pub(in crate::engine) struct CodesProduct {
    /// The kernel to launch.
    pub(in crate::engine) spec: AssetSpec,
    /// Format of the weight.
    pub(in crate::engine) format: Format,
    /// Rows and columns of x.
    pub(in crate::engine) sizes: [Dim; 2],
    /// The quantised rows of x.
    pub(in crate::engine) codes: TensorId,
    /// Words per row of x.
    pub(in crate::engine) words: Dim,
    /// Word offsets of the int8 values and of the scales of x.
    pub(in crate::engine) places: [Dim; 2],
    /// Rows of x and rows of w per workgroup.
    pub(in crate::engine) tile: [u32; 2],
    /// Epsilon of the norm, if the kernel scales rows by it; else 0.
    pub(in crate::engine) eps: f32,
}

impl CodesProduct {
    /// Adds one launch if there is a fusion (`after`), else as many as the maximum size of a
    /// binding requires.
    ///
    /// # Errors
    /// Same as [`Lowering::call`], and invalid if the rows of the weight are not whole blocks.
    pub(in crate::engine) fn lower(
        self,
        query: &Query,
        after: Option<Fusion>,
        out: &mut Lowering,
    ) -> Result<()> {
        let [_, w] = query.operands else {
            return Err(Error::invalid(format!("{}: linear needs two operands", query.label)));
        };
        let (n, columns) = (query.upper(&w.shape[0])?, query.upper(&w.shape[1])?);
        let rows = self.tile[1];
        let y_offset = &query.output.layout.offset;
        if let Some(after) = after {
            let call = self.call(n, n, groups(&after, n, rows), y_offset, out)?;
            let call = call.bind(w.tensor).bind(self.codes).bind(query.output.tensor);
            return out.call(match after.is_empty() {
                true => call,
                false => call.fusion(after.attach(true)?),
            });
        }
        let row_bytes = self.format.bytes(columns).ok_or_else(|| {
            let len = self.format.block_len();
            Error::invalid(format!("{}: {columns} columns are not blocks of {len}", query.label))
        })?;
        for (first, made) in pieces(n, row_bytes, query)? {
            let bytes = (made * row_bytes).max(1).next_multiple_of(GRANULE);
            let groups = Dim::from(made.div_ceil(u64::from(rows)));
            let y_offset = y_offset.clone() + Dim::from(first);
            let call = self.call(made, n, groups, &y_offset, out)?;
            let call = call.bind_part(w.tensor, first * row_bytes, bytes);
            out.call(call.bind(self.codes).bind(query.output.tensor))?;
        }
        Ok(())
    }

    /// Returns the launch for `made` of the `n` columns of y.
    fn call(&self, made: u64, n: u64, groups: Dim, y_offset: &Dim, out: &Lowering) -> Result<Call> {
        let [m, k] = &self.sizes;
        let [x_offset, x_factors] = &self.places;
        let [gx, gy, _] = out.fold(groups);
        let call = Call::new(self.spec.clone())
            .dim("m", m)?
            .dim("n", &Dim::from(made))?
            .dim("k", k)?
            .dim("x_offset", x_offset)?
            .dim("x_stride", &self.words)?
            .dim("x_factors", x_factors)?
            .dim("y_offset", y_offset)?
            .dim("y_stride", &Dim::from(n))?
            .grid([gx, gy, m.ceil_div(&Dim::from(self.tile[0]))]);
        Ok(call.f32("eps", self.eps))
    }
}

//! Launches of products with rows of x as whole numbers: `matvec_codes_*` and `matvec_tiles_*`.

use super::lowering::{Call, Lowering, TensorId};
use super::product::{groups, pieces};
use super::{Around, Query};
use crate::base::{Dim, Format};
use crate::error::{Error, Result};
use crate::kernel::AssetSpec;
use crate::provider::GRANULE;

/// Such a product, once x is rounded.
pub(super) struct CodesProduct {
    /// The kernel.
    pub(super) spec: AssetSpec,
    /// Of the weight.
    pub(super) format: Format,
    /// Rows and columns of x.
    pub(super) sizes: [Dim; 2],
    /// x.
    pub(super) codes: TensorId,
    /// Words of a row of x, those before its codes, and those before what they stand for.
    pub(super) words: Dim,
    pub(super) places: [Dim; 2],
    /// Rows of x and of w of a workgroup.
    pub(super) tile: [u32; 2],
    /// Where the kernel scales rows by their norm, its epsilon; else 0.
    pub(super) eps: f32,
}

impl CodesProduct {
    /// In one launch with what is done with products, where there is anything around it at all; else in as many as the
    /// bindings of the device ask for.
    ///
    /// # Errors
    /// As [`Lowering::call`]; invalid, for a weight whose rows are no whole blocks.
    pub(super) fn lower(
        self,
        query: &Query,
        after: Option<Around>,
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
                false => call.around(after.attach(true)?),
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

    /// The launch that makes so many of n columns of y.
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

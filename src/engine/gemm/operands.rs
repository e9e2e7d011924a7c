//! Shared parts of the GEMM and GEMV engines: operand sizes, launch limits, occupancy estimates.

use crate::base::{Dim, Format};
use crate::engine::attention::single_pass::units;
use crate::engine::{Fusion, OTHER_OPERATION, Query, ReductionOrder, SegmentBody};
use crate::error::{Error, Result};
use crate::kernel::fusion::attach_groups;
use crate::provider::{DeviceKind, DeviceProfile, GRANULE};

/// Returns the rows of x, and the rows and columns of w, at the upper ends of the shape class.
pub(in crate::engine) fn sizes(query: &Query) -> Option<(f64, f64, f64)> {
    let [x, w] = query.operands else { return None };
    let (rows, ..) = x.as_rows().or_else(|| {
        let last = x.shape.rank().checked_sub(1)?;
        let lead = x.shape.dims()[..last].iter().cloned();
        Some((lead.fold(Dim::new(1), |a, b| a * b), Dim::new(1), Dim::new(1)))
    })?;
    let m = query.upper(&rows).ok()? as f64;
    Some((m, query.upper(&w.shape[0]).ok()? as f64, query.upper(&w.shape[1]).ok()? as f64))
}

/// Returns the fusion of a product that runs in one launch; `own_reads` is the number of buffers
/// that the kernel itself binds for reading.
///
/// # Errors
/// Returns the reason if the product takes several launches, or more buffers than the device has.
pub(in crate::engine) fn in_one_launch<'a>(
    query: &Query<'a>,
    format: Format,
    own_reads: usize,
) -> Result<&'a Fusion, String> {
    let (Some(fusion), [_, w]) = (query.fusion, query.operands) else {
        return Err(OTHER_OPERATION.into());
    };
    let bytes = query.upper(&w.shape.elements()).ok().and_then(|n| format.bytes(n));
    if bytes.is_none_or(|bytes| bytes > query.profile.max_binding_bytes) {
        return Err("the weight is split over several launches".into());
    }
    let bindings = own_reads + fusion.reads().len() + fusion.writes().len().max(1)
        - usize::from(!fusion.segments.is_empty() && fusion.writes().is_empty());
    let most = query.profile.max_storage_buffers as usize;
    match bindings > most {
        true => Err(format!("{bindings} storage buffers, the device has {most}")),
        false => Ok(fusion),
    }
}

/// Checks that the grid has enough layers for the rows of x, at `rows` rows per layer.
///
/// # Errors
/// Returns the reason if it has too few.
pub(in crate::engine) fn layers_fit(query: &Query, rows: u32) -> Result<(), String> {
    let layers = sizes(query).map_or(1.0, |(m, ..)| (m / f64::from(rows.max(1))).ceil());
    let most = query.profile.max_workgroups_per_dim;
    match layers > f64::from(most) {
        true => Err(format!("{layers} layers of workgroups, the device has {most}")),
        false => Ok(()),
    }
}

/// Threads per workgroup on a software GPU, which runs them one after another: idle threads and
/// barriers cost as much as working ones.
pub(in crate::engine) const SOFTWARE_THREADS: u32 = 32;

/// Returns the threads per workgroup and the rows of w that it computes, for few rows of x: `real`,
/// or other values on a software GPU, where they depend on the rows of x per pass (`at_once`).
/// Measured with lavapipe on two cores, in ms for the layers of one token, with 128 threads and two
/// rows, 32 and two, 32 and eight: the embedded model 42, 22, 14 in `F32` and 65, 25, 19 in `Int8`;
/// SmolLM2-135M 235, 116, 92 and 283, 134, 110.
pub(in crate::engine) fn of_few_rows(
    profile: &DeviceProfile,
    real: (u32, u32),
    at_once: u32,
) -> (u32, u32) {
    match profile.kind {
        DeviceKind::Software if at_once == 1 => (SOFTWARE_THREADS, 8),
        DeviceKind::Software => (SOFTWARE_THREADS, real.1),
        _ => real,
    }
}

/// Returns `order` for an engine that ranks below those that compute one row of x at a time. If
/// these need more layers than a launch has, the engine may not replace them, since the result
/// would have different bits with fewer rows.
///
/// # Errors
/// Returns the reason in that case.
pub(in crate::engine) fn after_rows(
    query: &Query,
    order: ReductionOrder,
) -> Result<ReductionOrder, String> {
    let fits = layers_fit(query, 1);
    fits.map(|()| order).map_err(|why| format!("products by rows come first, and {why}"))
}

/// Returns the fraction of its full speed that a kernel reaches with this number of tiles: few
/// tiles leave compute units idle (wave quantisation). The exponent is fitted to choices measured
/// on an H200 with 18 to 128 tiles.
pub(in crate::engine) fn filled(tiles: f64, query: &Query) -> f64 {
    // Above zero even without tiles, so that an estimate is finite.
    (tiles / units(query.profile)).clamp(1e-3, 1.0).powf(0.4)
}

/// Returns the rows of x per tile of `matmul_*` with 64 rows of w, if x has `m` rows and w has `n`.
/// Larger tiles load less, but a compute unit needs two workgroups, so that one multiplies while
/// the other waits for memory. Measured on an H200 (`docs/performance/nvidia-h200.md`); a guess for
/// other GPUs. A software GPU has no such latency.
pub(in crate::engine) fn tile_rows(profile: &DeviceProfile, m: u64, n: u64) -> u32 {
    let large = (m.div_ceil(128) * n.div_ceil(64)) as f64;
    match profile.kind {
        _ if m < 128 => 32,
        DeviceKind::Discrete | DeviceKind::Integrated if large < 2.0 * units(profile) => 64,
        _ => 128,
    }
}

/// Returns the number of workgroups for `n` rows of w and their epilogue, at `rows` rows per
/// workgroup.
pub(in crate::engine) fn groups(fusion: &Fusion, n: u64, rows: u32) -> Dim {
    match &fusion.segments[..] {
        [] => Dim::from(n.div_ceil(u64::from(rows))),
        segments => {
            let count = |s: &SegmentBody| s.sizes[0].clone() * s.sizes[1].clone();
            attach_groups(rows, segments.iter().map(|s| (count(s), s.anchors)))
        }
    }
}

/// Splits `n` rows of `row_bytes` bytes into ranges (first row, number of rows). Each fits one
/// binding and starts at the binding alignment.
pub(in crate::engine) fn pieces(n: u64, row_bytes: u64, query: &Query) -> Result<Vec<(u64, u64)>> {
    let most = query.profile.max_binding_bytes;
    if n.saturating_mul(row_bytes) <= most - most % GRANULE {
        return Ok(vec![(0, n)]);
    }
    let align = u64::from(query.profile.binding_alignment).max(4);
    // This many rows end on the alignment, because `align` is a power of two.
    let step = align / gcd(align, row_bytes);
    let rows = most / row_bytes / step * step;
    if rows == 0 {
        return Err(Error::unsupported(format!(
            "{}: {step} rows of {row_bytes} bytes do not fit one binding of {most} bytes",
            query.label
        )));
    }
    Ok((0..n).step_by(rows as usize).map(|first| (first, rows.min(n - first))).collect())
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::{NullProvider, OpenOptions};

    #[test]
    fn a_gpu_whose_units_have_too_few_large_tiles_takes_smaller_ones() {
        let null = NullProvider::device(&OpenOptions::default()).profile().clone();
        let of = |kind, compute_units| {
            null.clone().with(|p| {
                p.kind = kind;
                p.compute_units = compute_units;
            })
        };
        let gpu = of(DeviceKind::Discrete, 16);
        // 32 workgroups of 128 rows are two for each compute unit.
        let cases = [(127, 1 << 20, 32), (128, 2047, 128), (128, 1984, 64), (256, 1024, 128)];
        for (m, n, rows) in cases {
            assert_eq!(tile_rows(&gpu, m, n), rows, "{m} x {n}");
        }
        assert_eq!(tile_rows(&of(DeviceKind::Integrated, 17), 256, 1024), 64);
        assert_eq!(tile_rows(&of(DeviceKind::Cpu, 17), 256, 64), 128);
    }
}

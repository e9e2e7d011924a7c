//! Vector loops, generic over the instruction set.
#![allow(clippy::needless_range_loop, reason = "rows and vectors of constant number, which unroll")]

use super::formats::Plain;
use super::formats::{F32, Rows, accumulate, sums};
use super::{DecodeFn, Normalise, Product, Simd, Weighted, math};

/// Computes a [`Product`] for `M` rows of `x`, `R` weight rows at a time, from weight row `first`
/// on. Returns the first weight row that is left; the caller computes the remaining ones.
///
/// # Safety
/// The pointers of the task are valid for its sizes; `y` is not shared.
#[inline(always)]
pub(super) unsafe fn product<S: Simd, W: Rows<S>, const R: usize, const M: usize>(
    task: &Product,
    first: usize,
) -> usize {
    let t = *task;
    let mut row = first;
    while row + R <= t.rows {
        let rows: [*const u8; R] =
            // SAFETY: row + r < rows.
            std::array::from_fn(|r| unsafe { t.w.add((row + r) * t.row_bytes) });
        // SAFETY: the caller's contract.
        unsafe {
            let ahead = t.far.then_some(R * t.row_bytes);
            let sums = W::dot::<R, M>(rows, ahead, t.k, t.x, t.x_stride);
            for r in 0..R {
                for i in 0..M {
                    *t.y.add(i * t.y_stride + row + r) = sums[r][i];
                }
            }
        }
        row += R;
    }
    row
}

/// Same as [`product`] for one row of `x` and weights in main memory: reads the weights in address
/// order, the only order that the hardware prefetcher follows.
///
/// # Safety
/// Same as [`product`].
#[inline(always)]
pub(super) unsafe fn in_order<S: Simd, E: Plain>(task: &Product) {
    // Independent accumulators hide the latency of an addition.
    const SUMS: usize = 4;
    let t = *task;
    let whole = t.k - t.k % (SUMS * S::LANES);
    let body = t.k - t.k % S::LANES;
    for row in 0..t.rows {
        // SAFETY: row < rows, and elements stay below k by the bounds of the loops.
        unsafe {
            let w = t.w.add(row * t.row_bytes);
            let at = |c: usize, acc: S::F| {
                S::fma(E::load::<S>(w.add(c * E::BYTES)), S::load(t.x.add(c)), acc)
            };
            let mut acc = [S::splat(0.0); SUMS];
            for c in (0..whole).step_by(SUMS * S::LANES) {
                for i in 0..SUMS {
                    acc[i] = at(c + i * S::LANES, acc[i]);
                }
            }
            for c in (whole..body).step_by(S::LANES) {
                acc[0] = at(c, acc[0]);
            }
            let [a, b, c, d] = acc;
            let mut sum = S::sum(S::add(S::add(a, b), S::add(c, d)));
            for c in body..t.k {
                sum += E::one::<S>(w.add(c * E::BYTES)) * *t.x.add(c);
            }
            *t.y.add(row) = sum;
        }
    }
}

/// Number of weights that are decoded at once: whole blocks of any format, few enough to fit in the
/// L1 cache together with the values of x that they multiply.
const STAGE: usize = 256;

/// A block format. Its decoder is a function pointer, so that one product function serves all
/// formats.
pub(super) struct Packing {
    pub(super) decode: DecodeFn,
    /// Number of weights in a block.
    pub(super) len: usize,
    /// Size of a block in bytes.
    pub(super) bytes: usize,
}

/// Same as [`product`], but decodes through memory: each block is decoded once for all rows of `x`.
///
/// # Safety
/// Same as [`product`], and `k` is a multiple of the block length.
#[inline(always)]
pub(super) unsafe fn staged<S: Simd, const R: usize, const M: usize>(
    task: &Product,
    packing: &Packing,
    first: usize,
) -> usize {
    let t = *task;
    let mut stage = [[0.0f32; STAGE]; R];
    let mut row = first;
    while row + R <= t.rows {
        // SAFETY: the caller ensures CPU support.
        let mut acc = unsafe { [[S::splat(0.0); M]; R] };
        for at in (0..t.k).step_by(STAGE) {
            let len = STAGE.min(t.k - at);
            // SAFETY: blocks from weight `at` on, `len` of them, in the rows and below k.
            unsafe {
                for r in 0..R {
                    let p = t.w.add((row + r) * t.row_bytes + at / packing.len * packing.bytes);
                    (packing.decode)(p, stage[r].as_mut_ptr(), len);
                }
                let rows = std::array::from_fn(|r| stage[r].as_ptr().cast());
                accumulate::<S, F32, R, M>(&mut acc, rows, None, len, t.x.add(at), t.x_stride);
            }
        }
        // SAFETY: the caller's contract.
        unsafe {
            let sums = sums::<S, R, M>(&acc);
            for r in 0..R {
                for i in 0..M {
                    *t.y.add(i * t.y_stride + row + r) = sums[r][i];
                }
            }
        }
        row += R;
    }
    row
}

/// Computes the sums of [`Weighted`] for `M` rows of `p` and `out`.
///
/// # Safety
/// The pointers of the task are valid for its sizes; `out` is not shared.
#[inline(always)]
pub(super) unsafe fn weighted<S: Simd, E: Plain, const M: usize>(task: &Weighted) {
    let t = *task;
    // SAFETY: columns stay below cols, s below len.
    unsafe {
        let mut c = 0;
        // Enough accumulators to hide the latency of an addition, if the registers hold them.
        if (M + 1) * 4 < S::REGISTERS {
            while c + 4 * S::LANES <= t.cols {
                columns::<S, E, M, 4>(&t, c);
                c += 4 * S::LANES;
            }
        }
        while c + 2 * S::LANES <= t.cols {
            columns::<S, E, M, 2>(&t, c);
            c += 2 * S::LANES;
        }
        while c + S::LANES <= t.cols {
            columns::<S, E, M, 1>(&t, c);
            c += S::LANES;
        }
        for c in c..t.cols {
            for i in 0..M {
                let mut sum = *t.out.add(i * t.out_stride + c);
                for s in 0..t.len {
                    let v = E::one::<S>(t.v.add(s * t.v_bytes + c * E::BYTES));
                    sum += *t.p.add(i * t.p_stride + s) * v;
                }
                *t.out.add(i * t.out_stride + c) = sum;
            }
        }
    }
}

/// Computes `C` vectors of columns from column `c` on.
#[inline(always)]
unsafe fn columns<S: Simd, E: Plain, const M: usize, const C: usize>(t: &Weighted, c: usize) {
    // SAFETY: the caller's contract: c + C * LANES <= cols.
    unsafe {
        let mut acc = [[S::splat(0.0); C]; M];
        for i in 0..M {
            for j in 0..C {
                acc[i][j] = S::load(t.out.add(i * t.out_stride + c + j * S::LANES));
            }
        }
        for s in 0..t.len {
            let row = t.v.add(s * t.v_bytes + c * E::BYTES);
            let mut v = [S::splat(0.0); C];
            for j in 0..C {
                v[j] = E::load::<S>(row.add(j * S::LANES * E::BYTES));
            }
            for i in 0..M {
                let p = S::splat(*t.p.add(i * t.p_stride + s));
                for j in 0..C {
                    acc[i][j] = S::fma(p, v[j], acc[i][j]);
                }
            }
        }
        for i in 0..M {
            for j in 0..C {
                S::store(t.out.add(i * t.out_stride + c + j * S::LANES), acc[i][j]);
            }
        }
    }
}

/// Returns the sum of `n` floats.
///
/// # Safety
/// `x` holds `n` floats.
#[inline(always)]
pub(super) unsafe fn sum<S: Simd>(x: *const f32, n: usize) -> f32 {
    // SAFETY: indices stay below n.
    unsafe {
        let mut acc = [S::splat(0.0); 4];
        let body = n - n % (4 * S::LANES);
        for at in (0..body).step_by(4 * S::LANES) {
            for (j, acc) in acc.iter_mut().enumerate() {
                *acc = S::add(*acc, S::load(x.add(at + j * S::LANES)));
            }
        }
        let mut sum = S::sum(S::add(S::add(acc[0], acc[1]), S::add(acc[2], acc[3])));
        for at in body..n {
            sum += *x.add(at);
        }
        sum
    }
}

/// Returns the sum of `(x - shift)^2` over `n` floats.
///
/// # Safety
/// `x` holds `n` floats.
#[inline(always)]
pub(super) unsafe fn sum_squares<S: Simd>(x: *const f32, n: usize, shift: f32) -> f32 {
    // SAFETY: indices stay below n.
    unsafe {
        let minus = S::splat(-shift);
        let mut acc = [S::splat(0.0); 4];
        let body = n - n % (4 * S::LANES);
        for at in (0..body).step_by(4 * S::LANES) {
            for (j, acc) in acc.iter_mut().enumerate() {
                let d = S::add(S::load(x.add(at + j * S::LANES)), minus);
                *acc = S::fma(d, d, *acc);
            }
        }
        let mut sum = S::sum(S::add(S::add(acc[0], acc[1]), S::add(acc[2], acc[3])));
        for at in body..n {
            let d = *x.add(at) - shift;
            sum += d * d;
        }
        sum
    }
}

/// Returns the maximum of `n` floats, skipping NaN; -inf if there is none.
///
/// # Safety
/// `x` holds `n` floats.
#[inline(always)]
pub(super) unsafe fn largest<S: Simd>(x: *const f32, n: usize) -> f32 {
    // SAFETY: indices stay below n; the lanes go through memory of their own, 16 at most.
    unsafe {
        let mut acc = [S::splat(f32::NEG_INFINITY); 4];
        let body = n - n % (4 * S::LANES);
        for at in (0..body).step_by(4 * S::LANES) {
            for (j, acc) in acc.iter_mut().enumerate() {
                *acc = S::max(S::load(x.add(at + j * S::LANES)), *acc);
            }
        }
        let mut lanes = [f32::NEG_INFINITY; 16];
        let all = S::max(S::max(acc[0], acc[1]), S::max(acc[2], acc[3]));
        S::store(lanes.as_mut_ptr(), all);
        let mut largest = lanes.into_iter().fold(f32::NEG_INFINITY, f32::max);
        for at in body..n {
            largest = largest.max(*x.add(at));
        }
        largest
    }
}

/// Normalises `n` elements, as [`Normalise`] describes.
///
/// # Safety
/// Each pointer, except a null `b`, holds `n` floats; `y` is not shared, or is `x`.
#[inline(always)]
pub(super) unsafe fn normalise(t: &Normalise) {
    for i in 0..t.n {
        // SAFETY: i < n.
        unsafe {
            let mut v = (*t.x.add(i) - t.shift) * t.scale * *t.w.add(i);
            if !t.b.is_null() {
                v += *t.b.add(i);
            }
            *t.y.add(i) = v;
        }
    }
}

/// Computes `y = exp(x - shift)` and returns the sum of `y`.
///
/// # Safety
/// `x` and `y` hold `n` floats; `y` is not shared, or is `x`.
#[inline(always)]
pub(super) unsafe fn exp_sum(x: *const f32, y: *mut f32, n: usize, shift: f32) -> f32 {
    const LANES: usize = 16;
    let mut sums = [0f32; LANES];
    let body = n - n % LANES;
    for at in (0..body).step_by(LANES) {
        // Through a local array: x may be y, and a loop over both would not vectorise.
        let mut v = [0f32; LANES];
        // SAFETY: at + LANES <= n.
        unsafe { x.add(at).copy_to_nonoverlapping(v.as_mut_ptr(), LANES) };
        for (v, sum) in v.iter_mut().zip(&mut sums) {
            *v = math::exp(*v - shift);
            *sum += *v;
        }
        // SAFETY: at + LANES <= n.
        unsafe { v.as_ptr().copy_to_nonoverlapping(y.add(at), LANES) };
    }
    let mut sum: f32 = sums.iter().sum();
    for at in body..n {
        // SAFETY: at < n.
        unsafe {
            let v = math::exp(*x.add(at) - shift);
            sum += v;
            *y.add(at) = v;
        }
    }
    sum
}

/// Multiplies `n` floats by `scale`.
///
/// # Safety
/// `y` holds `n` floats and is not shared.
#[inline(always)]
pub(super) unsafe fn scale(y: *mut f32, n: usize, scale: f32) {
    for i in 0..n {
        // SAFETY: i < n.
        unsafe { *y.add(i) *= scale };
    }
}

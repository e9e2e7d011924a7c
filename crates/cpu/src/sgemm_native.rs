//! Strided f32 matrix products, computed by the crate `gemm-f32`.

/// A strided matrix operand.
pub(super) struct Matrix<'a> {
    /// Memory from the first element to at least the last that the strides reach.
    pub(super) data: &'a [f32],
    pub(super) row_stride: usize,
    pub(super) col_stride: usize,
}

/// Computes `y = a b` on the calling thread. a is `[m, k]`, b is `[k, n]`, y is `[m, n]` and
/// contiguous.
pub(super) fn sgemm(m: usize, n: usize, k: usize, a: &Matrix<'_>, b: &Matrix<'_>, y: &mut [f32]) {
    super::call::assert_holds(a.data.len(), &[(m, a.row_stride), (k, a.col_stride)]);
    super::call::assert_holds(b.data.len(), &[(k, b.row_stride), (n, b.col_stride)]);
    super::call::assert_holds(y.len(), &[(m, n), (n, 1)]);
    // SAFETY: by the asserts, every element that the strides reach lies in its slice. `y` is
    // exclusive, and overwritten without being read.
    unsafe {
        gemm_f32::gemm::f32::get_gemm_fn()(
            m,
            n,
            k,
            y.as_mut_ptr(),
            1,
            n as isize,
            false,
            a.data.as_ptr(),
            a.col_stride as isize,
            a.row_stride as isize,
            b.data.as_ptr(),
            b.col_stride as isize,
            b.row_stride as isize,
            0.0f32,
            1.0f32,
            false,
            false,
            false,
            gemm_common::Parallelism::None,
        );
    }
}

//! Strided f32 matrix products for WebAssembly, where the crate `gemm-f32` is not used.

/// A strided matrix operand.
pub(super) struct Matrix<'a> {
    /// Memory from the first element to at least the last that the strides reach.
    pub(super) data: &'a [f32],
    pub(super) row_stride: usize,
    pub(super) col_stride: usize,
}

/// Computes `y = a b`. a is `[m, k]`, b is `[k, n]`, y is `[m, n]` and contiguous.
pub(super) fn sgemm(m: usize, n: usize, k: usize, a: &Matrix<'_>, b: &Matrix<'_>, y: &mut [f32]) {
    super::call::assert_holds(a.data.len(), &[(m, a.row_stride), (k, a.col_stride)]);
    super::call::assert_holds(b.data.len(), &[(k, b.row_stride), (n, b.col_stride)]);
    for (i, row) in y.chunks_exact_mut(n).take(m).enumerate() {
        row.fill(0.0);
        for c in 0..k {
            let factor = a.data[i * a.row_stride + c * a.col_stride];
            for (j, y) in row.iter_mut().enumerate() {
                *y += factor * b.data[c * b.row_stride + j * b.col_stride];
            }
        }
    }
}

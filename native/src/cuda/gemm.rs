//! GEMM parameters: checked against the buffers, and converted to the library's convention.
//!
//! The library's matrices are column-major. A row-major matrix is the transpose of the same memory
//! read by columns, so `d = a * b` is computed as `d^T = b^T * a^T`: the operands are swapped and
//! no data moves.
//!
//! The calls are in `blas`, so that everything here can be tested without a device.

use warploom_core::error::{Error, Result};
use warploom_kernels::{GEMM_PARAMS, Gemm};

/// Alignment of the offset of a bias, in elements. Bindings are aligned to 64 bytes, so the bias
/// address is aligned to 16 bytes for every plan: the bias is not part of a plan's cache key.
const BIAS_STEP: u64 = 4;

/// Largest size: the library uses signed 32-bit integers.
const MOST: u64 = i32::MAX as u64;

/// The parameters of a GEMM dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbers {
    pub(super) batch: u64,
    pub(super) m: u64,
    pub(super) n: u64,
    pub(super) k: u64,
    pub(super) a: Place,
    pub(super) b: Place,
    pub(super) d: Place,
    /// Element offset of the bias.
    pub(super) bias: u64,
}

/// Location of a matrix, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) offset: u64,
    /// Row stride.
    pub(super) stride: u64,
    /// Batch stride.
    pub(super) batch: u64,
}

/// A product in the library's convention: `out = first * second`, all column-major.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Columns {
    pub(super) batch: i32,
    pub(super) first: Matrix,
    pub(super) second: Matrix,
    pub(super) out: Matrix,
}

/// A column-major matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Matrix {
    pub(super) rows: u64,
    pub(super) columns: u64,
    /// Column stride in elements; at least `rows`.
    pub(super) stride: i64,
    /// Batch stride in elements.
    pub(super) batch: i64,
    /// Whether it is transposed before the product.
    pub(super) transposed: bool,
}

impl Matrix {
    /// Creates the matrix of `rows` stored rows of `each` elements; a stored row is a column here.
    fn of(place: &Place, [rows, each]: [u64; 2], transposed: bool) -> Matrix {
        // The stride of a single row is meaningless and may be too small for the library.
        let stride = if rows <= 1 { place.stride.max(each) } else { place.stride };
        let (stride, batch) = (stride.max(1) as i64, place.batch as i64);
        Matrix { rows: each, columns: rows, stride, batch, transposed }
    }

    /// Returns the number of elements from the first to the last of `batch` matrices.
    fn extent(&self, batch: u64) -> u128 {
        let far = |count: u64, step: i64| u128::from(count.saturating_sub(1)) * step as u128;
        far(batch, self.batch) + far(self.columns, self.stride) + u128::from(self.rows)
    }
}

impl Numbers {
    /// Reads the parameter words, in the order of [`GEMM_PARAMS`].
    ///
    /// # Errors
    /// Invalid if words are missing.
    pub(super) fn read(words: &[u32]) -> Result<Numbers> {
        let numbers = words.get(..GEMM_PARAMS.len()).map(|w| (w, |i: usize| u64::from(w[i])));
        let Some((_, at)) = numbers else {
            let (have, need) = (words.len(), GEMM_PARAMS.len());
            return Err(Error::invalid(format!("a product with {have} of {need} parameters")));
        };
        let place = |i| Place { offset: at(i), stride: at(i + 1), batch: at(i + 2) };
        Ok(Numbers {
            batch: at(0),
            m: at(1),
            n: at(2),
            k: at(3),
            a: place(4),
            b: place(7),
            d: place(10),
            bias: at(13),
        })
    }

    /// Returns whether the result is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.batch == 0 || self.m == 0 || self.n == 0
    }

    /// Checks the call and converts it to the library's convention. Sizes must be within the
    /// library's range, rows must not overlap, a bias must be at a multiple of [`BIAS_STEP`], and
    /// every element must lie within its binding (`bytes`, in the order of the bindings).
    ///
    /// # Errors
    /// Invalid, with the offending values, if a check fails.
    pub(super) fn columns(&self, gemm: &Gemm, bytes: &[u64]) -> Result<Columns> {
        let Numbers { batch, m, n, k, .. } = *self;
        let wrong = |what: String| Error::invalid(format!("{gemm} of {self}: {what}"));
        if let Some(size) = [batch, m, n, k].into_iter().find(|size| *size == 0 || *size > MOST) {
            return Err(wrong(format!("a size of {size}, must be 1 to {MOST}")));
        }
        let stored = |rows, each, transposed| if transposed { [each, rows] } else { [rows, each] };
        let first = Matrix::of(&self.b, stored(k, n, gemm.b_transposed), gemm.b_transposed);
        let second = Matrix::of(&self.a, stored(m, k, gemm.a_transposed), gemm.a_transposed);
        let out = Matrix::of(&self.d, [m, n], false);
        let with_bias = gemm.epilogue.has_bias();
        let (wide, narrow) = (gemm.result.bytes(), gemm.operands.bytes());
        let named = [("a", &second, &self.a, narrow), ("b", &first, &self.b, narrow)];
        let last = ("d", &out, &self.d, wide);
        for (i, (name, matrix, place, size)) in named.into_iter().chain([last]).enumerate() {
            if (matrix.stride as u64) < matrix.rows {
                let (rows, stride) = (matrix.rows, matrix.stride);
                return Err(wrong(format!("rows of {name} have {rows} elements, {stride} apart")));
            }
            let at = if i == 2 { bytes.len().saturating_sub(1) } else { i };
            let need = (u128::from(place.offset) + matrix.extent(batch)) * u128::from(size);
            let have = bytes.get(at).copied().unwrap_or(0);
            if need > u128::from(have) {
                return Err(wrong(format!("{name} ends at byte {need} of {have} that are bound")));
            }
        }
        if with_bias {
            // The engine (`engine::gemm::vendor`) leaves any other bias to a separate launch.
            if !self.bias.is_multiple_of(BIAS_STEP) {
                let at = self.bias;
                return Err(wrong(format!(
                    "the bias begins at {at}, not a multiple of {BIAS_STEP}"
                )));
            }
            let need = (u128::from(self.bias) + u128::from(n)) * u128::from(wide);
            let have = bytes.get(2).copied().unwrap_or(0);
            if need > u128::from(have) {
                return Err(wrong(format!("the bias ends at byte {need} of {have}")));
            }
        }
        let apart = u128::from(self.d.batch) >= out.extent(1);
        if batch > 1 && !apart {
            return Err(wrong(format!("results {} elements apart overlap", self.d.batch)));
        }
        Ok(Columns { batch: batch as i32, first, second, out })
    }
}

impl std::fmt::Display for Numbers {
    /// Formats the sizes, as in `4 x [8, 32] x [32, 16]`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Numbers { batch, m, n, k, .. } = self;
        write!(f, "{batch} x [{m}, {k}] x [{k}, {n}]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warploom_core::base::DType;
    use warploom_kernels::{Epilogue, GemmCompute};

    fn gemm(a_transposed: bool, b_transposed: bool) -> Gemm {
        let (operands, compute) = (DType::F32, GemmCompute::F32);
        let epilogue = Epilogue::None;
        Gemm { operands, result: operands, a_transposed, b_transposed, compute, epilogue }
    }

    /// Emulates the library on the host.
    fn call(columns: &Columns, first: &[f32], second: &[f32], out: &mut [f32]) {
        let at = |x: &[f32], m: &Matrix, t: usize, row: u64, column: u64| {
            let (row, column) = if m.transposed { (column, row) } else { (row, column) };
            x[t * m.batch as usize + row as usize + column as usize * m.stride as usize]
        };
        let inner =
            if columns.first.transposed { columns.first.rows } else { columns.first.columns };
        let Matrix { rows, columns: wide, stride, batch, .. } = columns.out;
        for t in 0..columns.batch as usize {
            for (i, j) in (0..wide).flat_map(|j| (0..rows).map(move |i| (i, j))) {
                let products = (0..inner).map(|l| {
                    at(first, &columns.first, t, i, l) * at(second, &columns.second, t, l, j)
                });
                let place = t * batch as usize + i as usize + j as usize * stride as usize;
                out[place] = products.sum();
            }
        }
    }

    /// Returns small integers that depend on their index and the seed.
    fn filled(count: u64, seed: u64) -> Vec<f32> {
        (0..count).map(|i| ((i * 7 + seed * 13) % 23) as f32 - 11.0).collect()
    }

    #[test]
    fn columns_give_the_product_of_rows() {
        for case in 0..256u64 {
            let pick = |shift: u64, most: u64| (case >> shift).wrapping_mul(5) % most;
            let [batch, m, n, k] = [1 + pick(2, 3), 1 + pick(3, 5), 1 + pick(4, 4), 1 + pick(5, 6)];
            let gemm = gemm(case & 1 == 1, case & 2 == 2);
            let place = |rows: u64, each: u64, repeats: bool, seed: u64| {
                let stride = each + pick(seed, 3);
                let batch = if repeats { 0 } else { rows * stride + pick(seed + 1, 4) };
                Place { offset: pick(seed + 2, 5), stride, batch }
            };
            let [a_shape, b_shape] = [
                if gemm.a_transposed { [k, m] } else { [m, k] },
                if gemm.b_transposed { [n, k] } else { [k, n] },
            ];
            let numbers = Numbers {
                batch,
                m,
                n,
                k,
                a: place(a_shape[0], a_shape[1], case % 5 == 0, 1),
                b: place(b_shape[0], b_shape[1], case % 7 == 0, 2),
                d: place(m, n, false, 3),
                bias: 0,
            };
            let room = |p: &Place, rows: u64| p.offset + batch * p.batch + rows * p.stride + 8;
            let rooms = [room(&numbers.a, a_shape[0]), room(&numbers.b, b_shape[0])];
            let (a, b) = (filled(rooms[0], 1), filled(rooms[1], 2));
            let mut d = vec![f32::NAN; room(&numbers.d, m) as usize];
            let bytes = [4 * rooms[0], 4 * rooms[1], 4 * d.len() as u64];
            let columns = numbers.columns(&gemm, &bytes).unwrap();
            let [a0, b0, d0] = [numbers.a, numbers.b, numbers.d].map(|p| p.offset as usize);
            call(&columns, &b[b0..], &a[a0..], &mut d[d0..]);
            let mut made = 0;
            for (t, i, j) in (0..batch * m * n).map(|x| (x / (m * n), x / n % m, x % n)) {
                let at = |p: &Place, transposed: bool, row: u64, column: u64| {
                    let (row, column) = if transposed { (column, row) } else { (row, column) };
                    (p.offset + t * p.batch + row * p.stride + column) as usize
                };
                let sum: f32 = (0..k)
                    .map(|l| {
                        a[at(&numbers.a, gemm.a_transposed, i, l)]
                            * b[at(&numbers.b, gemm.b_transposed, l, j)]
                    })
                    .sum();
                assert_eq!(d[at(&numbers.d, false, i, j)], sum, "case {case}: {gemm} of {numbers}");
                made += 1;
            }
            let written = d.iter().filter(|x| !x.is_nan()).count();
            assert_eq!(written, made, "case {case} writes elsewhere");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_with_its_numbers() {
        let place = |stride, batch| Place { offset: 0, stride, batch };
        let (a, b, d) = (place(32, 256), place(16, 0), place(16, 128));
        let good = Numbers { batch: 2, m: 8, n: 16, k: 32, a, b, d, bias: 0 };
        let bytes = [2 * 8 * 32 * 4, 32 * 16 * 4, 2 * 8 * 16 * 4];
        let plain = gemm(false, false);
        assert!(good.columns(&plain, &bytes).is_ok());
        let reported = |numbers: Numbers, bytes: [u64; 3]| {
            let error = numbers.columns(&plain, &bytes).unwrap_err();
            assert!(error.is_invalid());
            error.to_string()
        };
        let short = reported(good, [bytes[0] - 4, bytes[1], bytes[2]]);
        assert!(short.contains("a ends at byte 2048 of 2044"), "{short}");
        assert!(short.contains("gemm f32 a*b -> f32 of 2 x [8, 32] x [32, 16]"), "{short}");
        assert!(reported(good, [bytes[0], bytes[1], 1020]).contains("d ends at byte 1024 of 1020"));
        assert!(
            reported(Numbers { b: place(15, 0), ..good }, bytes).contains("16 elements, 15 apart")
        );
        assert!(
            reported(Numbers { d: place(16, 127), ..good }, bytes).contains("127 elements apart")
        );
        assert!(reported(Numbers { k: 0, ..good }, bytes).contains("a size of 0"));
        assert!(reported(Numbers { m: 1 << 31, ..good }, bytes).contains("a size of 2147483648"));
        let far = Place { offset: u64::from(u32::MAX), stride: u64::from(u32::MAX), batch: 0 };
        assert!(reported(Numbers { b: far, ..good }, bytes).contains("b ends at byte"));
        let biased = Gemm { epilogue: Epilogue::Bias, ..plain };
        let [a, b, d] = bytes;
        assert!(good.columns(&biased, &[a, b, 64, d]).is_ok());
        let error = good.columns(&biased, &[a, b, 60, d]).unwrap_err().to_string();
        assert!(error.contains("the bias ends at byte 64 of 60"), "{error}");
        for (bias, fits) in [(4, true), (1, false), (2, false)] {
            let numbers = Numbers { bias, ..good };
            let called = numbers.columns(&biased, &[a, b, 80, d]);
            let reported = called.map_err(|error| error.to_string()).err();
            let wrong = format!("the bias begins at {bias}, not a multiple of 4");
            assert_eq!(reported.is_none(), fits, "{reported:?}");
            assert!(reported.is_none_or(|reported| reported.contains(&wrong)), "{wrong}");
            assert!(numbers.columns(&plain, &bytes).is_ok(), "without a bias it means nothing");
        }
        assert!(Numbers::read(&[0; 13]).unwrap_err().to_string().contains("13 of 14"));
        // A single row: its stride is ignored.
        let row = Numbers { batch: 1, m: 1, a: place(0, 0), d: place(0, 0), ..good };
        assert!(row.columns(&plain, &bytes).is_ok());
    }
}

//! Tests every format on every instruction set, against `quant` and exact quantisation.

use super::super::{WIDTHS, format_index, tests::wild};
use super::*;
use warploom_core::base::Format;
use warploom_core::quant;

fn numbers(n: usize, seed: usize) -> Vec<f32> {
    (0..n)
        .map(|i| (((i + seed) * 7919 % 1013) as f32 / 506.0 - 1.0) * (1 + i / 32 % 5) as f32)
        .collect()
}

/// Weight rows in a format, and quantised rows of x.
struct Operands {
    format: Format,
    bytes: Vec<u8>,
    w: Vec<f32>,
    rows: usize,
    k: usize,
    codes: Vec<i8>,
    factors: Vec<f32>,
}

impl Operands {
    fn new(int8: &Int8, format: Format, rows: usize, m: usize) -> Operands {
        // Eight runs, four, and single ones.
        let blocks = 23;
        let k = blocks * format.block_len() as usize;
        let bytes = wild(format, blocks * rows);
        let mut w = vec![0.0; rows * k];
        quant::decode(format, &bytes, &mut w).unwrap();
        let x = numbers(m * k, m);
        let (mut codes, mut factors) = (vec![0i8; m * k], vec![0f32; TABLES * m * k / BLOCK]);
        for i in 0..m {
            // SAFETY: a row, and room for its codes and factors.
            unsafe {
                let factors = factors.as_mut_ptr().add(i * TABLES * k / BLOCK);
                let codes = codes.as_mut_ptr().add(i * k);
                (int8.round)(x.as_ptr().add(i * k), k, codes, factors, k / BLOCK);
            }
        }
        Operands { format, bytes, w, rows, k, codes, factors }
    }

    fn row_bytes(&self) -> usize {
        self.bytes.len() / self.rows
    }

    /// Checks products `[m, rows]`; the element of padding after each row must be unchanged.
    fn check(&self, y: &[f32], what: &str) {
        for (i, y) in y.chunks(self.rows + 1).enumerate() {
            assert!(y[self.rows].is_nan(), "{what}: written past row {i}");
            for (r, got) in y[..self.rows].iter().enumerate() {
                let (mut want, mut size) = (0.0, 0.0);
                for c in 0..self.k {
                    let factor = self.factors[i * TABLES * self.k / BLOCK + c / BLOCK];
                    let x = f64::from(self.codes[i * self.k + c]) * f64::from(factor);
                    want += f64::from(self.w[r * self.k + c]) * x;
                    size += (f64::from(self.w[r * self.k + c]) * x).abs();
                }
                // Code and bias are summed separately, and each may be larger than the weight.
                assert!(
                    (f64::from(*got) - want).abs() <= 1e-5 * size + 1e-6,
                    "{what} {}, [{i}, {r}]: {got}, not {want}",
                    self.format
                );
            }
        }
    }
}

fn quantised() -> impl Iterator<Item = Format> {
    Format::ALL.into_iter().filter(|f| f.is_quantised())
}

#[test]
fn products_are_those_of_rounded_numbers() {
    for (format, int8) in quantised().flat_map(|f| available().into_iter().map(move |i| (f, i))) {
        for (width, m) in WIDTHS.into_iter().enumerate() {
            let of = Operands::new(int8, format, 5, m);
            let mut y = vec![f32::NAN; m * (of.rows + 1)];
            let task = IntProduct {
                w: of.bytes.as_ptr(),
                row_bytes: of.row_bytes(),
                rows: of.rows,
                k: of.k,
                x: of.codes.as_ptr(),
                factors: of.factors.as_ptr(),
                y: y.as_mut_ptr(),
                y_stride: of.rows + 1,
            };
            // SAFETY: every buffer has the size that the task states.
            unsafe { int8.products[format_index(format).unwrap()].unwrap()[width](&task) };
            of.check(&y, &format!("{} m {m}", int8.name));
        }
    }
}

#[test]
fn products_side_by_side_are_those_of_rounded_numbers() {
    let mut tested = 0;
    for (format, int8) in quantised().flat_map(|f| available().into_iter().map(move |i| (f, i))) {
        let Some(tiles) = int8.tiles else { continue };
        let packing = int8.packings[format_index(format).unwrap()].as_ref().unwrap();
        for (rows, m) in [(1, 1), (5, 19), (37, 16)] {
            let of = Operands::new(int8, format, rows, m);
            let mut y = vec![f32::NAN; m * (rows + 1)];
            let mut sums = vec![f32::NAN; m * MOST_LANES];
            let one = IntProduct {
                w: of.bytes.as_ptr(),
                row_bytes: of.row_bytes(),
                rows,
                k: of.k,
                x: of.codes.as_ptr(),
                factors: of.factors.as_ptr(),
                y: y.as_mut_ptr(),
                y_stride: rows + 1,
            };
            // SAFETY: every buffer has the size that the task states.
            unsafe { tiles(&one, m, sums.as_mut_ptr(), packing) };
            of.check(&y, &format!("{} side by side, {rows} rows, m {m}", int8.name));
            for (i, want) in y.chunks(rows + 1).enumerate() {
                let mut alone = vec![f32::NAN; rows];
                let x = one.x.wrapping_add(i * of.k);
                let factors = one.factors.wrapping_add(i * TABLES * (of.k / BLOCK));
                let one = IntProduct { x, factors, y: alone.as_mut_ptr(), ..one };
                // SAFETY: every buffer has the size that the task states.
                unsafe { int8.single.unwrap()(&one, packing) };
                let bits = |row: &[f32]| row.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&alone), bits(&want[..rows]), "{} {format} row {i}", int8.name);
            }
            tested += 1;
        }
    }
    // Every vector instruction set has a GEMM.
    assert_eq!(tested > 0, available().len() > 1);
}

#[test]
fn numbers_are_rounded_to_the_nearest_of_their_block() {
    for int8 in available() {
        let mut x = numbers(8 * BLOCK, 3);
        x[..BLOCK].fill(0.0);
        x[BLOCK + 3] = f32::NAN;
        x[2 * BLOCK + 31] = f32::NEG_INFINITY;
        x[3 * BLOCK..4 * BLOCK].iter_mut().for_each(|v| *v *= 1e-29);
        x[6 * BLOCK..7 * BLOCK].iter_mut().for_each(|v| *v *= 1e-37);
        x[4 * BLOCK..5 * BLOCK].iter_mut().for_each(|v| *v *= 5e37);
        // Ties round to even: 127 is the largest, so d is 1.
        x[5 * BLOCK..6 * BLOCK].fill(2.5);
        (x[5 * BLOCK], x[5 * BLOCK + 1]) = (-127.0, -3.5);
        let mut codes = vec![1i8; x.len()];
        let mut factors = vec![[1f32; 8]; TABLES];
        // SAFETY: as many as there are.
        unsafe {
            let factors = factors.as_mut_ptr().cast();
            (int8.round)(x.as_ptr(), x.len(), codes.as_mut_ptr(), factors, 8);
        }
        for (b, codes) in codes.chunks(BLOCK).enumerate() {
            let [d, first, second, all] = [0, 1, 2, 3].map(|table| factors[table][b]);
            let x = &x[b * BLOCK..][..BLOCK];
            if matches!(b, 1 | 2) {
                assert!(d.is_nan() && all.is_nan() && first.is_nan() && second.is_nan());
                continue;
            }
            if b == 6 {
                assert_eq!((d, all, codes.iter().any(|q| *q != 0)), (0.0, 0.0, false));
                continue;
            }
            let largest = x.iter().fold(0f32, |most, v| most.max(v.abs()));
            assert!((d - largest / 127.0).abs() <= 1e-7 * d, "{}: {d}", int8.name);
            for (x, q) in x.iter().zip(codes) {
                let off = (f64::from(*x) - f64::from(*q) * f64::from(d)).abs();
                assert!(
                    off <= f64::from(d) * 0.50001,
                    "{} block {b}: {x} is {q} of {d}",
                    int8.name
                );
            }
            let sum = |codes: &[i8]| d * codes.iter().map(|q| i32::from(*q)).sum::<i32>() as f32;
            assert_eq!([first, second, all], [sum(&codes[..16]), sum(&codes[16..]), sum(codes)]);
        }
        assert_eq!(codes[5 * BLOCK..5 * BLOCK + 3], [-127, -4, 2]);
    }
}

//! Tests guarantees of the function tables that the tests of the kernels do not cover.

use super::*;
use warploom_core::quant;

/// Returns blocks of pseudo-random bytes with different finite scales: bit patterns that no encoder
/// would choose.
pub(super) fn wild(format: Format, blocks: usize) -> Vec<u8> {
    let size = format.block_bytes() as usize;
    let mut bytes: Vec<u8> = (0..blocks * size).map(|i| (i * 167 + i / 7 * 91) as u8).collect();
    for (i, block) in bytes.chunks_exact_mut(size).enumerate() {
        let by = 1.0 + (i % 5) as f32 / 16.0;
        let half = |v: f32| half::f16::from_f32(v * by).to_le_bytes();
        match format {
            Format::Q6K | Format::Q3K | Format::TQ1_0 | Format::TQ2_0 => {
                block[size - 2..].copy_from_slice(&half(-0.37));
            }
            Format::Q2K => {
                block[80..82].copy_from_slice(&half(0.021));
                block[82..].copy_from_slice(&half(-0.6));
            }
            Format::MXFP4 => block[0] = 125 + block[3] % 4,
            Format::I2S => block[..4].copy_from_slice(&(0.7 * by).to_le_bytes()),
            Format::Q4_1 | Format::Q5_1 | Format::Q4K | Format::Q5K => {
                block[..2].copy_from_slice(&half(0.021));
                block[2..4].copy_from_slice(&half(-0.6));
            }
            _ => block[..2].copy_from_slice(&half(0.13)),
        }
    }
    bytes
}

#[test]
fn every_set_decodes_any_block_as_quant_does() {
    for format in Format::ALL.into_iter().filter(|f| f.is_quantised()) {
        let bytes = wild(format, 5);
        let k = 5 * format.block_len() as usize;
        let mut want = vec![0.0; k];
        quant::decode(format, &bytes, &mut want).unwrap();
        for arch in available() {
            let mut got = vec![f32::NAN; k + 1];
            // SAFETY: five blocks, and room for their weights.
            unsafe {
                arch.decode[format_index(format).unwrap()](bytes.as_ptr(), got.as_mut_ptr(), k)
            };
            assert!(got[k].is_nan());
            for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                // A fused multiply-add rounds once where `quant` rounds twice.
                let close = (got - want).abs() <= 2e-7 * want.abs().max(20.0);
                assert!(close, "{} {format} {i}: {got} {want}", arch.name);
            }
        }
    }
}

#[test]
fn the_first_is_chosen_and_scalar_is_always_there() {
    let names: Vec<_> = available().iter().map(|arch| arch.name).collect();
    assert_eq!(choose().name, names[0]);
    assert_eq!(names.last(), Some(&"scalar"));
}

/// Weights in main memory are read row by row, cached weights many rows at a time: the products are
/// the same, in a different reduction order.
#[test]
fn rows_in_order_are_the_products_of_rows_together() {
    // Four vectors at once, one at a time, and single elements, on every set.
    let (rows, k) = (5, 87);
    let numbers = |n: usize| (0..n).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect::<Vec<_>>();
    let x = numbers(k);
    for format in Format::ALL.into_iter().filter(|f| !f.is_quantised()) {
        let Some(index) = format_index(format) else { continue };
        let w = quant::encode(format, &numbers(rows * k)).unwrap();
        for arch in available() {
            let [near, far] = [false, true].map(|far| {
                let mut y = vec![f32::NAN; rows];
                let (row_bytes, x, y_at) = (w.len() / rows, x.as_ptr(), y.as_mut_ptr());
                let w = w.as_ptr();
                let task =
                    Product { w, row_bytes, rows, k, x, x_stride: k, y: y_at, y_stride: 0, far };
                // SAFETY: every buffer has the size that the task states.
                unsafe { arch.products[index][0](&task) };
                y
            });
            for (near, far) in near.iter().zip(&far) {
                let close = (near - far).abs() <= 1e-6 * k as f32;
                assert!(close, "{} {format}: {near} and {far}", arch.name);
            }
        }
    }
}

/// Deterministic mode: the products of a row of x have the same bits whether it is multiplied on
/// its own or with other rows, and whether weights are decoded before the product or during it.
#[test]
fn one_row_alone_adds_as_rows_together_do() {
    for format in Format::ALL {
        let Some(index) = format_index(format) else { continue };
        // More than any set computes at a time, then four, then one.
        let (rows, blocks) = (23, 3);
        // Plain rows end in the middle of a vector.
        let k = if format.is_quantised() { blocks * format.block_len() as usize } else { 83 };
        let plain: Vec<f32> = (0..rows * k).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
        let w = match format.is_quantised() {
            true => wild(format, blocks * rows),
            false => quant::encode(format, &plain).unwrap(),
        };
        let x: Vec<f32> = (0..8 * k).map(|i| (i * 71 % 113) as f32 / 31.0 - 1.7).collect();
        let row_bytes = w.len() / rows;
        for arch in available() {
            let mut decoded = vec![0.0; rows * k];
            for (r, row) in decoded.chunks_exact_mut(k).enumerate() {
                // SAFETY: a row, and room for its weights.
                unsafe { arch.decode[index](w[r * row_bytes..].as_ptr(), row.as_mut_ptr(), k) };
            }
            let multiply = |product: ProductFn, m: usize, i: usize, floats: bool| {
                let mut y = vec![0.0f32; m * rows];
                let (w, row_bytes) = match floats {
                    true => (decoded.as_ptr().cast(), k * size_of::<f32>()),
                    false => (w.as_ptr(), row_bytes),
                };
                let x = x[i * k..].as_ptr();
                let y_at = y.as_mut_ptr();
                let task = Product {
                    w,
                    row_bytes,
                    rows,
                    k,
                    x,
                    x_stride: k,
                    y: y_at,
                    y_stride: rows,
                    far: true,
                };
                // SAFETY: every buffer has the size that the task states.
                unsafe { product(&task) };
                y.into_iter().map(f32::to_bits).collect::<Vec<u32>>()
            };
            let alone: Vec<_> = (0..8).map(|i| multiply(arch.alike[index], 1, i, false)).collect();
            for (width, m) in WIDTHS.into_iter().enumerate().skip(1) {
                for (table, floats) in [(index, false), (0, true)] {
                    let have = multiply(arch.products[table][width], m, 0, floats);
                    let what = format!("{} {format}, {m} rows, decoded {floats}", arch.name);
                    assert_eq!(have, alone[..m].concat(), "{what}");
                }
            }
        }
    }
}

//! Built-in functions of whole vectors, and matrix operations.

use naga::{MathFunction as F, ScalarKind};

use super::math::Function;
use super::number::f;

/// The components of a vector, at most four.
type Parts = [f32; 4];

fn parts(registers: &[u32], at: u32, n: usize) -> Parts {
    let mut parts = [0.0; 4];
    for (i, part) in parts[..n].iter_mut().enumerate() {
        *part = f(registers[at as usize + i]);
    }
    parts
}

fn dot(a: &Parts, b: &Parts, n: usize) -> f32 {
    let first = a[0] * b[0];
    (1..n).fold(first, |sum, i| sum + a[i] * b[i])
}

/// Computes a geometric function of vectors with n components; the result is a scalar or such a
/// vector.
pub(super) fn geometry(r: &mut [u32], function: Function, to: u32, args: [u32; 4], n: usize) {
    if function.kind != ScalarKind::Float {
        // Only the dot product has an integer form.
        let at = |slot: u32, i: usize| r[slot as usize + i];
        let terms = (0..n).map(|i| at(args[0], i).wrapping_mul(at(args[1], i)));
        r[to as usize] = terms.fold(0, u32::wrapping_add);
        return;
    }
    let given = |i: usize| args[i] != super::bytecode::NONE;
    let a = parts(r, args[0], n);
    let b = if given(1) { parts(r, args[1], n) } else { a };
    let number = match function.fun {
        F::Dot => Some(dot(&a, &b, n)),
        F::Length if n == 1 => Some(a[0].abs()),
        F::Length => Some(dot(&a, &a, n).sqrt()),
        F::Distance => {
            let gap: Parts = std::array::from_fn(|i| a[i] - b[i]);
            Some(if n == 1 { gap[0].abs() } else { dot(&gap, &gap, n).sqrt() })
        }
        _ => None,
    };
    if let Some(number) = number {
        r[to as usize] = number.to_bits();
        return;
    }
    let vector: Parts = match function.fun {
        F::Normalize => {
            let length = dot(&a, &a, n).sqrt();
            a.map(|part| part / length)
        }
        F::Cross => {
            [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0], 0.0]
        }
        F::Reflect => {
            let twice = 2.0 * dot(&a, &b, n);
            std::array::from_fn(|i| a[i] - twice * b[i])
        }
        F::Refract => {
            let eta = f(r[args[2] as usize]);
            let d = dot(&a, &b, n);
            let k = 1.0 - eta * eta * (1.0 - d * d);
            let bend = eta * d + k.sqrt();
            std::array::from_fn(|i| if k < 0.0 { 0.0 } else { eta * a[i] - bend * b[i] })
        }
        F::FaceForward => {
            let facing = dot(&b, &parts(r, args[2], n), n) < 0.0;
            a.map(|part| if facing { part } else { -part })
        }
        // Refused at compilation.
        _ => [f32::NAN; 4],
    };
    for (i, part) in vector[..n].iter().enumerate() {
        r[to as usize + i] = part.to_bits();
    }
}

/// Computes the product of matrices a and b. `sizes` are the rows of a, the columns of a (and rows
/// of b), and the columns of b; a vector is a matrix of one column or row.
pub(super) fn product(r: &mut [u32], to: u32, a: u32, b: u32, sizes: [u8; 3]) {
    let [rows, shared, columns] = sizes.map(usize::from);
    for column in 0..columns {
        for row in 0..rows {
            let term = |r: &[u32], k: usize| {
                f(r[a as usize + k * rows + row]) * f(r[b as usize + column * shared + k])
            };
            let first = term(r, 0);
            let sum = (1..shared).fold(first, |sum, k| sum + term(r, k));
            r[to as usize + column * rows + row] = sum.to_bits();
        }
    }
}

pub(super) fn transpose(r: &mut [u32], to: u32, a: u32, rows: u8, columns: u8) {
    let (rows, columns) = (usize::from(rows), usize::from(columns));
    for column in 0..columns {
        for row in 0..rows {
            r[to as usize + row * columns + column] = r[a as usize + column * rows + row];
        }
    }
}

/// Computes the determinant of the `n` x `n` matrix whose first register is `a`.
pub(super) fn determinant(r: &[u32], a: u32, n: usize) -> f32 {
    let mut cells = [0.0; 16];
    for (i, cell) in cells[..n * n].iter_mut().enumerate() {
        *cell = f(r[a as usize + i]);
    }
    let all: [usize; 4] = [0, 1, 2, 3];
    minor(&cells, n, 0, &all[..n])
}

/// Computes the determinant of the submatrix of the rows from `row` on and these columns.
fn minor(cells: &[f32; 16], n: usize, row: usize, columns: &[usize]) -> f32 {
    if let [column] = columns {
        return cells[column * n + row];
    }
    let mut sum = 0.0;
    for (i, column) in columns.iter().enumerate() {
        let mut others = [0; 4];
        let mut count = 0;
        for other in columns.iter().filter(|other| *other != column) {
            others[count] = *other;
            count += 1;
        }
        let term = cells[column * n + row] * minor(cells, n, row + 1, &others[..count]);
        sum += if i % 2 == 0 { term } else { -term };
    }
    sum
}

//! Compares results with the reference and locates errors.

use std::fmt;

use serde::Serialize;

use warploom_core::reference::{Data, Tensor};

/// Allowed deviation from the reference. The error of an element may reach the sum of the limits
/// given by `atol`, `rtol` and `eps_count`; `nmse` limits the error of the tensor as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Tolerance {
    /// Allowed absolute error.
    pub atol: f64,
    /// Allowed error relative to the expected value.
    pub rtol: f64,
    /// For sums of products: allowed error in units of `f32::EPSILON` times the same sum over
    /// absolute values.
    pub eps_count: f64,
    /// Limit on the normalised squared error: sum of squared errors over sum of squared expected
    /// values.
    pub nmse: f64,
}

impl Tolerance {
    /// Exact equality; the two zeros are equal.
    pub const EXACT: Tolerance = Tolerance { atol: 0.0, rtol: 0.0, eps_count: 0.0, nmse: 0.0 };

    /// Allows a relative error, plus the smallest normal number, since devices may flush
    /// subnormals.
    pub const fn relative(rtol: f64) -> Tolerance {
        Tolerance { atol: f32::MIN_POSITIVE as f64, rtol, eps_count: 0.0, nmse: 1e-7 }
    }

    /// Allows an absolute error, for functions that cross zero.
    pub const fn absolute(atol: f64) -> Tolerance {
        Tolerance { atol, rtol: 0.0, eps_count: 0.0, nmse: 1e-7 }
    }

    /// Returns the tolerance for sums of `k` products in `f32`.
    ///
    /// Rounding errors of a sum grow like the square root of its length. A packed format adds a few
    /// roundings, because its products with the scale and with the minimum may each be larger than
    /// their difference.
    pub fn product(k: u64) -> Tolerance {
        let eps_count = 16.0 + (k as f64).sqrt();
        Tolerance { atol: f32::MIN_POSITIVE.into(), rtol: 0.0, eps_count, nmse: 1e-6 }
    }

    /// Widens the tolerance for products of operands that are rounded to f16 (11 significant bits).
    pub fn of_f16(self) -> Tolerance {
        // 2^-11 of each of two operands, in multiples of 2^-23.
        let eps_count = self.eps_count + 8192.0;
        // Values derived from products have no such measure: a small number may be a large one
        // times the error of another. The limit on the squared error covers them.
        let (atol, rtol) = match self.eps_count {
            0.0 => (512.0 * self.atol, self.rtol + 1e-2),
            _ => (self.atol, self.rtol),
        };
        Tolerance { atol, rtol, eps_count, nmse: self.nmse + 1e-6 }
    }

    /// Widens the tolerance for sums of `k` products that are rounded to f16 after every 16
    /// products.
    pub fn of_f16_accumulate(self, k: u64) -> Tolerance {
        // 2^-11 per rounding, in multiples of 2^-23; grows like the square root of their number, as
        // in `product`.
        let eps_count = self.eps_count + 4096.0 * (1.0 + (k as f64 / 16.0).sqrt());
        Tolerance { eps_count, nmse: self.nmse + 1e-4, ..self }
    }

    fn is_exact(&self) -> bool {
        *self == Tolerance::EXACT
    }
}

/// Accuracy of a correct result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// Number of compared elements.
    pub elements: usize,
    /// The largest absolute error.
    pub max_error: f64,
    /// The largest ratio of an error to its limit; at most 1.
    pub worst_share: f64,
    /// Sum of squared errors over sum of squared expected values.
    pub nmse: f64,
}

/// Description of a wrong result.
#[derive(Clone, Debug, PartialEq)]
pub struct Mismatch {
    /// Row-major index of the first wrong element; `None` if the tensor as a whole is wrong.
    pub first_bad: Option<usize>,
    /// The expected and the actual value of that element.
    pub values: Option<[f64; 2]>,
    /// Number of wrong elements.
    pub bad: usize,
    /// The message, with both values.
    pub message: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Mismatch {}

impl Mismatch {
    pub(super) fn whole(message: String) -> Mismatch {
        Mismatch { first_bad: None, values: None, bad: 0, message }
    }
}

/// Compares a result with the reference; integers and `bool`s must be equal whatever the tolerance.
///
/// # Errors
/// The first wrong element with both values, or a difference in shape, type or element count.
pub fn compare(
    expected: &Tensor,
    actual: &Tensor,
    tolerance: &Tolerance,
) -> Result<Report, Mismatch> {
    compare_product(expected, actual, None, tolerance)
}

/// Same as [`compare`], for sums of products: their error is relative to `magnitude`, the same sums
/// over absolute values (`reference::magnitude`).
///
/// # Errors
/// Same as [`compare`], and if the magnitude has a different length.
pub fn compare_product(
    expected: &Tensor,
    actual: &Tensor,
    magnitude: Option<&Tensor>,
    tolerance: &Tolerance,
) -> Result<Report, Mismatch> {
    let (a, b) = (expected, actual);
    if a.dtype() != b.dtype() || a.shape != b.shape || a.data.len() != b.data.len() {
        return Err(Mismatch::whole(format!(
            "expected {} numbers as {}{:?}, got {} as {}{:?}",
            a.data.len(),
            a.dtype(),
            a.shape,
            b.data.len(),
            b.dtype(),
            b.shape
        )));
    }
    let scale = magnitude.map(Tensor::floats);
    if scale.as_ref().is_some_and(|scale| scale.len() != a.data.len()) {
        return Err(Mismatch::whole("the magnitude has another length".into()));
    }
    let whole_numbers = matches!(a.data, Data::I32(_) | Data::U32(_) | Data::Bool(_));
    let tolerance = if whole_numbers { &Tolerance::EXACT } else { tolerance };
    compare_numbers(&a.floats(), &b.floats(), scale.as_deref(), &a.shape, tolerance)
}

fn compare_numbers(
    expected: &[f64],
    actual: &[f64],
    scale: Option<&[f64]>,
    shape: &[u64],
    tolerance: &Tolerance,
) -> Result<Report, Mismatch> {
    let mut report = Report { elements: expected.len(), ..Report::default() };
    let (mut squares, mut square_errors) = (0.0, 0.0);
    let (mut first, mut bad) = (None, 0);
    for (i, (want, have)) in expected.iter().zip(actual).enumerate() {
        // The difference of equal infinities is NaN, not 0.
        if want == have {
            squares += if want.is_finite() { want * want } else { 0.0 };
            continue;
        }
        let magnitude = scale.map_or(0.0, |scale| scale[i]);
        let limit = tolerance.atol
            + tolerance.rtol * want.abs()
            + tolerance.eps_count * f64::from(f32::EPSILON) * magnitude;
        let error = (have - want).abs();
        // Written so that NaN, for which all comparisons are false, is wrong. An infinite error is
        // wrong for any limit.
        let right = !tolerance.is_exact() && error <= limit && error.is_finite();
        if !right {
            first = first.or(Some((i, *want, *have, error, limit)));
            bad += 1;
            continue;
        }
        squares += want * want;
        square_errors += error * error;
        report.max_error = report.max_error.max(error);
        report.worst_share = report.worst_share.max(error / limit);
    }
    if let Some((i, want, have, error, limit)) = first {
        return Err(Mismatch {
            first_bad: Some(i),
            values: Some([want, have]),
            bad,
            message: format!(
                "element {i} {:?} of {shape:?}: expected {want:?}, got {have:?}: error {error:e} \
                 is not within {limit:e}; {bad} of {} are wrong",
                place(i, shape),
                expected.len()
            ),
        });
    }
    // If all expected numbers are zero, only the per-element limits apply.
    report.nmse = if squares > 0.0 { square_errors / squares } else { 0.0 };
    let close = report.nmse <= tolerance.nmse;
    if !close {
        return Err(Mismatch::whole(format!(
            "each element is within its limit, but the normalised mean square error {:e} is not \
             within {:e}",
            report.nmse, tolerance.nmse
        )));
    }
    Ok(report)
}

/// Returns the index along each axis of the element with this row-major index.
fn place(mut element: usize, shape: &[u64]) -> Vec<usize> {
    let mut index: Vec<usize> = shape
        .iter()
        .rev()
        .map(|dim| {
            let dim = (*dim as usize).max(1);
            let i = element % dim;
            element /= dim;
            i
        })
        .collect();
    index.reverse();
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(values: &[f32]) -> Tensor {
        Tensor { shape: vec![values.len() as u64], data: Data::F32(values.to_vec()) }
    }

    fn numbers() -> Vec<f32> {
        (0..100).map(|i| (i as f32 - 40.0) / 3.0).collect()
    }

    fn tolerances() -> [Tolerance; 4] {
        [
            Tolerance::EXACT,
            Tolerance::relative(1e-5),
            Tolerance::absolute(1e-5),
            Tolerance::product(64),
        ]
    }

    fn error(values: &[f32], tolerance: &Tolerance) -> Mismatch {
        let magnitude = tensor(&[20.0; 100]);
        compare_product(&tensor(&numbers()), &tensor(values), Some(&magnitude), tolerance)
            .expect_err("a planted fault passed")
    }

    #[test]
    fn every_comparator_catches_a_planted_fault() {
        for tolerance in tolerances() {
            let mut wrong = numbers();
            wrong[57] += 1e-2;
            let mismatch = error(&wrong, &tolerance);
            assert_eq!((mismatch.first_bad, mismatch.bad), (Some(57), 1));
            assert_eq!(mismatch.values, Some([numbers()[57], wrong[57]].map(f64::from)));
            assert!(mismatch.message.contains("element 57 [57]"), "{mismatch}");
            let mut nan = numbers();
            nan[99] = f32::NAN;
            assert_eq!(error(&nan, &tolerance).first_bad, Some(99));
            let mut infinite = numbers();
            infinite[3] = f32::INFINITY;
            assert_eq!(error(&infinite, &tolerance).first_bad, Some(3));
            let mut swapped = numbers();
            swapped.swap(10, 11);
            assert_eq!(error(&swapped, &tolerance).bad, 2);
            assert!(error(&numbers()[..99], &tolerance).message.contains("99"));
            assert_eq!(error(&[0.0; 100], &tolerance).bad, 99, "one expected number is zero");
        }
    }

    #[test]
    fn what_is_right_passes() {
        for tolerance in tolerances() {
            let same = tensor(&numbers());
            let report = compare(&same, &same, &tolerance).unwrap();
            assert_eq!((report.elements, report.max_error), (100, 0.0));
        }
        let near: Vec<f32> = numbers().iter().map(|x| x * (1.0 + 1e-6)).collect();
        let near = tensor(&near);
        let report = compare(&tensor(&numbers()), &near, &Tolerance::relative(1e-5)).unwrap();
        assert!(report.worst_share > 0.05 && report.worst_share < 0.2, "{report:?}");
        assert!(compare(&tensor(&numbers()), &near, &Tolerance::EXACT).is_err());
        assert!(compare(&tensor(&[]), &tensor(&[]), &Tolerance::EXACT).is_ok());
    }

    #[test]
    fn infinities_are_equal_or_wrong() {
        let inf = tensor(&[f32::INFINITY, f32::NEG_INFINITY]);
        assert!(compare(&inf, &inf, &Tolerance::relative(1e-5)).is_ok());
        let swapped = tensor(&[f32::NEG_INFINITY, f32::INFINITY]);
        assert!(compare(&inf, &swapped, &Tolerance::relative(1e-5)).is_err());
        let largest = tensor(&[f32::MAX, f32::MIN]);
        assert!(compare(&inf, &largest, &Tolerance::relative(1e-5)).is_err());
    }

    #[test]
    fn the_mean_is_checked_as_well() {
        // Each element is within its loose limit, but all have the same error.
        let loose = Tolerance { atol: 0.1, rtol: 0.0, eps_count: 0.0, nmse: 1e-7 };
        let off: Vec<f32> = numbers().iter().map(|x| x + 0.05).collect();
        let mismatch = compare(&tensor(&numbers()), &tensor(&off), &loose).unwrap_err();
        assert!(mismatch.message.contains("mean square"), "{mismatch}");
    }

    #[test]
    fn whole_numbers_are_exact_whatever_the_tolerance() {
        let loose = Tolerance::absolute(10.0);
        let pairs = [
            (Data::I32(vec![1, 2]), Data::I32(vec![1, 3])),
            (Data::U32(vec![1, 2]), Data::U32(vec![2, 1])),
            (Data::Bool(vec![true, false]), Data::Bool(vec![true, true])),
        ];
        for (a, b) in pairs {
            let a = Tensor { shape: vec![2], data: a };
            let b = Tensor { shape: vec![2], data: b };
            assert!(compare(&a, &a, &loose).is_ok());
            assert!(compare(&a, &b, &loose).is_err());
        }
        let float = tensor(&[1.0, 2.0]);
        let whole = Tensor { shape: vec![2], data: Data::I32(vec![1, 2]) };
        assert!(compare(&float, &whole, &loose).unwrap_err().message.contains("i32[2]"));
        let column = Tensor { shape: vec![2, 1], ..float.clone() };
        assert!(compare(&float, &column, &loose).is_err());
    }

    #[test]
    fn indices_are_those_of_the_shape() {
        assert_eq!(place(7, &[2, 3, 2]), [1, 0, 1]);
        assert_eq!(place(0, &[]), [0usize; 0]);
    }
}

//! Host values: element types of slices, and scalars in expressions.

use std::borrow::Cow;

use half::{bf16, f16};

use super::Tensor;
use crate::base::DType;
use crate::error::{Error, Result};

mod sealed {
    pub trait Sealed {}
}

/// A host type that tensors are created from and read into.
///
/// `i64` is narrowed to `i32` with a check when written, and widened when read. `bool` takes four
/// bytes on a device.
pub trait Element: sealed::Sealed + Copy + Send + Sync + 'static {
    /// Element type of the tensor.
    const DTYPE: DType;

    /// Encodes values as bytes in the device's format.
    ///
    /// # Errors
    /// Invalid, naming the first value that does not fit.
    fn encode(values: &[Self]) -> Result<Cow<'_, [u8]>>;

    /// Decodes values from bytes in the device's format.
    fn decode(bytes: &[u8]) -> Vec<Self>;
}

macro_rules! element {
    ($($ty:ident $dtype:ident)*) => {$(
        impl sealed::Sealed for $ty {}
        impl Element for $ty {
            const DTYPE: DType = DType::$dtype;

            fn encode(values: &[$ty]) -> Result<Cow<'_, [u8]>> {
                match cfg!(target_endian = "little") {
                    true => Ok(bytemuck::cast_slice(values).into()),
                    false => Ok(values.iter().flat_map(|value| value.to_le_bytes()).collect()),
                }
            }

            fn decode(bytes: &[u8]) -> Vec<$ty> {
                let (values, _) = bytes.as_chunks();
                values.iter().map(|value| $ty::from_le_bytes(*value)).collect()
            }
        }
    )*};
}

element!(f32 F32 f16 F16 bf16 BF16 i32 I32 u32 U32);

/// A host type of numbers, for ranges of them.
pub trait Number: Element {
    /// Converts to `f64`, exactly for all but large `i64`.
    fn to_f64(self) -> f64;

    /// Converts from `f64`: rounds to floats, truncates to integers, and saturates.
    fn from_f64(value: f64) -> Self;
}

macro_rules! number {
    ($($ty:ty: $to:expr, $from:expr;)*) => {$(
        impl Number for $ty {
            fn to_f64(self) -> f64 {
                $to(self)
            }

            fn from_f64(value: f64) -> $ty {
                $from(value)
            }
        }
    )*};
}

number! {
    f32: f64::from, |value| value as f32;
    f16: f64::from, f16::from_f64;
    bf16: f64::from, bf16::from_f64;
    i32: f64::from, |value| value as i32;
    u32: f64::from, |value| value as u32;
    i64: |value| value as f64, |value| value as i64;
}

impl sealed::Sealed for bool {}
impl Element for bool {
    const DTYPE: DType = DType::Bool;

    fn encode(values: &[bool]) -> Result<Cow<'_, [u8]>> {
        Ok(values.iter().flat_map(|value| u32::from(*value).to_le_bytes()).collect())
    }

    fn decode(bytes: &[u8]) -> Vec<bool> {
        u32::decode(bytes).into_iter().map(|word| word != 0).collect()
    }
}

impl sealed::Sealed for i64 {}
impl Element for i64 {
    const DTYPE: DType = DType::I32;

    fn encode(values: &[i64]) -> Result<Cow<'_, [u8]>> {
        let narrow = |(at, value): (usize, &i64)| {
            i32::try_from(*value).map_err(|_| {
                Error::invalid(format!("element {at} is {value}, which does not fit i32"))
            })
        };
        let values: Vec<i32> = values.iter().enumerate().map(narrow).collect::<Result<_>>()?;
        Ok(i32::encode(&values)?.into_owned().into())
    }

    fn decode(bytes: &[u8]) -> Vec<i64> {
        i32::decode(bytes).into_iter().map(i64::from).collect()
    }
}

/// A scalar in an expression.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A 32-bit float.
    F32(f32),
    /// A signed 32-bit integer.
    I32(i32),
    /// An unsigned 32-bit integer.
    U32(u32),
    /// A boolean.
    Bool(bool),
}

impl Scalar {
    /// Returns the element type of a tensor created from this scalar.
    pub fn dtype(self) -> DType {
        match self {
            Scalar::F32(_) => DType::F32,
            Scalar::I32(_) => DType::I32,
            Scalar::U32(_) => DType::U32,
            Scalar::Bool(_) => DType::Bool,
        }
    }

    /// Returns the bits as an element of `dtype`. Integers convert to `f32` and, if the value fits,
    /// to the other integer type; other conversions are errors.
    pub(super) fn word(self, dtype: DType) -> Result<u32> {
        let word = match (self, dtype) {
            (Scalar::F32(value), DType::F32) => Some(value.to_bits()),
            (Scalar::I32(value), DType::F32) => Some((value as f32).to_bits()),
            (Scalar::U32(value), DType::F32) => Some((value as f32).to_bits()),
            (Scalar::I32(value), DType::I32) => Some(value.cast_unsigned()),
            (Scalar::I32(value), DType::U32) => u32::try_from(value).ok(),
            (Scalar::U32(value), DType::U32) => Some(value),
            (Scalar::U32(value), DType::I32) => i32::try_from(value).ok().map(i32::cast_unsigned),
            (Scalar::Bool(value), DType::Bool) => Some(u32::from(value)),
            _ => None,
        };
        word.ok_or_else(|| {
            Error::invalid(format!(
                "the scalar {self:?} is not a value of {dtype}: cast the tensor"
            ))
        })
    }
}

/// Operand of an elementwise operation: a tensor, or a scalar that is broadcast.
#[derive(Clone, Debug)]
pub enum Operand {
    /// A tensor.
    Tensor(Tensor),
    /// A scalar, converted to the type of the other operand.
    Scalar(Scalar),
}

impl From<&Tensor> for Operand {
    fn from(tensor: &Tensor) -> Operand {
        Operand::Tensor(tensor.clone())
    }
}

impl From<Tensor> for Operand {
    fn from(tensor: Tensor) -> Operand {
        Operand::Tensor(tensor)
    }
}

macro_rules! scalar {
    ($($ty:ident $variant:ident)*) => {$(
        impl From<$ty> for Scalar {
            fn from(value: $ty) -> Scalar {
                Scalar::$variant(value)
            }
        }
        impl From<$ty> for Operand {
            fn from(value: $ty) -> Operand {
                Operand::Scalar(value.into())
            }
        }
    )*};
}

scalar!(f32 F32 i32 I32 u32 U32 bool Bool);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_the_way() {
        let round = |values: &[f32]| f32::decode(&f32::encode(values).unwrap());
        assert_eq!(round(&[1.5, -0.0, f32::INFINITY]), [1.5, -0.0, f32::INFINITY]);
        assert_eq!(bool::decode(&bool::encode(&[true, false]).unwrap()), [true, false]);
        assert_eq!(f16::decode(&f16::encode(&[f16::from_f32(0.5)]).unwrap())[0].to_f32(), 0.5);
        assert_eq!(i64::decode(&i64::encode(&[-7, 1 << 30]).unwrap()), [-7, 1 << 30]);
        let error = i64::encode(&[1, 1 << 31]).unwrap_err().to_string();
        assert_eq!(error, "element 1 is 2147483648, which does not fit i32");
    }

    #[test]
    fn scalars_take_the_type_of_the_tensor() {
        assert_eq!(Scalar::I32(2).word(DType::F32).unwrap(), 2.0_f32.to_bits());
        assert_eq!(Scalar::I32(-1).word(DType::I32).unwrap(), u32::MAX);
        for (scalar, dtype) in [
            (Scalar::I32(-1), DType::U32),
            (Scalar::F32(1.0), DType::I32),
            (Scalar::Bool(true), DType::F32),
            (Scalar::F32(1.0), DType::F16),
        ] {
            assert!(scalar.word(dtype).unwrap_err().is_invalid(), "{scalar:?} as {dtype}");
        }
    }
}

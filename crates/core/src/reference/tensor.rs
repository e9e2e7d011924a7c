//! A host tensor: shape, and elements in row-major order.

use half::{bf16, f16};

use super::index::elements;
use crate::base::DType;
use crate::error::{Error, Result};

/// Elements of one type.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// Elements of type `f32`.
    F32(Vec<f32>),
    /// Elements that are `f32` in the graph, with higher precision here.
    F64(Vec<f64>),
    /// Elements of type `f16`.
    F16(Vec<f16>),
    /// Elements of type `bf16`.
    BF16(Vec<bf16>),
    /// Elements of type `i32`.
    I32(Vec<i32>),
    /// Elements of type `u32`.
    U32(Vec<u32>),
    /// Elements of type `bool`.
    Bool(Vec<bool>),
}

/// Evaluates an expression for the vector in a [`Data`], whatever its element type.
macro_rules! each {
    ($data:expr, $values:ident => $result:expr) => {
        match $data {
            Data::F32($values) => $result,
            Data::F64($values) => $result,
            Data::F16($values) => $result,
            Data::BF16($values) => $result,
            Data::I32($values) => $result,
            Data::U32($values) => $result,
            Data::Bool($values) => $result,
        }
    };
}

/// A tensor: shape, and elements in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Sizes, outermost first.
    pub shape: Vec<u64>,
    /// The elements; their number matches the shape.
    pub data: Data,
}

impl Tensor {
    /// Creates a tensor with these elements.
    ///
    /// # Errors
    /// Invalid if the number of elements does not match the shape. Out of memory if the shape has
    /// more than 2^31 elements.
    pub fn new(shape: Vec<u64>, data: Data) -> Result<Tensor> {
        let (want, have) = (elements(&shape)?, data.len());
        if want != have {
            return Err(Error::invalid(format!(
                "{have} numbers for the shape {shape:?} of {want}"
            )));
        }
        Ok(Tensor { shape, data })
    }

    /// Creates a tensor from 32-bit words, one per element or a single one for all.
    ///
    /// # Errors
    /// Invalid unless there is one word, or one per element. Out of memory as in [`Tensor::new`].
    pub fn constant(shape: Vec<u64>, dtype: DType, words: &[u32]) -> Result<Tensor> {
        let count = elements(&shape)?;
        let all: Vec<u32> = match words {
            [word] => vec![*word; count],
            _ => words.to_vec(),
        };
        let data = match dtype {
            DType::F32 => Data::F32(all.into_iter().map(f32::from_bits).collect()),
            DType::F16 => Data::F16(all.into_iter().map(|w| f16::from_bits(w as u16)).collect()),
            DType::BF16 => Data::BF16(all.into_iter().map(|w| bf16::from_bits(w as u16)).collect()),
            DType::I32 => Data::I32(all.into_iter().map(u32::cast_signed).collect()),
            DType::U32 => Data::U32(all),
            DType::Bool => Data::Bool(all.into_iter().map(|w| w != 0).collect()),
        };
        Tensor::new(shape, data)
    }

    /// Creates a tensor from its bytes in device memory: little-endian, with 4 bytes per `bool`.
    ///
    /// # Errors
    /// Invalid if the number of bytes does not match the shape, or if a `bool` is neither 0 nor 1.
    /// Out of memory as in [`Tensor::new`].
    pub fn from_bytes(shape: Vec<u64>, dtype: DType, bytes: &[u8]) -> Result<Tensor> {
        let size = dtype.bytes() as usize;
        let (want, have) = (elements(&shape)?.saturating_mul(size), bytes.len());
        if want != have {
            return Err(Error::invalid(format!("{have} bytes for {dtype}{shape:?} of {want}")));
        }
        let words = || bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        let halves = || bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]]));
        let data = match dtype {
            DType::F32 => Data::F32(words().map(f32::from_bits).collect()),
            DType::F16 => Data::F16(halves().map(f16::from_bits).collect()),
            DType::BF16 => Data::BF16(halves().map(bf16::from_bits).collect()),
            DType::I32 => Data::I32(words().map(u32::cast_signed).collect()),
            DType::U32 => Data::U32(words().collect()),
            DType::Bool => {
                if let Some(at) = words().position(|word| word > 1) {
                    return Err(Error::invalid(format!("bool {at} of {shape:?} is not 0 or 1")));
                }
                Data::Bool(words().map(|word| word == 1).collect())
            }
        };
        Tensor::new(shape, data)
    }

    /// Returns the bytes as in device memory; [`Data::F64`] is rounded to `f32`.
    pub fn to_bytes(&self) -> Vec<u8> {
        match &self.data {
            Data::F32(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
            Data::F64(v) => v.iter().flat_map(|x| (*x as f32).to_le_bytes()).collect(),
            Data::F16(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
            Data::BF16(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
            Data::I32(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
            Data::U32(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
            Data::Bool(v) => v.iter().flat_map(|x| u32::from(*x).to_le_bytes()).collect(),
        }
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        match self.data {
            Data::F32(_) | Data::F64(_) => DType::F32,
            Data::F16(_) => DType::F16,
            Data::BF16(_) => DType::BF16,
            Data::I32(_) => DType::I32,
            Data::U32(_) => DType::U32,
            Data::Bool(_) => DType::Bool,
        }
    }

    /// Converts every element to `f64`, which is exact; a `bool` becomes 0 or 1.
    pub fn floats(&self) -> Vec<f64> {
        self.data.floats(0, self.data.len())
    }

    /// Returns the absolute value of every element; `bool` and `u32` are unchanged.
    pub fn absolute(&self) -> Tensor {
        let data = match &self.data {
            Data::F32(v) => Data::F32(v.iter().map(|x| x.abs()).collect()),
            Data::F64(v) => Data::F64(v.iter().map(|x| x.abs()).collect()),
            Data::F16(v) => {
                Data::F16(v.iter().map(|x| f16::from_bits(x.to_bits() & 0x7fff)).collect())
            }
            Data::BF16(v) => {
                Data::BF16(v.iter().map(|x| bf16::from_bits(x.to_bits() & 0x7fff)).collect())
            }
            Data::I32(v) => Data::I32(v.iter().map(|x| x.wrapping_abs()).collect()),
            Data::U32(_) | Data::Bool(_) => self.data.clone(),
        };
        Tensor { shape: self.shape.clone(), data }
    }

    /// Checks that the tensor has this shape and type.
    pub(super) fn expect(&self, shape: &[u64], dtype: DType) -> Result<()> {
        if self.shape != shape || self.dtype() != dtype {
            return Err(Error::invalid(format!(
                "is {}{:?} instead of {dtype}{shape:?}",
                self.dtype(),
                self.shape
            )));
        }
        if self.data.len() != elements(shape)? {
            return Err(Error::invalid(format!("{} numbers for {shape:?}", self.data.len())));
        }
        Ok(())
    }
}

impl Data {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        each!(self, v => v.len())
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Converts `len` elements, from index `start` on, to `f64`.
    pub(super) fn floats(&self, start: usize, len: usize) -> Vec<f64> {
        let range = start..start + len;
        match self {
            Data::F32(v) => v[range].iter().map(|x| f64::from(*x)).collect(),
            Data::F64(v) => v[range].to_vec(),
            Data::F16(v) => v[range].iter().map(|x| f64::from(*x)).collect(),
            Data::BF16(v) => v[range].iter().map(|x| f64::from(*x)).collect(),
            Data::I32(v) => v[range].iter().map(|x| f64::from(*x)).collect(),
            Data::U32(v) => v[range].iter().map(|x| f64::from(*x)).collect(),
            Data::Bool(v) => v[range].iter().map(|x| f64::from(*x)).collect(),
        }
    }

    /// Returns the elements at these indices, and the single element of `fill` for `None`.
    ///
    /// # Errors
    /// Invalid if the types differ.
    pub(super) fn pick(&self, places: &[Option<usize>], fill: &Data) -> Result<Data> {
        macro_rules! from {
            ($v:ident, $fill:ident, $variant:ident) => {
                Ok(Data::$variant(places.iter().map(|p| p.map_or($fill[0], |i| $v[i])).collect()))
            };
        }
        match (self, fill) {
            (Data::F32(v), Data::F32(f)) => from!(v, f, F32),
            (Data::F64(v), Data::F32(f)) => {
                let fill = f64::from(f[0]);
                Ok(Data::F64(places.iter().map(|p| p.map_or(fill, |i| v[i])).collect()))
            }
            (Data::F16(v), Data::F16(f)) => from!(v, f, F16),
            (Data::BF16(v), Data::BF16(f)) => from!(v, f, BF16),
            (Data::I32(v), Data::I32(f)) => from!(v, f, I32),
            (Data::U32(v), Data::U32(f)) => from!(v, f, U32),
            (Data::Bool(v), Data::Bool(f)) => from!(v, f, Bool),
            _ => Err(Error::invalid("the value to fill with has another type")),
        }
    }

    /// Returns the elements at these indices: of `other` where the flag is set, otherwise of
    /// `self`.
    ///
    /// # Errors
    /// Invalid if the types differ.
    pub(super) fn merge(&self, other: &Data, places: &[(bool, usize)]) -> Result<Data> {
        macro_rules! from {
            ($a:ident, $b:ident, $variant:ident) => {
                Ok(Data::$variant(
                    places
                        .iter()
                        .map(|(second, i)| if *second { $b[*i] } else { $a[*i] })
                        .collect(),
                ))
            };
        }
        match (self, other) {
            (Data::F32(a), Data::F32(b)) => from!(a, b, F32),
            (Data::F32(_) | Data::F64(_), Data::F32(_) | Data::F64(_)) => {
                let (a, b) = (self.floats(0, self.len()), other.floats(0, other.len()));
                from!(a, b, F64)
            }
            (Data::F16(a), Data::F16(b)) => from!(a, b, F16),
            (Data::BF16(a), Data::BF16(b)) => from!(a, b, BF16),
            (Data::I32(a), Data::I32(b)) => from!(a, b, I32),
            (Data::U32(a), Data::U32(b)) => from!(a, b, U32),
            (Data::Bool(a), Data::Bool(b)) => from!(a, b, Bool),
            _ => Err(Error::invalid("operands have different types")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive() {
        let all = [
            Data::F32(vec![1.5, -0.0, f32::INFINITY]),
            Data::F16(vec![f16::from_f32(1.5), f16::MAX, f16::NEG_ZERO]),
            Data::BF16(vec![bf16::from_f32(1.5), bf16::MAX, bf16::NEG_ZERO]),
            Data::I32(vec![1, -1, i32::MIN]),
            Data::U32(vec![1, 0, u32::MAX]),
            Data::Bool(vec![true, false, true]),
        ];
        for data in all {
            let tensor = Tensor::new(vec![3], data).unwrap();
            let bytes = tensor.to_bytes();
            let dtype = tensor.dtype();
            assert_eq!(bytes.len() as u64, 3 * dtype.bytes());
            assert_eq!(Tensor::from_bytes(vec![3], dtype, &bytes).unwrap(), tensor);
            assert!(Tensor::from_bytes(vec![2], dtype, &bytes).is_err());
        }
        let two = 2u32.to_le_bytes();
        let error = Tensor::from_bytes(vec![1], DType::Bool, &two).unwrap_err().to_string();
        assert!(error.contains("bool 0"), "{error}");
    }

    #[test]
    fn one_word_repeats() {
        let tensor = Tensor::constant(vec![2, 2], DType::I32, &[u32::MAX]).unwrap();
        assert_eq!(tensor.data, Data::I32(vec![-1; 4]));
        assert!(Tensor::constant(vec![3], DType::I32, &[1, 2]).is_err());
        assert!(Tensor::constant(vec![0], DType::F32, &[7]).unwrap().data.is_empty());
    }
}

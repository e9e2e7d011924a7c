//! Vendor library routines, as data: a closed list, each with a defined meaning.
//!
//! A routine is a [`super::KernelSpec`] like any other: a plan holds it, a dispatch passes it
//! parameters and buffers, and a device without the library reports so before a plan commits to it
//! (`warploom_hal::support`). A routine fixes the form of the call; sizes are parameters of the
//! dispatch, so that they may be symbols.
//!
//! Not supported: alpha and beta factors (they are 1 and 0), and GELU as an epilogue, since
//! libraries do not document which formula they use.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::spec::Access::{Read, ReadWrite};
use super::spec::Interface;
use warploom_core::base::DType;

/// A vendor library routine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Routine {
    /// A matrix product (GEMM).
    Gemm(Gemm),
}

/// `d[t, i, j] = epilogue(sum over l of a[t, i, l] * b[t, l, j])`, for `t < batch`, `i < m`,
/// `j < n` and `l < k`; sums are `f32`.
///
/// Bindings: `a`, `b`, the bias `[n]` if the epilogue has one, `d`. Parameters, in elements, as
/// [`GEMM_PARAMS`] names them: element (t, i, l) of `a` is at
/// `a_offset + t * a_batch + i * a_stride + l`, or at `.. + l * a_stride + i` if transposed; the
/// same for `b` and `d`. A batch stride of 0 repeats one matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Gemm {
    /// Type of the elements of `a` and `b`: `f32`, `f16` or `bf16`.
    pub operands: DType,
    /// Type of the elements of `d`: that of the operands or `f32`.
    pub result: DType,
    /// Whether `a` is stored as `[k, m]`.
    pub a_transposed: bool,
    /// Whether `b` is stored as `[n, k]`.
    pub b_transposed: bool,
    /// Precision of the products.
    pub compute: GemmCompute,
    /// Epilogue applied to each sum before it is stored.
    pub epilogue: Epilogue,
}

/// Precision of a [`Gemm`]'s products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum GemmCompute {
    /// Operands are used unchanged.
    F32,
    /// `f32` operands rounded to 11 significant bits (TF32). No engine uses it.
    Tf32,
}

/// Operation applied to each sum of a [`Gemm`] before it is rounded to the result type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Epilogue {
    /// No operation.
    None,
    /// Adds `bias[j]`.
    Bias,
    /// `max(sum, 0)`.
    Relu,
    /// `max(sum + bias[j], 0)`.
    BiasRelu,
}

/// The parameters of a [`Gemm`], one word each: sizes; for `a`, `b` and `d` the offset, the row
/// stride (as stored) and the batch stride; the offset of the bias.
pub const GEMM_PARAMS: [&str; 14] = [
    "batch",
    "m",
    "n",
    "k",
    "a_offset",
    "a_stride",
    "a_batch",
    "b_offset",
    "b_stride",
    "b_batch",
    "d_offset",
    "d_stride",
    "d_batch",
    "bias_offset",
];

impl Epilogue {
    /// Returns whether the epilogue reads a bias.
    pub fn has_bias(self) -> bool {
        matches!(self, Epilogue::Bias | Epilogue::BiasRelu)
    }
}

impl Gemm {
    /// Returns why no library supports the routine, or `None` if one may.
    pub fn fault(&self) -> Option<String> {
        let Gemm { operands, result, compute, epilogue, .. } = self;
        if !operands.is_float() {
            return Some(format!("products of {}", operands.name()));
        }
        if result != operands && *result != DType::F32 {
            return Some(format!("products of {} as {}", operands.name(), result.name()));
        }
        if *compute == GemmCompute::Tf32 && *operands != DType::F32 {
            return Some(format!("TF32 of {}", operands.name()));
        }
        (epilogue.has_bias() && *result != DType::F32)
            .then(|| format!("a bias before rounding to {}", result.name()))
    }

    /// Returns the binding interface of the call.
    pub fn interface(&self) -> Interface {
        let mut bindings = vec![Read; 2 + usize::from(self.epilogue.has_bias())];
        bindings.push(ReadWrite);
        Interface { param_words: (GEMM_PARAMS.len() as u32).next_multiple_of(4), bindings }
    }
}

impl fmt::Display for Gemm {
    /// Writes the product as in `gemm f16 a*b^T -> f16 +bias`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = |transposed| if transposed { "^T" } else { "" };
        let (a, b) = (mark(self.a_transposed), mark(self.b_transposed));
        write!(f, "gemm {} a{a}*b{b} -> {}", self.operands.name(), self.result.name())?;
        f.write_str(match self.compute {
            GemmCompute::F32 => "",
            GemmCompute::Tf32 => " by tf32",
        })?;
        f.write_str(match self.epilogue {
            Epilogue::None => "",
            Epilogue::Bias => " +bias",
            Epilogue::Relu => " relu",
            Epilogue::BiasRelu => " +bias relu",
        })
    }
}

impl Routine {
    /// Returns a short name for messages and traces.
    pub fn name(&self) -> &'static str {
        match self {
            Routine::Gemm(_) => "gemm",
        }
    }

    /// Returns why no library supports the routine, or `None` if one may.
    pub fn fault(&self) -> Option<String> {
        match self {
            Routine::Gemm(gemm) => gemm.fault(),
        }
    }

    /// Returns the binding interface of the call.
    pub fn interface(&self) -> Interface {
        match self {
            Routine::Gemm(gemm) => gemm.interface(),
        }
    }
}

impl fmt::Display for Routine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Routine::Gemm(gemm) => write!(f, "{gemm}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KernelSpec;

    fn gemm(operands: DType, result: DType) -> Gemm {
        let (compute, epilogue) = (GemmCompute::F32, Epilogue::None);
        Gemm { operands, result, a_transposed: false, b_transposed: true, compute, epilogue }
    }

    #[test]
    fn it_is_written_and_read_again() {
        for epilogue in [Epilogue::None, Epilogue::Bias, Epilogue::Relu, Epilogue::BiasRelu] {
            let spec = KernelSpec::Routine(Routine::Gemm(Gemm {
                epilogue,
                ..gemm(DType::BF16, DType::F32)
            }));
            let text = serde_json::to_string(&spec).unwrap();
            assert_eq!(serde_json::from_str::<KernelSpec>(&text).unwrap(), spec);
            let buffers = 3 + usize::from(epilogue.has_bias());
            let interface = crate::catalogue::interface(&spec).unwrap();
            assert_eq!((interface.bindings.len(), interface.param_words), (buffers, 16));
        }
        let other = r#"{"Routine":{"Fft":{}}}"#;
        assert!(serde_json::from_str::<KernelSpec>(other).is_err());
        let relu = Gemm { epilogue: Epilogue::BiasRelu, ..gemm(DType::F16, DType::F32) };
        assert_eq!(relu.to_string(), "gemm f16 a*b^T -> f32 +bias relu");
    }
}

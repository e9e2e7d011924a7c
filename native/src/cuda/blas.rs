//! GEMM through cuBLASLt: one handle and one workspace for each device, and cached plans.
//!
//! A plan is the library's state for one product of given sizes: its description, layouts and the
//! algorithm chosen by the heuristic. The heuristic takes tens of microseconds, so it is queried
//! once. Algorithms share the workspace; calls are ordered in the device's stream, so one is
//! enough. If there is no memory for it, only algorithms without a workspace are used.
//!
//! Sums are `f32`: if the result is of a two-byte type, split-K algorithms that reduce in that type
//! are excluded. `f32` operands are multiplied exactly; TF32 is used only if a spec requests it.
//!
//! Calls are not part of CUDA graphs. A captured call would fix pointers and algorithm. Both change
//! with symbolic sizes, so each change would require a new capture and instantiation. A product
//! large enough for the library to be chosen takes far longer than the launch that a graph would
//! save. The launches before and after a call still become graphs.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::cublaslt::{result, sys};
use cudarc::driver::sys::CUdeviceptr;

use super::gemm::{Columns, Matrix};
use super::gpu::Gpu;
use super::library::lt;
use super::memory::Memory;
use warploom_core::base::DType;
use warploom_core::error::{Error, Result};
use warploom_kernels::{Epilogue, Gemm, GemmCompute};

/// Size of the workspace in bytes: NVIDIA's recommendation for newer GPUs.
pub(super) const WORKSPACE: u64 = 32 << 20;
/// Maximum number of cached plans; sizes change with every prompt.
const MOST_PLANS: usize = 1024;
/// Number of rows and of columns in the warm-up product.
const WARM_SIZE: u64 = 64;
/// The largest alignment that any algorithm requires, in bytes.
const MOST_ALIGNMENT: u32 = 256;

/// The library's handle, workspace and cached plans on one device.
pub(super) struct Blas {
    gpu: Arc<Gpu>,
    handle: sys::cublasLtHandle_t,
    workspace: Option<Memory>,
    plans: Mutex<HashMap<Key, Arc<Plan>>>,
}

// SAFETY: the handle may be used by any thread; plans are called under the device's lock.
unsafe impl Send for Blas {}
// SAFETY: as above.
unsafe impl Sync for Blas {}

/// Cache key of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) gemm: Gemm,
    pub(super) columns: Columns,
    /// Alignment, in bytes, of the addresses of the first operand, the second operand and the
    /// result. The bias is always aligned to 16 bytes (`Numbers::columns`).
    pub(super) alignments: [u32; 3],
}

/// Addresses of a call: the library's first and second operand, the result, and the bias or 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses {
    pub(super) first: CUdeviceptr,
    pub(super) second: CUdeviceptr,
    pub(super) out: CUdeviceptr,
    pub(super) bias: CUdeviceptr,
}

impl Addresses {
    /// Returns the alignment of each address in bytes, up to [`MOST_ALIGNMENT`].
    pub(super) fn alignments(&self) -> [u32; 3] {
        [self.first, self.second, self.out]
            .map(|at| 1 << at.trailing_zeros().min(MOST_ALIGNMENT.trailing_zeros()))
    }
}

/// A planned product, ready to be called.
pub(super) struct Plan {
    description: Description,
    first: Layout,
    second: Layout,
    out: Layout,
    algorithm: sys::cublasLtMatmulAlgo_t,
}

// SAFETY: it owns its descriptions exclusively, and is called under the device's lock.
unsafe impl Send for Plan {}
// SAFETY: as above.
unsafe impl Sync for Plan {}

impl Blas {
    /// Creates the handle and, unless `room` is an out-of-memory error, the workspace. The context
    /// must be current on this thread.
    ///
    /// # Errors
    /// Unsupported if there is no library; errors of the library; loss of the device.
    pub(super) fn new(gpu: &Arc<Gpu>, room: Result<()>) -> Result<Blas> {
        lt().map_err(|why| Error::unsupported(why.clone()))?;
        let what = format!("the workspace of cuBLASLt on {}", gpu.id);
        let workspace = match room.and_then(|()| Memory::zeroed(gpu, WORKSPACE, &what)) {
            Ok(memory) => Some(memory),
            Err(error) if error.is_out_of_memory() => {
                tracing::debug!("{what} is not used: {error}");
                None
            }
            Err(error) => return Err(error),
        };
        let handle = named("a handle", result::create_handle())?;
        let (gpu, plans) = (Arc::clone(gpu), Mutex::default());
        Ok(Blas { gpu, handle, workspace, plans })
    }

    /// Returns the plan for a product, created on first use.
    ///
    /// # Errors
    /// Unsupported if the library has no algorithm for it; other errors of the library.
    pub(super) fn plan(&self, key: &Key, addresses: &Addresses) -> Result<Arc<Plan>> {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plan) = plans.get(key) {
            return Ok(Arc::clone(plan));
        }
        let plan = Arc::new(self.make(key, addresses)?);
        if plans.len() >= MOST_PLANS {
            plans.clear();
        }
        plans.insert(*key, Arc::clone(&plan));
        Ok(plan)
    }

    /// Queries an algorithm for a small product of this kind, because the library loads its tables
    /// on the first query, which takes 50 ms.
    pub(super) fn warm(&self, gemm: &Gemm) {
        let square = |transposed| Matrix {
            rows: WARM_SIZE,
            columns: WARM_SIZE,
            stride: WARM_SIZE as i64,
            batch: 0,
            transposed,
        };
        let columns = Columns {
            batch: 1,
            first: square(gemm.b_transposed),
            second: square(gemm.a_transposed),
            out: square(false),
        };
        // Never called, so the addresses need not be valid.
        let at = u64::from(MOST_ALIGNMENT);
        let addresses = Addresses { first: at, second: at, out: at, bias: at };
        let key = Key { gemm: *gemm, columns, alignments: addresses.alignments() };
        if let Err(error) = self.make(&key, &addresses) {
            tracing::debug!("{gemm}: {error}");
        }
    }

    /// Returns the size of the workspace in bytes; 0 if there is none.
    pub(super) fn room(&self) -> u64 {
        if self.workspace.is_some() { WORKSPACE } else { 0 }
    }

    fn make(&self, key: &Key, addresses: &Addresses) -> Result<Plan> {
        let Key { gemm, columns, alignments } = key;
        let Columns { batch, first, second, out } = columns;
        let description = Description::new(gemm, [first, second].map(|m| m.transposed))?;
        description.point(gemm, addresses)?;
        let first = Layout::new(first, gemm.operands, *batch)?;
        let second = Layout::new(second, gemm.operands, *batch)?;
        let out = Layout::new(out, gemm.result, *batch)?;
        let preference = Preference::new(gemm, *alignments, self.room())?;
        // SAFETY: all of them live.
        let found = unsafe {
            result::get_matmul_algo_heuristic(
                self.handle,
                description.0,
                first.0,
                second.0,
                out.0,
                out.0,
                preference.0,
            )
        };
        let found = named("choosing an algorithm", found)?;
        Ok(Plan { description, first, second, out, algorithm: found.algo })
    }

    /// Enqueues a product.
    ///
    /// # Errors
    /// Any error of the library.
    pub(super) fn call(&self, key: &Key, plan: &Plan, addresses: &Addresses) -> Result<()> {
        plan.description.point(&key.gemm, addresses)?;
        let (one, zero) = (1.0f32, 0.0f32);
        let pointer = |at: CUdeviceptr| at as *const c_void;
        // SAFETY: the plan's parts live; the addresses were checked to hold matrices of its sizes,
        // and the workspace, which only this stream uses, has as many bytes as it was planned with.
        let called = unsafe {
            result::matmul(
                self.handle,
                plan.description.0,
                (&raw const one).cast(),
                (&raw const zero).cast(),
                pointer(addresses.first),
                plan.first.0,
                pointer(addresses.second),
                plan.second.0,
                pointer(addresses.out),
                plan.out.0,
                addresses.out as *mut c_void,
                plan.out.0,
                &plan.algorithm,
                self.workspace.as_ref().map_or(0, |memory| memory.address) as *mut c_void,
                self.room() as usize,
                self.gpu.stream.cast(),
            )
        };
        named("a call", called)
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        if let Ok(_current) = self.gpu.enter() {
            // SAFETY: made by `new`; the device drops it when its stream is empty.
            let _ = unsafe { result::destroy_handle(self.handle) };
        }
    }
}

/// The description of an operation: types, transposes, epilogue.
struct Description(sys::cublasLtMatmulDesc_t);

impl Description {
    fn new(gemm: &Gemm, transposed: [bool; 2]) -> Result<Description> {
        use sys::cublasComputeType_t::{CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32};
        use sys::cublasLtEpilogue_t::*;
        use sys::cublasLtMatmulDescAttributes_t::*;
        let compute = match gemm.compute {
            GemmCompute::F32 => CUBLAS_COMPUTE_32F,
            GemmCompute::Tf32 => CUBLAS_COMPUTE_32F_FAST_TF32,
        };
        let made = result::create_matmul_desc(compute, sys::cudaDataType_t::CUDA_R_32F);
        let made = Description(named("a description", made)?);
        let operations = [CUBLASLT_MATMUL_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSB];
        for (which, transposed) in operations.into_iter().zip(transposed) {
            // CUBLAS_OP_N and CUBLAS_OP_T.
            made.set(which, &i32::from(transposed))?;
        }
        made.set(
            CUBLASLT_MATMUL_DESC_EPILOGUE,
            &match gemm.epilogue {
                Epilogue::None => CUBLASLT_EPILOGUE_DEFAULT,
                Epilogue::Bias => CUBLASLT_EPILOGUE_BIAS,
                Epilogue::Relu => CUBLASLT_EPILOGUE_RELU,
                Epilogue::BiasRelu => CUBLASLT_EPILOGUE_RELU_BIAS,
            },
        )?;
        Ok(made)
    }

    /// Sets the bias pointer, the only address in a description.
    fn point(&self, gemm: &Gemm, addresses: &Addresses) -> Result<()> {
        match gemm.epilogue.has_bias() {
            true => self.set(
                sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                &addresses.bias,
            ),
            false => Ok(()),
        }
    }

    fn set<T>(&self, which: sys::cublasLtMatmulDescAttributes_t, value: &T) -> Result<()> {
        let (at, size) = (std::ptr::from_ref(value).cast(), size_of::<T>());
        // SAFETY: the description lives, and the library copies `size` bytes or rejects a size that
        // is not the attribute's.
        let set = unsafe { result::set_matmul_desc_attribute(self.0, which, at, size) };
        named("a description", set)
    }
}

impl Drop for Description {
    fn drop(&mut self) {
        // SAFETY: made by `new`; calls copied what they need.
        let _ = unsafe { result::destroy_matmul_desc(self.0) };
    }
}

/// The layout of a matrix.
struct Layout(sys::cublasLtMatrixLayout_t);

impl Layout {
    fn new(matrix: &Matrix, dtype: DType, batch: i32) -> Result<Layout> {
        use sys::cublasLtMatrixLayoutAttribute_t::*;
        let dtype = match dtype {
            DType::F16 => sys::cudaDataType_t::CUDA_R_16F,
            DType::BF16 => sys::cudaDataType_t::CUDA_R_16BF,
            // `Gemm::fault` excludes all other types.
            _ => sys::cudaDataType_t::CUDA_R_32F,
        };
        let Matrix { rows, columns, stride, batch: distance, .. } = *matrix;
        let made = result::create_matrix_layout(dtype, rows, columns, stride);
        let made = Layout(named("a layout", made)?);
        if batch > 1 {
            made.set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch)?;
            made.set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &distance)?;
        }
        Ok(made)
    }

    fn set<T>(&self, which: sys::cublasLtMatrixLayoutAttribute_t, value: &T) -> Result<()> {
        let (at, size) = (std::ptr::from_ref(value).cast(), size_of::<T>());
        // SAFETY: as for a description.
        let set = unsafe { result::set_matrix_layout_attribute(self.0, which, at, size) };
        named("a layout", set)
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        // SAFETY: made by `new`; calls copied what they need.
        let _ = unsafe { result::destroy_matrix_layout(self.0) };
    }
}

/// Constraints on the choice of an algorithm.
struct Preference(sys::cublasLtMatmulPreference_t);

impl Preference {
    fn new(gemm: &Gemm, [first, second, out]: [u32; 3], room: u64) -> Result<Preference> {
        use sys::cublasLtMatmulPreferenceAttributes_t::*;
        use sys::cublasLtReductionScheme_t::{
            CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, CUBLASLT_REDUCTION_SCHEME_MASK,
        };
        let made = Preference(named("a preference", result::create_matmul_pref())?);
        made.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room)?;
        for (which, alignment) in [
            (CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, first),
            (CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, second),
            (CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, out),
            (CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, out),
        ] {
            made.set(which, &alignment)?;
        }
        let ways = match gemm.result.is_half() {
            true => CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE,
            false => CUBLASLT_REDUCTION_SCHEME_MASK,
        };
        made.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &(ways as u32))?;
        Ok(made)
    }

    fn set<T>(&self, which: sys::cublasLtMatmulPreferenceAttributes_t, value: &T) -> Result<()> {
        let (at, size) = (std::ptr::from_ref(value).cast(), size_of::<T>());
        // SAFETY: as for a description.
        let set = unsafe { result::set_matmul_pref_attribute(self.0, which, at, size) };
        named("a preference", set)
    }
}

impl Drop for Preference {
    fn drop(&mut self) {
        // SAFETY: made by `new`.
        let _ = unsafe { result::destroy_matmul_pref(self.0) };
    }
}

/// Converts an error of the library; `what` is the purpose of the call.
fn named<T>(what: &str, answer: Result<T, result::CublasError>) -> Result<T> {
    use sys::cublasStatus_t::{CUBLAS_STATUS_ALLOC_FAILED, CUBLAS_STATUS_NOT_SUPPORTED};
    answer.map_err(|error| {
        let text = format!("cuBLASLt, {what}: {:?}", error.0);
        match error.0 {
            CUBLAS_STATUS_ALLOC_FAILED => Error::out_of_memory(text, 0, 0),
            CUBLAS_STATUS_NOT_SUPPORTED => Error::unsupported(text),
            _ => Error::device(text),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use warploom_kernels::Gemm;
    use warploom_ledger::{Need, skip};

    /// Descriptions need the library but no device: the library reports attributes that it rejects.
    #[test]
    fn the_library_takes_every_description() {
        if let Err(why) = lt() {
            return skip(Need::Cuda, &why.to_string());
        }
        let address = 4096;
        let addresses = Addresses { first: address, second: address, out: address, bias: address };
        let all = [
            (DType::F32, DType::F32, GemmCompute::F32),
            (DType::F32, DType::F32, GemmCompute::Tf32),
            (DType::F16, DType::F16, GemmCompute::F32),
            (DType::F16, DType::F32, GemmCompute::F32),
            (DType::BF16, DType::BF16, GemmCompute::F32),
            (DType::BF16, DType::F32, GemmCompute::F32),
        ];
        for (operands, result, compute) in all {
            for epilogue in [Epilogue::None, Epilogue::Bias, Epilogue::Relu, Epilogue::BiasRelu] {
                for transposed in [[false, false], [true, false], [false, true], [true, true]] {
                    let [b_transposed, a_transposed] = transposed;
                    let gemm =
                        Gemm { operands, result, a_transposed, b_transposed, compute, epilogue };
                    if gemm.fault().is_some() {
                        continue;
                    }
                    let made = Description::new(&gemm, transposed).unwrap();
                    made.point(&gemm, &addresses).unwrap();
                    Preference::new(&gemm, [2, 16, 256], WORKSPACE).unwrap();
                }
            }
            let (rows, columns, stride, batch) = (33, 17, 40, 4096);
            let matrix = Matrix { rows, columns, stride, batch, transposed: false };
            Layout::new(&matrix, operands, 3).unwrap();
        }
        // An invalid size is reported with the name of the call.
        let none = Preference::new(
            &Gemm {
                operands: DType::F32,
                result: DType::F32,
                a_transposed: false,
                b_transposed: false,
                compute: GemmCompute::F32,
                epilogue: Epilogue::None,
            },
            [16; 3],
            0,
        );
        let wrong = none.unwrap().set(
            sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
            &0u8,
        );
        let message = wrong.unwrap_err().to_string();
        assert!(message.contains("CUBLAS_STATUS_INVALID_VALUE"), "{message}");
    }
}

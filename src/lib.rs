//! warploom runs tensor graphs and language models on the hardware of the machine: any GPU through
//! wgpu (Vulkan, Metal, DX12, WebGPU in a browser), NVIDIA GPUs through CUDA, other devices through
//! OpenCL, and the CPU with SIMD.
//!
//! It needs no vendor toolkit to build and no driver to start. It detects the available devices,
//! selects the best one and logs the reason. Only reads wait for a GPU. Errors name the file,
//! field, shape, node or device.
//!
//! Methods with plain names block and exist on native builds only. Their `_async` versions exist
//! everywhere, and their futures never block the thread that polls them, except in a submit to a
//! software Vulkan driver. See [`tensor`] and the example `tokio`.
//!
//! The repository has a guide with a chapter for each part, in `docs/guide`: tensors, laziness,
//! graphs, gradients, kernels, language models, the web, embedding.
//!
//! # Tensors
//!
//! ```
//! use warploom::{Runtime, Tensor};
//!
//! # fn main() -> warploom::Result<()> {
//! let runtime = Runtime::auto()?;
//! let a = Tensor::rand(&runtime, [512, 512], 1);
//! let mut v = Tensor::ones(&runtime, [512, 1]);
//! for _ in 0..50 {
//!     let w = a.matmul(&v);
//!     v = &w / w.square().sum_keep(0).sqrt();
//!     v.realize()?; // starts, and stays on the device
//! }
//! let largest = v.t().matmul(a.matmul(&v)).item::<f32>()?;
//! println!("largest eigenvalue: {largest:.3}");
//! # assert!((largest - 256.0).abs() < 2.0);
//! # Ok(())
//! # }
//! ```
//!
//! Operations are only recorded. A read runs them, `realize` starts them; see [`tensor`].
//!
//! # Gradients
//!
//! ```
//! use warploom::tensor::Var;
//! use warploom::{Runtime, Tensor};
//!
//! # fn main() -> warploom::Result<()> {
//! let runtime = Runtime::auto()?;
//! let w = Var::new(&Tensor::from_vec(&runtime, vec![1.0_f32, 2.0], [2]));
//! let loss = w.value().square().sum(..);
//! assert_eq!(loss.backward()?.get(&w).unwrap().to_vec::<f32>()?, [2.0, 4.0]);
//! # Ok(())
//! # }
//! ```
//!
//! See [`tensor::grad`]; the crate `warploom-nn` has layers and optimisers.
//!
//! # A graph
//!
//! ```
//! use std::collections::BTreeMap;
//! use warploom::{DType, Shape, SymbolValues};
//! use warploom::graph::{BinaryOp, Graph, Op, UnaryOp};
//! use warploom::runtime::{RunOptions, Runtime, run_graph};
//!
//! # fn main() -> warploom::Result<()> {
//! let mut graph = Graph::new("example");
//! let x = graph.input("x", Shape::new([2, 3]), DType::F32);
//! let row = graph.input("row", Shape::new([3]), DType::F32);
//! let sum = graph.add(Op::Binary(BinaryOp::Add), &[x, row])?;
//! let y = graph.add(Op::Unary(UnaryOp::Relu), &[sum])?;
//! graph.output("y", y)?;
//!
//! let runtime = Runtime::builder().device("cpu").build()?;
//! let bytes = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
//! let bindings: BTreeMap<String, Vec<u8>> = [
//!     ("x".to_string(), bytes(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])),
//!     ("row".to_string(), bytes(&[-2.0, 0.0, 0.5])),
//! ]
//! .into();
//! let (symbols, options) = (SymbolValues::new(), RunOptions::default());
//! let outputs = run_graph(&runtime, &graph, &symbols, &bindings, &options)?;
//! assert_eq!(outputs["y"], bytes(&[0.0, 2.0, 3.5, 2.0, 5.0, 6.5]));
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `webgpu` | yes | GPUs through wgpu: Vulkan, Metal and DX12 natively, WebGPU in a browser |
//! | `cuda` | yes | NVIDIA GPUs through CUDA; the libraries are loaded at run time |
//! | `opencl` | yes | devices with an OpenCL driver; the driver is loaded at run time |
//! | `packs` | yes | user operations from a folder with a shader and a manifest; in a browser also sorting and reductions of integers |
//! | `translate` | yes | WGSL to CUDA/OpenCL C, CPU interpreter; for `cuda`, `opencl`, `packs` |
//!
//! The CPU provider is always included. Language models, the HTTP server and the embedded model are
//! separate crates: `warploom-llm`, `warploom-serve`, `warploom-tiny-model`.
//!
//! Modules form layers, lowest first: `webgpu`; `memory` and `engine`; `plan`; `runtime`. Each uses
//! only the layers below it. `ARCHITECTURE.md` has the map.

pub mod engine;
#[doc(hidden)] // Internals: buffers of runtimes and plans.
pub mod memory;
pub mod plan;
pub mod runtime;
#[cfg(feature = "webgpu")]
pub mod webgpu;

/// Two-byte element types that [`Tensor`] accepts and returns.
pub use half::{bf16, f16};
pub use runtime::Runtime;
pub use runtime::tensor::{self, Tensor};
pub use warploom_core::base::{
    ComputeMode, DType, Dim, Format, Shape, ShapeClass, Symbol, SymbolValues,
};
#[doc(hidden)]
pub use warploom_core::broken_invariant;
pub use warploom_core::ir as graph;
pub use warploom_core::{Error, Result};
pub use warploom_cpu as cpu;
pub use warploom_hal as provider;
pub use warploom_kernels as kernel;

// The lower layers, under the names used here. They are separate crates without a stable interface.
pub(crate) use warploom_core::{base, config, error, ir, reference};
pub(crate) use warploom_kernels::codegen;
#[cfg(all(any(feature = "cuda", feature = "opencl"), not(target_arch = "wasm32")))]
pub(crate) use warploom_native as native;

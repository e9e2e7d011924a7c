//! Products of quantised rows fit the workgroup memory of their device for all sizes.

use naga::valid::Capabilities;
use warploom::engine::{EngineId, Registry};
use warploom::graph::{Graph, Op};
use warploom::kernel::KernelSpec;
use warploom::plan::{Options, Plan};
use warploom::provider::DeviceProfile;
use warploom_core::base::{ComputeMode, DType, Format, Shape, ShapeClass};
use warploom_kernels::codegen::spec_wgsl;

use crate::shaders::size;
use crate::wgsl::{FLOOR, lowered};

/// A norm and a product of quantised rows.
fn product(m: u64, n: u64, k: u64) -> Graph {
    let mut g = Graph::new("product");
    let x = g.input("x", Shape::new([m, k]), DType::F32);
    let gain = g.weight("gain", Shape::new([k]), Format::F32);
    let x = g.add(Op::RmsNorm { eps: 1e-5 }, &[x, gain]).unwrap();
    let w = g.weight("w", Shape::new([n, k]), Format::Q8_0);
    let y = g.add(Op::Linear { mode: ComputeMode::Int8 }, &[x, w]).unwrap();
    g.output("y", y).unwrap();
    g
}

#[test]
fn products_of_rounded_rows_fit_the_device() {
    let registry = Registry::builtin();
    let mut inside = 0;
    for kib in [16, 32, 48, 64] {
        for subgroups in [false, true] {
            let width = if subgroups { 32 } else { 0 };
            let profile = DeviceProfile::webgpu_floor("of so much memory").with(|p| {
                p.workgroup_memory_bytes = kib << 10;
                p.has_subgroups = subgroups;
                p.subgroup_min = width;
                p.subgroup_max = width;
                p.has_matrix_hw = subgroups;
                p.has_f16 = subgroups;
                p.max_storage_buffers = 16;
            });
            for k in [576, 1536, 2048, 3072, 3584, 4096, 4864, 8192, 9728, 14_336] {
                for (m, n) in [(1, 4096), (3, 4096), (8, 896), (8, 16_384), (70, 4096)] {
                    let graph = product(m, n, k);
                    let mut options = Options::new(&registry);
                    let best = Plan::new(&graph, &ShapeClass::new(), &profile, &options).unwrap();
                    options.preferred = vec![EngineId::new("wgsl.matvec_int8.q8_0")];
                    let held = Plan::new(&graph, &ShapeClass::new(), &profile, &options).unwrap();
                    for kernel in [best, held].iter().flat_map(|plan| &plan.recording.kernels) {
                        let name = format!("{kernel} for {m} rows of {k} and {kib} KiB");
                        let capabilities = FLOOR
                            | Capabilities::SUBGROUP
                            | Capabilities::SHADER_FLOAT16
                            | Capabilities::COOPERATIVE_MATRIX;
                        let wgsl = spec_wgsl(kernel).unwrap();
                        let (module, _) = lowered(&name, &wgsl, capabilities).unwrap();
                        let (_, memory) = size(&name, &module);
                        assert!(memory <= kib << 10, "{name}: {memory} bytes");
                        inside += u32::from(
                            matches!(kernel, KernelSpec::Asset(a) if a.name.starts_with("matvec_int8")),
                        );
                    }
                }
            }
        }
    }
    assert!(inside > 100, "only {inside} products round inside");
}

//! Tests which kernels `support` rejects, and with which messages.

use crate::{DeviceProfile, Support, support};
use warploom_core::base::DType;
use warploom_kernels::{AssetSpec, Epilogue, Gemm, GemmCompute, KernelSpec, Routine};

fn gemm(operands: DType, result: DType) -> Gemm {
    let (compute, epilogue) = (GemmCompute::F32, Epilogue::None);
    Gemm { operands, result, a_transposed: false, b_transposed: true, compute, epilogue }
}

#[test]
fn a_missing_gemm_library_is_named() {
    let bare = DeviceProfile::webgpu_floor("test");
    let has = DeviceProfile { has_gemm_library: true, ..bare.clone() };
    let no = |profile: &DeviceProfile, gemm: Gemm| match support(
        profile,
        &KernelSpec::Routine(Routine::Gemm(gemm)),
    ) {
        Support::No(reason) => reason,
        Support::Yes => String::new(),
    };
    let half = gemm(DType::F16, DType::F16);
    assert_eq!(no(&has, half), "");
    let reason = no(&bare, half);
    assert!(reason.contains("gemm f16 a*b^T -> f16") && reason.contains("library"), "{reason}");
    assert!(no(&has, gemm(DType::I32, DType::I32)).contains("products of i32"));
    assert!(no(&has, gemm(DType::F16, DType::BF16)).contains("as bf16"));
    assert!(no(&has, gemm(DType::F32, DType::F16)).contains("as f16"));
    let tf32 = Gemm { compute: GemmCompute::Tf32, ..half };
    assert!(no(&has, tf32).contains("TF32 of f16"));
    let bias = Gemm { epilogue: Epilogue::Bias, ..half };
    assert!(no(&has, bias).contains("a bias before rounding"));
}

#[test]
fn subgroups_that_are_too_small_are_refused() {
    let mut profile = DeviceProfile::known("nvidia-h200").unwrap();
    let plain = AssetSpec::new("quantize_activations");
    let together = KernelSpec::Asset(plain.clone().define("subgroup"));
    assert!(matches!(support(&profile, &together), Support::Yes));
    profile.subgroup_min = 4;
    let Support::No(reason) = support(&profile, &together) else { panic!("taken") };
    assert!(reason.ends_with("needs subgroups of 8, the smallest has 4"), "{reason}");
    assert!(matches!(support(&profile, &KernelSpec::Asset(plain)), Support::Yes));
}

//! Catalogue kernels with fusions, as text: valid, lowered to every target, with the catalogue's
//! interface.

use naga::valid::Capabilities;
use warploom::kernel::fusion::supports;
use warploom::kernel::{
    Access, Addressing, AssetSpec, FusedExpr, KernelFusion, KernelSpec, catalogue,
};
use warploom_kernels::codegen::kernel_wgsl;

use crate::kernel_fusions::{body, f32_at, odd, of_products, prologue, residual, store};
use crate::shaders::{FLOOR_MEMORY, size, storage, tint, uniform};
use crate::wgsl::{FLOOR, lowered};
use crate::{Need, skip};

const FORMATS: [&str; 4] = ["f32", "q4_1", "q4_k", "q6_k"];

/// Specs of each family with each kind of fusion, alternating over formats, constants and defines.
fn specs() -> Vec<AssetSpec> {
    let mut all = Vec::new();
    let mut turn = 0;
    let mut next = || {
        turn += 1;
        turn - 1
    };
    for format in FORMATS {
        for (_, attachment) in of_products(true) {
            for (rows, m, threads) in [(2, 1, 128), (4, 8, 64)] {
                let turn = next();
                let mut spec = AssetSpec::new(format!("matvec_{format}"))
                    .constant("ROWS", rows)
                    .constant("M", m)
                    .constant("WG", threads)
                    .attach(attachment.clone());
                for (bit, define) in ["vec4", "subgroup"].into_iter().enumerate() {
                    if (turn >> bit) & 1 == 1 {
                        spec = spec.define(define);
                    }
                }
                all.push(spec);
            }
        }
        for (_, attachment) in of_products(false) {
            let spec = AssetSpec::new(format!("matmul_{format}")).attach(attachment);
            let spec = spec.constant("BM", [32, 64, 128][next() % 3]);
            all.push(spec.clone().define("vec4"));
            all.push(spec);
        }
    }
    let just = |segment| KernelFusion { segments: vec![segment], ..Default::default() };
    let before = KernelFusion { prologue: Some(prologue(0)), ..Default::default() };
    let both = KernelFusion { prologue: Some(prologue(1)), ..just(residual(0)) };
    for name in ["matmul_batched", "conv2d"] {
        for attachment in [before.clone(), both.clone(), just(odd(0, 0))] {
            all.push(AssetSpec::new(name).attach(attachment));
        }
    }
    for segment in [store(0), residual(0), odd(0, 0)] {
        all.push(AssetSpec::new("matmul_batched_tiled").attach(just(segment.clone())));
        all.push(AssetSpec::new("attn_prefill").attach(just(segment.clone())));
        all.push(AssetSpec::new("attn_coop").attach(just(segment.clone())));
        all.push(AssetSpec::new("attn_split_kv_reduce").attach(just(segment.clone())));
        let decode = AssetSpec::new("attn_decode").attach(just(segment));
        all.push(decode.clone().define("vec4").define("subgroup"));
        all.push(decode);
    }
    all
}

/// The fields of the parameter block, by the contract of `kernel::fusion`.
fn fields(spec: &AssetSpec) -> Vec<String> {
    let (entry, _) = catalogue::find(&spec.name).unwrap();
    let mut names: Vec<String> = entry.params.iter().map(|p| p.to_string()).collect();
    let fusion = spec.fusion.as_ref().unwrap();
    if fusion.norm.is_some() {
        names.extend(["norm_eps".to_string(), "norm_offset".to_string()]);
    }
    let operands = |prefix: &str, body: &FusedExpr, names: &mut Vec<String>| {
        let inputs = (0..body.inputs.len()).map(|i| format!("x{i}"));
        let outputs = (0..body.outputs.len()).map(|i| format!("y{i}"));
        for (name, operand) in inputs.chain(outputs).zip(body.operands()) {
            names.push(format!("{prefix}_{name}_offset"));
            if operand.addressing == Addressing::Strided {
                names.extend((0..body.rank).map(|d| format!("{prefix}_{name}_stride{d}")));
            }
        }
    };
    if let Some(body) = &fusion.prologue {
        operands("p", body, &mut names);
    }
    let words = ["first_row", "size0", "size1", "stride0", "stride1", "distance"];
    for i in (0..fusion.segments.len()).filter(|_| entry.is_linear()) {
        names.extend(words.map(|word| format!("s{i}_{word}")));
    }
    for (i, segment) in fusion.segments.iter().enumerate() {
        operands(&format!("s{i}"), &segment.body, &mut names);
    }
    names
}

#[test]
fn fused_kernels_are_valid_and_lower_and_have_their_interface() {
    let all = specs();
    for spec in &all {
        let kernel = KernelSpec::Asset(spec.clone());
        let name = kernel.to_string();
        let subgroup = spec.defines.iter().any(|d| d == "subgroup");
        let matrices = catalogue::find(&spec.name).unwrap().0.is_cooperative();
        let capabilities = match (subgroup, matrices) {
            (true, _) => FLOOR | Capabilities::SUBGROUP,
            (_, true) => FLOOR | Capabilities::SHADER_FLOAT16 | Capabilities::COOPERATIVE_MATRIX,
            _ => FLOOR,
        };
        let wgsl = kernel_wgsl(spec).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(wgsl, kernel_wgsl(spec).unwrap(), "{name}");
        let (module, _) = lowered(&name, &wgsl, capabilities).unwrap_or_else(|e| panic!("{e}"));
        let interface = catalogue::interface(&kernel).unwrap();
        let found = uniform(&name, &module);
        let names: Vec<_> = found.iter().map(|(name, ..)| name.clone()).collect();
        assert_eq!(names, fields(spec), "{name}");
        assert_eq!(found.len().next_multiple_of(4) as u32, interface.param_words, "{name}");
        for (i, (field, offset, float)) in found.iter().enumerate() {
            let bits = ["norm_eps", "scale", "soft_cap"].contains(&&**field);
            assert_eq!((*offset as usize, *float), (4 * i, bits), "{name}: {field}");
        }
        let access: Vec<Access> = storage(&name, &module).into_iter().map(|(_, a)| a).collect();
        assert_eq!(access, interface.bindings, "{name}");
        let (threads, memory) = size(&name, &module);
        let room = if matrices { 32 << 10 } else { FLOOR_MEMORY };
        assert!(threads <= 256 && memory <= room, "{name}: {threads}, {memory} bytes");
    }
    assert!(all.len() > 150, "only {} kernels", all.len());
}

#[test]
fn fused_kernels_pass_tint_where_it_is_installed() {
    if let Err(e) = tint("probe", "@compute @workgroup_size(1) fn main() {}") {
        return skip(Need::Tool, &format!("tint was not found ({e})"));
    }
    let matrices = |s: &AssetSpec| catalogue::find(&s.name).unwrap().0.is_cooperative();
    let plain = |s: &&AssetSpec| !s.defines.iter().any(|d| d == "subgroup") && !matrices(s);
    for spec in specs().iter().filter(plain) {
        let name = KernelSpec::Asset(spec.clone()).to_string();
        tint(&name, &kernel_wgsl(spec).unwrap()).unwrap();
    }
}

#[test]
fn attachments_that_a_kernel_does_not_take_are_refused() {
    let just = |segments: Vec<_>| KernelFusion { segments, ..Default::default() };
    let norm = KernelFusion { norm: Some(0), ..Default::default() };
    let before = KernelFusion { prologue: Some(prologue(0)), ..Default::default() };
    let gated = || crate::kernel_fusions::gated();
    for (name, attachment, what) in [
        ("matmul_q4_0", norm, "does not normalise"),
        ("attn_decode", before, "prologue"),
        ("softmax", just(vec![store(0)]), "epilogue"),
        ("conv2d", just(vec![gated()]), "one anchor"),
        ("matmul_batched", just(vec![store(0), store(0)]), "one segment"),
        ("matvec_f32", just(vec![store(0); 5]), "5 segments"),
    ] {
        let reason = supports(name, &attachment).unwrap_err();
        assert!(reason.contains(what), "{name}: {reason}");
        let error = kernel_wgsl(&AssetSpec::new(name).attach(attachment)).unwrap_err();
        assert!(error.is_unsupported() && error.to_string().contains(what), "{error}");
    }
    // An output of another type than the value, and a value that is not there.
    let mut wrong = store(0);
    wrong.body.outputs[0].operand.dtype = warploom_core::base::DType::I32;
    let mut late = store(0);
    late.body.outputs[0].value = 7;
    for (segment, what) in [(wrong, "segment 0: f32 for output 0 of i32"), (late, "value 7")] {
        let error = kernel_wgsl(&AssetSpec::new("matvec_f32").attach(just(vec![segment])));
        let error = error.unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains(what), "{error}");
    }
    let empty =
        KernelFusion { prologue: Some(body(2, vec![f32_at(0)], &[], &[])), ..Default::default() };
    assert!(kernel_wgsl(&AssetSpec::new("matvec_f32").attach(empty)).unwrap_err().is_invalid());
    // Two anchors need an even number of rows in a workgroup.
    let odd = AssetSpec::new("matvec_f32").constant("ROWS", 3).attach(just(vec![gated()]));
    assert!(naga::front::wgsl::parse_str(&kernel_wgsl(&odd).unwrap()).is_err());
}

//! Turns catalogue specs into WGSL text.
//!
//! Assets are the files of `shaders/`, embedded; `shaders/README.md` documents their syntax. Equal
//! specs give equal text.

mod preprocess;
mod specialize;
#[cfg(any(test, target_arch = "wasm32"))]
mod stripped;
#[macro_use]
mod text;

use preprocess::{Source, assemble};
use std::collections::BTreeMap;

use super::catalogue::{self, Entry};
use super::entry::{SUFFIXES, plain_name};
use super::spec::{AssetSpec, Constant};
use warploom_core::error::{Error, Result};

macro_rules! assets {
    ($($name:literal: $path:literal,)*) => {
        /// Every shader file: name without folder and extension, path in the package, and text.
        pub const ASSETS: &[(&str, &str, &str)] = &[
            $(($name, concat!("shaders/", $path), text!($path)),)*
        ];
    };
}

assets! {
    "argmax": "argmax.wgsl",
    "argmax_of": "argmax_of.wgsl",
    "fusion_fetch": "shared/fusion_fetch.wgsl",
    "fusion_quant_target": "shared/fusion_quant_target.wgsl",
    "fusion_params": "shared/fusion_params.wgsl",
    "fusion_rows": "shared/fusion_rows.wgsl",
    "fusion_store": "shared/fusion_store.wgsl",
    "fusion_x": "shared/fusion_x.wgsl",
    "attention_params": "shared/attention_params.wgsl",
    "attention_strides": "shared/attention_strides.wgsl",
    "attn_split_kv_reduce": "attn_split_kv_reduce.wgsl",
    "attn_decode": "attn_decode.wgsl",
    "attn_coop": "attn_coop.wgsl",
    "attn_subgroup": "attn_subgroup.wgsl",
    "attn_prefill": "attn_prefill.wgsl",
    "attn_split_kv": "attn_split_kv.wgsl",
    "attn_split_kv_fused": "attn_split_kv_fused.wgsl",
    "best": "shared/best.wgsl",
    "batched_operands": "shared/batched_operands.wgsl",
    "block": "shared/block.wgsl",
    "prequant_begin_blocks": "shared/prequant_begin_blocks.wgsl",
    "quant_row_layout": "shared/quant_row_layout.wgsl",
    "prequant_begin": "shared/prequant_begin.wgsl",
    "prequant_blocks": "shared/prequant_blocks.wgsl",
    "prequant_eights": "shared/prequant_eights.wgsl",
    "prequant_exchange": "shared/prequant_exchange.wgsl",
    "prequant_headers": "shared/prequant_headers.wgsl",
    "prequant_layout": "shared/prequant_layout.wgsl",
    "prequant_scale": "shared/prequant_scale.wgsl",
    "prequant_several": "shared/prequant_several.wgsl",
    "prequant_sum": "shared/prequant_sum.wgsl",
    "prequant_trits": "shared/prequant_trits.wgsl",
    "prequant_units": "shared/prequant_units.wgsl",
    "conv2d": "conv2d.wgsl",
    "coop_begin": "shared/coop_begin.wgsl",
    "coop_decode": "shared/coop_decode.wgsl",
    "coop_end": "shared/coop_end.wgsl",
    "coop_step": "shared/coop_step.wgsl",
    "coop_sums": "shared/coop_sums.wgsl",
    "coop_tiles": "shared/coop_tiles.wgsl",
    "coop_tiling": "shared/coop_tiling.wgsl",
    "delta_rule": "delta_rule.wgsl",
    "dequant_bf16": "dequant_bf16.wgsl",
    "dequant_f16": "dequant_f16.wgsl",
    "dequant_f32": "dequant_f32.wgsl",
    "dequant_i2_s": "dequant_i2_s.wgsl",
    "dequant_iq4_nl": "dequant_iq4_nl.wgsl",
    "dequant_iq4_xs": "dequant_iq4_xs.wgsl",
    "dequant_mxfp4": "dequant_mxfp4.wgsl",
    "dequant_q2_k": "dequant_q2_k.wgsl",
    "dequant_q3_k": "dequant_q3_k.wgsl",
    "dequant_q4_0": "dequant_q4_0.wgsl",
    "dequant_q4_0x8": "dequant_q4_0x8.wgsl",
    "dequant_q4_1": "dequant_q4_1.wgsl",
    "dequant_q4_k": "dequant_q4_k.wgsl",
    "dequant_q5_0": "dequant_q5_0.wgsl",
    "dequant_q5_1": "dequant_q5_1.wgsl",
    "dequant_q5_k": "dequant_q5_k.wgsl",
    "dequant_q6_k": "dequant_q6_k.wgsl",
    "dequant_q6_kx8": "dequant_q6_kx8.wgsl",
    "dequant_q8_0": "dequant_q8_0.wgsl",
    "dequant_q8_0x2": "dequant_q8_0x2.wgsl",
    "dequant_q8_0x8": "dequant_q8_0x8.wgsl",
    "dequant_tq1_0": "dequant_tq1_0.wgsl",
    "dequant_tq2_0": "dequant_tq2_0.wgsl",
    "expert_coop": "expert_coop.wgsl",
    "expert_groups": "expert_groups.wgsl",
    "expert_matvec": "expert_matvec.wgsl",
    "fifths": "shared/fifths.wgsl",
    "gather": "gather.wgsl",
    "gather_rows": "gather_rows.wgsl",
    "half": "shared/half.wgsl",
    "f16_row_scale": "shared/f16_row_scale.wgsl",
    "dequantize_to_f16": "dequantize_to_f16.wgsl",
    "halfwords": "shared/halfwords.wgsl",
    "quant_epilogue": "shared/quant_epilogue.wgsl",
    "index_add": "index_add.wgsl",
    "iq4_values": "shared/iq4_values.wgsl",
    "k_scales": "shared/k_scales.wgsl",
    "key_range": "shared/key_range.wgsl",
    "key_slices": "shared/key_slices.wgsl",
    "kv": "shared/kv.wgsl",
    "math_casts": "shared/math_casts.wgsl",
    "math_erf": "shared/math_erf.wgsl",
    "math_extrema": "shared/math_extrema.wgsl",
    "math_f16": "shared/math_f16.wgsl",
    "math_integers": "shared/math_integers.wgsl",
    "math_pow": "shared/math_pow.wgsl",
    "math_rem": "shared/math_rem.wgsl",
    "math_sigmoid": "shared/math_sigmoid.wgsl",
    "math_tanh": "shared/math_tanh.wgsl",
    "math_trig": "shared/math_trig.wgsl",
    "matmul": "matmul.wgsl",
    "matmul_batched": "matmul_batched.wgsl",
    "matmul_coop": "matmul_coop.wgsl",
    "matmul_f16_coop": "matmul_f16_coop.wgsl",
    "matvec": "matvec.wgsl",
    "matvec_prequant": "matvec_prequant.wgsl",
    "matvec_int8": "matvec_int8.wgsl",
    "matvec_int8_subgroup": "shared/matvec_int8_subgroup.wgsl",
    "matvec_mma": "matvec_mma.wgsl",
    "matvec_int8_workgroup": "shared/matvec_int8_workgroup.wgsl",
    "matvec_scale": "shared/matvec_scale.wgsl",
    "matvec_sum": "shared/matvec_sum.wgsl",
    "mma_int8": "shared/mma_int8.wgsl",
    "nibbles": "shared/nibbles.wgsl",
    "nums": "shared/nums.wgsl",
    "norm_layer": "norm_layer.wgsl",
    "norm_rms": "norm_rms.wgsl",
    "prequant_begin_planes": "shared/prequant_begin_planes.wgsl",
    "pool2d": "pool2d.wgsl",
    "pool2d_avg": "pool2d_avg.wgsl",
    "pool2d_max": "pool2d_max.wgsl",
    "matmul_batched_coop": "matmul_batched_coop.wgsl",
    "matmul_batched_tiled": "matmul_batched_tiled.wgsl",
    "reduce": "reduce.wgsl",
    "reduce_max": "reduce_max.wgsl",
    "reduce_mean": "reduce_mean.wgsl",
    "reduce_min": "reduce_min.wgsl",
    "reduce_prod": "reduce_prod.wgsl",
    "reduce_sum": "reduce_sum.wgsl",
    "rope": "rope.wgsl",
    "rope_half": "rope_half.wgsl",
    "rope_interleaved": "rope_interleaved.wgsl",
    "quantize_blocks": "shared/quantize_blocks.wgsl",
    "quantize_activations": "quantize_activations.wgsl",
    "quantize_to_f16": "quantize_to_f16.wgsl",
    "fake_quantize": "fake_quantize.wgsl",
    "quantize_quads": "shared/quantize_quads.wgsl",
    "rounding": "shared/rounding.wgsl",
    "row_passes": "shared/row_passes.wgsl",
    "row_quant_epilogue": "shared/row_quant_epilogue.wgsl",
    "split_k_reduce": "split_k_reduce.wgsl",
    "sample": "sample.wgsl",
    "sample_radix": "shared/sample_radix.wgsl",
    "sample_weight": "shared/sample_weight.wgsl",
    "scale_sums": "shared/scale_sums.wgsl",
    "scatter_rows": "scatter_rows.wgsl",
    "softmax": "softmax.wgsl",
    "take_along": "take_along.wgsl",
    "top_k": "top_k.wgsl",
    "tile_row": "shared/tile_row.wgsl",
    "mma_begin_q4_0x8": "shared/mma_begin_q4_0x8.wgsl",
    "mma_begin_q4_k": "shared/mma_begin_q4_k.wgsl",
    "mma_begin_q6_kx8": "shared/mma_begin_q6_kx8.wgsl",
    "mma_begin_q8_0x8": "shared/mma_begin_q8_0x8.wgsl",
    "mma_scale": "shared/mma_scale.wgsl",
    "mma_q4_0x8": "shared/mma_q4_0x8.wgsl",
    "mma_q4_k": "shared/mma_q4_k.wgsl",
    "mma_q6_kx8": "shared/mma_q6_kx8.wgsl",
    "mma_q8_0x8": "shared/mma_q8_0x8.wgsl",
}

/// Families whose kernels share a skeleton file; it imports the file with the kernel's own name.
const SKELETONS: [&str; 3] = ["reduce", "rope", "pool2d"];

fn asset(name: &str) -> Option<&'static str> {
    ASSETS.iter().find(|(n, ..)| *n == name).map(|(.., text)| *text)
}

/// Returns the text of a shared file of functions, for generated kernels.
///
/// # Errors
/// Compile if the file does not exist or has an error.
pub fn shared_wgsl(name: &str) -> Result<String> {
    let (defines, constants) = (Vec::new(), BTreeMap::new());
    let files = |name: &str| asset(name);
    let source = Source { star: "", defines: &defines, constants: &constants, files: &files };
    assemble(name, "", &source)
}

/// Text that a fusion inserts into an asset; `codegen` prints it.
#[derive(Debug, Default)]
pub struct Splice {
    /// Text that replaces files, by file name.
    pub files: BTreeMap<&'static str, String>,
    /// Lines to append to the asset.
    pub tail: String,
    /// Defines in addition to the spec's, which the catalogue does not list.
    pub defines: Vec<&'static str>,
    /// Constants in addition to the spec's.
    pub constants: Vec<(&'static str, u32)>,
}

/// Returns the WGSL text of an asset: imports resolved, defines applied and constants set.
///
/// # Errors
/// Unsupported if the kernel is not in the catalogue; invalid if it lacks a define or a constant of
/// the spec, or if the spec has a fusion, which only `codegen` prints; compile if the asset has an
/// error. Invalid and compile errors name the asset, and the line if there is one.
pub fn asset_wgsl(spec: &AssetSpec) -> Result<String> {
    if spec.fusion.is_some() {
        return Err(Error::invalid(format!("kernel {}: the attachment is not printed", spec.name)));
    }
    spliced_wgsl(spec, &Splice::default())
}

/// Same as [`asset_wgsl`], with the text of a fusion.
///
/// # Errors
/// Same as [`asset_wgsl`], except that the spec may have a fusion.
pub fn spliced_wgsl(spec: &AssetSpec, splice: &Splice) -> Result<String> {
    let (entry, format) = catalogue::find(&spec.name).ok_or_else(|| {
        Error::unsupported(format!("kernel {:?} is not in the catalogue", spec.name))
    })?;
    if let Some(define) = spec.defines.iter().find(|d| !entry.defines.contains(&d.as_str())) {
        return Err(Error::invalid(format!(
            "kernel {}: there is no variant {define:?}, only {:?}",
            spec.name, entry.defines
        )));
    }
    let (file, star) = match format {
        Some(format) => (entry.name.trim_end_matches("_*"), format.name()),
        None => SKELETONS
            .iter()
            .find_map(|s| Some((*s, entry.name.strip_prefix(s)?.strip_prefix('_')?)))
            .unwrap_or((entry.name, "")),
    };
    let mut defines = spec.defines.clone();
    let added = SUFFIXES.iter().filter(|(suffix, _)| file.contains(suffix));
    defines.extend(added.map(|(_, define)| define.to_string()));
    let file = plain_name(file);
    defines.extend(splice.defines.iter().map(|define| define.to_string()));
    let mut constants = spec.constants.clone();
    let more = splice.constants.iter();
    constants.extend(more.map(|(name, value)| (name.to_string(), Constant::U32(*value))));
    let files = |name: &str| splice.files.get(name).map(String::as_str).or_else(|| asset(name));
    let source = Source { star, defines: &defines, constants: &constants, files: &files };
    let text = assemble(file, &splice.tail, &source)?;
    Ok(match &spec.known {
        Some(known) => specialize::settle(&text, &known.words),
        None => text,
    })
}

/// Returns every variant that ships, for tests: each kernel with each format, each set of defines,
/// and constants at their defaults and at other values that engines use. [`cooperative_variants`]
/// returns those on cooperative matrices.
pub fn variants() -> Vec<AssetSpec> {
    variants_of(|entry| !entry.is_cooperative())
}

/// Same as [`variants`], for kernels on cooperative matrices, which few targets support.
pub fn cooperative_variants() -> Vec<AssetSpec> {
    variants_of(Entry::is_cooperative)
}

fn variants_of(which: impl Fn(&Entry) -> bool) -> Vec<AssetSpec> {
    let mut all = Vec::new();
    for entry in catalogue::CATALOGUE.iter().filter(|entry| which(entry)) {
        let names: Vec<String> = if entry.name.ends_with('*') {
            entry.formats().map(|f| catalogue::family_name(entry.name, f)).collect()
        } else {
            vec![entry.name.to_string()]
        };
        for name in names {
            for set in 0..1u32 << entry.defines.len() {
                let base = entry
                    .defines
                    .iter()
                    .enumerate()
                    .filter(|(i, _)| set >> i & 1 == 1)
                    .fold(AssetSpec::new(&name), |spec, (_, define)| spec.define(*define));
                let has = |define: &str| base.defines.iter().any(|d| d == define);
                let of = |define, formats: &[&str]| {
                    let mut kernels = formats.iter().map(|f| format!("matvec_prequant_{f}"));
                    !has(define) || has("subgroup") && kernels.any(|kernel| kernel == name)
                };
                if ONLY_SUBGROUPS.iter().any(|only| name.starts_with(only)) && !has("subgroup") {
                    continue;
                }
                let by_units = |f| {
                    catalogue::has_units_of_32(f) && name == catalogue::family_name(entry.name, f)
                };
                if has("units") && !entry.formats().any(by_units) {
                    continue;
                }
                let ways: [(&str, &[&str]); 5] = [
                    ("headers", &["q4_k", "q5_k"]),
                    ("eights", &["q6_kx8"]),
                    ("trits", &["tq2_0"]),
                    ("blocks", &["q4_0x8", "q8_0x8"]),
                    ("several", &["q4_k", "q5_k", "q6_kx8", "q4_0x8", "q8_0x8"]),
                ];
                let ways_at_once = ways.iter().filter(|(way, _)| has(way)).count();
                if ways_at_once > 1 || ways.iter().any(|(way, formats)| !of(way, formats)) {
                    continue;
                }
                all.extend(constant_sets(entry, &base));
            }
        }
    }
    all
}

/// Name prefixes of kernels that exist only with subgroups.
const ONLY_SUBGROUPS: [&str; 4] =
    ["attn_subgroup", "attn_split_kv_fused", "matvec_mma", "quantize_to_f16"];

/// Returns `base` with each set of constants to test.
fn constant_sets(entry: &Entry, base: &AssetSpec) -> Vec<AssetSpec> {
    let with = |pairs: &[(&str, u32)]| {
        pairs.iter().fold(base.clone(), |spec, (name, value)| spec.constant(*name, *value))
    };
    let mut sets = vec![base.clone()];
    match plain_name(entry.name) {
        "matvec_*" => {
            sets.push(with(&[("WG", 32), ("ROWS", 4), ("M", 8)]));
            sets.push(with(&[("WG", 256), ("ROWS", 1), ("M", 3)]));
        }
        "matvec_prequant_*" if base.defines.iter().any(|d| d == "several") => {
            let odd = if base.name.ends_with("q6_kx8") { 2048 } else { 2304 };
            let shapes = [(256, 4, 4096), (64, 2, odd)];
            let fixed = |(wg, teams, k)| {
                with(&[("WG", wg), ("TEAMS", teams), ("SUB", 32), ("M", 8), ("K", k)])
            };
            sets = shapes.map(fixed).to_vec();
        }
        "matvec_prequant_*" if base.defines.iter().any(|d| d == "trits") => {
            let shapes = [(128, 4, 2560, 5), (256, 2, 6912, 2), (32, 1, 6912, 3), (64, 2, 256, 1)];
            let fixed = |(wg, teams, k, unroll)| {
                let more = [("SUB", 32), ("ROWS", 8), ("K", k), ("UNROLL", unroll)];
                with(&[[("WG", wg), ("TEAMS", teams)].as_slice(), &more].concat())
            };
            sets = shapes.map(fixed).to_vec();
        }
        "matvec_prequant_*"
            if base
                .defines
                .iter()
                .any(|d| ["headers", "eights", "blocks"].contains(&d.as_str())) =>
        {
            let shapes = match base.defines.iter().any(|d| d == "eights") {
                true => [(256, 8, 2048, 1), (256, 4, 4096, 1), (64, 1, 6144, 2)],
                false => [(256, 8, 2048, 2), (256, 4, 4096, 2), (256, 4, 2304, 1)],
            };
            let fixed = |wg, teams, k, unroll| {
                with(&[("WG", wg), ("TEAMS", teams), ("SUB", 32), ("K", k), ("UNROLL", unroll)])
            };
            sets = shapes.map(|(wg, teams, k, unroll)| fixed(wg, teams, k, unroll)).to_vec();
        }
        "matvec_prequant_*" => {
            sets.push(with(&[("WG", 32), ("ROWS", 4), ("M", 8)]));
            sets.push(with(&[("WG", 256), ("ROWS", 1), ("M", 3)]));
            sets.push(with(&[("WG", 256), ("TEAMS", 8)]));
        }
        "matvec_mma_*" => {
            sets = [(32, 1, 2048), (128, 4, 4096), (512, 2, 6144)]
                .map(|(threads, teams, k)| with(&[("WG", threads), ("TEAMS", teams), ("K", k)]))
                .to_vec();
        }
        "matvec_int8_*" => {
            sets.push(with(&[("WG", 32), ("ROWS", 4), ("M", 8), ("K", 512)]));
            // With subgroups there is nothing that passes could share.
            let passes = if base.defines.iter().any(|d| d == "subgroup") { 1 } else { 4 };
            sets.push(with(&[("WG", 256), ("ROWS", 1), ("M", 3), ("PASSES", passes)]));
            sets.push(with(&[("WG", 32), ("ROWS", 8), ("AHEAD", 3)]));
        }
        "matmul_*" => {
            sets.push(with(&[("BM", 32), ("BN", 64)]));
            sets.push(with(&[("BM", 128), ("BN", 64)]));
            // The last round of loads is partial, for both operands.
            sets.push(with(&[("BM", 80), ("BN", 112)]));
        }
        "matmul_batched_tiled" => {
            sets.extend([(1, 1), (1, 2), (2, 1)].map(|(m, n)| with(&[("QM", m), ("QN", n)])));
        }
        "matmul_batched_coop" => {
            sets.push(with(&[("TI", 2), ("STEPS", 4)]));
            sets.push(with(&[("TI", 2), ("TH", 1), ("SUB", 64)]));
            if base.defines.iter().any(|d| d == "f16_accumulate") {
                sets.push(with(&[("TI", 8), ("WI", 1), ("WJ", 4), ("STEPS", 4)]));
            }
        }
        "expert_coop_*" => {
            sets.push(with(&[("TI", 2), ("TH", 1), ("WI", 1)]));
            sets.push(with(&[("TI", 1), ("TH", 1), ("WI", 1), ("WJ", 4), ("SUB", 64)]));
        }
        "matmul_coop_*" | "matmul_f16_coop" => {
            let narrow = if entry.name == "matmul_f16_coop" { ("TJ", 2) } else { ("TH", 1) };
            sets.push(with(&[("TI", 1), narrow, ("WI", 1), ("WJ", 4)]));
            sets.push(with(&[("TI", 2), ("WI", 1), ("WJ", 4), ("SUB", 64)]));
            sets.push(with(&[("TI", 1), narrow, ("WI", 1), ("WJ", 4), ("SUB", 64)]));
            if entry.name == "matmul_f16_coop" {
                sets.push(with(&[("STEPS", 2), ("SPLITS", 4)]));
            }
        }
        name if name.starts_with("attn_") => sets.extend(attention_sets(name, base)),
        _ if entry.constants.iter().any(|(name, _)| *name == "WG") => {
            sets.extend([32, 256].map(|threads| with(&[("WG", threads)])));
        }
        _ => {}
    }
    sets
}

/// Returns the constant sets of attention kernels to test, in addition to the defaults.
fn attention_sets(name: &str, base: &AssetSpec) -> Vec<AssetSpec> {
    let with = |pairs: &[(&str, u32)]| {
        pairs.iter().fold(base.clone(), |spec, (name, value)| spec.constant(*name, *value))
    };
    let has = |define: &str| base.defines.iter().any(|d| d == define);
    let largest = if has(catalogue::F16_KV) { 256 } else { 128 };
    let mut sets = Vec::new();
    match name {
        "attn_decode" => {
            let dims = if has("vec4") { [32, 80, 128, 256] } else { [1, 33, 128, 256] };
            for (dim, threads) in dims.into_iter().zip([64, 256, 128, 256]) {
                sets.push(with(&[("HEAD_DIM", dim), ("WG", threads)]));
            }
        }
        "attn_subgroup" => {
            for (dim, threads, keys) in [(32, 512, 2), (128, 512, 4), (largest, 256, 8)] {
                sets.push(with(&[("HEAD_DIM", dim), ("WG", threads), ("AT_ONCE", keys)]));
            }
        }
        "attn_split_kv_fused" => {
            for (dim, threads, heads, keys) in
                [(32, 256, 3, 2), (128, 128, 2, 4), (largest, 64, 2, 2), (64, 256, 1, 8)]
            {
                let sizes = [("HEAD_DIM", dim), ("WG", threads), ("HEADS", heads)];
                sets.push(with(&[&sizes[..], &[("AT_ONCE", keys)]].concat()));
            }
        }
        "attn_split_kv" => {
            // Larger heads with these counts, or more threads, would not fit workgroup memory.
            for (dim, heads, threads) in [(32, 8, 64), (80, 3, 128), (128, 8, 64), (256, 4, 64)] {
                sets.push(with(&[("HEAD_DIM", dim), ("HEADS", heads), ("WG", threads)]));
            }
            if !has("vec4") {
                sets.push(with(&[("HEAD_DIM", 33), ("HEADS", 1), ("WG", 256)]));
            }
        }
        "attn_split_kv_reduce" => {
            sets.extend(
                [(1, 64), (33, 256), (256, 64)]
                    .map(|(dim, threads)| with(&[("HEAD_DIM", dim), ("WG", threads)])),
            );
        }
        "attn_coop" => {
            sets.extend([16, 80, 128].map(|dim| with(&[("HEAD_DIM", dim)])));
            sets.push(with(&[("HEAD_DIM", 64), ("KEYS", 16), ("SUB", 64)]));
            sets.push(with(&[("HEAD_DIM", 48), ("SUB", 64)]));
        }
        "attn_prefill" => {
            sets.extend([1, 33, 80, 128, 256].map(|dim| with(&[("HEAD_DIM", dim)])));
        }
        _ => {}
    }
    sets
}

/// Formats a finite float as a WGSL literal with the same bits.
pub fn f32_literal(value: f32) -> String {
    if value.abs() < 1e38 {
        // The shortest digits that give the same bits.
        format!("{value:?}f")
    } else {
        // Rounded digits may exceed the largest f32, which compilers reject.
        format!("{:?}f", f64::from(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KernelFusion;

    #[test]
    fn specs_outside_the_catalogue_are_refused() {
        assert!(asset_wgsl(&AssetSpec::new("matvec_q9_9")).unwrap_err().is_unsupported());
        assert!(asset_wgsl(&AssetSpec::new("gather").define("f16")).unwrap_err().is_invalid());
        let error = asset_wgsl(&AssetSpec::new("softmax").constant("ROWS", 1)).unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains("ROWS"), "{error}");
        let attachment = KernelFusion { norm: Some(0), ..Default::default() };
        let error = asset_wgsl(&AssetSpec::new("matvec_f32").attach(attachment)).unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains("attachment"), "{error}");
    }
}

//! The variants of the catalogue's kernels that ship, for tests.

use super::super::catalogue::{self, Entry};
use super::super::entry::plain_name;
use super::super::spec::AssetSpec;
use super::{asset, file_of};

/// Returns every variant that ships, for tests: each kernel with each format, each set of defines,
/// and constants at their defaults and at other values that engines use. [`cooperative_variants`]
/// returns those on cooperative matrices.
pub fn variants() -> Vec<AssetSpec> {
    variants_of(|entry| !entry.is_cooperative() && is_embedded(entry))
}

/// Same as [`variants`], for kernels on cooperative matrices, which few targets support.
pub fn cooperative_variants() -> Vec<AssetSpec> {
    variants_of(Entry::is_cooperative)
}

/// Returns whether this build has the text of a kernel; a browser's has not all.
fn is_embedded(entry: &Entry) -> bool {
    let (file, _) = file_of(entry, None);
    asset(plain_name(file)).is_some()
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
            let dims = if has("vec4") { [32, 80, 128, 256, 512] } else { [1, 33, 128, 256, 512] };
            for (dim, threads) in dims.into_iter().zip([64, 256, 128, 256, 256]) {
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
            sets.extend([1, 33, 80, 128, 256, 512].map(|dim| with(&[("HEAD_DIM", dim)])));
        }
        _ => {}
    }
    sets
}

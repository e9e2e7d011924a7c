//! Every shipped shader in every variant, and generated kernels: valid, lowered to every target,
//! with the catalogue's interface, and within the floor if they claim it.

use std::io::Write;
use std::process::{Command, Stdio};

use naga::valid::Capabilities;
use naga::{AddressSpace, Module, ScalarKind, StorageAccess, TypeInner};
use warploom::graph::ReduceOp;
use warploom::graph::scalar::{BinaryOp, UnaryOp};
use warploom::kernel::catalogue::{self, Entry};
use warploom::kernel::source::{ASSETS, asset_wgsl, cooperative_variants, variants};
use warploom::kernel::{Access, Addressing, AssetSpec, FusedExpr, KernelSpec, Schedule, Value};
use warploom_core::base::DType;
use warploom_kernels::codegen::{fused_wgsl, with_subgroups_enabled, workgroup};

use crate::fused_exprs::{elementwise, expr, rows};
use crate::wgsl::{FLOOR, lowered};
use crate::{Need, skip};

/// Bytes of workgroup memory that every device has.
pub(crate) const FLOOR_MEMORY: u32 = 16 << 10;

/// Threads of a workgroup, and bytes of workgroup memory.
pub(crate) fn size(name: &str, module: &Module) -> (u32, u32) {
    let [entry] = &module.entry_points[..] else { panic!("{name}: not one entry point") };
    assert_eq!(entry.name, "main", "{name}");
    let memory = module
        .global_variables
        .iter()
        .filter(|(_, v)| v.space == AddressSpace::WorkGroup)
        .map(|(_, v)| module.types[v.ty].inner.size(module.to_ctx()))
        .sum();
    (entry.workgroup_size.iter().product(), memory)
}

/// The storage bindings from 1 on, by name and access, in order.
pub(crate) fn storage(name: &str, module: &Module) -> Vec<(String, Access)> {
    let mut found: Vec<_> = module
        .global_variables
        .iter()
        .filter_map(|(_, v)| {
            let AddressSpace::Storage { access } = v.space else { return None };
            let binding = v.binding.unwrap();
            assert_eq!(binding.group, 0, "{name}");
            let write = access.contains(StorageAccess::STORE);
            let access = if write { Access::ReadWrite } else { Access::Read };
            Some((binding.binding, v.name.clone().unwrap(), access))
        })
        .collect();
    found.sort_by_key(|(binding, ..)| *binding);
    for (i, (binding, ..)) in found.iter().enumerate() {
        assert_eq!(*binding as usize, i + 1, "{name}");
    }
    found.into_iter().map(|(_, name, access)| (name, access)).collect()
}

/// Fields of the uniform block at binding 0: name, byte offset, whether it is a float.
pub(crate) fn uniform(name: &str, module: &Module) -> Vec<(String, u32, bool)> {
    let (_, block) = module
        .global_variables
        .iter()
        .find(|(_, v)| v.space == AddressSpace::Uniform)
        .unwrap_or_else(|| panic!("{name}: no uniform block"));
    let binding = block.binding.unwrap();
    assert_eq!((binding.group, binding.binding), (0, 0), "{name}");
    let TypeInner::Struct { members, span } = &module.types[block.ty].inner else {
        panic!("{name}: the uniform block is not a struct")
    };
    assert!(*span <= 4 * (members.len() as u32).next_multiple_of(4), "{name}");
    members
        .iter()
        .map(|m| match module.types[m.ty].inner {
            TypeInner::Scalar(scalar) if scalar.width == 4 => {
                (m.name.clone().unwrap(), m.offset, scalar.kind == ScalarKind::Float)
            }
            ref other => panic!("{name}: parameter of type {other:?}"),
        })
        .collect()
}

fn check_interface(name: &str, entry: &Entry, module: &Module) {
    let fields: Vec<_> = entry
        .params
        .iter()
        .enumerate()
        .map(|(i, p)| (p.to_string(), 4 * i as u32, catalogue::F32_PARAMS.contains(p)))
        .collect();
    assert_eq!(uniform(name, module), fields, "{name}");
    let bindings: Vec<_> = entry.bindings.iter().map(|(n, a)| (n.to_string(), *a)).collect();
    assert_eq!(storage(name, module), bindings, "{name}");
    assert!(bindings.len() <= 8, "{name}");
}

/// Threads of a workgroup, as engines that compute grids assume.
fn expected_threads(entry: &Entry, spec: &AssetSpec) -> u32 {
    let default = entry.constants.iter().find(|(name, _)| *name == "WG").map(|(_, v)| *v);
    match entry.name {
        "gather_rows_*" => catalogue::GATHER_COLUMNS / 4,
        "gather" | "take_along" => catalogue::GATHER_GROUP,
        "sample" => catalogue::SAMPLE_THREADS,
        "matmul_*"
        | "matmul_batched"
        | "matmul_batched_tiled"
        | "attn_prefill"
        | "attn_prefill_sinks" => 256,
        _ => spec.get_u32("WG").or(default).unwrap_or(catalogue::POINT_GROUP),
    }
}

#[test]
fn every_variant_is_valid_and_lowers_and_has_its_interface() {
    let all = variants();
    for spec in &all {
        let name = KernelSpec::Asset(spec.clone()).to_string();
        let (entry, _) = catalogue::find(&spec.name).unwrap();
        let subgroup = spec.defines.iter().any(|d| d == "subgroup");
        let capabilities = if subgroup { FLOOR | Capabilities::SUBGROUP } else { FLOOR };
        let wgsl = asset_wgsl(spec).unwrap_or_else(|e| panic!("{name}: {e}"));
        let (module, _) = lowered(&name, &wgsl, capabilities).unwrap_or_else(|e| panic!("{e}"));
        check_interface(&name, entry, &module);
        let (threads, memory) = size(&name, &module);
        assert_eq!(threads, expected_threads(entry, spec), "{name}");
        // For those of lanes and of several tiles, the requirement is the number of threads of a
        // device.
        let many = ["attn_subgroup", "matvec_mma"].iter().any(|name| spec.name.starts_with(name));
        let most = if many { 1024 } else { 256 };
        assert!(threads <= most, "{name}: {threads} threads");
        assert!(memory <= FLOOR_MEMORY, "{name}: {memory} bytes of workgroup memory");
    }
    assert!(all.len() > 200, "only {} variants", all.len());
}

#[test]
fn every_variant_on_cooperative_matrices_is_valid_and_lowers_and_has_its_interface() {
    let capabilities = FLOOR | Capabilities::SHADER_FLOAT16 | Capabilities::COOPERATIVE_MATRIX;
    let all = cooperative_variants();
    for spec in &all {
        let name = KernelSpec::Asset(spec.clone()).to_string();
        let (entry, _) = catalogue::find(&spec.name).unwrap();
        let lanes = match spec.defines.iter().any(|define| define == "subgroup") {
            true => Capabilities::SUBGROUP,
            false => Capabilities::empty(),
        };
        let text = asset_wgsl(spec).unwrap();
        let (module, _) = lowered(&name, &text, capabilities | lanes).unwrap();
        check_interface(&name, entry, &module);
        let (threads, memory) = size(&name, &module);
        let constant = |name| spec.get_u32(name).unwrap_or(if name == "SUB" { 32 } else { 2 });
        let expected = match entry.name {
            "quantize_to_f16" => spec.get_u32("WG").unwrap_or(256),
            "attn_coop" => 4 * constant("SUB"),
            _ => constant("WI") * constant("WJ") * constant("SUB"),
        };
        assert_eq!(threads, expected, "{name}");
        assert!(threads <= 256, "{name}: {threads} threads");
        // Matrices are at multiples of 16 bytes, whatever order a driver uses for variables.
        for (_, variable) in module.global_variables.iter() {
            let bytes = module.types[variable.ty].inner.size(module.to_ctx());
            let shared =
                variable.space == AddressSpace::WorkGroup && entry.name != "quantize_to_f16";
            assert!(!shared || bytes % 16 == 0, "{name}: {:?}, {bytes} bytes", variable.name);
        }
        // The limits of Apple's GPUs, the smallest with such matrices.
        assert!(memory <= 32 << 10, "{name}: {memory} bytes of workgroup memory");
    }
    assert!(all.len() > 30, "only {} variants", all.len());
}

#[test]
fn constants_that_the_catalogue_names_are_declared_with_its_defaults() {
    for entry in catalogue::CATALOGUE {
        // A format that every family has.
        let name = catalogue::family_name(entry.name, warploom_core::base::Format::Q4K);
        let plain = asset_wgsl(&AssetSpec::new(&name)).unwrap();
        let mut spec = AssetSpec::new(&name);
        for (constant, default) in entry.constants {
            assert!(plain.contains(&format!("const {constant}: u32 = {default};")), "{name}");
            spec = spec.constant(*constant, *default);
        }
        asset_wgsl(&spec).unwrap();
    }
}

#[test]
fn constants_out_of_bounds_do_not_compile() {
    for (spec, what) in [
        (AssetSpec::new("softmax").constant("WG", 96), "not a power of two"),
        (AssetSpec::new("matvec_f32").constant("WG", 256).constant("ROWS", 32), "too many sums"),
        (AssetSpec::new("matmul_f32").constant("BM", 128).constant("BN", 128), "tiles too large"),
        (AssetSpec::new("attn_prefill").constant("HEAD_DIM", 513), "head too large"),
        (AssetSpec::new("attn_coop").constant("HEAD_DIM", 40), "not a multiple of 16"),
        (
            AssetSpec::new("attn_split_kv").constant("HEAD_DIM", 256).constant("HEADS", 16),
            "too many sums",
        ),
    ] {
        let wgsl = asset_wgsl(&spec).unwrap();
        assert!(naga::front::wgsl::parse_str(&wgsl).is_err(), "{spec:?}: {what}");
    }
}

#[test]
fn every_asset_has_a_header_and_passes_the_lint() {
    for (name, path, text) in ASSETS {
        assert!(path.ends_with(&format!("{name}.wgsl")), "{path}");
        assert!(text.starts_with("// "), "{path}: no header");
        let directives = text.lines().filter(|l| l.starts_with("#if")).count();
        assert!(directives <= 6, "{path}: {directives} conditionals");
        for (i, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap();
            let unpack = code.split("unpack2x16float(").skip(1);
            assert!(
                unpack.clone().all(|rest| rest.trim_end().ends_with(").x;")),
                "{path}:{}: unpack2x16float may only be used as .x",
                i + 1
            );
            let extends = code.contains("enable ")
                && ![
                    "attn_coop",
                    "expert_coop",
                    "matmul_coop",
                    "matmul_f16_coop",
                    "matmul_batched_coop",
                ]
                .contains(name);
            assert!(!extends, "{path}:{}: the floor has no extensions", i + 1);
            assert!(line.len() <= 120, "{path}:{}: longer than 120", i + 1);
        }
    }
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../shaders");
    for dir in [folder.clone(), folder.join("shared")] {
        for file in std::fs::read_dir(dir).unwrap().map(|f| f.unwrap().path()) {
            if file.extension().is_some_and(|e| e == "wgsl") {
                let stem = file.file_stem().unwrap().to_str().unwrap().to_string();
                assert!(ASSETS.iter().any(|(n, ..)| *n == stem), "{stem} is not in the table");
            }
        }
    }
}

fn expressions() -> Vec<FusedExpr> {
    elementwise().into_iter().chain(rows()).collect()
}

fn wants_subgroups(expr: &FusedExpr) -> bool {
    matches!(expr.schedule, Schedule::Rows { subgroup: true, .. })
}

#[test]
fn generated_kernels_are_valid_and_lower_and_have_their_interface() {
    let all = expressions();
    assert!(all.len() >= 200, "only {}", all.len());
    for expr in &all {
        let name = format!("{} {:?}", KernelSpec::Fused(expr.clone()), expr.schedule);
        let wgsl = fused_wgsl(expr).unwrap_or_else(|e| panic!("{name}: {e}"));
        let more =
            if wants_subgroups(expr) { Capabilities::SUBGROUP } else { Capabilities::empty() };
        let (module, _) = lowered(&name, &wgsl, FLOOR | more).unwrap_or_else(|e| panic!("{e}"));
        let fields = uniform(&name, &module);
        assert_eq!(fields.len() as u32, expr.raw_param_words(), "{name}");
        for (i, (field, offset, float)) in fields.iter().enumerate() {
            assert_eq!((*offset as usize, *float), (4 * i, false), "{name}: {field}");
        }
        let access: Vec<_> = storage(&name, &module).into_iter().map(|(_, a)| a).collect();
        assert_eq!(access, expr.interface().bindings, "{name}");
        let (threads, memory) = size(&name, &module);
        assert_eq!(threads, workgroup(&expr.schedule), "{name}");
        assert!(memory <= FLOOR_MEMORY, "{name}: {memory} bytes of workgroup memory");
        assert!(memory == 0 || expr.has_reductions(), "{name}");
    }
}

#[test]
fn malformed_expressions_are_refused() {
    use DType::{Bool, F16, F32, I32};
    let check = |expr: FusedExpr, what: &str| {
        let error = fused_wgsl(&expr).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    };
    check(expr(&[F32], F32, &[Value::Unary(UnaryOp::Exp, 1)]), "value 1: value 1 of 1");
    check(expr(&[F32], F32, &[Value::Input(1)]), "value 1: input 1 of 1");
    check(expr(&[F32, I32], F32, &[Value::Binary(BinaryOp::Add, 0, 1)]), "add of f32 and i32");
    check(expr(&[I32], I32, &[Value::Unary(UnaryOp::Exp, 0)]), "exp of i32");
    check(expr(&[F32, F32], F32, &[Value::Select(0, 0, 1)]), "select by f32");
    check(expr(&[F32], Bool, &[Value::Unary(UnaryOp::Exp, 0)]), "f32 for output 0 of bool");
    let mut late = expr(&[F32], F32, &[Value::Index]);
    late.outputs[0].value = 9;
    check(late, "output 0: value 9");
    check(expr(&[F16, F16], F16, &[Value::Binary(BinaryOp::Add, 0, 1)]), "add of f16");
    check(expr(&[F16, F16], Bool, &[Value::Binary(BinaryOp::Eq, 0, 1)]), "eq of f16");
    check(expr(&[F16], I32, &[Value::Cast(I32, 0)]), "cast of f16 to i32");
    let mut mixed = expr(&[F16, F32], F32, &[]);
    mixed.inputs[1].binding = 0;
    check(mixed, "f16 and elements of 4 bytes in buffer 0 that is read");
    let deep = FusedExpr { rank: 7, ..expr(&[F32], F32, &[Value::Input(0)]) };
    assert!(fused_wgsl(&deep).unwrap_err().is_unsupported());

    let sum = [Value::Reduce(ReduceOp::Sum, 0)];
    let rows = |threads, held, width| {
        let schedule = Schedule::Rows { threads, held, width, subgroup: false };
        FusedExpr { schedule, ..expr(&[F32], F32, &sum) }
    };
    fused_wgsl(&rows(256, 32, 4)).unwrap();
    check(expr(&[F32], F32, &sum), "a reduction needs rows");
    check(FusedExpr { rank: 0, ..rows(64, 0, 1) }, "no dimension to reduce");
    check(rows(96, 0, 1), "a power of two");
    check(rows(512, 0, 1), "a power of two");
    check(rows(64, 65, 1), "too many elements");
    check(rows(64, 6, 4), "multiple of the width");
    check(rows(64, 0, 2), "a width is 1 or 4");
    let four = Schedule::Elements { width: 4 };
    let mut scattered = FusedExpr { schedule: four, ..expr(&[F32], F32, &[]) };
    scattered.outputs[0].operand.addressing = Addressing::Strided;
    check(scattered, "not flat");
    let whole = FusedExpr { schedule: rows(64, 0, 1).schedule, ..expr(&[I32], I32, &sum) };
    check(whole, "sum of i32");
    let many: Vec<Value> = (0..17).map(|i| Value::Reduce(ReduceOp::Max, i)).collect();
    let many = FusedExpr { schedule: rows(256, 0, 1).schedule, ..expr(&[F32], F32, &many) };
    assert!(fused_wgsl(&many).unwrap_err().to_string().contains("workgroup memory"));
}

/// Whether Tint accepts a kernel; an error if it is not installed.
pub(crate) fn tint(name: &str, wgsl: &str) -> std::io::Result<()> {
    // Tests of one process run at the same time.
    let thread = std::thread::current().id();
    let file = format!("warploom-{}-{thread:?}.wgsl", std::process::id());
    let path = std::env::temp_dir().join(file);
    std::fs::File::create(&path)?.write_all(wgsl.as_bytes())?;
    let output = Command::new("tint")
        .args(["--format", "wgsl", "-o", "/dev/null"])
        .arg(&path)
        .stdin(Stdio::null())
        .output();
    std::fs::remove_file(&path)?;
    let output = output?;
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {message}\n{wgsl}");
    Ok(())
}

/// Text for browsers is also read by Tint, which checks more rules (uniform control flow).
#[test]
fn browser_variants_pass_tint_where_it_is_installed() {
    if let Err(e) = tint("probe", "@compute @workgroup_size(1) fn main() {}") {
        return skip(Need::Tool, &format!("tint was not found ({e})"));
    }
    for spec in variants() {
        let name = KernelSpec::Asset(spec.clone()).to_string();
        let text = asset_wgsl(&spec).unwrap();
        tint(&name, &with_subgroups_enabled(text.into())).unwrap();
    }
    for expr in expressions() {
        let name = format!("{} {:?}", KernelSpec::Fused(expr.clone()), expr.schedule);
        tint(&name, &with_subgroups_enabled(fused_wgsl(&expr).unwrap().into())).unwrap();
    }
}

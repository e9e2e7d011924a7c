//! Every shader that ships, in every variant, and generated kernels: valid, lowered to every
//! target, with the interface that the catalogue says, within the floor where they claim it.

use std::io::Write;
use std::process::{Command, Stdio};

use naga::valid::Capabilities;
use naga::{AddressSpace, Module, ScalarKind, StorageAccess, TypeInner};
use warploom::base::DType;
use warploom::codegen::{FUSED_WORKGROUP, fused_wgsl};
use warploom::ir::scalar::{BinaryOp, UnaryOp};
use warploom::kernel::catalogue::{self, Entry};
use warploom::kernel::source::{ASSETS, asset_wgsl, variants};
use warploom::kernel::{
    Access, Addressing, AssetSpec, FusedExpr, KernelSpec, Operand, Output, Schedule, Value,
};

use crate::wgsl::{FLOOR, lowered};

/// Bytes of workgroup memory that every device has.
const FLOOR_MEMORY: u32 = 16 << 10;

/// Threads of a workgroup, and bytes of workgroup memory.
fn size(name: &str, module: &Module) -> (u32, u32) {
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
fn storage(name: &str, module: &Module) -> Vec<(String, Access)> {
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
fn uniform(name: &str, module: &Module) -> Vec<(String, u32, bool)> {
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
        "gather" => catalogue::GATHER_GROUP,
        "matmul_*" | "matmul_batched" | "attn_prefill" => 256,
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
        assert!(threads <= 256, "{name}: {threads} threads");
        assert!(memory <= FLOOR_MEMORY, "{name}: {memory} bytes of workgroup memory");
    }
    assert!(all.len() > 200, "only {} variants", all.len());
}

#[test]
fn constants_that_the_catalogue_names_are_declared_with_its_defaults() {
    for entry in catalogue::CATALOGUE {
        let name = catalogue::family_name(entry.name, warploom::base::Format::F32);
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
        (AssetSpec::new("attn_prefill").constant("HEAD_DIM", 257), "head too large"),
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
            assert!(!code.contains("enable "), "{path}:{}: the floor has no extensions", i + 1);
            assert!(line.len() <= 120, "{path}:{}: longer than 120", i + 1);
        }
    }
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("shaders");
    for dir in [folder.clone(), folder.join("shared")] {
        for file in std::fs::read_dir(dir).unwrap().map(|f| f.unwrap().path()) {
            if file.extension().is_some_and(|e| e == "wgsl") {
                let stem = file.file_stem().unwrap().to_str().unwrap().to_string();
                assert!(ASSETS.iter().any(|(n, ..)| *n == stem), "{stem} is not in the table");
            }
        }
    }
}

const FLAT: Addressing = Addressing::Flat;

fn operand(dtype: DType, addressing: Addressing) -> Operand {
    Operand { dtype, addressing, binding: 0 }
}

/// A buffer for each input.
fn bound(inputs: impl IntoIterator<Item = Operand>) -> Vec<Operand> {
    (0..).zip(inputs).map(|(binding, operand)| Operand { binding, ..operand }).collect()
}

/// `y = value` of inputs of these types, with everything before it loaded in order.
fn expr(inputs: &[DType], output: DType, values: &[Value]) -> FusedExpr {
    let mut all: Vec<Value> = (0..inputs.len() as u32).map(Value::Input).collect();
    all.extend(values);
    FusedExpr {
        rank: 1,
        inputs: bound(inputs.iter().map(|d| operand(*d, FLAT))),
        outputs: vec![Output { operand: operand(output, FLAT), value: all.len() as u32 - 1 }],
        values: all,
        schedule: Schedule::Elements { width: 1 },
    }
}

/// Expressions that cover every operation, type and addressing.
fn expressions() -> Vec<FusedExpr> {
    use DType::{Bool, F32, I32, U32};
    let mut all = Vec::new();
    for op in UnaryOp::ALL {
        let dtype = if op == UnaryOp::Not { Bool } else { F32 };
        all.push(expr(&[dtype], dtype, &[Value::Unary(op, 0)]));
    }
    all.push(expr(&[I32], I32, &[Value::Unary(UnaryOp::Neg, 0)]));
    all.push(expr(&[I32], I32, &[Value::Unary(UnaryOp::Abs, 0)]));
    for op in BinaryOp::ALL {
        for dtype in [F32, I32, U32, Bool] {
            let fits = match op {
                BinaryOp::And | BinaryOp::Or => dtype == Bool,
                BinaryOp::Eq | BinaryOp::Ne => true,
                BinaryOp::Pow => dtype == F32,
                _ => dtype != Bool,
            };
            let one = Value::Binary(op, 0, 1);
            let output = if op.is_comparison() { Bool } else { dtype };
            let made = expr(&[dtype, dtype], output, &[one]);
            match fits {
                true => all.push(made),
                false => assert!(fused_wgsl(&made).unwrap_err().is_invalid()),
            }
        }
    }
    for from in [F32, I32, U32, Bool] {
        for to in [F32, I32, U32, Bool] {
            all.push(expr(&[from], to, &[Value::Cast(to, 0)]));
        }
        all.push(expr(&[Bool, from, from], from, &[Value::Select(0, 1, 2)]));
    }
    for bits in [0, 1, 0x7f7fffff, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0x3dcccccd] {
        all.push(expr(
            &[F32],
            F32,
            &[Value::Constant(F32, bits), Value::Binary(BinaryOp::Max, 0, 1)],
        ));
    }
    for power in [-1.0f32, 0.5, 1.0, 2.0, 3.0, 4.0] {
        let constant = Value::Constant(F32, power.to_bits());
        all.push(expr(&[F32], F32, &[constant, Value::Binary(BinaryOp::Pow, 0, 1)]));
    }
    let i32_min = Value::Constant(I32, 0x80000000);
    all.push(expr(&[I32], I32, &[i32_min, Value::Binary(BinaryOp::Add, 0, 1)]));
    all.push(expr(&[], U32, &[Value::Index]));
    for rank in 0..=6 {
        let gate = [Value::Input(0), Value::Input(1), Value::Input(2)];
        let values = [Value::Unary(UnaryOp::Silu, 0), Value::Binary(BinaryOp::Mul, 3, 1)];
        let last = [Value::Binary(BinaryOp::Add, 4, 2)];
        all.push(FusedExpr {
            rank,
            inputs: bound([
                operand(F32, Addressing::Strided),
                operand(F32, FLAT),
                operand(F32, Addressing::Single),
            ]),
            values: gate.into_iter().chain(values).chain(last).collect(),
            outputs: vec![Output {
                operand: operand(F32, if rank % 2 == 0 { FLAT } else { Addressing::Strided }),
                value: 5,
            }],
            schedule: Schedule::Elements { width: 1 },
        });
    }
    all
}

#[test]
fn generated_kernels_are_valid_and_lower_and_have_their_interface() {
    let all = expressions();
    assert!(all.len() >= 40, "only {}", all.len());
    for expr in &all {
        let name = KernelSpec::Fused(expr.clone()).to_string();
        let wgsl = fused_wgsl(expr).unwrap_or_else(|e| panic!("{name}: {e}"));
        let (module, _) = lowered(&name, &wgsl, FLOOR).unwrap_or_else(|e| panic!("{e}"));
        let fields = uniform(&name, &module);
        assert_eq!(fields.len() as u32, expr.raw_param_words(), "{name}");
        for (i, (field, offset, float)) in fields.iter().enumerate() {
            assert_eq!((*offset as usize, *float), (4 * i, false), "{name}: {field}");
        }
        let access: Vec<_> = storage(&name, &module).into_iter().map(|(_, a)| a).collect();
        assert_eq!(access, expr.interface().bindings, "{name}");
        assert_eq!(size(&name, &module), (FUSED_WORKGROUP, 0), "{name}");
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
    assert!(fused_wgsl(&expr(&[F16], F16, &[])).unwrap_err().is_unsupported());
    let deep = FusedExpr { rank: 7, ..expr(&[F32], F32, &[Value::Input(0)]) };
    assert!(fused_wgsl(&deep).unwrap_err().is_unsupported());
}

/// What a browser gets is also read by Tint, which knows more rules (uniform control flow).
#[test]
fn floor_variants_pass_tint_where_it_is_installed() {
    let tint = |name: &str, wgsl: &str| -> std::io::Result<()> {
        let path = std::env::temp_dir().join(format!("warploom-{}.wgsl", std::process::id()));
        std::fs::File::create(&path)?.write_all(wgsl.as_bytes())?;
        let output = Command::new("tint")
            .args(["--format", "wgsl", "-o", "/dev/null"])
            .arg(&path)
            .stdin(Stdio::null())
            .output();
        std::fs::remove_file(&path)?;
        let output = output?;
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {told}\n{wgsl}");
        Ok(())
    };
    if let Err(e) = tint("probe", "@compute @workgroup_size(1) fn main() {}") {
        eprintln!("tint was not found ({e}): its rules were not checked");
        return;
    }
    for spec in variants().iter().filter(|s| !s.defines.iter().any(|d| d == "subgroup")) {
        let name = KernelSpec::Asset(spec.clone()).to_string();
        tint(&name, &asset_wgsl(spec).unwrap()).unwrap();
    }
    for expr in expressions() {
        let name = KernelSpec::Fused(expr.clone()).to_string();
        tint(&name, &fused_wgsl(&expr).unwrap()).unwrap();
    }
}

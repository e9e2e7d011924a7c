//! Every shipped kernel under all checks: the reference's results, and no fault.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use warploom::engine::{EngineId, Knobs};
use warploom::kernel::catalogue::interface;
use warploom::kernel::source::{asset_wgsl, cooperative_variants, variants};
use warploom::kernel::{AssetSpec, KernelSpec, Neighbours, OperandLayout, Schedule};
use warploom::runtime::{RunOptions, Runtime, SyncMode, run_graph};
use warploom_core::base::Format;
use warploom_testkit::{self, Case, Outcome};
use warploom_wgsl::interpret::Program;

use crate::interpret_device::Checked;
use crate::tell;

/// One in this many cases runs on the device with subgroups and with engines of large devices;
/// `WARPLOOM_INTERPRET_CASES=all` runs all of them, and those with more workgroups than one grid
/// dimension holds, which take minutes.
const STEP: usize = 5;

/// Parts of the names of cases that take seconds each in the interpreter. Smaller cases run the same
/// lines, so these run only with `WARPLOOM_INTERPRET_CASES=all`; on a device all of them always do.
const HEAVY: [&str; 15] = [
    "fused_quant/gated/by_q4_k/q6_kx8/m11",
    "fused_quant/norm/by_q6_kx8/q6_kx8_q4_k/n2048/m11",
    "feed_forward/q4_k/m40",
    "feed_forward/q6_k/m40",
    "feed_forward/q4_k/m130",
    "feed_forward/q6_k/m130",
    "/m130_n2304",
    "in_f16/f16/m150_n600",
    "in_f16/bf16/m150_n600",
    "/m1_n20011",
    "/m1_n4100",
    "128x512x256",
    "70t131k",
    "130_past33",
    "sample/ties/n3000",
];

/// Returns the cases, without those that take long unless all are asked for.
fn cases_to_interpret(all: bool) -> Vec<Case> {
    let heavy = |case: &Case| HEAVY.iter().any(|part| case.name.contains(part));
    warploom_testkit::cases().into_iter().filter(|case| all || !heavy(case)).collect()
}

/// Runs cases on the checked device; returns the errors.
fn check(device: &Arc<Checked>, cases: &[&Case], preferred: Vec<EngineId>) -> Vec<String> {
    check_with(device, cases, RunOptions { preferred, ..RunOptions::default() })
}

/// The same with other options.
fn check_with(device: &Arc<Checked>, cases: &[&Case], options: RunOptions) -> Vec<String> {
    let begin = Instant::now();
    let runtime = Runtime::on(device.clone(), SyncMode::Lazy, None).unwrap();
    let options = RunOptions { guard: true, ..options };
    let mut wrong = Vec::new();
    for case in cases {
        let case = &*case.on(runtime.device().profile());
        let outcome = warploom_testkit::run_case(case, &|graph, symbols, bindings| {
            run_graph(&runtime, graph, symbols, bindings, &options)
        });
        if !matches!(outcome, Outcome::Pass(_)) {
            wrong.push(format!("{}: {outcome:?}", case.name));
        }
    }
    let (count, seconds) = (device.ran().len(), begin.elapsed().as_secs_f64());
    tell(&format!("interpret: {} cases in {seconds:.1} s, {count} kernels so far", cases.len()));
    wrong
}

#[test]
fn every_variant_is_a_program() {
    for spec in variants().into_iter().chain(cooperative_variants()) {
        let name = KernelSpec::Asset(spec.clone()).to_string();
        let program = Program::from_wgsl(&asset_wgsl(&spec).unwrap(), &name, Some("main"), &[]);
        let program = program.unwrap_or_else(|e| panic!("{e}"));
        let interface = interface(&KernelSpec::Asset(spec)).unwrap();
        // The parameters, and the buffers of the catalogue.
        assert_eq!(program.bindings().len(), 1 + interface.bindings.len(), "{name}");
    }
}

fn uses_subgroups(spec: &KernelSpec) -> bool {
    match spec {
        KernelSpec::Asset(asset) => asset.defines.iter().any(|define| define == "subgroup"),
        KernelSpec::Fused(expr) => matches!(expr.schedule, Schedule::Rows { subgroup: true, .. }),
        KernelSpec::Source(_) | KernelSpec::Routine(_) => false,
    }
}

/// The ranking takes large tiles for large matrices only.
#[test]
fn products_of_matrices_by_every_tile_are_right_and_without_a_fault() {
    let cases = warploom_testkit::cases();
    let (matrices, floor) = (Checked::with_matrices(), Checked::open(false));
    let mut wrong = Vec::new();
    for (device, engine, names) in [
        (
            &matrices,
            "wgsl.matmul_batched_coop",
            ["library/f16/40x192x72_", "library/f16/150x96x204_"],
        ),
        (&floor, "wgsl.matmul_batched_tiled", ["matmul/tiles_", "matmul/130x20x197"]),
    ] {
        let is_one = |case: &&Case| names.iter().any(|name| case.name.starts_with(name));
        let of_engine: Vec<&Case> = cases.iter().filter(is_one).collect();
        assert!(of_engine.len() > 2, "{names:?}");
        for (rows, columns) in [(64, 64), (64, 128), (128, 64), (128, 128)] {
            let id = EngineId::new(engine);
            let knobs = Knobs::default().set(id.clone(), "tile_m", rows);
            let knobs = knobs.set(id.clone(), "tile_n", columns);
            let options = RunOptions { knobs, preferred: vec![id], ..RunOptions::default() };
            wrong.extend(check_with(device, &of_engine, options));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    let ran = |device: &Checked, name: &str, constants: [&str; 3]| -> BTreeSet<_> {
        let ran = device.ran().into_iter().filter_map(|spec| match spec {
            KernelSpec::Asset(asset) if asset.name == name => {
                Some(constants.map(|constant| asset.get_u32(constant).unwrap_or(1)))
            }
            _ => None,
        });
        ran.collect()
    };
    let coop = ran(&matrices, "matmul_batched_coop", ["TI", "TH", "STEPS"]);
    for tile in [[2, 1], [2, 2], [4, 1], [4, 2]] {
        for steps in [1, 2] {
            assert!(coop.contains(&[tile[0], tile[1], steps]), "{coop:?}");
        }
    }
    assert_eq!(ran(&floor, "matmul_batched_tiled", ["QM", "QN", "none"]).len(), 4);
}

#[test]
fn attention_on_matrices_is_right_and_without_a_fault() {
    let cases = warploom_testkit::cases();
    let attention = |case: &&Case| case.name.starts_with("attention_f16/");
    let attention: Vec<&Case> = cases.iter().filter(attention).collect();
    let matrices = Checked::with_matrices();
    let wrong = check(&matrices, &attention, vec![EngineId::new("wgsl.attn_coop")]);
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    let coop = matrices.ran().into_iter().filter_map(|spec| match spec {
        KernelSpec::Asset(asset) if asset.name == "attn_coop" => {
            Some((asset.get_u32("HEAD_DIM"), asset.fusion.is_some()))
        }
        _ => None,
    });
    let coop: BTreeSet<_> = coop.collect();
    // Heads of each size, and one with an addend.
    let wanted = [(16, false), (32, false), (64, false), (64, true), (80, false), (128, false)];
    assert_eq!(coop, wanted.map(|(head, fusion)| (Some(head), fusion)).into());
}

/// Split-K reduction with epilogue fusion: rows to the next product as f16, in f32, in 8 bits.
#[test]
fn f16_epilogues_are_right_and_without_a_fault() {
    let cases = warploom_testkit::cases();
    let some = |start: &str, step: usize| -> Vec<&Case> {
        let small = |case: &&Case| case.name.starts_with(start) && !case.name.contains("m130");
        cases.iter().filter(small).step_by(step).collect()
    };
    let matrices = Checked::with_matrices();
    let halves =
        ["f16", "bf16", "q8_0"].map(|f| EngineId::new(format!("wgsl.matmul_f16_coop.{f}")));
    let mut wrong = check(&matrices, &some("in_f16/fused_quant/", 1), halves.to_vec());
    // A third of them, with some of each kind.
    wrong.extend(check(
        &matrices,
        &some("int8/fused_quant/", 3),
        packed("wgsl.matmul_f16_coop", ""),
    ));
    // Where two blocks share a subgroup each finds its largest by exchanges.
    let wide = Checked::with_library_and_subgroups_of(64);
    wrong.extend(check(&wide, &some("int8/fused_quant/", 9), packed("cuda.cublaslt.f16", "")));
    let in_one = |spec: &KernelSpec| match spec {
        KernelSpec::Asset(asset) => {
            asset.name == "split_k_reduce" && asset.get_u32("SUB") == Some(64)
        }
        _ => false,
    };
    assert!(wide.ran().iter().any(in_one), "nothing was handed on by subgroups of 64: {wrong:?}");
    let library = Checked::with_library_and_matrices();
    let halves = ["f16", "bf16"].map(|f| EngineId::new(format!("cuda.cublaslt.f16.{f}")));
    wrong.extend(check(&library, &some("in_f16/fused_quant/", 1), halves.to_vec()));
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    let ran = matrices.ran().into_iter().chain(library.ran());
    let handed = ran.filter_map(|spec| match spec {
        KernelSpec::Asset(asset) => asset.fusion?.quant_epilogue,
        _ => None,
    });
    let ways = handed.filter_map(|hand| match hand.form {
        OperandLayout::Halves(form) => {
            Some((hand.norm.is_some(), form.rounded, form.plain, hand.kept))
        }
        OperandLayout::Codes { .. } => None,
    });
    let ways: BTreeSet<_> = ways.collect();
    // After a norm or not, rounded or not, for tiles or a library, with other readers or not.
    for (norm, rounded, plain, kept) in [
        (true, false, false, false),
        (false, false, false, false),
        (true, true, false, true),
        (false, true, false, true),
        (false, true, false, false),
        (true, false, true, false),
        (false, false, true, false),
    ] {
        assert!(ways.contains(&(norm, rounded, plain, kept)), "{ways:?}");
    }
}

/// The engines of packed formats with these id parts.
fn packed(how: &str, tail: &str) -> Vec<EngineId> {
    let formats = Format::ALL.into_iter().chain(Format::KEPT);
    let formats = formats.filter(|format| format.is_quantised());
    formats.map(|f| EngineId::new(format!("{how}.{f}{tail}"))).collect()
}

/// Whether two passes suffice for kernels of few rows, eight a pass: more take long and execute the
/// same lines.
fn of_few_rows(case: &Case) -> bool {
    !["m40", "m130", "m140", "m150"].iter().any(|rows| case.name.contains(rows))
}

/// Whether a kernel that ran had a quant epilogue with these neighbours.
fn quant_epilogue_by(device: &Checked, how: Neighbours) -> bool {
    device.ran().iter().any(|spec| match spec {
        KernelSpec::Asset(asset) => asset.quant_epilogue_neighbours() == Some(how),
        _ => false,
    })
}

/// Formats with a separate kernel for eight rows of x.
const SEVERAL: [&str; 5] = ["q4_k", "q5_k", "q6_kx8", "q4_0x8", "q8_0x8"];

/// Errors of kernels that only CUDA has or that need subgroups of 32, and the device.
fn check_on_cuda(cases: &[Case], all: bool) -> (Vec<String>, Arc<Checked>) {
    // CUDA's kernels with shared headers, those of subgroups of 32, and quantisation for them.
    let handed = |case: &&Case| {
        case.name.starts_with("int8/fused_quant/") && case.name.ends_with("/m1")
            || ["tq2_0", "q5_k", "q8_0x8", "q4_0x8"]
                .iter()
                .any(|f| case.name.starts_with(&format!("int8/{f}/m1_")))
    };
    let handed: Vec<&Case> = cases.iter().filter(handed).collect();
    let cuda = Checked::with_library_and_matrices();
    let mut wrong = check(&cuda, &handed, packed("wgsl.matvec_prequant", ".subgroup"));
    assert!(quant_epilogue_by(&cuda, Neighbours::Subgroup), "no subgroup rounds: {wrong:?}");
    // Where two blocks share a subgroup.
    let shared = Checked::with_library_and_subgroups_of(64);
    let some: Vec<&Case> = handed.iter().copied().step_by(4).collect();
    wrong.extend(check(&shared, &some, packed("wgsl.matvec_prequant", ".subgroup")));
    assert!(quant_epilogue_by(&shared, Neighbours::Lanes), "no subgroup of 64 rounds: {wrong:?}");
    let several = |case: &&Case| {
        let kind = case.name.contains("/m9_") || case.name.ends_with("/gapped_rows");
        kind && SEVERAL.iter().any(|format| case.name.starts_with(&format!("int8/{format}/")))
    };
    let several: Vec<&Case> = cases.iter().filter(several).collect();
    wrong.extend(check(&cuda, &several, packed("wgsl.matvec_prequant", ".subgroup")));
    let tiles = |case: &&Case| {
        let of = ["q4_k", "q6_kx8", "q8_0x8", "q4_0x8"];
        case.name.starts_with("int8/") && of.iter().any(|format| case.name.contains(format))
    };
    let tiles = cases.iter().filter(tiles).filter(|case| !case.name.contains("n20011"));
    let tiles: Vec<&Case> = tiles.filter(|case| all || of_few_rows(case)).collect();
    let engines = ["q4_k", "q6_kx8", "q8_0x8", "q4_0x8"];
    let engines = engines.map(|f| EngineId::new(format!("wgsl.matvec_mma.{f}")));
    wrong.extend(check(&cuda, &tiles, engines.to_vec()));
    let ahead = |case: &&Case| {
        let one = case.name.contains("/m1_") || case.name.ends_with("/m1");
        one && (case.name.contains("/f16/") || case.name.contains("/q4_0/"))
    };
    let ahead: Vec<&Case> = cases.iter().filter(ahead).collect();
    let engines = ["matvec.f16", "matvec_int8.q4_0"];
    let engines = engines.map(|engine| EngineId::new(format!("wgsl.{engine}.subgroup")));
    wrong.extend(check(&cuda, &ahead, engines.to_vec()));
    let ran = cuda.ran();
    let asset = |spec: &KernelSpec| match spec {
        KernelSpec::Asset(asset) => Some(asset.clone()),
        _ => None,
    };
    let assets: Vec<_> = ran.iter().filter_map(asset).collect();
    let wide = assets.iter().filter(|asset| asset.has_wide_quant_epilogue()).count();
    let with = |what: &str| {
        let of = |asset: &&AssetSpec| asset.defines.iter().any(|define| define == what);
        assets.iter().filter(of).count()
    };
    let of = |name: &str| assets.iter().filter(|asset| asset.name.starts_with(name)).count();
    for format in ["q4_k", "q6_kx8", "q8_0x8", "q4_0x8"] {
        let count = of(&format!("matvec_mma_{format}"));
        assert!(count >= 2, "{count} kernels of tiles of {format}");
    }
    let tiles = assets.iter().filter(|asset| asset.name.starts_with("matvec_mma"));
    let handing = tiles.clone().filter(|asset| asset.quant_epilogue_neighbours().is_some()).count();
    let scaled = tiles.filter(|asset| asset.defines.iter().any(|define| define == "scaled"));
    let scaled = scaled.count();
    assert!(handing >= 3 && scaled >= 2, "{handing} kernels of tiles hand on, {scaled} are scaled");
    let (headers, eights, trits) = (with("headers"), with("eights"), with("trits"));
    for format in ["q8_0x8", "q4_0x8"] {
        let name = format!("matvec_prequant_{format}");
        let ran =
            assets.iter().filter(|a| a.name == name && a.defines.iter().any(|d| d == "blocks"));
        // A row that is not a whole step, and one of several.
        let columns: BTreeSet<_> = ran.map(|asset| asset.get_u32("K")).collect();
        assert!(columns.len() >= 3, "{format} by blocks with columns {columns:?}");
    }
    assert!(wide >= 5 && headers >= 1, "{wide} kernels hand on, {headers} share headers");
    assert!(eights >= 1, "no kernel has eights");
    let several = assets.iter().filter(|a| a.defines.iter().any(|define| define == "several"));
    let several: BTreeSet<&str> = several.map(|asset| asset.name.as_str()).collect();
    assert_eq!(several.len(), SEVERAL.len(), "eight rows at a time: {several:?}");
    let turns = assets.iter().filter(|asset| asset.get_u32("AHEAD").is_some_and(|turns| turns > 1));
    let (ahead, turns) = (with("ahead"), turns.count());
    assert!(ahead >= 1 && turns >= 1, "{ahead} kernels ask ahead, {turns} for several turns");
    let apart = assets.iter().filter(|asset| asset.get_u32("APART") == Some(1)).count();
    assert!(trits >= 9 && apart >= 1, "{trits} kernels of trits, {apart} that round for them");
    (wrong, cuda)
}

/// Errors of engines that the ranking does not choose on a device like this.
fn check_others(floor: &Arc<Checked>, small: &[&Case], step: usize) -> Vec<String> {
    let others = [
        "wgsl.attn_split_kv",
        "catalogue.attn_prefill",
        "catalogue.norm_layer",
        "wgsl.argmax_split",
    ]
    .map(EngineId::new);
    let of_others =
        |case: &&&Case| case.name.starts_with("attention/") || case.name.starts_with("layer_norm/");
    let rest = small.iter().filter(of_others).step_by(step);
    let cut = ["argmax/ties_of_slices", "greedy/not_finite2048", "argmax/not_finite2048"];
    let long = small.iter().filter(|case| cut.contains(&case.name.as_str()));
    let rest: Vec<&Case> = rest.chain(long).copied().collect();
    check(floor, &rest, others.to_vec())
}

/// The cases whose names begin with `start`.
fn computed<'a>(cases: &'a [Case], start: &str) -> Vec<&'a Case> {
    cases.iter().filter(|case| case.name.starts_with(start)).collect()
}

#[test]
fn every_kernel_is_right_and_without_a_fault() {
    let all = std::env::var("WARPLOOM_INTERPRET_CASES").is_ok_and(|v| v == "all");
    let cases = cases_to_interpret(all);
    let step = if all { 1 } else { STEP };
    let small: Vec<&Case> =
        cases.iter().filter(|case| all || !case.name.contains("/many_")).collect();
    let floor = Checked::open(false);
    // Every other case of those without a kernel for each format or each kind of operand.
    let of_formats = ["gather/", "linear/", "expert_linear/", "int8/", "attention/sinks/"];
    let is_taken = |(i, case): &(usize, &&Case)| {
        all || i % 2 == 0 || of_formats.iter().any(|kind| case.name.starts_with(kind))
    };
    let half = small.iter().enumerate().filter(is_taken).map(|(_, case)| *case);
    let half: Vec<&Case> = half.collect();
    let mut wrong = check(&floor, &half, Vec::new());
    wrong.extend(check_others(&floor, &small, step));
    // Small cases have too few tiles for the ranking to use them.
    let tiles = Format::ALL
        .into_iter()
        .chain(Format::KEPT)
        .map(|f| EngineId::new(format!("wgsl.matmul.{f}")))
        .collect();
    let products = small.iter().filter(|case| case.name.starts_with("linear/"));
    let products: Vec<&Case> = products
        .filter(|case| case.name.ends_with("/m9") || case.name.ends_with("/m40"))
        .copied()
        .collect();
    wrong.extend(check(&floor, &products, tiles));
    let some: Vec<&Case> = small.into_iter().step_by(step).collect();
    let subgroups = Checked::open(true);
    wrong.extend(check(&subgroups, &some, Vec::new()));
    let matrices = Checked::with_matrices();
    let int8 =
        |case: &&Case| case.name.starts_with("int8/") && (all || !case.name.contains("n20011"));
    let int8: Vec<&Case> = cases.iter().filter(int8).step_by(if all { 1 } else { 3 }).collect();
    let few: Vec<&Case> = int8.iter().copied().step_by(if all { 1 } else { 2 }).collect();
    wrong.extend(check(&matrices, &int8, packed("wgsl.matmul_coop", "")));
    wrong.extend(check(&matrices, &few, packed("wgsl.matmul_f16_coop", "")));
    let experts: Vec<&Case> = computed(&cases, "expert_linear/int8_");
    wrong.extend(check(&matrices, &experts, packed("wgsl.expert_coop", "")));
    let halves =
        ["f16", "bf16"].map(|f| EngineId::new(format!("wgsl.matmul_f16_coop.{f}"))).to_vec();
    let in_f16 = |case: &&Case| case.name.starts_with("in_f16/");
    let in_f16: Vec<&Case> = cases.iter().filter(in_f16).step_by(if all { 1 } else { 3 }).collect();
    wrong.extend(check(&matrices, &in_f16, halves));
    let attention = |case: &&Case| case.name.starts_with("attention_f16/");
    let attention: Vec<&Case> = cases.iter().filter(attention).step_by(6).collect();
    wrong.extend(check(&matrices, &attention, vec![EngineId::new("wgsl.attn_coop")]));
    let coop = vec![EngineId::new("wgsl.matmul_batched_coop")];
    wrong.extend(check(&matrices, &computed(&cases, "library/f16/"), coop));
    let tiles = vec![EngineId::new("wgsl.matmul_batched_tiled")];
    wrong.extend(check(&floor, &computed(&cases, "matmul/t"), tiles));
    let library = Checked::with_library_and_matrices();
    let called = Format::ALL.into_iter().filter(|f| *f != Format::F32);
    let called: Vec<EngineId> =
        called.map(|f| EngineId::new(format!("cuda.cublaslt.f16.{f}"))).collect();
    let many = few.iter().chain(&in_f16).copied().collect::<Vec<_>>();
    wrong.extend(check(&library, &many, called));
    let int8: Vec<&Case> = int8.into_iter().filter(|case| all || of_few_rows(case)).collect();
    let few: Vec<&Case> = few.into_iter().filter(|case| all || of_few_rows(case)).collect();
    wrong.extend(check(&floor, &int8, packed("wgsl.matvec_int8", "")));
    // Quantised by a kernel of its own, which the ranking prefers for more rows than these.
    let rows = |case: &&Case| {
        ["int8/q8_0/m129_", "int8/three/q4_0/m140"].iter().any(|n| case.name.starts_with(n))
    };
    let rows: Vec<&Case> = cases.iter().filter(rows).collect();
    assert_eq!(rows.len(), 2);
    wrong.extend(check(&floor, &rows, packed("wgsl.matmul_rounded", "")));
    wrong.extend(check(&subgroups, &few, packed("wgsl.matvec_int8", ".subgroup")));
    wrong.extend(check(&subgroups, &few, packed("wgsl.matvec_prequant", ".subgroup")));
    let lanes = |case: &&Case| {
        ["attention/", "f16_kv/"].iter().any(|kind| case.name.starts_with(kind))
            && ["32d", "64d", "128d", "256d", "spans"].iter().any(|size| case.name.contains(size))
    };
    let lanes: Vec<&Case> = cases.iter().filter(lanes).step_by(if all { 1 } else { 6 }).collect();
    wrong.extend(check(&matrices, &lanes, vec![EngineId::new("wgsl.attn_subgroup")]));
    let spread = Checked::with_library_and_matrices();
    wrong.extend(check(&spread, &lanes, vec![EngineId::new("wgsl.attn_split_kv_fused")]));
    let (on_cuda, cuda) = check_on_cuda(&cases, all);
    wrong.extend(on_cuda);
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));

    let ran = floor.ran().into_iter().chain(matrices.ran());
    let ran = ran.chain(library.ran()).chain(spread.ran()).chain(cuda.ran());
    let ran: BTreeSet<String> = ran.map(|spec| spec.name().to_owned()).collect();
    let names = variants().into_iter().chain(cooperative_variants()).map(|spec| spec.name);
    let missed: BTreeSet<String> = names.filter(|name| !ran.contains(name)).collect();
    assert!(missed.is_empty(), "kernels that no case ran: {missed:?}");
    let grouped = subgroups.ran().iter().filter(|spec| uses_subgroups(spec)).count();
    assert!(grouped > 10, "{grouped} kernels of subgroups");
}

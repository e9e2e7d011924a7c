//! Prologue and epilogue fusion on devices: products and other kernels with each kind.

use warploom::kernel::fusion::{attach_groups, supports};
use warploom::kernel::{AssetSpec, KernelFusion, Segment};
use warploom::provider::OpenOptions;
use warploom_core::base::{DType, Dim, Format};
use warploom_core::quant;
use warploom_cpu as cpu;

use crate::fusion_job::{Job, Random};
use crate::kernel_fusions::{odd, of_products, prologue, residual};
use crate::webgpu_host::open;

/// A table for each of these segments over `n` rows, each with its own rows.
fn tables(segments: &[Segment], n: u32) -> Vec<[u32; 6]> {
    let each = n / segments.len().max(1) as u32;
    let table = |(i, segment): (u32, &Segment)| {
        let count = each / segment.anchors;
        match (segment.anchors, count.is_multiple_of(2), i % 2) {
            // Every other row, then those between them.
            (1, true, 1) => [i * each, 2, count / 2, 1, 2, 0],
            (_, true, _) => [i * each, 2, count / 2, count / 2, 1, count],
            _ => [i * each, 1, count, 0, 1, count],
        }
    };
    (0..).zip(segments).map(table).collect()
}

/// A product with a weight matrix of 40 rows.
fn product(
    family: &str,
    format: Format,
    [m, k]: [usize; 2],
    constants: &[(&str, u32)],
    (name, attachment): (&str, KernelFusion),
) -> Job {
    let n = 40;
    let mut random = Random(k as u64);
    let stride = k.next_multiple_of(4) + 4;
    let x = random.floats(8 + m * stride).iter().map(|v| v.to_bits()).collect();
    let scale = (k as f32).sqrt();
    let w: Vec<f32> = random.floats(n * k).iter().map(|v| v / scale).collect();
    let mut bytes = quant::encode(format, &w).unwrap();
    bytes.resize(bytes.len().next_multiple_of(16), 0);
    let (words, _) = bytes.as_chunks::<4>();
    let w = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let of = |name: &str| constants.iter().find(|(c, _)| *c == name).map(|(_, v)| *v);
    let (rows, layers) = match family {
        "matvec" => (of("ROWS").unwrap(), (m as u32).div_ceil(of("M").unwrap())),
        _ => (of("BN").unwrap(), (m as u32).div_ceil(of("BM").unwrap())),
    };
    let tables = tables(&attachment.segments, n as u32);
    let counts = attachment.segments.iter().zip(&tables);
    let counts = counts.map(|(s, t)| (Dim::from(t[1] * t[2]), s.anchors));
    let groups = match attachment.segments.is_empty() {
        true => (n as u32).div_ceil(rows),
        false => attach_groups(rows, counts).as_const().unwrap() as u32,
    };
    let grid = |groups| match family {
        // Folded, with a group too many.
        "matvec" => [2, groups / 2 + 1, layers],
        _ => [groups, layers, 1],
    };
    let plain = AssetSpec::new(format!("{family}_{format}"));
    Job {
        name: name.into(),
        plain: constants.iter().fold(plain, |spec, (name, value)| spec.constant(*name, *value)),
        params: vec![m as u32, n as u32, k as u32, 8, stride as u32, 0, n as u32],
        grid: grid((n as u32).div_ceil(rows)),
        operands: vec![w, x],
        x: (1, [m, k], [8, stride]),
        made: [m, n, 1],
        attachment,
        tables,
        fusion_grid: grid(groups),
    }
}

/// Runs jobs with subgroups on a wgpu device with all features, others on one at the floor and on
/// the CPU.
fn check_all(jobs: &[Job]) {
    let subgroup = |job: &&Job| job.plain.defines.iter().any(|define| define == "subgroup");
    let cpu = cpu::Provider::device(&OpenOptions::default());
    for job in jobs.iter().filter(|job| !subgroup(job)) {
        job.check(&cpu).unwrap();
    }
    for floor in [false, true] {
        let Some(device) = open(OpenOptions { floor, ..Default::default() }) else { return };
        for job in jobs.iter().filter(|job| subgroup(job) != floor) {
            match job.check(&device) {
                Ok(()) => {}
                Err(reason) => assert!(!floor && !device.profile().has_subgroups, "{reason}"),
            }
        }
    }
}

const FORMATS: [(Format, usize); 4] =
    [(Format::Plain(DType::F32), 52), (Format::Q4_1, 96), (Format::Q4K, 256), (Format::Q6K, 512)];

#[test]
fn matrix_vector_products_with_attachments() {
    let mut jobs = Vec::new();
    for (turn, fusion) in of_products(true).into_iter().enumerate() {
        let shapes = [(1, [2, 1, 128]), (3, [4, 2, 32]), (5, [2, 4, 64])];
        for (i, (m, [rows, at_once, threads])) in shapes.into_iter().enumerate() {
            let constants = [("ROWS", rows), ("M", at_once), ("WG", threads)];
            let (format, k) = FORMATS[(turn + i) % 4];
            let mut job = product("matvec", format, [m, k], &constants, fusion.clone());
            for (bit, define) in ["vec4", "subgroup"].into_iter().enumerate() {
                if ((turn + 2 * i) >> bit) & 1 == 1 {
                    job.plain = job.plain.define(define);
                }
            }
            jobs.push(job);
        }
        // Columns that fill no vec4.
        let constants = [("ROWS", 2), ("M", 2), ("WG", 64)];
        jobs.push(product("matvec", Format::Plain(DType::F32), [2, 51], &constants, fusion));
    }
    check_all(&jobs);
}

#[test]
fn tiled_products_with_attachments() {
    let mut jobs = Vec::new();
    for (turn, fusion) in of_products(false).into_iter().enumerate() {
        // In the last tiles a round of loads involves only some of the threads.
        let tiles = [(5, [32, 32]), (67, [64, 64]), (83, [80, 96]), (113, [112, 32])];
        for (i, (m, [bm, bn])) in tiles.into_iter().enumerate() {
            let constants = [("BM", bm), ("BN", bn)];
            let (format, k) = FORMATS[(turn + i) % 4];
            let mut job = product("matmul", format, [m, k], &constants, fusion.clone());
            if (turn + i) % 3 != 0 {
                job.plain = job.plain.define("vec4");
            }
            jobs.push(job);
        }
        let constants = [("BM", 32), ("BN", 32)];
        jobs.push(product("matmul", Format::Plain(DType::F32), [2, 51], &constants, fusion));
    }
    check_all(&jobs);
}

/// A kernel that is not a product with a weight matrix; its first operand has these rows and
/// columns, without gaps.
fn other(
    plain: AssetSpec,
    params: Vec<u32>,
    sizes: &[usize],
    x: [usize; 2],
    made: [usize; 3],
    grid: [u32; 3],
) -> Vec<Job> {
    let just = |segment| KernelFusion { segments: vec![segment], ..Default::default() };
    let before = KernelFusion { prologue: Some(prologue(0)), ..Default::default() };
    let both = KernelFusion { prologue: Some(prologue(1)), ..just(residual(0)) };
    let all = [("before", before), ("both", both), ("odd", just(odd(0, 0)))];
    let takes = |a: &KernelFusion| supports(&plain.name, a).is_ok();
    let attachments = all.into_iter().chain([("after", just(residual(0)))]);
    attachments
        .filter(|(_, attachment)| takes(attachment))
        .map(|(name, attachment)| {
            let mut random = Random(3);
            let words = |count: &usize| {
                let floats = random.floats(count.next_multiple_of(4));
                floats.iter().map(|v| v.to_bits()).collect()
            };
            Job {
                name: name.into(),
                plain: plain.clone(),
                params: params.clone(),
                grid,
                operands: sizes.iter().map(words).collect(),
                x: (0, x, [0, x[1]]),
                made,
                attachment,
                tables: vec![],
                fusion_grid: grid,
            }
        })
        .collect()
}

#[test]
fn other_kernels_with_attachments() {
    // a [2, 3, 7], b [2, 7, 18].
    let params = vec![2, 3, 18, 7, 0, 21, 7, 1, 0, 126, 18, 1, 0];
    let spec = AssetSpec::new("matmul_batched");
    let mut jobs = other(spec, params, &[42, 252], [6, 7], [2, 3, 18], [2, 1, 1]);
    // x [2, 4, 5, 6], two groups of w [6, 2, 3, 3], a border of one.
    let params = vec![2, 4, 5, 6, 6, 5, 6, 3, 3, 1, 1, 1, 1, 1, 1, 2, 0, 0, 0];
    let spec = AssetSpec::new("conv2d");
    jobs.extend(other(spec, params, &[240, 108], [8, 30], [12, 5, 6], [6, 1, 1]));
    // q [3, 4, 8], k and v [9, 2, 8]; the last tokens of nine.
    let mut params = vec![3, 4, 2, 8, 9, 6, 0, 1, 0, 32, 8, 0, 16, 8, 0, 16, 8, 0];
    params.extend([0.3f32.to_bits(), 0]);
    for define in [None, Some("vec4"), Some("subgroup")] {
        let spec = AssetSpec::new("attn_decode").constant("HEAD_DIM", 8);
        let spec = define.into_iter().fold(spec, AssetSpec::define);
        jobs.extend(other(spec, params.clone(), &[96, 144, 144], [3, 32], [3, 4, 8], [4, 3, 1]));
    }
    let spec = AssetSpec::new("attn_prefill").constant("HEAD_DIM", 8);
    jobs.extend(other(spec, params, &[96, 144, 144], [3, 32], [3, 4, 8], [4, 1, 1]));
    // Two slices of four keys or more: part [3, 4, 2, 8], largest scores and sums [3, 4, 2, 2].
    let params = vec![3, 4, 8, 9, 6, 0, 1, 2, 4, 0];
    let spec = AssetSpec::new("attn_split_kv_reduce").constant("HEAD_DIM", 8);
    jobs.extend(other(spec, params, &[240], [3, 32], [3, 4, 8], [4, 3, 1]));
    assert_eq!(jobs.len(), 18);
    check_all(&jobs);
}

#[test]
fn groups_are_counted_by_segment() {
    let groups = attach_groups(4, [(Dim::new(7), 2), (Dim::new(8), 1), (Dim::new(1), 1)]);
    assert_eq!(groups.as_const(), Some(4 + 2 + 1));
    assert_eq!(attach_groups(4, []).as_const(), Some(0));
}

//! Sampled tokens follow the distribution of temperature and limits on every device.

use std::collections::BTreeMap;

use warploom::graph::{Graph, Op};
use warploom::runtime::{RunOptions, Runtime, run_graph};
use warploom_core::base::{DType, Shape, SymbolValues};
use warploom_core::sampling::SampleParams;
use warploom_core::sampling::weight::NATURAL;

use crate::devices;
use crate::tell;

/// Draws for each distribution on every device, and on those where small differences must be
/// visible.
const DRAWS: usize = 2_500;
const MANY_DRAWS: usize = 20_000;

const LOGITS: [f32; 12] =
    [0.3, -1.0, 2.0, 0.3, f32::NEG_INFINITY, 1.1, -4.0, 1.9, 0.0, -0.5, 1.1, -2.0];

/// A distribution: temperature, and how many of the best logits its limits leave.
struct Row {
    name: &'static str,
    temperature: f32,
    draw: SampleParams,
    left: usize,
}

fn rows() -> [Row; 6] {
    let plain = SampleParams {
        scale: NATURAL,
        top_k: 0,
        top_p: u32::MAX,
        min_p: 0,
        seed: 0x5eed,
        position: 0,
    };
    let row = |name, temperature, left, draw: SampleParams| {
        let draw = SampleParams { scale: NATURAL / temperature, ..draw };
        Row { name, temperature, draw, left }
    };
    // Probabilities, best first: .297 .269 .121 .121 .054 .054 .040 .024 .015 .0054 ..
    [
        row("plain", 1.0, 11, plain),
        row("hot", 2.5, 11, plain),
        row("cold", 0.4, 11, plain),
        row("top-k", 1.0, 5, SampleParams { top_k: 5, ..plain }),
        row("top-p", 1.0, 4, SampleParams { top_p: 3 << 30, ..plain }),
        row("min-p", 0.8, 7, SampleParams { min_p: 1 << 28, top_k: 9, ..plain }),
    ]
}

/// The probabilities by id.
fn probabilities(row: &Row) -> Vec<f64> {
    let mut order: Vec<usize> = (0..LOGITS.len()).collect();
    order.sort_by(|a, b| LOGITS[*b].total_cmp(&LOGITS[*a]).then(a.cmp(b)));
    let mut weights = vec![0.0; LOGITS.len()];
    for id in &order[..row.left] {
        weights[*id] = (f64::from(LOGITS[*id]) / f64::from(row.temperature)).exp();
    }
    let total: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / total).collect()
}

/// Pearson's statistic over the possible tokens, and the bound that it exceeds once in a million
/// times (Wilson and Hilferty's approximation). Infinite if an impossible token occurred.
fn chi_square(counts: &[usize], probabilities: &[f64]) -> (f64, f64) {
    let total: usize = counts.iter().sum();
    let (mut sum, mut kinds) = (0.0, 0.0);
    for (count, p) in counts.iter().zip(probabilities) {
        let want = p * total as f64;
        if want > 0.0 {
            kinds += 1.0;
            sum += (*count as f64 - want).powi(2) / want;
        } else if *count > 0 {
            sum = f64::INFINITY;
        }
    }
    let freedom: f64 = kinds - 1.0;
    let spread = 2.0 / (9.0 * freedom);
    (sum, freedom * (1.0 - spread + 4.753 * spread.sqrt()).powi(3))
}

/// How often each id is drawn, at positions 0, 1, 2, ..
fn counts(runtime: &Runtime, draw: &SampleParams, count: usize) -> Vec<usize> {
    let mut graph = Graph::new("draws");
    let (rows, cols) = (count as u64, LOGITS.len() as u64);
    let x = graph.input("x", Shape::new([1, cols]), DType::F32);
    let x = graph.add(Op::Expand(Shape::new([rows, cols])), &[x]).unwrap();
    let draws = graph.input("draws", Shape::new([rows, SampleParams::WORDS as u64]), DType::U32);
    let y = graph.add(Op::Sample, &[x, draws]).unwrap();
    graph.output("y", y).unwrap();
    let words: Vec<u32> =
        (0..count as u32).flat_map(|position| SampleParams { position, ..*draw }.words()).collect();
    let bindings = BTreeMap::from([
        ("x".to_string(), bytemuck::cast_slice(&LOGITS).to_vec()),
        ("draws".to_string(), bytemuck::cast_slice(&words).to_vec()),
    ]);
    let options = RunOptions::default();
    let symbols = SymbolValues::new();
    let run = run_graph(runtime, &graph, &symbols, &bindings, &options);
    let tokens: Vec<u32> = bytemuck::pod_collect_to_vec(&run.unwrap()["y"]);
    let mut counts = vec![0; LOGITS.len()];
    tokens.iter().for_each(|token| counts[*token as usize] += 1);
    counts
}

#[test]
fn tokens_are_drawn_by_their_probabilities_on_every_device() {
    let mut first: Option<Vec<Vec<usize>>> = None;
    for (label, runtime) in devices::every(true) {
        let mut all = Vec::new();
        for row in rows() {
            let counts = counts(&runtime, &row.draw, DRAWS);
            let (statistic, bound) = chi_square(&counts, &probabilities(&row));
            assert!(statistic <= bound, "{label}: {}: {statistic} > {bound}", row.name);
            all.push(counts);
        }
        tell(&format!("sample: {label}: {} distributions of {DRAWS} draws", all.len()));
        // Not only alike: the same.
        assert_eq!(*first.get_or_insert_with(|| all.clone()), all, "{label}");
    }
}

#[test]
fn the_statistic_distinguishes_distributions() {
    let runtime = Runtime::builder().device("cpu").build().unwrap();
    let [plain, hot, ..] = rows();
    let counts = counts(&runtime, &plain.draw, MANY_DRAWS);
    let (statistic, bound) = chi_square(&counts, &probabilities(&hot));
    assert!(statistic > bound, "{statistic} <= {bound}");
    // A temperature that is off by a twentieth shows as well.
    let near = Row { temperature: 1.05, ..plain };
    let (statistic, bound) = chi_square(&counts, &probabilities(&near));
    assert!(statistic > bound, "{statistic} <= {bound}");
}

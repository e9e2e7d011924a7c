//! The case table itself: it is complete, and the reference computes all of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use half::{bf16, f16};

use warploom::graph::{
    BinaryOp, Op, PoolKind, ReduceOp, RopePairs, UnaryOp, live, load, save, verify,
};
use warploom::{Error, Result};
use warploom_core::base::{DType, Format};
use warploom_core::reference::{self, Tensor};
use warploom_testkit::{Case, NamedBytes, Outcome, cases, run_case};

/// Kinds of operation. A new `Op` must be added to [`kind`], or this does not compile.
const KINDS: usize = 37;

fn kind(op: &Op) -> usize {
    match op {
        Op::Input { .. } => 0,
        Op::Weight { .. } => 1,
        Op::State { .. } => 2,
        Op::Constant { .. } => 3,
        Op::Unary(_) => 4,
        Op::Binary(_) => 5,
        Op::Select => 6,
        Op::Cast(_) => 7,
        Op::Reduce { .. } => 8,
        Op::ArgMax => 9,
        Op::Softmax => 10,
        Op::MatMul => 11,
        Op::Linear { .. } => 12,
        Op::Conv2d(_) => 13,
        Op::Pool2d(_) => 14,
        Op::RmsNorm { .. } => 15,
        Op::LayerNorm { .. } => 16,
        Op::Rope { .. } => 17,
        Op::Attention { .. } => 18,
        Op::Gather { .. } => 19,
        Op::Update { .. } => 20,
        Op::Concat { .. } => 21,
        Op::Pad { .. } => 22,
        Op::Reshape(_) => 23,
        Op::Transpose(_) => 24,
        Op::Slice { .. } => 25,
        Op::Expand(_) => 26,
        Op::Merged { .. } => 27,
        Op::Scatter => 28,
        Op::Sample => 29,
        Op::Greedy => 30,
        Op::IndexAdd => 31,
        Op::TopK { .. } => 32,
        Op::TakeAlong => 33,
        Op::ExpertLinear { .. } => 34,
        Op::DeltaRule => 35,
        Op::ArgSort { .. } => 36,
        // A user's kernel is defined by its WGSL: `packs.rs` tests those.
        Op::Custom(_) => KINDS,
    }
}

/// Every operation of every case.
fn operations(table: &[Case]) -> impl Iterator<Item = (&Case, &Op)> {
    table.iter().flat_map(|case| case.graph.nodes().iter().map(move |node| (case, &node.op)))
}

/// The entries of one list that are not in the other.
fn missing<T: PartialEq + std::fmt::Debug + Copy>(want: &[T], found: &[T]) -> Vec<T> {
    want.iter().filter(|item| !found.contains(item)).copied().collect()
}

#[test]
fn names_are_unique_and_graphs_are_valid() {
    let table = cases();
    assert!(table.len() >= 250, "{} cases", table.len());
    let names: BTreeSet<&str> = table.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names.len(), table.len(), "a name stands twice");
    for case in &table {
        assert!(case.name.contains('/'), "{}: family/what", case.name);
        verify(&case.graph).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        let before = case.graph.nodes().len();
        assert_eq!(live(&case.graph).nodes().len(), before, "{}: dead nodes", case.name);
        let file = save(&case.graph).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        assert_eq!(load(&file).unwrap(), case.graph, "{}", case.name);
    }
}

#[test]
fn every_operation_has_a_case() {
    let table = cases();
    let kinds: BTreeSet<usize> = operations(&table).map(|(_, op)| kind(op)).collect();
    assert_eq!(kinds, (0..KINDS).collect(), "operations without a case");
    let (mut unary, mut binary, mut reduce) = (vec![], vec![], vec![]);
    let (mut pools, mut pairs, mut casts) = (vec![], vec![], vec![]);
    for (_, op) in operations(&table) {
        match op {
            Op::Unary(op) => unary.push(*op),
            Op::Binary(op) => binary.push(*op),
            Op::Reduce { op, .. } => reduce.push(*op),
            Op::Pool2d(pool) => pools.push(pool.kind),
            Op::Rope { pairs: order, .. } => pairs.push(*order),
            Op::Cast(to) => casts.push(*to),
            _ => {}
        }
    }
    assert_eq!(missing(&UnaryOp::ALL, &unary), []);
    assert_eq!(missing(&BinaryOp::ALL, &binary), []);
    assert_eq!(missing(&ReduceOp::ALL, &reduce), []);
    assert_eq!(missing(&[PoolKind::Max, PoolKind::Mean], &pools), []);
    assert_eq!(missing(&[RopePairs::Interleaved, RopePairs::Half], &pairs), []);
    let types = [DType::F32, DType::F16, DType::BF16, DType::I32, DType::U32, DType::Bool];
    assert_eq!(missing(&types, &casts), []);
}

#[test]
fn every_format_is_multiplied_and_gathered() {
    let table = cases();
    let (mut multiplied, mut gathered) = (vec![], vec![]);
    for case in &table {
        for node in case.graph.nodes() {
            let operand = match node.op {
                Op::Linear { .. } => 1,
                Op::Gather { .. } => 0,
                _ => continue,
            };
            if let Op::Weight { format, .. } = case.graph.node(node.inputs[operand]).op {
                if operand == 1 { multiplied.push(format) } else { gathered.push(format) }
            }
        }
    }
    assert_eq!(missing(&Format::ALL, &multiplied), []);
    assert_eq!(missing(&Format::ALL, &gathered), []);
}

/// Outputs and states of the reference, as the bytes of a device.
fn reference_answer(case: &Case, tensors: &BTreeMap<String, Tensor>) -> Result<NamedBytes> {
    let run = reference::eval(&case.graph, &case.symbols, tensors)?;
    let outputs = case.graph.outputs().iter().map(|(name, id)| (name, run.value(*id)));
    Ok(outputs.chain(&run.states).map(|(name, value)| (name.clone(), value.to_bytes())).collect())
}

#[test]
fn the_reference_passes_every_case_in_time() {
    let table = cases();
    let start = Instant::now();
    for case in &table {
        let tensors = case.tensors();
        let outcome = run_case(case, &|_, _, bytes| {
            assert_eq!(bytes.len(), tensors.len());
            reference_answer(case, &tensors)
        });
        assert!(matches!(outcome, Outcome::Pass(_)), "{}: {outcome:?}", case.name);
        for (name, id) in case.graph.outputs() {
            let value = reference::eval(&case.graph, &case.symbols, &tensors).unwrap();
            let value = value.value(*id).floats();
            assert!(value.iter().all(|v| !v.is_nan()), "{}: {name} has a NaN", case.name);
        }
    }
    let took = start.elapsed();
    crate::tell(&format!("{} cases, the reference took {took:?}", table.len()));
    assert!(took < Duration::from_secs(60), "the table is too slow: {took:?}");
}

/// Outputs that no kernel wrote: zeros, and the poison of outputs.
#[test]
fn an_answer_that_was_never_written_fails() {
    for case in &cases() {
        let right = reference_answer(case, &case.tensors()).unwrap();
        let empty = right.values().all(Vec::is_empty);
        // Zeros are right if all expected values are zero; the sign of a zero does not count.
        let tensors = case.tensors();
        let run = reference::eval(&case.graph, &case.symbols, &tensors).unwrap();
        let outputs = case.graph.outputs().iter().map(|(_, id)| run.value(*id));
        let mut numbers = outputs.chain(run.states.values()).flat_map(Tensor::floats);
        let zeros = numbers.all(|number| number == 0.0);
        for (fill, passes) in [(0x00, zeros), (0xff, empty)] {
            let outcome = run_case(case, &|_, _, _| {
                Ok(right.iter().map(|(n, b)| (n.clone(), vec![fill; b.len()])).collect())
            });
            let passed = matches!(outcome, Outcome::Pass(_));
            assert_eq!(passed, passes, "{}: filled with {fill:#x}: {outcome:?}", case.name);
        }
    }
}

/// One wrong number in the middle of one output, off by a hundredth of its largest; by a tenth for
/// numbers with few digits.
#[test]
fn every_case_notices_one_wrong_number() {
    for case in &cases() {
        let tensors = case.tensors();
        let run = reference::eval(&case.graph, &case.symbols, &tensors).unwrap();
        let right = reference_answer(case, &tensors).unwrap();
        for (name, bytes) in &right {
            let output = case.graph.outputs().iter().find(|(output, _)| output == name);
            let value = output.map_or_else(|| &run.states[name], |(_, id)| run.value(*id));
            let count = value.data.len();
            if count == 0 {
                continue;
            }
            let middle = count / 2;
            let finite = value.floats().into_iter().filter(|v| v.is_finite());
            let largest = match finite.fold(0.0f64, |max, v| max.max(v.abs())) {
                0.0 => 1.0,
                largest => largest,
            };
            let size = value.dtype().bytes() as usize;
            let place = middle * size..(middle + 1) * size;
            // An infinite number becomes a finite one.
            let number = value.floats()[middle];
            let number = if number.is_finite() { number } else { 0.0 };
            let wrong = match value.dtype() {
                DType::F32 => ((number + largest / 100.0) as f32).to_le_bytes().to_vec(),
                DType::F16 => f16::from_f64(number + largest / 10.0).to_le_bytes().to_vec(),
                DType::BF16 => bf16::from_f64(number + largest / 10.0).to_le_bytes().to_vec(),
                _ => {
                    let mut word = bytes[place.clone()].to_vec();
                    word[0] ^= 1;
                    word
                }
            };
            let mut answer = right.clone();
            answer.get_mut(name).unwrap()[place].copy_from_slice(&wrong);
            let outcome = run_case(case, &|_, _, _| Ok(answer.clone()));
            let text = format!("{}: {name:?} with a wrong number {middle}", case.name);
            assert!(matches!(outcome, Outcome::Fail(_)), "{text}: {outcome:?}");
        }
    }
}

#[test]
fn a_case_that_cannot_run_is_not_a_pass() {
    let table = cases();
    let case = &table[0];
    let outcome = run_case(case, &|_, _, _| Err(Error::unsupported("nothing runs here")));
    assert!(matches!(outcome, Outcome::Unsupported(_)));
    let outcome = run_case(case, &|_, _, _| Ok(BTreeMap::new()));
    assert!(matches!(outcome, Outcome::Fail(_)));
}

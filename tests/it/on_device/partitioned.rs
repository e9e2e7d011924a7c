//! Graphs split over several devices give the results of one device.

use warploom::graph::{Graph, NodeId, Op, OpClass};
use warploom::plan::{Options, PartitionedPlan, Plan, Selector};
use warploom::runtime::{Runtime, run_partitioned};
use warploom_core::base::ShapeClass;
use warploom_testkit::{Outcome, RandomLimits, random_case, random_class, run_case};

use crate::{devices, tell};

/// Random graphs to split.
const GRAPHS: u64 = 100;

/// Slots for the split, on any machine.
const SLOTS: usize = 3;

/// A runtime for each slot: of a GPU through wgpu if there is one, and of the CPU, each with
/// separate memory.
fn runtimes() -> Vec<Runtime> {
    let every = devices::every(false).into_iter().map(|(_, runtime)| runtime);
    let gpu = every.filter(|runtime| runtime.device().profile().provider == "webgpu").take(1);
    let cpu = || Runtime::builder().device("cpu").build().unwrap();
    gpu.chain(std::iter::repeat_with(cpu)).take(SLOTS).collect()
}

/// A slot for every node that does not touch a state, from a pseudo-random number.
pub(crate) fn placement(graph: &Graph, seed: u64, slots: usize) -> Vec<(Selector, usize)> {
    let mut in_state = vec![false; graph.nodes().len()];
    let mut placement = Vec::new();
    for (id, node) in graph.ids().zip(graph.nodes()) {
        let touches = node.inputs.iter().any(|input| in_state[input.index()]);
        let stays = node.op.overwrites() || node.op.class() == OpClass::Alias;
        in_state[id.index()] = matches!(node.op, Op::State { .. }) || (stays && touches);
        if !touches && node.op.class() != OpClass::Leaf {
            placement.push((Selector::Node(id), slot(seed, id, slots)));
        }
    }
    placement
}

fn slot(seed: u64, id: NodeId, slots: usize) -> usize {
    let mixed = (seed ^ (u64::from(id.0) << 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 40) as usize % slots
}

#[test]
fn random_graphs_in_pieces_are_right() {
    let runtimes = runtimes();
    let profiles: Vec<_> = runtimes.iter().map(|r| r.device().profile().clone()).collect();
    let options: Options = runtimes[0].plan_options();
    let (mut segments, mut transfers, mut most) = (0, 0, 0);
    for seed in 0..GRAPHS {
        let case = random_case(seed, 0, &RandomLimits::default());
        let symbolic = case.symbols.iter().next().is_some();
        let class = if symbolic { random_class() } else { ShapeClass::exact(&case.symbols) };
        let simple = Plan::graph_after(&case.graph, &class, &profiles[0], &options, "simplify");
        let place = placement(&simple.unwrap(), seed, runtimes.len());
        let plan = PartitionedPlan::new(&case.graph, &class, &profiles, &place, &options).unwrap();
        let outcome = run_case(&case, &|graph, symbols, bindings| {
            run_partitioned(&runtimes, graph, symbols, bindings, &place, Some(&class))
        });
        assert!(
            matches!(outcome, Outcome::Pass(_)),
            "seed {seed}: {outcome:?}\n{}",
            plan.explain()
        );
        segments += plan.segments.len();
        transfers += plan.actions.len() - plan.segments.len();
        most = most.max(plan.segments.len());
    }
    tell(&format!(
        "partitioned: {GRAPHS} random graphs over {} in {segments} segments, at most {most}, \
         with {transfers} transfers",
        profiles.iter().map(|profile| profile.id()).collect::<Vec<_>>().join(", ")
    ));
    assert!(segments > 3 * GRAPHS as usize && transfers > segments / 2);
}

//! Memory of intermediates: at most 15 % more than the largest sum of those alive at one step.
//!
//! That sum may be unreachable, since no step writes to a buffer that it reads: a large result at
//! the end of a graph has its own buffer, which only some of the earlier tensors can use. If a
//! random graph takes more, all placements are tried if they are few enough, and none is better.

use warploom::engine::Registry;
use warploom::graph::Graph;
use warploom::kernel::Access as Use;
use warploom::plan::{Options, Plan};
use warploom::provider::{DeviceProfile, NullProvider};
use warploom_core::base::{Format, ShapeClass};
use warploom_cpu as cpu;
use warploom_llm::{DecoderOutput, Model, classes};
use warploom_models::gguf::Access;
use warploom_testkit::{self, MemoryUse, RandomLimits, random_case};

use crate::tell;

/// Maximum size of an arena relative to the lower bound.
const LIMIT: f64 = 1.15;
/// Arenas up to this size may also waste the gaps between tensors of a few hundred bytes.
const SMALL: u64 = 4 << 10;

/// A plan's arena relative to the lower bound, after all checks of its memory.
fn share(plan: &Plan) -> (MemoryUse, f64) {
    let memory =
        warploom_testkit::memory_use(plan).unwrap_or_else(|e| panic!("{e}\n{}", plan.explain()));
    (memory, memory.arena as f64 / memory.live.max(1) as f64)
}

fn profiles() -> [DeviceProfile; 2] {
    [NullProvider::profile(), cpu::Provider::profile()]
}

fn plan(graph: &Graph, class: &ShapeClass, profile: &DeviceProfile) -> Plan {
    let registry = Registry::builtin();
    Plan::new(graph, class, profile, &Options::new(&registry)).unwrap()
}

#[test]
fn decoders_take_what_is_alive() {
    let shaped = warploom_llm::shapes::smollm2_135m()
        .graph(Format::Q8_0, 2048, DecoderOutput::Greedy)
        .unwrap();
    let tiny = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/warploom-tiny-llama-Q4_K_M.gguf");
    let tiny = Model::open(tiny, Access::Mmap).unwrap().graph(512, DecoderOutput::Logits).unwrap();
    for (name, graph, context) in [("SmolLM2-135M", shaped, 2048), ("tiny llama", tiny, 512)] {
        for profile in profiles() {
            for class in classes(context) {
                let (memory, share) = share(&plan(&graph, &class, &profile));
                tell(&format!(
                    "arena: {name} {class} on {}: {} of at least {} bytes, {share:.3}",
                    profile.provider, memory.arena, memory.live
                ));
                assert!(share <= LIMIT, "{name} {class}: {memory:?}");
            }
        }
    }
}

#[test]
fn cases_take_what_is_alive() {
    let mut seen = 0;
    for case in warploom_testkit::cases() {
        let registry = Registry::builtin();
        let class = ShapeClass::exact(&case.symbols);
        for profile in profiles() {
            // The conformance test reports cases without a device.
            let options = Options::new(&registry);
            let Ok(plan) = Plan::new(&case.graph, &class, &profile, &options) else { continue };
            let (memory, share) = share(&plan);
            seen += usize::from(memory.live >= 64 << 10);
            let fits = share <= LIMIT || memory.arena <= SMALL;
            assert!(fits, "{}: {memory:?}", case.name);
        }
    }
    assert!(seen >= 10, "only {seen} plans of 64 KiB and more");
}

#[test]
fn random_graphs_take_the_least_that_is_possible() {
    let (mut above, mut large) = (0, Vec::new());
    for seed in 0..300 {
        let case = random_case(seed, 0, &RandomLimits::default());
        let plan = plan(&case.graph, &ShapeClass::exact(&case.symbols), &NullProvider::profile());
        let (memory, share) = share(&plan);
        if share <= LIMIT {
            continue;
        }
        above += 1;
        match Tensors::of(&plan).least() {
            Some(least) => assert_eq!(memory.arena, least, "seed {seed}\n{}", plan.explain()),
            None => large.push((seed, share)),
        }
    }
    tell(&format!(
        "arena: {above} of 300 random graphs are above {LIMIT}, all but {} of them at the least",
        large.len()
    ));
    let worst = large.iter().fold(0.0f64, |worst, (_, share)| worst.max(*share));
    assert!(above < 30 && worst < 1.5, "{above}: {large:?}");
}

/// The intermediates of a plan, the largest first: bytes, lifetime and conflicts.
struct Tensors {
    bytes: Vec<u64>,
    lives: Vec<(usize, usize)>,
    apart: Vec<Vec<bool>>,
}

impl Tensors {
    fn of(plan: &Plan) -> Tensors {
        let (mut all, _) = warploom_testkit::intermediates(plan).unwrap();
        all.sort_by_key(|t| std::cmp::Reverse(t.end - t.start));
        let place = |tensor: usize| all.iter().position(|t| t.tensor == tensor);
        let mut apart = vec![vec![false; all.len()]; all.len()];
        for step in &plan.steps {
            for write in step.bindings.iter().filter(|b| b.access == Use::ReadWrite) {
                for other in step.bindings.iter().filter(|b| b.tensor != write.tensor) {
                    let pair = (place(write.tensor.index()), place(other.tensor.index()));
                    if let (Some(a), Some(b)) = pair {
                        (apart[a][b], apart[b][a]) = (true, true);
                    }
                }
            }
        }
        let bytes = all.iter().map(|t| (t.end - t.start).next_multiple_of(256)).collect();
        Tensors { bytes, lives: all.iter().map(|t| t.life).collect(), apart }
    }

    /// Memory of the best placement if lifetimes packed without loss; `None` if there are too many
    /// to try.
    fn least(&self) -> Option<u64> {
        if self.bytes.len() > 12 {
            return None;
        }
        let steps = self.lives.iter().map(|life| life.1 + 1).max().unwrap_or(0);
        let mut best = u64::MAX;
        self.next(&mut Vec::new(), &mut Vec::new(), steps, &mut best);
        Some(best)
    }

    fn next(&self, of: &mut Vec<usize>, live: &mut Vec<Vec<u64>>, steps: usize, best: &mut u64) {
        let peak = |buffer: &Vec<u64>| buffer.iter().max().copied().unwrap_or(0);
        let total = live.iter().map(peak).sum::<u64>();
        let i = of.len();
        if total >= *best {
            return;
        }
        if i == self.bytes.len() {
            *best = total;
            return;
        }
        for buffer in 0..=live.len() {
            if of.iter().enumerate().any(|(j, other)| *other == buffer && self.apart[i][j]) {
                continue;
            }
            let new = buffer == live.len();
            if new {
                live.push(vec![0; steps]);
            }
            let (first, last) = self.lives[i];
            live[buffer][first..=last].iter_mut().for_each(|sum| *sum += self.bytes[i]);
            of.push(buffer);
            self.next(of, live, steps, best);
            of.pop();
            live[buffer][first..=last].iter_mut().for_each(|sum| *sum -= self.bytes[i]);
            if new {
                live.pop();
            }
        }
    }
}

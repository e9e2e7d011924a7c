//! Generates random graphs from a seed: realistic inputs for the planner, with error-prone shapes.
//!
//! A graph consists of motifs, each a few operations on existing nodes: elementwise chains, norms
//! and softmax as one operation or as primitives, products with prologues and epilogues, gated
//! pairs, residuals, views, reductions, conversions, gathers, convolutions and states. [`range`]
//! tracks the values of every node, which yields a tolerance that correct results meet and wrong
//! ones rarely do. Some graphs have symbols; all runs of a seed share one graph.

mod compute;
mod elementwise;
mod motif;
mod movement;
mod range;
mod shrink;

use range::Range;
pub use shrink::shrink;

use super::build::{Build, Case, halves};
use super::compare::Tolerance;
use super::inputs::Random;
use warploom_core::base::{DType, Dim, Format, Shape, ShapeClass, Symbol};
use warploom_core::ir::{NodeId, Op, OpClass};
use warploom_core::reference::Data;

/// Maximum number of elements of a tensor.
const MOST_ELEMENTS: u64 = 6000;
/// The symbol of sequence lengths, with its lowest and highest value.
const SEQ: (Symbol, u64, u64) = (Symbol::new("seq"), 1, 8);
/// The symbol of positions in states, with its lowest and highest value.
const PAST: (Symbol, u64, u64) = (Symbol::new("past"), 0, 5);

/// Size limits of a random graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandomLimits {
    /// Maximum target size, in nodes. A graph grows until it reaches a random target from 3 to this
    /// number; its last motif may exceed the target.
    pub nodes: u32,
    /// Maximum size of an axis; at least 1.
    pub size: u64,
}

impl Default for RandomLimits {
    fn default() -> RandomLimits {
        RandomLimits { nodes: 30, size: 96 }
    }
}

/// Returns the graph of a seed with the inputs of one run, ready for [`run_case`](super::run_case).
///
/// Runs differ in symbol values and bindings, and share the graph.
pub fn random_case(seed: u64, run: u32, limits: &RandomLimits) -> Case {
    made(seed, run, limits).finish()
}

fn made(seed: u64, run: u32, limits: &RandomLimits) -> Maker {
    let mut maker = Maker::new(seed, run, limits);
    let nodes = 3 + maker.below(maker.limits.nodes.max(3) - 2) as usize;
    maker.begin();
    let mut tries = 0;
    while maker.b.graph().nodes().len() < nodes && tries < 200 {
        motif::one(&mut maker);
        tries += 1;
    }
    maker
}

/// Returns the shape class of random graphs: one plan for it is valid for all runs of a seed.
pub fn random_class() -> ShapeClass {
    [SEQ, PAST].iter().fold(ShapeClass::new(), |class, (s, low, high)| class.with(*s, *low, *high))
}

/// A node, with the range of its values.
#[derive(Clone, Copy, Debug)]
struct Known {
    id: NodeId,
    range: Range,
}

/// A graph under construction.
struct Maker {
    b: Build,
    random: Random,
    limits: RandomLimits,
    known: Vec<Known>,
    /// The sizes shared by most tensors of this graph, innermost last.
    dims: Vec<Dim>,
    /// The largest error of any value written to a state.
    state_error: f64,
    updates: bool,
    symbolic: bool,
    names: u32,
}

impl Maker {
    fn new(seed: u64, run: u32, limits: &RandomLimits) -> Maker {
        let text = seed.to_string();
        let name = match run {
            0 => format!("random/{seed}"),
            _ => format!("random/{seed}/run{run}"),
        };
        let mut b = Build::new(name).note("a random graph; its seed is in its name");
        let mut random = Random::new(&["random graph", &text]);
        // The first numbers of generators with similar seeds are similar.
        for _ in 0..8 {
            random.bits();
        }
        let symbolic = random.below(10) < 4;
        if symbolic {
            let first = random.bits();
            for (i, (symbol, low, high)) in [SEQ, PAST].into_iter().enumerate() {
                let value = u64::from(first >> (8 * i)) + u64::from(run) * 3;
                b.symbol(symbol.as_str(), low + value % (high - low + 1));
            }
        }
        let mut maker = Maker {
            b,
            random,
            limits: *limits,
            known: Vec::new(),
            dims: Vec::new(),
            state_error: 0.0,
            updates: false,
            symbolic,
            names: 0,
        };
        maker.dims = maker.new_dims();
        maker
    }

    fn below(&mut self, end: u32) -> u32 {
        self.random.below(end)
    }

    /// Returns true with a probability of `share` percent.
    fn chance(&mut self, share: u32) -> bool {
        self.random.below(100) < share
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.random.below(all.len() as u32) as usize]
    }

    /// Returns a random size: odd, even, one, or next to a power of two; sometimes a multiple of
    /// the block length of packed weights.
    fn size(&mut self) -> u64 {
        let sizes = [1, 1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 32, 32, 33, 48, 63, 64, 64, 65, 96];
        let most = self.limits.size;
        let size = self.one_of(&sizes);
        if size <= most { size } else { 1 + size % most }
    }

    fn small_size(&mut self) -> u64 {
        let size = self.one_of(&[1, 2, 2, 3, 3, 4, 5, 7]);
        size.min(self.limits.size)
    }

    fn new_dims(&mut self) -> Vec<Dim> {
        let rank = self.one_of(&[1, 2, 2, 2, 3, 3, 3, 4]);
        let mut dims: Vec<Dim> = (1..rank).map(|_| Dim::from(self.small_size())).collect();
        dims.push(Dim::from(self.size()));
        if self.symbolic && rank > 1 {
            dims[0] = Dim::symbol(SEQ.0);
        } else if self.chance(2) && rank > 1 {
            dims[0] = Dim::new(0);
        }
        dims
    }

    /// Returns the lowest and the highest value of a size over all runs.
    fn bounds(&self, dim: &Dim) -> (u64, u64) {
        let (low, high) = random_class().bounds(dim).unwrap_or((0, i64::MAX));
        (low.max(0) as u64, high.max(0) as u64)
    }

    fn upper(&self, dim: &Dim) -> u64 {
        self.bounds(dim).1
    }

    fn fits(&self, dims: &[Dim]) -> bool {
        let mut product = 1u64;
        for dim in dims {
            product = product.saturating_mul(self.upper(dim).max(1));
        }
        product <= MOST_ELEMENTS && dims.len() <= 5
    }

    fn dims(&self, x: Known) -> Vec<Dim> {
        self.b.graph().node(x.id).shape.dims().to_vec()
    }

    fn dtype(&self, x: Known) -> DType {
        self.b.graph().node(x.id).dtype
    }

    fn last(&self, x: Known) -> Option<Dim> {
        self.dims(x).last().cloned()
    }

    /// Returns the innermost size, if it is a constant and not 0.
    fn last_number(&self, x: Known) -> Option<u64> {
        self.last(x)?.as_const().filter(|n| *n > 0).map(|n| n as u64)
    }

    fn name(&mut self, of: &str) -> String {
        self.names += 1;
        format!("{of}{}", self.names - 1)
    }

    fn keep(&mut self, id: NodeId, range: Range) -> Known {
        let known = Known { id, range };
        self.known.push(known);
        known
    }

    fn add(&mut self, op: Op, inputs: &[Known], range: Range) -> Known {
        let ids: Vec<NodeId> = inputs.iter().map(|x| x.id).collect();
        use Op::{Concat, Gather, Pad, Select, Update};
        let moves = op.class() == OpClass::Alias
            || matches!(op, Select | Gather { .. } | Update { .. } | Concat { .. } | Pad { .. });
        let id = self.b.op(op, &ids);
        let dtype = self.b.graph().node(id).dtype;
        let rounds = dtype.is_half() && !moves;
        self.keep(id, if rounds { range.halved(dtype) } else { range })
    }

    /// Picks an existing node, mostly the newest, so that operations form chains.
    fn pick(&mut self, fits: impl Fn(&Maker, Known) -> bool) -> Option<Known> {
        let all: Vec<Known> = self.known.iter().copied().filter(|x| fits(self, *x)).collect();
        let newest = *all.last()?;
        if self.chance(60) {
            return Some(newest);
        }
        Some(self.one_of(&all))
    }

    fn float(&mut self) -> Known {
        let found = self.pick(|maker, x| maker.dtype(x) == DType::F32);
        match found {
            Some(x) => x,
            None => self.new_float(None),
        }
    }

    /// Adds an input; without `dims`, mostly with the sizes that tensors of this graph share.
    fn new_float(&mut self, dims: Option<Vec<Dim>>) -> Known {
        let dims = dims.unwrap_or_else(|| match self.chance(75) {
            true => self.dims.clone(),
            false => self.new_dims(),
        });
        let name = self.name("x");
        let shape: Shape = dims.into_iter().collect();
        let count = self.b.count(&shape);
        let mut random = self.b.random(&name);
        let (values, range) = match self.random.below(4) {
            0 | 1 => {
                let values = (0..count).map(|_| (random.below(33) as f32 - 16.0) / 8.0).collect();
                (values, Range::exact(-2.0, 2.0, 3))
            }
            2 => (random.shaped(count), Range::given(-5.0, 5.0)),
            _ => (random.evenly(count, 0.25, 2.0), Range::given(0.25, 2.0)),
        };
        let id = self.b.input(&name, shape, Data::F32(values));
        self.keep(id, range)
    }

    /// Adds an input of a 2-byte type: multiples of a quarter from -2 to 2.
    fn new_half(&mut self, dtype: DType, dims: &[Dim]) -> Known {
        let name = self.name("h");
        let shape: Shape = dims.iter().cloned().collect();
        let count = self.b.count(&shape);
        let mut random = self.b.random(&name);
        let values: Vec<f32> = (0..count).map(|_| random.below(17) as f32 / 4.0 - 2.0).collect();
        let id = self.b.input(&name, shape, halves(dtype, &values));
        self.keep(id, Range::exact(-2.0, 2.0, 2))
    }

    /// Adds an input of integers from `low` to `high`, or of bools.
    fn new_integers(&mut self, dtype: DType, dims: &[Dim], low: i32, high: i32) -> Known {
        let name = self.name(if dtype == DType::Bool { "c" } else { "i" });
        let shape: Shape = dims.iter().cloned().collect();
        let count = self.b.count(&shape);
        let mut random = self.b.random(&name);
        let values = (0..count).map(|_| low + random.below((high - low + 1) as u32) as i32);
        let (data, range) = match dtype {
            DType::Bool => (Data::Bool(values.map(|v| v > 0).collect()), range::whole(dtype)),
            DType::U32 => {
                let range = Range::exact(0.0, f64::from(high.max(0)), 0);
                (Data::U32(values.map(|v| v.max(0).cast_unsigned()).collect()), range)
            }
            _ => {
                let range = Range::exact(f64::from(low), f64::from(high), 0);
                (Data::I32(values.collect()), range)
            }
        };
        let id = self.b.input(&name, shape, data);
        self.keep(id, range)
    }

    /// Adds a weight with values from `-scale` to `scale` or, for `F32`, sometimes from -1 to 1.
    fn weight(&mut self, dims: &[u64], format: Format, scale: f32) -> Known {
        let name = self.name("w");
        let count = dims.iter().product::<u64>() as usize;
        let mut random = self.b.random(&name);
        let on_grid = format == Format::F32 && self.chance(40);
        let (values, range) = match on_grid {
            true => {
                let values = (0..count).map(|_| (random.below(5) as f32 - 2.0) / 2.0).collect();
                (values, Range::exact(-1.0, 1.0, 1))
            }
            false => {
                let most = f64::from(scale) * 1.05;
                (random.evenly(count, -scale, scale), Range::given(-most, most))
            }
        };
        let id = self.b.weight_of(&name, dims, format, values);
        // A weight is read only by its own operation.
        Known { id, range }
    }

    fn constant(&mut self, value: f32) -> Known {
        let id = self.b.constant(&[], &[value]);
        let value = f64::from(value);
        let grid = (0..=8).find(|g| (value * f64::from(1 << g)).fract() == 0.0);
        Known { id, range: Range { low: value, high: value, error: 0.0, grid } }
    }

    fn begin(&mut self) {
        self.new_float(None);
        if self.chance(30) {
            self.new_float(None);
        }
    }

    /// Makes all unread nodes outputs, and some others. A leaf becomes an output only if the graph
    /// has no other result.
    fn finish(mut self) -> Case {
        let users = self.b.graph().users();
        let mut error = self.state_error;
        let mut wanted = Vec::new();
        for known in self.known.clone() {
            let node = self.b.graph().node(known.id);
            let computed =
                node.op.class() != OpClass::Leaf && !matches!(node.op, Op::Update { .. });
            if computed && (users[known.id.index()].is_empty() || self.chance(8)) {
                wanted.push(known);
            }
        }
        if wanted.is_empty() && !self.updates {
            wanted.extend(self.known.last().copied());
        }
        for (i, known) in wanted.iter().enumerate() {
            self.b.output(&format!("y{i}"), known.id);
            error = error.max(known.range.error);
        }
        let tolerance = match error {
            0.0 => Tolerance::EXACT,
            error => Tolerance { nmse: f64::INFINITY, ..Tolerance::absolute(error) },
        };
        self.b.within(tolerance).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Outcome, run_case};
    use warploom_core::ir::verify;

    #[test]
    fn graphs_are_valid_and_the_same_for_each_seed_and_run() {
        let limits = RandomLimits::default();
        let mut kinds = std::collections::BTreeSet::new();
        let (mut nodes, mut symbolic, mut exact) = (0, 0, 0);
        for seed in 0..2000 {
            let case = random_case(seed, 0, &limits);
            verify(&case.graph).unwrap_or_else(|e| panic!("{seed}: {e}\n{}", case.graph));
            assert_eq!(case.graph, random_case(seed, 0, &limits).graph);
            let other = random_case(seed, 1, &limits);
            assert_eq!(case.graph.nodes(), other.graph.nodes(), "{seed}");
            assert!(random_class().contains(&case.symbols) || case.symbols.iter().count() == 0);
            kinds.extend(case.graph.nodes().iter().map(|node| node.op.name()));
            nodes += case.graph.nodes().len();
            symbolic += usize::from(case.symbols != other.symbols);
            exact += usize::from(case.tolerance == Tolerance::EXACT);
        }
        assert!(kinds.len() > 50, "{kinds:?}");
        assert!((20_000..60_000).contains(&nodes), "{nodes} nodes");
        assert!(symbolic > 400 && exact > 50, "{symbolic} have symbols, {exact} are exact");
    }

    /// Checks that the values of every node are within the predicted range and on the predicted
    /// grid.
    #[test]
    fn numbers_are_tame() {
        for seed in 0..300 {
            let maker = made(seed, seed as u32 % 2, &RandomLimits::default());
            let known = maker.known.clone();
            let case = maker.finish();
            let tensors = case.tensors();
            let run = warploom_core::reference::eval(&case.graph, &case.symbols, &tensors)
                .unwrap_or_else(|e| panic!("{seed}: {e}\n{}", case.graph));
            for Known { id, range } in known {
                let scale = range.grid.map_or(0.0, |grid| 2f64.powi(grid));
                for value in run.value(id).floats() {
                    let inside = value >= range.low && value <= range.high;
                    let on_grid = (value * scale).fract() == 0.0;
                    assert!(inside && on_grid, "{seed} {id}: {value} in {range:?}\n{}", case.graph);
                }
            }
            let outcome = run_case(&case, &|graph, symbols, _| {
                let run = warploom_core::reference::eval(graph, symbols, &tensors)?;
                let outputs = graph.outputs().iter().map(|(n, id)| (n, run.value(*id)));
                let all = outputs.chain(&run.states);
                Ok(all.map(|(name, value)| (name.clone(), value.to_bytes())).collect())
            });
            assert!(matches!(outcome, Outcome::Pass(_)), "{outcome:?}");
        }
    }
}
